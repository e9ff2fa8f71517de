"""What makes exposed communication overlap, by platform."""

from olsgd_jax.drivers.platforms import (
    EXCHANGE,
    FUSE_INTO_LOOPS,
    MANY_COLLECTIVES,
    SCHEDULE_FOR_OVERLAP,
    SPARSE_CORES,
)
from olsgd_jax.overlap.carried import KINDS
from olsgd_jax.overlap.collectives import Collective

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
_V5E = f"compile with compiler_options={EXCHANGE | FUSE_INTO_LOOPS}"
_TPU = f"compile with compiler_options={SPARSE_CORES}"
_TPU_WORKER = (
    "on TPUs the devices of a worker need for its gradients what would carry the mean; "
    "make_round exchanges it, beside two local steps: make sync_period 2 or more; or, "
    f"with exchanges of your own, compile with compiler_options={EXCHANGE}"
)
_CPU = (
    "on a CPU nothing overlaps inside one program; run the mean as a program of its "
    "own from a second thread (driver host)"
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
