"""Compiles and plans for hardware that you do not have."""

from olsgd_jax.aot.planner import Expected, Plan, Reduced, plan
from olsgd_jax.aot.targets import TARGETS, target
from olsgd_jax.aot.workloads import WORKLOADS
from olsgd_jax.reductions import SENDING

__all__ = [
    "SENDING",
    "TARGETS",
    "WORKLOADS",
    "Expected",
    "Plan",
    "Reduced",
    "plan",
    "target",
]
