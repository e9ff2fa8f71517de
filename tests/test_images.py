"""Images: crops and flips against a plain loop, and each of them as likely."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsgd_jax.training import crop_and_flip, normalise


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(1, 256, shape, dtype=np.uint8)


def window(image, down, across, flip):
    """Cuts one window out of one image with a margin of 4, pixel by pixel."""
    height, width, _ = image.shape
    result = np.zeros_like(image)
    for row in range(height):
        for column in range(width):
            source_row = row + down - 4
            source_column = (width - 1 - column if flip else column) + across - 4
            if 0 <= source_row < height and 0 <= source_column < width:
                result[row, column] = image[source_row, source_column]
    return result


def draws_of(image, crops):
    """Finds (down, across, flip) of each crop of one image; each must be one."""
    windows = {
        window(image, down, across, flip).tobytes(): (down, across, flip)
        for down in range(9)
        for across in range(9)
        for flip in (False, True)
    }
    return [windows[crop.tobytes()] for crop in np.asarray(crops)]


@pytest.mark.parametrize("shape", [(32, 32, 3), (6, 9, 1)])
def test_every_window_of_the_padded_image_and_its_mirror_image_occurs(shape):
    image = noise(*shape)
    copies = jnp.broadcast_to(image, (2000, *shape))
    draws = draws_of(image, crop_and_flip(jax.random.key(0), copies))
    # 2,000 draws of 162: each occurs, except with a chance of 162 exp(−2000 / 162).
    assert len(set(draws)) == 162
    for place in (0, 1):
        counts = np.bincount([draw[place] for draw in draws], minlength=9)
        np.testing.assert_allclose(counts / 2000, 1 / 9, atol=0.03)  # 4 deviations
    np.testing.assert_allclose(np.mean([flip for *_, flip in draws]), 0.5, atol=0.05)


def test_draws_are_independent():
    image = noise(8, 8, 1)
    copies = jnp.broadcast_to(image, (4000, 8, 8, 1))
    draws = draws_of(image, crop_and_flip(jax.random.key(1), copies))
    of_next = np.roll(draws, 1, axis=0)  # those of the image before it
    correlations = np.corrcoef(np.column_stack([draws, of_next]), rowvar=False)
    np.testing.assert_allclose(correlations, np.eye(6), atol=0.07)  # 4 deviations


def test_every_image_is_cropped_from_itself():
    images = noise(5, 8, 8, 3)
    for image, crop in zip(
        images, crop_and_flip(jax.random.key(0), jnp.asarray(images)), strict=True
    ):
        assert draws_of(image, [crop])


def test_keys_decide_the_crops():
    images = jnp.asarray(noise(16, 8, 8, 3))
    first = crop_and_flip(jax.random.key(0), images)
    np.testing.assert_array_equal(first, crop_and_flip(jax.random.key(0), images))
    assert (first != crop_and_flip(jax.random.key(1), images)).any()


def test_crops_are_the_same_compiled_in_a_scan_and_as_lanes():
    images = jnp.asarray(noise(2, 3, 4, 8, 8, 3))  # lane, step, batch
    keys = jax.random.split(jax.random.key(0), (2, 3))

    def steps(keys, images):
        return jax.lax.scan(
            lambda carry, x: (carry, crop_and_flip(*x)), (), (keys, images)
        )[1]

    compiled = jax.jit(jax.vmap(steps))(keys, images)
    assert compiled.dtype == jnp.uint8
    for lane in range(2):
        for step in range(3):
            expected = crop_and_flip(keys[lane, step], images[lane, step])
            np.testing.assert_array_equal(compiled[lane, step], expected)


@pytest.mark.parametrize("put", [np.asarray, jnp.asarray])
def test_pixels_are_normalised_by_colour(put):
    images = noise(2, 3, 4, 3)
    normal = normalise(put(images))
    assert normal.dtype == jnp.float32
    for place in np.ndindex(2, 3, 4):
        for colour, (mean, std) in enumerate(
            [(0.4914, 0.2023), (0.4822, 0.1994), (0.4465, 0.2010)]
        ):
            expected = (int(images[*place, colour]) / 255 - mean) / std
            # Rounding of float32, which is larger where pixel and mean cancel.
            assert abs(normal[*place, colour] - expected) < 1e-6
