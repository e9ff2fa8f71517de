"""The strategies; each file begins with its equations."""

from olsgd_jax.strategies.base import NamedStrategy
from olsgd_jax.strategies.cocod_sgd import COCOD_SGD
from olsgd_jax.strategies.delayed_diloco import DELAYED_DILOCO
from olsgd_jax.strategies.diloco import DILOCO
from olsgd_jax.strategies.eager_diloco import EAGER_DILOCO
from olsgd_jax.strategies.easgd import EASGD
from olsgd_jax.strategies.local_sgd import LOCAL_SGD
from olsgd_jax.strategies.overlap_local_sgd import OVERLAP_LOCAL_SGD
from olsgd_jax.strategies.slowmo import SLOWMO
from olsgd_jax.strategies.streaming_diloco import STREAMING_DILOCO
from olsgd_jax.strategies.sync_sgd import SYNC_SGD

STRATEGIES: dict[str, NamedStrategy] = {
    "sync_sgd": SYNC_SGD,
    "local_sgd": LOCAL_SGD,
    "slowmo": SLOWMO,
    "easgd": EASGD,
    "cocod_sgd": COCOD_SGD,
    "overlap_local_sgd": OVERLAP_LOCAL_SGD,
    "diloco": DILOCO,
    "delayed_diloco": DELAYED_DILOCO,
    "eager_diloco": EAGER_DILOCO,
    "streaming_diloco": STREAMING_DILOCO,
}
"""Builder, label and default arguments of every strategy, by name."""
