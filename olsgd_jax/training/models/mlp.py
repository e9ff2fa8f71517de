"""A network of dense layers, for tests and quick runs."""

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float


class MLP(nn.Module):
    """A network with hidden layers of one width.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax.training import MLP
    >>> variables = MLP(16, num_classes=3).init(jax.random.key(0), jnp.zeros((1, 8)))
    >>> sum(x.size for x in jax.tree.leaves(variables))
    195
    """

    width: int
    num_classes: int
    dropout: float = 0.0
    depth: int = 1  # hidden layers
    dtype: DTypeLike | None = None  # of the computation; None: as the inputs

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch ..."], train: bool = False
    ) -> Float[Array, "batch classes"]:
        """Maps inputs, vectors or images, to one logit per class."""
        x = x.reshape(len(x), -1)
        for _ in range(self.depth):
            x = nn.relu(nn.Dense(self.width, dtype=self.dtype)(x))
        x = nn.Dropout(self.dropout, deterministic=not train)(x)
        x = nn.Dense(self.num_classes, dtype=self.dtype)(x)
        return x.astype(jnp.promote_types(x.dtype, jnp.float32))
