"""What makes exposed communication overlap, by platform."""

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
    "it sends what the computation before it gives, so no option can help; average the "
    "models of the round's start (overlap_local_sgd, cocod_sgd), as one flat vector"
)
_GPU = (
    "a GPU keeps one collective in flight, and one before H100 does not look for "
    "overlap; average one flat vector, or compile with compiler_options="
    f"{MANY_COLLECTIVES}; before "
    f"H100 with {SCHEDULE_FOR_OVERLAP}"
)
_BARRIER = (
    "tell the compiler that nobody needs the mean before the local steps have ended: "
    "mean, end = lax.optimization_barrier((mean, end)), of one flat vector"
)
_STEP = "a step with distribute: overlap_jit and a sync_period of 2 or more"
_V5E = f"{_STEP}; else compile with compiler_options={EXCHANGE | FUSE_INTO_LOOPS}"
_TPU = f"{_STEP}; else compile with compiler_options={SPARSE_CORES}"
_TPU_WORKER = (
    "on TPUs the devices of a worker need for its gradients what would carry the mean; "
    "make_round exchanges it, beside two local steps: make sync_period 2 or more; or, "
    f"with exchanges of your own, compile with compiler_options={EXCHANGE}"
)
_CPU = (
    "on a CPU nothing overlaps inside one program; run the mean as a program of its "
    "own from a second thread (driver host)"
)

# Small collectives of the computation itself, each on its own and not with the mean.
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
    "({where}), most often batch norm with axis_name, and holds up the mean; leave "
    "axis_name out: batch statistics then stay with their worker, or make_round's "
    'model_state_policy="averaged" averages them with the models; or '
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
      device: platform and kind, for example "tpu TPU v5 lite"; platform alone, or
        "unknown", where no more is known.
      collectives: all of the program's between workers.
      worker_devices: how many devices a worker has.

    >>> from olsgd_jax.overlap.collectives import Collective
    >>> mean = Collective("all-reduce", 32, "main/mean", 0, 0, True, blocked=True)
    >>> print(advice("gpu", (mean,)))
    it sends what the computation before it gives, so no option can help; ...
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
    if not any(x.kind in KINDS for x in exposed):  # they start, but too late
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
