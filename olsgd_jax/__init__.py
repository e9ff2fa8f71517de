"""Data-parallel training that does not wait for the network: Overlap Local-SGD."""

from olsgd_jax.aot.planner import Expected as Expected
from olsgd_jax.aot.planner import Plan as Plan
from olsgd_jax.aot.planner import plan as plan
from olsgd_jax.distribute import distribute as distribute
from olsgd_jax.drivers.make_round import make_round as make_round
from olsgd_jax.drivers.platforms import compiler_options as compiler_options
from olsgd_jax.drivers.step import overlap_jit as overlap_jit
from olsgd_jax.one_model import anchor_of as anchor_of
from olsgd_jax.one_model import consensus_of as consensus_of
from olsgd_jax.reductions import REDUCTIONS as REDUCTIONS
from olsgd_jax.reductions.base import Reduction as Reduction
from olsgd_jax.reductions.exact import exact as exact
from olsgd_jax.reductions.exact import worker_mean as worker_mean
from olsgd_jax.reductions.send_nothing import send_nothing as send_nothing
from olsgd_jax.round.consensus import model_of as model_of
from olsgd_jax.round.consensus import spread as spread
from olsgd_jax.round.local_steps import WorkerState as WorkerState
from olsgd_jax.round.state import init_state as init_state
from olsgd_jax.round.worker_round import RoundRecord as RoundRecord
from olsgd_jax.round.worker_round import make_worker_round as make_worker_round
from olsgd_jax.strategies import STRATEGIES as STRATEGIES
from olsgd_jax.strategies.base import Strategy as Strategy
from olsgd_jax.strategies.cocod_sgd import cocod_sgd as cocod_sgd
from olsgd_jax.strategies.easgd import easgd as easgd
from olsgd_jax.strategies.local_sgd import local_sgd as local_sgd
from olsgd_jax.strategies.overlap_local_sgd import (
    overlap_local_sgd as overlap_local_sgd,
)
from olsgd_jax.strategies.powersgd import powersgd as powersgd
from olsgd_jax.strategies.slowmo import slowmo as slowmo
from olsgd_jax.strategies.sync_sgd import sync_sgd as sync_sgd
from olsgd_jax.timing.payload import payload_bytes as payload_bytes
from olsgd_jax.training.checkpoints import Checkpoint as Checkpoint
from olsgd_jax.training.checkpoints import Checkpoints as Checkpoints
from olsgd_jax.training.checkpoints import Due as Due
from olsgd_jax.training.cluster.join import Process as Process
from olsgd_jax.training.cluster.join import join as join
from olsgd_jax.training.cluster.join import meet as meet
from olsgd_jax.training.cluster.preemption import PreemptedError as PreemptedError
from olsgd_jax.training.cluster.preemption import Preemption as Preemption
from olsgd_jax.training.config import Config as Config
from olsgd_jax.training.data.batches import make_batches as make_batches
from olsgd_jax.training.data.dataset import Dataset as Dataset
from olsgd_jax.training.data.datasets import load_dataset as load_dataset
from olsgd_jax.training.data.images import crop_and_flip as crop_and_flip
from olsgd_jax.training.data.images import normalise as normalise
from olsgd_jax.training.data.named_partitions import PARTITIONS as PARTITIONS
from olsgd_jax.training.data.named_partitions import label_histogram as label_histogram
from olsgd_jax.training.data.named_partitions import make_partition as make_partition
from olsgd_jax.training.data.partition import partition_dirichlet as partition_dirichlet
from olsgd_jax.training.data.partition import partition_iid as partition_iid
from olsgd_jax.training.data.partition import (
    partition_paper_non_iid as partition_paper_non_iid,
)
from olsgd_jax.training.describe import Facts as Facts
from olsgd_jax.training.describe import describe as describe
from olsgd_jax.training.evaluate import Evaluation as Evaluation
from olsgd_jax.training.evaluate import evaluate as evaluate
from olsgd_jax.training.loop import train as train
from olsgd_jax.training.models import MODELS as MODELS
from olsgd_jax.training.models import make_model as make_model
from olsgd_jax.training.models.mlp import MLP as MLP
from olsgd_jax.training.models.resnet import ResNet as ResNet
from olsgd_jax.training.models.transformer import Transformer as Transformer
from olsgd_jax.training.records.jsonl import read_records as read_records
from olsgd_jax.training.records.jsonl import write_records as write_records
from olsgd_jax.training.records.types import Layout as Layout
from olsgd_jax.training.records.types import Record as Record
from olsgd_jax.training.records.types import Resumed as Resumed
from olsgd_jax.training.records.types import Rollback as Rollback
from olsgd_jax.training.records.types import Run as Run
from olsgd_jax.training.recovery.rollback import Rollbacks as Rollbacks
from olsgd_jax.training.tasks import Task as Task
from olsgd_jax.training.tasks import classification as classification
from olsgd_jax.training.tasks import plain_loss as plain_loss
from olsgd_jax.workers.axis import WORKERS as WORKERS
from olsgd_jax.workers.axis import on_workers as on_workers
from olsgd_jax.workers.mesh import worker_mesh as worker_mesh
from olsgd_jax.workers.sharding import to_workers as to_workers
