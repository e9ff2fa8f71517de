"""Data-parallel training that does not wait for the network: Overlap Local-SGD."""

from olsgd_jax.config import Config as Config
from olsgd_jax.consensus import model_of as model_of
from olsgd_jax.consensus import spread as spread
from olsgd_jax.data.batches import make_batches as make_batches
from olsgd_jax.data.dataset import Dataset as Dataset
from olsgd_jax.data.datasets import load_dataset as load_dataset
from olsgd_jax.data.images import crop_and_flip as crop_and_flip
from olsgd_jax.data.images import normalise as normalise
from olsgd_jax.data.partition import partition_dirichlet as partition_dirichlet
from olsgd_jax.data.partition import partition_iid as partition_iid
from olsgd_jax.data.partition import partition_paper_non_iid as partition_paper_non_iid
from olsgd_jax.data.partitions import PARTITIONS as PARTITIONS
from olsgd_jax.data.partitions import label_histogram as label_histogram
from olsgd_jax.data.partitions import make_partition as make_partition
from olsgd_jax.describe import Facts as Facts
from olsgd_jax.describe import describe as describe
from olsgd_jax.drivers.make_round import make_round as make_round
from olsgd_jax.evaluate import Evaluation as Evaluation
from olsgd_jax.evaluate import evaluate as evaluate
from olsgd_jax.local import WorkerState as WorkerState
from olsgd_jax.mesh import worker_mesh as worker_mesh
from olsgd_jax.models import MODELS as MODELS
from olsgd_jax.models import make_model as make_model
from olsgd_jax.models.mlp import MLP as MLP
from olsgd_jax.models.resnet import ResNet as ResNet
from olsgd_jax.models.transformer import Transformer as Transformer
from olsgd_jax.payload import payload_bytes as payload_bytes
from olsgd_jax.placement import to_workers as to_workers
from olsgd_jax.record import Record as Record
from olsgd_jax.record import Run as Run
from olsgd_jax.records import read_records as read_records
from olsgd_jax.records import write_records as write_records
from olsgd_jax.round import RoundRecord as RoundRecord
from olsgd_jax.round import make_worker_round as make_worker_round
from olsgd_jax.state import init_state as init_state
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
from olsgd_jax.task import Task as Task
from olsgd_jax.task import classification as classification
from olsgd_jax.task import plain_loss as plain_loss
from olsgd_jax.trainer import train as train
from olsgd_jax.transform import distribute as distribute
from olsgd_jax.workers import WORKERS as WORKERS
from olsgd_jax.workers import on_workers as on_workers
from olsgd_jax.workers import worker_mean as worker_mean
