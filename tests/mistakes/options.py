"""Of a config: options of a run, which the command line has as well."""

import numpy as np

from olsgd_jax.training import Config, train
from olsgd_jax.training.components import build_task
from olsgd_jax.training.data.dataset import Dataset

SMALL = {"width": 4, "batch_size": 4, "num_rounds": 1}


def trained(**options):
    return lambda tmp: list(train(Config(**{**SMALL, **options})))


def dropout_of_a_resnet(tmp):
    images, labels = np.zeros((1, 32, 32, 3), np.uint8), np.zeros(1, np.int32)
    dataset = Dataset(images, labels, images, labels, num_classes=10)
    build_task(Config(model="resnet8", dropout=0.5), dataset)


MISTAKES = {
    '`strategy="overlap_sgd"`': trained(strategy="overlap_sgd"),
    '`dataset="mnist"`': trained(dataset="mnist"),
    '`partition="even"`': trained(partition="even"),
    '`model="mpl"`': trained(model="mpl"),
    "`model=None`": trained(model=None),
    '`model="resnet8"` with a dataset of vectors': trained(model="resnet8"),
    "`augment=True` with a dataset of vectors": trained(augment=True),
    '`augment="no"`': trained(augment="no"),
    '`dtype="float8"`': trained(dtype="float8"),
    '`mapping="pmap"` with 1,000 workers': trained(
        mapping="pmap", num_workers=1000, batch_size=1
    ),
    "`num_workers=0`": trained(num_workers=0),
    "`num_workers=2.5`": trained(num_workers=2.5),
    "`num_workers=2**31`": trained(num_workers=2**31),
    "`num_workers=5000`, more than there are examples": trained(num_workers=5000),
    "`batch_size=500`, more examples than a worker has": trained(batch_size=500),
    "a shard smaller than a batch": trained(
        partition="dirichlet", concentration=0.01, num_workers=16, batch_size=32
    ),
    '`partition="paper_non_iid"` with 2 workers': trained(
        partition="paper_non_iid", num_workers=2
    ),
    "`concentration=0.0`": trained(concentration=0.0),
    "`sync_period=10**9`": trained(sync_period=10**9),
    "`width=10**9`": trained(width=10**9),
    "`learning_rate=nan`": trained(learning_rate=float("nan")),
    '`learning_rate="fast"`': trained(learning_rate="fast"),
    "`learning_rate=1e20`, and the run diverges": trained(learning_rate=1e20),
    "`momentum=1.0`": trained(momentum=1.0),
    '`optimizer="adam"`': trained(optimizer="adam"),
    '`beta2=0.99` with `optimizer="sgd"`': trained(beta2=0.99),
    "`warmup_steps=4` in a run of four local steps": trained(
        schedule="warmup_cosine", warmup_steps=4
    ),
    "`decay_epochs=3.0`": trained(decay_epochs=3.0),
    "`seed=-1`": trained(seed=-1),
    "`data_dir=3`": trained(data_dir=3),
    '`evaluate="worker"`': trained(evaluate="worker"),
    '`evaluate=["best"]`': trained(evaluate=["best"]),
    "`evaluate=[]`": trained(evaluate=[]),
    '`evaluate=["anchor"]` with a strategy that has no anchor': trained(
        strategy="local_sgd", evaluate=["anchor"]
    ),
    "`rated_velocity=True` with a strategy that has no velocity": trained(
        strategy="local_sgd", rated_velocity=True
    ),
    "`strategy_args=[0.5]`": trained(strategy_args=[0.5]),
    '`strategy_args={"pullback": "half"}`': trained(strategy_args={"pullback": "half"}),
    '`strategy_args={"rank": 2}`, an argument of another strategy': trained(
        strategy_args={"rank": 2}
    ),
    '`strategy_args={"pullback": 2.0}`': trained(strategy_args={"pullback": 2.0}),
    "`dropout=0.5` with a network that has none": dropout_of_a_resnet,
    "an option that does not exist": lambda tmp: Config(learning_rat=0.1),
}
