"""The problem of reference.py for the library, and a look at a jaxpr's data flow."""

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import optax

from olsgd_jax import exact, init_state, make_round, plain_loss, worker_mesh

VECTOR, MATRIX = (5,), (4, 3)
SIZE = 17


def as_tree(flat):
    """Splits flat models into a vector and a matrix, in the order of jax's leaves."""
    lead = flat.shape[:-1]
    return {
        "b": jnp.asarray(flat[..., :5]),
        "w": jnp.asarray(flat[..., 5:].reshape(*lead, *MATRIX)),
    }


def as_flat(tree):
    lead = tree["b"].shape[:-1]
    return np.concatenate([tree["b"], np.reshape(tree["w"], (*lead, 12))], axis=-1)


def by_name(tree):
    """All arrays by their paths, random keys as the numbers behind them."""
    plain = optax.tree.unwrap_random_key_data(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): x
        for path, x in jax.tree_util.tree_leaves_with_path(plain)
    }


def quadratic_loss(curvature):
    """The loss of `reference.Problem`, of one worker at one step."""
    curvature = as_tree(curvature)

    def loss(params, centre):
        parts = jax.tree.map(
            lambda h, x, c: 0.5 * jnp.sum(h * (x - c) ** 2), curvature, params, centre
        )
        return parts["b"] + parts["w"]

    return loss


def mesh_of(mapping, m):
    return None if mapping == "vmap" else worker_mesh(m)


def paired(strategies):
    """Strategies with their reductions: exact, unless one comes with another."""
    return {
        name: x if type(x) is tuple else (x, exact()) for name, x in strategies.items()
    }


def first_states(problem, optimizer, strategies, mapping="vmap"):
    """The library's states by strategy, before the first round; see `paired`."""
    start, m = as_tree(problem.start), problem.num_workers
    mesh = mesh_of(mapping, m)

    def init(strategy, reduction):
        return init_state(
            start, optimizer, strategy, mesh=mesh, num_workers=m, reduction=reduction
        )

    pairs = paired(strategies)
    return jax.jit(lambda: {name: init(*pair) for name, pair in pairs.items()})()


def run_rounds(problem, optimizer, strategies, tau, mapping="vmap", states=None):
    """Yields the library's states and records by strategy, after every round.

    Strategies come as in `paired`.
    """
    states = states or first_states(problem, optimizer, strategies, mapping)
    rounds = {
        name: make_round(
            plain_loss(quadratic_loss(problem.curvature)),
            optimizer,
            strategy,
            sync_period=tau,
            mesh=mesh_of(mapping, problem.num_workers),
            mapping=mapping,
            reduction=reduction,
        )
        for name, (strategy, reduction) in paired(strategies).items()
    }

    @jax.jit
    def all_rounds(states, batches):
        results = {name: run(states[name], batches) for name, run in rounds.items()}
        return [{n: result[i] for n, result in results.items()} for i in (0, 1)]

    for first in range(0, problem.num_steps, tau):
        batches = as_tree(problem.centres[:, first : first + tau])
        states, records = all_rounds(states, batches)
        yield states, jax.tree.map(np.asarray, records)


def upstream_of(primitive, jaxpr):
    """Names the primitives whose results any `primitive` of a jaxpr needs."""
    made_by = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    targets = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == primitive]
    assert targets, f"no {primitive} in the jaxpr"
    names, pending = set(), [var for eqn in targets for var in eqn.invars]
    while pending:
        var = pending.pop()
        if isinstance(var, jax.extend.core.Var) and var in made_by:
            names.add(made_by[var].primitive.name)
            pending += made_by[var].invars
    return names


def optimizers(rate):
    """optax optimizers by name; `rate` is a schedule."""
    return {
        "sgd": optax.sgd(rate),
        "nesterov": optax.chain(
            optax.add_decayed_weights(1e-2), optax.sgd(rate, 0.9, nesterov=True)
        ),
        "adamw": optax.adamw(rate, weight_decay=1e-2),
    }


def state_after(config, components, state, first, last):
    """Runs rounds `first` … `last − 1` of a training run, and gives the state."""
    overlap_round = make_round(
        components.task.loss,
        components.optimizer,
        components.strategy,
        sync_period=config.sync_period,
        mesh=components.mesh,
        mapping=config.mapping,
        reduction=components.reduction,
    )
    for number in range(first, last):
        state, _ = overlap_round(state, components.batches(number))
    return state
