"""The reference harness: trains as a config says, and records what it measures."""

from olsgd_jax._checks import check_choice, check_count, check_number, check_seed
from olsgd_jax._extras import needs_extra

with needs_extra("train"):
    import flax as _flax  # noqa: F401
    import orbax.checkpoint as _checkpoint  # noqa: F401
    import rich as _rich  # noqa: F401

from olsgd_jax.training.checkpoints import Checkpoint, Checkpoints, Due
from olsgd_jax.training.cluster.channel import FOLLOWED
from olsgd_jax.training.cluster.discover import ENVIRONMENT, variables
from olsgd_jax.training.cluster.join import Process, end_together, join, meet
from olsgd_jax.training.cluster.preemption import RESUMABLE, PreemptedError, Preemption
from olsgd_jax.training.cluster.rendezvous import SECRET
from olsgd_jax.training.command_line import add_process_options, count, join_as_asked
from olsgd_jax.training.components import (
    OPTIMIZERS,
    Components,
    build,
    build_reduction,
    build_strategy,
)
from olsgd_jax.training.components.strategy import named_strategy
from olsgd_jax.training.config import Config
from olsgd_jax.training.data.batches import make_batches
from olsgd_jax.training.data.dataset import Dataset
from olsgd_jax.training.data.images import crop_and_flip, normalise
from olsgd_jax.training.data.named_datasets import (
    DATASETS,
    load_dataset,
    outline_dataset,
)
from olsgd_jax.training.data.partition import (
    PARTITIONS,
    label_histogram,
    make_partition,
    partition_contiguous,
    partition_dirichlet,
    partition_iid,
    partition_paper_non_iid,
)
from olsgd_jax.training.describe import Facts, describe
from olsgd_jax.training.evaluate import Evaluation, evaluate
from olsgd_jax.training.files import writing
from olsgd_jax.training.loop import train
from olsgd_jax.training.models import MODELS, make_model
from olsgd_jax.training.models.mlp import MLP
from olsgd_jax.training.models.resnet import ResNet
from olsgd_jax.training.models.transformer import Transformer
from olsgd_jax.training.options import option_types
from olsgd_jax.training.records.jsonl import read_records, write_records
from olsgd_jax.training.records.provenance import commit, versions
from olsgd_jax.training.records.types import (
    Entry,
    Layout,
    Record,
    Resumed,
    Rollback,
    Run,
)
from olsgd_jax.training.recovery.divergence import DivergedError
from olsgd_jax.training.recovery.rollback import RollbackPolicy
from olsgd_jax.training.sampling import sample_text
from olsgd_jax.training.tasks import Task, classification

__all__ = [
    "DATASETS",
    "ENVIRONMENT",
    "FOLLOWED",
    "MLP",
    "MODELS",
    "OPTIMIZERS",
    "PARTITIONS",
    "RESUMABLE",
    "SECRET",
    "Checkpoint",
    "Checkpoints",
    "Components",
    "Config",
    "Dataset",
    "DivergedError",
    "Due",
    "Entry",
    "Evaluation",
    "Facts",
    "Layout",
    "PreemptedError",
    "Preemption",
    "Process",
    "Record",
    "ResNet",
    "Resumed",
    "Rollback",
    "RollbackPolicy",
    "Run",
    "Task",
    "Transformer",
    "add_process_options",
    "build",
    "build_reduction",
    "build_strategy",
    "check_choice",
    "check_count",
    "check_number",
    "check_seed",
    "classification",
    "commit",
    "count",
    "crop_and_flip",
    "describe",
    "end_together",
    "evaluate",
    "join",
    "join_as_asked",
    "label_histogram",
    "load_dataset",
    "make_batches",
    "make_model",
    "make_partition",
    "meet",
    "named_strategy",
    "normalise",
    "option_types",
    "outline_dataset",
    "partition_contiguous",
    "partition_dirichlet",
    "partition_iid",
    "partition_paper_non_iid",
    "read_records",
    "sample_text",
    "train",
    "variables",
    "versions",
    "write_records",
    "writing",
]
