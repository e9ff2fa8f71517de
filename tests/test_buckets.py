"""Models in buckets, and what of a program needs which of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsgd_jax.drivers.arrivals import last_needed
from olsgd_jax.drivers.forms import buckets
from olsgd_jax.drivers.forms.buckets import count_buckets, from_buckets, to_buckets

TREE = {
    "a": jnp.arange(7.0),
    "b": jnp.arange(12.0).reshape(3, 4),
    "half": jnp.arange(3, dtype=jnp.bfloat16),
    "none": jnp.zeros((0, 4), jnp.int32),
    "scalar": jnp.array(5.0),
}


@pytest.mark.parametrize("num", [1, 2, 3, 7, 50])
def test_what_was_cut_into_buckets_comes_back(num):
    outgoing = TREE, (jax.tree.map(lambda x: x + 1, TREE),)
    cut = to_buckets(outgoing, num)
    assert len(cut) == num
    back = from_buckets(cut, like=jax.tree.map(jnp.zeros_like, outgoing))
    jax.tree.map(np.testing.assert_array_equal, back, outgoing)


@pytest.mark.parametrize("num", [2, 3, 7])
def test_buckets_have_nearly_one_size_and_no_filling(num):
    sizes = [x["float64"].size for x, _ in to_buckets((TREE, ()), num)]
    assert sum(sizes) == 20
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [(4, 1), (2**21 - 4, 1), (2**22 - 4, 1), (2**22, 2), (2**25, 16), (2**30, 16)],
)
def test_there_are_at_most_16_and_none_is_short(num_bytes, expected):
    models = [jax.ShapeDtypeStruct((num_bytes // 4,), jnp.float32)]
    assert count_buckets(models) == expected
    assert buckets.MOST_BUCKETS == 16


def test_an_array_needs_only_the_buckets_that_hold_some_of_it():
    outgoing = {"a": jnp.zeros(4), "b": jnp.zeros(8)}, ()

    def joined(cut):
        return from_buckets(cut, like=outgoing)

    cut = to_buckets(outgoing, num=4)
    assert last_needed(jax.make_jaxpr(joined)(cut).jaxpr, [0, 1, 2, 3]) == [1, 3]


def test_results_are_followed_into_compiled_functions():
    @jax.jit
    def inner(x, y):
        return x + 1, x * y

    program = jax.make_jaxpr(lambda x, y, z: (*inner(x, y), 2.0, z - y))(1.0, 2.0, 3.0)
    assert last_needed(program.jaxpr, [1, 2, 0]) == [1, 2, 0, 2]


def test_all_results_of_a_loop_need_all_that_goes_in():
    def loop(x, y):  # the second turn gives y to what began as x
        return jax.lax.fori_loop(0, 2, lambda _, pair: pair[::-1], (x, y))

    program = jax.make_jaxpr(loop)(1.0, 2.0)
    assert last_needed(program.jaxpr, [0, 1]) == [1, 1]
