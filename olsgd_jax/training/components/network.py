"""The network that a config names, and its loss."""

import jax

from olsgd_jax._checks import check_choice
from olsgd_jax.training.config import Config
from olsgd_jax.training.data.dataset import Dataset
from olsgd_jax.training.data.images import crop_and_flip, normalise
from olsgd_jax.training.models import MODELS, make_model
from olsgd_jax.training.tasks import Task, classification


def build_task(config: Config, dataset: Dataset) -> Task:
    """Builds the network and its loss, for inputs like the data set's.

    >>> import jax
    >>> from olsgd_jax.training import Config, load_dataset
    >>> from olsgd_jax.training.components import build_task
    >>> task = build_task(Config(width=32), load_dataset("digits"))
    >>> params, _ = task.init(jax.random.key(0))
    >>> sum(x.size for x in jax.tree.leaves(params))
    2410
    """
    check_choice("model", config.model, tuple(MODELS))
    one_batch = dataset.train_inputs[:1]
    _check_fit(config, one_batch.ndim)
    options = {"dropout": config.dropout} if config.model == "mlp" else {}
    return classification(
        make_model(
            config.model, dataset.num_classes, config.width, config.dtype, **options
        ),
        jax.ShapeDtypeStruct(one_batch.shape, one_batch.dtype),
        augment=crop_and_flip if config.augment else None,
        prepare=normalise if one_batch.dtype == "uint8" else None,
    )


def _check_fit(config: Config, ndim: int) -> None:
    """Raises unless model and options fit a data set of images, or of vectors."""
    kind = "images" if ndim == 4 else "vectors"
    if MODELS[config.model].inputs != ndim:
        names = [name for name, model in MODELS.items() if model.inputs == ndim]
        raise ValueError(
            f"model must be one of {', '.join(names)} for {config.dataset}, which has "
            f"{kind}, got {config.model!r}"
        )
    if config.augment and ndim != 4:
        raise ValueError(
            f"augment must be False for {config.dataset}, which has {kind}"
        )
    if config.dropout and config.model != "mlp":
        raise ValueError(
            f"dropout must be 0 for {config.model}, which has no such layer, "
            f"got {config.dropout}"
        )
