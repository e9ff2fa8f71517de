"""The request: what a benchmark measures."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from olsgd_jax._checks import check_choice
from olsgd_jax.aot.workloads import OPTIMIZER, WORKLOADS, Workload
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.exact import exact
from olsgd_jax.round.state import init_state
from olsgd_jax.strategies import STRATEGIES
from olsgd_jax.training.components.strategy import named_strategy
from olsgd_jax.training.models.mlp import MLP
from olsgd_jax.workers.axis import WORKERS
from olsgd_jax.workers.mesh import process_devices, worker_devices, worker_mesh

SMALL = Workload(  # 0.7 million parameters in 8 arrays
    MLP(384, num_classes=10, depth=4),
    jax.ShapeDtypeStruct((64, 768), jnp.float32),
    jax.ShapeDtypeStruct((64,), jnp.int32),
)
MODELS = {"small": SMALL, **WORKLOADS}
"""Models by name; "small" is for CPUs."""

ALL = (*STRATEGIES, "overlap_local_sgd:stream")
"""The strategies that "all" stands for."""


class Request(NamedTuple):
    """What to measure, and on which devices."""

    mesh: Mesh
    model: str  # name of the model
    workload: Workload
    strategies: tuple[str, ...]  # names, some followed by ":stream"
    sync_period: int | None  # τ; None for the smallest that hides the mean
    repetitions: int
    reduction: Reduction = exact()  # how all messages become a mean

    @property
    def num_workers(self) -> int:
        """How many workers there are."""
        return self.mesh.shape[WORKERS]


def read_strategies(names: list[str]) -> tuple[str, ...]:
    """Checks the names of strategies, and expands "all".

    >>> read_strategies(["cocod_sgd:stream", "local_sgd", "local_sgd"])
    ('cocod_sgd:stream', 'local_sgd')
    """
    names = [one for name in names for one in (ALL if name == "all" else (name,))]
    for name in names:
        named_strategy(name, num_workers=2)
    return tuple(dict.fromkeys(names))


def check_fit(strategies: tuple[str, ...], reduction: Reduction) -> None:
    """Raises unless every strategy, by its name, takes the reduction.

    >>> from olsgd_jax import random_mask
    >>> check_fit(("local_sgd", "slowmo"), random_mask())
    Traceback (most recent call last):
    ValueError: reduction must send whole messages under slowmo, got random_mask; ...
    """
    params = jax.ShapeDtypeStruct((2, 2), jnp.float32)
    for name in strategies:
        strategy, _ = named_strategy(name, num_workers=2)
        start = functools.partial(
            init_state,
            optimizer=OPTIMIZER,
            strategy=strategy,
            num_workers=2,
            reduction=reduction,
        )
        jax.eval_shape(start, params)


def choose_mesh(workers: int | None, data: int, fsdp: int) -> Mesh:
    """Makes the mesh; by default with as many workers as the devices allow."""
    process_devices()  # raises if processes have different numbers of devices
    num_devices = jax.device_count()
    most = num_devices // (data * fsdp)
    if workers is None:
        workers = most
    if workers < 2 or workers > most:
        raise ValueError(
            f"--workers must be at least 2, of {data * fsdp} device(s) each, got "
            f"{workers} on {num_devices} x {jax.devices()[0].device_kind}; for more "
            "devices use --cpu-devices, or start more processes"
        )
    return worker_mesh(workers, data=data, fsdp=fsdp)


def choose_workload(
    model: str | None, batch_size: int | None, mesh: Mesh
) -> tuple[str, Workload]:
    """Gives a model and its batches; by default a model that suits the devices."""
    if model is None:
        model = "small" if mesh.devices.flat[0].platform == "cpu" else "mlp"
    check_choice("--model", model, tuple(MODELS))
    workload = MODELS[model]
    size: int = workload.inputs.shape[0] if batch_size is None else batch_size
    if size % worker_devices(mesh):
        raise ValueError(
            f"--batch-size must be a multiple of the {worker_devices(mesh)} devices "
            f"of a worker, got {size}"
        )

    def resized(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype)

    return model, workload._replace(
        inputs=resized(workload.inputs), labels=resized(workload.labels)
    )
