"""Hardware that is not here: compile for it, and plan with it."""

from olsgd_jax.aot.targets import TARGETS as TARGETS
from olsgd_jax.aot.targets import target as target
