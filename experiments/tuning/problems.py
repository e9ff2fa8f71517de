"""Two small problems: a language model with AdamW, and digits with SGD."""

import os
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from olsgd_jax.training import MLP, load_dataset
from olsgd_jax.types import ArrayTree

CONTEXT = 64  # characters that the language model sees
VALIDATION = 55_770  # characters of the test text that it is evaluated on


class Problem(NamedTuple):
    """A model, its examples and its optimizer."""

    model: nn.Module
    optimizer: Callable[[float, int], optax.GradientTransformation]  # rate, num_steps
    batch_size: int
    examples: Callable[[np.ndarray], tuple]  # picked by random numbers in [0, 1)
    held_out: tuple

    def init(self, key: jax.Array) -> ArrayTree:
        """Draws the params that all workers start from."""
        return self.model.init(key, jnp.asarray(self.held_out[0][:1]))["params"]

    def loss(self, params: ArrayTree, batch: tuple) -> jax.Array:
        """Computes the mean cross-entropy of a batch."""
        inputs, labels = batch
        logits = jnp.asarray(self.model.apply({"params": params}, inputs))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


class Block(nn.Module):
    """Causal attention, then a dense layer on each character; both are residual."""

    num_heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width = x.shape[-1]
        mask = nn.make_causal_mask(x[..., 0])
        attention = nn.MultiHeadDotProductAttention(self.num_heads)
        x = x + attention(nn.LayerNorm()(x), mask=mask)
        hidden = nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(x)))
        return x + nn.Dense(width)(hidden)


class GPT(nn.Module):
    """A language model on characters."""

    num_characters: int
    width: int = 64
    depth: int = 2
    num_heads: int = 4

    @nn.compact
    def __call__(self, text: jax.Array) -> jax.Array:
        positions = nn.Embed(CONTEXT, self.width)(jnp.arange(text.shape[-1]))
        x = nn.Embed(self.num_characters, self.width)(text) + positions
        for _ in range(self.depth):
            x = Block(self.num_heads)(x)
        return nn.Dense(self.num_characters)(nn.LayerNorm()(x))


def gpt(data_dir: str | os.PathLike | None, width: int = 64, depth: int = 2) -> Problem:
    """Sets up the language model, with AdamW."""
    data = load_dataset("tiny_shakespeare", data_dir)
    train = np.append(data.train_inputs, data.train_labels[-1:])
    test = data.test_inputs[:VALIDATION]

    def windows(text: np.ndarray, begin: np.ndarray) -> tuple:
        rows = text[begin[..., None] + np.arange(CONTEXT + 1)]
        return rows[..., :-1], rows[..., 1:]

    def examples(numbers: np.ndarray) -> tuple:
        return windows(train, (numbers * (len(train) - CONTEXT)).astype(np.int64))

    def optimizer(rate: float, num_steps: int) -> optax.GradientTransformation:
        schedule = optax.warmup_cosine_decay_schedule(
            0.0, rate, num_steps // 10, num_steps, rate / 10
        )
        return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    held_out = windows(test, np.linspace(0, len(test) - CONTEXT - 1, 128).astype(int))
    return Problem(
        GPT(data.num_classes, width, depth), optimizer, 12, examples, held_out
    )


def digits() -> Problem:
    """Sets up the demo's network and optimizer: SGD with Nesterov momentum."""
    data = load_dataset("digits")

    def examples(numbers: np.ndarray) -> tuple:
        rows = (numbers * len(data.train_labels)).astype(np.int64)
        return data.train_inputs[rows], data.train_labels[rows]

    def optimizer(rate: float, num_steps: int) -> optax.GradientTransformation:
        del num_steps
        sgd = optax.sgd(rate, momentum=0.9, nesterov=True)
        return optax.chain(optax.add_decayed_weights(1e-4), sgd)

    held_out = data.test_inputs, data.test_labels
    return Problem(MLP(64, data.num_classes), optimizer, 32, examples, held_out)
