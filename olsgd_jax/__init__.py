"""Data-parallel training that does not wait for the network: Overlap Local-SGD.

Two lines of a training script change: you wrap the optimizer, and you remove the mean
of the gradients.

>>> import optax
>>> from olsgd_jax import distribute, overlap_local_sgd
>>> strategy = overlap_local_sgd(pullback=0.6, anchor_momentum=0.7)
>>> tx = distribute(optax.adamw(1e-3), strategy, sync_period=4)

`overlap_jit` compiles the train step for all workers. `consensus_of` gives the model to
evaluate and save. Use `make_round` to write a training loop around whole rounds.

Import the other rooms by name: `olsgd_jax.overlap` proves what a compiled program
overlaps, `olsgd_jax.timing` models the time of a round, and `olsgd_jax.theory` has the
results of the papers. The extra `train` adds `olsgd_jax.training`, the harness of the
experiments, `olsgd_jax.aot` for hardware that you do not have, and `olsgd_jax.bench`.
"""

from olsgd_jax.distribute import distribute
from olsgd_jax.drivers.make_round import make_round
from olsgd_jax.drivers.platforms import compiler_options
from olsgd_jax.drivers.step import overlap_jit
from olsgd_jax.one_model import anchor_of, consensus_of
from olsgd_jax.reductions import REDUCTIONS
from olsgd_jax.reductions.base import Reduction
from olsgd_jax.reductions.bfloat16 import bfloat16
from olsgd_jax.reductions.exact import exact, worker_mean
from olsgd_jax.reductions.int2 import int2
from olsgd_jax.reductions.int4 import int4
from olsgd_jax.reductions.int8 import int8
from olsgd_jax.reductions.low_rank import low_rank
from olsgd_jax.reductions.random_mask import random_mask
from olsgd_jax.reductions.send_nothing import send_nothing
from olsgd_jax.reductions.top_k import top_k
from olsgd_jax.round.consensus import model_of, spread
from olsgd_jax.round.local_steps import WorkerState
from olsgd_jax.round.plain_loss import plain_loss
from olsgd_jax.round.state import init_state
from olsgd_jax.round.worker_round import RoundRecord, make_worker_round
from olsgd_jax.strategies import STRATEGIES
from olsgd_jax.strategies.base import Strategy
from olsgd_jax.strategies.cocod_sgd import cocod_sgd
from olsgd_jax.strategies.delayed_diloco import delayed_diloco
from olsgd_jax.strategies.diloco import diloco
from olsgd_jax.strategies.eager_diloco import eager_diloco
from olsgd_jax.strategies.easgd import easgd
from olsgd_jax.strategies.local_sgd import local_sgd
from olsgd_jax.strategies.overlap_local_sgd import overlap_local_sgd
from olsgd_jax.strategies.slowmo import slowmo
from olsgd_jax.strategies.streaming_diloco import streaming_diloco
from olsgd_jax.strategies.sync_sgd import sync_sgd
from olsgd_jax.timing.payload import payload_bytes
from olsgd_jax.workers.axis import WORKERS, on_workers
from olsgd_jax.workers.mesh import worker_mesh
from olsgd_jax.workers.sharding import to_workers

__all__ = [
    "REDUCTIONS",
    "STRATEGIES",
    "WORKERS",
    "Reduction",
    "RoundRecord",
    "Strategy",
    "WorkerState",
    "anchor_of",
    "bfloat16",
    "cocod_sgd",
    "compiler_options",
    "consensus_of",
    "delayed_diloco",
    "diloco",
    "distribute",
    "eager_diloco",
    "easgd",
    "exact",
    "init_state",
    "int2",
    "int4",
    "int8",
    "local_sgd",
    "low_rank",
    "make_round",
    "make_worker_round",
    "model_of",
    "on_workers",
    "overlap_jit",
    "overlap_local_sgd",
    "payload_bytes",
    "plain_loss",
    "random_mask",
    "send_nothing",
    "slowmo",
    "spread",
    "streaming_diloco",
    "sync_sgd",
    "to_workers",
    "top_k",
    "worker_mean",
    "worker_mesh",
]
