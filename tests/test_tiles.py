"""Trees in fragments, with the elements in the order of a TPU's tiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsgd_jax.drivers.forms.tiles import cut_tiles, join_tiles

# Whole tiles along the last axis, along another one, and none.
SHAPES = [(), (7,), (0,), (16, 256), (3, 3, 8, 128), (256, 12, 2), (12, 2), (2, 1025)]


@pytest.mark.parametrize("num_fragments", [1, 3, 64])
def test_joining_undoes_cutting(num_fragments):
    keys = jax.random.split(jax.random.key(0), len(SHAPES))
    tree = {
        "double": [jax.random.normal(*x) for x in zip(keys, SHAPES, strict=True)],
        "single": [jax.random.normal(keys[0], shape, "f4") for shape in SHAPES],
    }
    fragments = cut_tiles(tree, num_fragments)
    assert {x.shape[0] for x in fragments.values()} == {num_fragments}
    jax.tree.map(np.testing.assert_array_equal, join_tiles(fragments, like=tree), tree)


def test_a_fragment_is_whole_tiles_of_the_array():
    x = jnp.arange(16 * 256.0).reshape(16, 256)
    fragments = cut_tiles(x, 4)["float64"]
    tiles = [x[:8, :128], x[:8, 128:], x[8:, :128], x[8:, 128:]]
    np.testing.assert_array_equal(fragments.reshape(4, 8, 128), jnp.stack(tiles))


def test_the_axis_that_fills_tiles_is_the_last_in_memory():
    x = jnp.arange(128 * 4 * 2.0).reshape(128, 4, 2)
    np.testing.assert_array_equal(
        cut_tiles(x, 1)["float64"].ravel(), jnp.moveaxis(x, 0, -1).ravel()
    )


def test_small_arrays_do_not_move_large_ones_off_the_tiles():
    small, large = jnp.zeros(3), jnp.ones((8, 128))
    vector = cut_tiles([small, large], 1)["float64"].ravel()
    assert vector.shape == (2048,)
    np.testing.assert_array_equal(jnp.flatnonzero(vector), jnp.arange(1024))
