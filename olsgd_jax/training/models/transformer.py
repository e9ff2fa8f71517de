"""A network for sequences of tokens, which predicts each token from those before it.

    x <- x + attention(norm(x));  x <- x + dense(gelu(dense(norm(x))))    in every layer

Reference: A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017,
arXiv:1706.03762; with the norms before the layers, and learned positions.
"""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Transformer(nn.Module):
    """A decoder whose logits at each position depend on the tokens up to it.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax.training import Transformer
    >>> module = Transformer(num_tokens=50, width=8, depth=2, num_heads=2)
    >>> variables = module.init(jax.random.key(0), jnp.zeros((1, 16), int))
    >>> module.apply(variables, jnp.ones((3, 16), int)).shape
    (3, 16, 50)
    """

    num_tokens: int
    width: int
    depth: int
    num_heads: int

    @nn.compact
    def __call__(
        self, x: Int[Array, "batch length"], train: bool = False
    ) -> Float[Array, "batch length tokens"]:
        """Maps tokens to one logit per next token, at every position."""
        del train
        embed = nn.Embed(self.num_tokens, self.width)
        mask = nn.make_causal_mask(x)
        positions = nn.Embed(x.shape[1], self.width)(jnp.arange(x.shape[1]))
        x = embed(x) + positions
        for _ in range(self.depth):
            attention = nn.MultiHeadDotProductAttention(self.num_heads)
            x = x + attention(nn.LayerNorm()(x), mask=mask)
            y = nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x)))
            x = x + nn.Dense(self.width)(y)
        return embed.attend(nn.LayerNorm()(x))
