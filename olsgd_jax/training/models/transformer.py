"""A network for sequences of tokens, which predicts each token from those before it.

    x <- x + attention(norm(x));  x <- x + dense(gelu(dense(norm(x))))    in every layer

Dropout is applied to the sum of tokens and positions, to the weights of the attention,
and to both terms that a layer adds to x.

References: A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017,
arXiv:1706.03762; with the norms before the layers, and learned positions. Tied weights:
O. Press, L. Wolf, "Using the Output Embedding to Improve Language Models", EACL 2017,
arXiv:1608.05859.
"""

import functools

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
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
    dropout: float = 0.0
    tie_weights: bool = True  # one matrix for the tokens' vectors and for the logits
    use_bias: bool = True  # in dense layers and norms
    dtype: DTypeLike | None = None  # of the computation; None: as the params

    @nn.compact
    def __call__(
        self, x: Int[Array, "batch length"], train: bool = False
    ) -> Float[Array, "batch length tokens"]:
        """Maps tokens to one logit per next token, at every position."""
        given = {"dtype": self.dtype, "use_bias": self.use_bias}
        dense = functools.partial(nn.Dense, **given)
        norm = functools.partial(nn.LayerNorm, **given)
        drop = nn.Dropout(self.dropout, deterministic=not train)
        embed = nn.Embed(self.num_tokens, self.width, dtype=self.dtype)
        places = nn.Embed(x.shape[1], self.width, dtype=self.dtype)
        mask = nn.make_causal_mask(x)
        x = drop(embed(x) + places(jnp.arange(x.shape[1])))
        for _ in range(self.depth):
            attention = nn.MultiHeadDotProductAttention(
                self.num_heads,
                dropout_rate=self.dropout,
                broadcast_dropout=False,
                deterministic=not train,
                **given,
            )
            x = x + drop(attention(norm()(x), mask=mask))
            y = nn.gelu(dense(4 * self.width)(norm()(x)))
            x = x + drop(dense(self.width)(y))
        x = norm()(x)
        if self.tie_weights:
            logits = embed.attend(x)
        else:
            logits = nn.Dense(self.num_tokens, use_bias=False, dtype=self.dtype)(x)
        return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
