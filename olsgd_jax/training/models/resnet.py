"""The paper's network for CIFAR-10, and narrow ones like it.

    3x3 convolution, then stages of blocks, then the mean over pixels, then dense
    block: x <- relu(shortcut(x) + norm(conv(relu(norm(conv(x))))))

Every stage has twice the channels of the one before; all but the first halve the image.
Four stages of 2 blocks make 18 layers, three stages of 1 block make 8. If the shape
changes, the shortcut is a 1x1 convolution with a norm, otherwise the identity.

Reference: K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image
Recognition", CVPR 2016, arXiv:1512.03385; with 3x3 instead of 7x7 at the entrance and
no pooling there, as is usual for images of 32x32.
"""

import functools

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float


class ResNet(nn.Module):
    """A residual network with batch norm, for small images; by default ResNet-18.

    >>> import jax, jax.numpy as jnp
    >>> from olsgd_jax.training import ResNet
    >>> image = jnp.zeros((1, 32, 32, 3))
    >>> variables = jax.eval_shape(ResNet().init, jax.random.key(0), image)
    >>> sum(x.size for x in jax.tree.leaves(variables["params"]))
    11173962
    """

    num_classes: int = 10
    width: int = 64  # channels of the first stage
    blocks: tuple[int, ...] = (2, 2, 2, 2)  # number of blocks in every stage
    entrance_stride: int = 1  # 2 leaves a quarter of the pixels, and of the work
    dtype: DTypeLike = jnp.float32  # of the computation; params are float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch height width channels"], train: bool = False
    ) -> Float[Array, "batch classes"]:
        """Maps images to one logit per class."""
        conv = functools.partial(nn.Conv, use_bias=False, dtype=self.dtype)
        norm = functools.partial(
            nn.BatchNorm, use_running_average=not train, momentum=0.9, dtype=self.dtype
        )

        def block(x: Array, channels: int, stride: int) -> Array:
            y = conv(channels, (3, 3), stride, padding=1)(x)
            y = conv(channels, (3, 3), padding=1)(nn.relu(norm()(y)))
            y = norm()(y)
            if x.shape != y.shape:
                x = norm()(conv(channels, (1, 1), stride)(x))
            return nn.relu(x + y)

        x = conv(self.width, (3, 3), self.entrance_stride, padding=1)(x)
        x = nn.relu(norm()(x))
        for stage, num_blocks in enumerate(self.blocks):
            for i in range(num_blocks):
                halves = stage > 0 and i == 0
                x = block(x, self.width * 2**stage, stride=2 if halves else 1)
        x = jnp.mean(x, axis=(1, 2))
        return nn.Dense(self.num_classes, dtype=self.dtype)(x).astype(jnp.float32)
