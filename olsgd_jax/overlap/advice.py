"""Advice on how to make exposed communication overlap, by platform."""

from olsgd_jax.drivers.platforms import (
    EXCHANGE,
    FUSE_INTO_LOOPS,
    MANY_COLLECTIVES,
    SCHEDULE_FOR_OVERLAP,
    SPARSE_CORES,
)
from olsgd_jax.overlap.collectives import Collective
from olsgd_jax.overlap.hlo.carried import KINDS

_BLOCKED = (
    "it sends the result of earlier computation, so no option can help; average the "
    "models of the round's start (overlap_local_sgd, cocod_sgd), as one flat vector"
)
_GPU = (
    "by default XLA keeps one collective in flight on a GPU, and before H100 it does "
    "not schedule for overlap; average one flat vector, or compile with "
    f"compiler_options={MANY_COLLECTIVES}; before H100 with {SCHEDULE_FOR_OVERLAP}"
)
_BARRIER = (
    "tell the compiler that the mean is not needed before the local steps have ended: "
    "average one flat vector, and mean, end = lax.optimization_barrier((mean, end))"
)
_STEP = "for a step with distribute, use overlap_jit and a sync_period of 2 or more"
_V5E = f"{_STEP}; else compile with compiler_options={EXCHANGE | FUSE_INTO_LOOPS}"
_TPU = f"{_STEP}; else compile with compiler_options={SPARSE_CORES}"
_TPU_WORKER = (
    "on TPUs the gradients of a worker with several devices occupy what would carry "
    "the mean; make_round exchanges the mean during two local steps instead: make "
    "sync_period 2 or more; or, with exchanges of your own, compile with "
    f"compiler_options={EXCHANGE}"
)
_CPU = (
    "on a CPU nothing overlaps inside one program; run the mean as a separate program "
    "on a second thread (driver host)"
)

# Keeps the computation's own small collectives apart from each other and the mean.
_APART_GPU = {
    "xla_gpu_all_reduce_combine_threshold_bytes": 0,
    **MANY_COLLECTIVES,
    **SCHEDULE_FOR_OVERLAP,
}
_APART_TPU = {
    **SPARSE_CORES,
    "xla_jf_crs_combiner_threshold_in_bytes": 0,
    "xla_tpu_sparse_core_all_reduce_offload_min_size_in_bytes": 2**16,
}
_AMID = (
    "the forward or backward pass itself waits for {count} of them, of {size:,} bytes "
    "({where}), and they hold up the mean; the usual cause is batch norm with "
    "axis_name: leave axis_name out, so that batch statistics stay with their worker "
    '(make_round\'s model_state_policy="averaged" averages them with the models); or '
)
_AMID_GPU = f"keep the mean apart from them with compiler_options={_APART_GPU}"
_AMID_TPU = (
    "average with make_round, which on v5e exchanges the mean; on other TPUs compile "
    f"a step of your own with compiler_options={_APART_TPU}"
)


def advice(
    device: str, collectives: tuple[Collective, ...], worker_devices: int = 1
) -> str:
    """Says what to change so that a program's exposed collectives overlap.

    Args:
      device: platform and kind, for example "tpu TPU v5 lite"; the platform alone if
        the kind is unknown, or "unknown".
      collectives: all collectives between workers in the program.
      worker_devices: number of devices per worker.

    >>> from olsgd_jax.overlap.collectives import Collective
    >>> mean = Collective("all-reduce", 32, "main/mean", 0, 0, True, blocked=True)
    >>> print(advice("gpu", (mean,)))
    it sends the result of earlier computation, so no option can help; ...
    """
    exposed = [x for x in collectives if x.exposed]
    if any(x.is_amid for x in exposed):
        return _amid([x for x in exposed if x.is_amid], device)
    if all(x.blocked for x in exposed):
        return _BLOCKED
    device = device.lower()
    if device.startswith("gpu"):
        return _GPU
    if device.startswith("cpu"):
        return _CPU
    if device.startswith("tpu") and worker_devices > 1:
        return _TPU_WORKER
    if not any(x.kind in KINDS for x in exposed):  # asynchronous, but started too late
        return _BARRIER
    if "v5 lite" in device:
        return f"{_V5E}; {_BARRIER}"
    if device != "tpu" and device.startswith("tpu"):
        return f"{_TPU}; {_BARRIER}"
    tpus = f"TPU v5e: {_V5E}; other TPUs: {_TPU}; {_BARRIER}"
    return tpus if device == "tpu" else f"GPU: {_GPU}; CPU: {_CPU}; {tpus}"


def _amid(collectives: list[Collective], device: str) -> str:
    """Says what to do about collectives that the computation needs."""
    cause = _AMID.format(
        count=len(collectives),
        size=sum(x.bytes for x in collectives),
        where=collectives[0].where,
    )
    if device.startswith("tpu"):
        return cause + _AMID_TPU
    if device.startswith("cpu"):
        return cause + _CPU
    return cause + (
        _AMID_GPU if device.startswith("gpu") else f"{_AMID_GPU}; {_AMID_TPU}"
    )
