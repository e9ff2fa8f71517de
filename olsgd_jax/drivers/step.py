"""overlap_jit: maps a train step over the workers and compiles it."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from olsgd_jax._tree_checks import check_leading_axes
from olsgd_jax.drivers.platforms import compiler_options
from olsgd_jax.drivers.step_checks import check_step
from olsgd_jax.types import ArrayTree
from olsgd_jax.workers.axis import WORKERS, on_workers
from olsgd_jax.workers.sharding import place, state_shardings


def overlap_jit(
    train_step: Callable | None = None,
    mesh: Mesh | None = None,
    *,
    axis_name: str = WORKERS,
    donate_argnums: int | tuple[int, ...] = 0,
) -> Callable:
    """Compiles one worker's train step for all workers, so that it overlaps.

    It maps the step over the workers, compiles it with the options that the mesh's
    devices need (see `compiler_options`), and donates the state. It raises an error if
    the step would hang, average gradients twice, or let workers skip steps on their
    own.

    Args:
      train_step: one worker's step, as in `(state, batch) -> (state, loss)`. Its
        optimizer is made by `distribute` with the same `axis_name`. Leave it out to get
        a decorator: `@overlap_jit(mesh=mesh)`.
      mesh: the workers' mesh, made by `worker_mesh`, or your own mesh with an axis
        `axis_name`. The devices along its other axes belong to one worker. None for
        workers that are vmap lanes of one device.
      axis_name: name of the worker axis of the mesh.
      donate_argnums: the arguments that hold state. Their memory is reused, so use the
        state that the step returns. All other arguments hold data, which is split among
        the devices of a worker.

    Returns:
      A function of the same arguments, with a leading worker axis on every array. It
      has a method `lower`, like the result of `jax.jit`, for `overlap_report`. A call
      returns before the step has ended. On several devices of one CPU, call
      `jax.block_until_ready` now and then: 32 pending steps can deadlock.

    >>> import jax, jax.numpy as jnp, optax
    >>> from olsgd_jax import distribute, overlap_jit, overlap_local_sgd, to_workers
    >>> tx = distribute(optax.sgd(0.5), overlap_local_sgd(pullback=0.5), sync_period=1)
    >>> def train_step(state, target):
    ...     params, opt_state = state
    ...     updates, opt_state = tx.update(params - target, opt_state, params)
    ...     return optax.apply_updates(params, updates), opt_state
    >>> state = to_workers((jnp.zeros(()), tx.init(jnp.zeros(()))), num_workers=2)
    >>> step = overlap_jit(train_step)
    >>> for _ in range(2):
    ...     state = step(state, jnp.array([4.0, 8.0]))
    >>> state[0].tolist()
    [2.0, 3.25]
    """
    if train_step is None:
        return partial(
            overlap_jit, mesh=mesh, axis_name=axis_name, donate_argnums=donate_argnums
        )
    options = compiler_options(mesh, axis_name)
    mapped = on_workers(train_step, mesh, axis_name=axis_name)
    state_args = {donate_argnums} if isinstance(donate_argnums, int) else donate_argnums

    def checked_step(*args: ArrayTree) -> ArrayTree:
        # Runs while tracing only, before compilation.
        placed = [
            place(x, _shardings(x, mesh, axis_name, i in state_args))
            for i, x in enumerate(args)
        ]
        program, shapes = _trace(mapped, placed, axis_name)
        checked = program
        if mesh is None:  # under vmap no collective is left in the program
            checked = _trace_one(train_step, args, axis_name)
        check_step(checked.jaxpr, frozenset({axis_name}), shapes)
        results = jaxpr_as_fun(program)(*jax.tree.leaves(placed))
        results = jax.tree.unflatten(jax.tree.structure(shapes), results)
        _check_returned([x for i, x in enumerate(args) if i in state_args], results)
        return place(results, _shardings(results, mesh, axis_name, is_state=True))

    compiled = jax.jit(
        checked_step,
        donate_argnums=donate_argnums,
        compiler_options=options,
    )
    is_first = True

    def step(*args: ArrayTree) -> ArrayTree:
        nonlocal is_first
        if is_first:
            _check_arguments(args, mesh, axis_name)
            is_first = False
        return compiled(*args)

    step.__dict__["lower"] = compiled.lower
    return step


def _trace(mapped: Callable, args: Sequence[ArrayTree], axis_name: str) -> tuple:
    try:
        return jax.make_jaxpr(mapped, return_shape=True)(*args)
    except NameError as error:
        if "unbound axis name" not in str(error):
            raise
        raise ValueError(
            f"train_step must communicate over the axis {axis_name!r} alone, which is "
            f"the one that overlap_jit maps, got another ({error.args[0]:.60}); use "
            f"axis_name={axis_name!r} in its collectives and in distribute, or name "
            "yours with overlap_jit(..., axis_name=...)"
        ) from error


def _trace_one(
    train_step: Callable, args: Sequence[ArrayTree], axis_name: str
) -> ClosedJaxpr:
    """Traces the step of one of the workers that share a device."""
    one = jax.eval_shape(lambda x: jax.tree.map(lambda leaf: leaf[0], x), args)
    num_workers = jax.tree.leaves(args)[0].shape[0]
    return jax.make_jaxpr(train_step, axis_env=[(axis_name, num_workers)])(*one)


def _shardings(
    tree: ArrayTree, mesh: Mesh | None, axis_name: str, is_state: bool
) -> ArrayTree:
    """Gives the shardings of state, or of data that a worker's devices split."""
    if mesh is None:
        return None
    if is_state:
        return state_shardings(tree, mesh, axis_name)
    inner = tuple(name for name in mesh.shape if name != axis_name)
    size = mesh.size // mesh.shape[axis_name]

    def sharding(x: jax.Array) -> NamedSharding:
        is_shared = size > 1 and jnp.ndim(x) > 1 and x.shape[1] % size == 0
        return NamedSharding(
            mesh, PartitionSpec(axis_name, *((inner,) if is_shared else ()))
        )

    return jax.tree.map(sharding, tree)


def _check_arguments(args: tuple, mesh: Mesh | None, axis_name: str) -> None:
    leaves = jax.tree.leaves(args)
    slots = 1 if mesh is None else mesh.shape[axis_name]
    lengths = [np.shape(x)[0] if np.ndim(x) else 0 for x in leaves]
    has_one_each = mesh is not None and slots in lengths
    num_workers = slots if has_one_each else next(iter(lengths), 0)
    if not num_workers or num_workers % slots:
        length = "" if mesh is None else f", a multiple of the mesh axis's {slots},"
        raise ValueError(
            f"arguments must have a leading worker axis{length} got shape "
            f"{np.shape(leaves[0]) if leaves else ()}; give state one with to_workers, "
            "and shape data (worker, batch, ...)"
        )
    hint = (
        "the mesh, or the first array of the arguments, says how many workers there "
        "are; give state a worker axis with to_workers, shape data (worker, batch, "
        "...), repeat a number with jnp.full(num_workers, x), split a key with "
        "jax.random.split(key, num_workers)"
    )
    for number, tree in enumerate(args):
        if jax.tree.leaves(tree):
            name = f"argument {number}"
            check_leading_axes(name, tree, {"num_workers": num_workers}, hint)
    for path, leaf in jax.tree_util.tree_leaves_with_path(args):
        if num_workers > 1 and _is_key(leaf) and _is_same_for_all(leaf):
            warnings.warn(
                f"all workers have the same random key in argument {path[0].idx}"
                f"{jax.tree_util.keystr(path[1:])}, so they draw the same dropout "
                "masks; give each its own with jax.random.split(key, num_workers)",
                stacklevel=3,
            )


def _check_returned(states: list[ArrayTree], results: ArrayTree) -> None:
    """Raises if a step does not return its new state, but updates it in place."""
    largest = max(jax.tree.leaves(states), key=np.size, default=None)
    if largest is None:
        return
    if not any(x.shape == largest.shape for x in jax.tree.leaves(results)):
        raise ValueError(
            "train_step must return its new state, got no array of shape "
            f"{largest.shape[1:]} from it, which the state has; return what it "
            "updates, as in (state, loss); for an nnx step that updates in place, "
            "pass lambda state, *batch: (state, train_step(*state, *batch))"
        )


def _is_key(x: ArrayTree) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _is_same_for_all(keys: jax.Array) -> bool:
    """Whether all keys of this process are equal; it cannot see the other keys."""
    data = [
        np.asarray(jax.random.key_data(x.data)).reshape(x.data.shape[0], -1)
        for x in keys.addressable_shards
    ]
    rows = np.concatenate(data)
    return len(rows) > 1 and bool((rows == rows[0]).all())
