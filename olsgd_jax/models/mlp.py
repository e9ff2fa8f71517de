"""A network of dense layers, for tests and quick runs."""

import flax.linen as nn
from jaxtyping import Array, Float


class MLP(nn.Module):
    """A network with hidden layers of one width.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax import MLP
    >>> variables = MLP(16, num_classes=3).init(jax.random.key(0), jnp.zeros((1, 8)))
    >>> sum(x.size for x in jax.tree.leaves(variables))
    195
    """

    width: int
    num_classes: int
    dropout: float = 0.0
    depth: int = 1  # hidden layers

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch features"], train: bool = False
    ) -> Float[Array, "batch classes"]:
        """Maps inputs to one logit per class."""
        for _ in range(self.depth):
            x = nn.relu(nn.Dense(self.width)(x))
        x = nn.Dropout(self.dropout, deterministic=not train)(x)
        return nn.Dense(self.num_classes)(x)
