"""Workers: their axis, their mesh, and the shardings of arrays on it."""

from olsgd_jax.workers.mesh import share_workers
from olsgd_jax.workers.sharding import batch_shardings, state_shardings

__all__ = [
    "batch_shardings",
    "share_workers",
    "state_shardings",
]
