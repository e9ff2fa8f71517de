"""Networks: their sizes, and what the papers say that they compute."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsgd_jax.aot.workloads import WORKLOADS
from olsgd_jax.training import ResNet, Transformer


@pytest.fixture(autouse=True)
def _users_numbers():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def num_parameters(params):
    return sum(x.size for x in jax.tree.leaves(params))


@pytest.mark.parametrize(
    ("name", "count"),
    [("mlp", 18_903_050), ("resnet18", 11_173_962), ("transformer", 98_032_128)],
)
def test_the_compiled_networks_have_these_sizes(name, count):
    params, _ = jax.eval_shape(WORKLOADS[name].task.init, jax.random.key(0))
    assert num_parameters(params) == count


def test_a_narrow_residual_network_has_this_size():
    module = ResNet(width=16, blocks=(1, 1, 1), entrance_stride=2)
    image = jnp.zeros((1, 32, 32, 3))
    variables = jax.eval_shape(module.init, jax.random.key(0), image)
    assert num_parameters(variables["params"]) == 78_042
    # A stride at the entrance is a quarter of the work, give or take the edges.
    flops = [
        jax.jit(x.apply).lower(variables, image).cost_analysis()["flops"]
        for x in (module, module.clone(entrance_stride=1))
    ]
    assert 3.5 < flops[1] / flops[0] < 4.5


def test_a_residual_network_narrows_with_its_width():
    image = jnp.zeros((2, 8, 8, 3))
    module = ResNet(num_classes=7, width=4)

    def run(key):
        variables = module.init(key, image)
        return module.apply(variables, image, train=True, mutable="batch_stats")

    logits, state = jax.eval_shape(run, jax.random.key(0))
    assert logits.shape == (2, 7)
    assert len(jax.tree.leaves(state)) == 2 * 20  # mean and variance of every norm


def test_a_residual_network_computes_in_half_precision_with_whole_parameters():
    image = jnp.zeros((2, 8, 8, 3))
    module = ResNet(width=4, dtype=jnp.bfloat16)
    variables = jax.eval_shape(module.init, jax.random.key(0), image)
    assert {x.dtype for x in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    lowered = jax.jit(module.apply).lower(variables, image)
    assert lowered.out_info.dtype == jnp.float32
    assert "bf16" in lowered.as_text()


def test_blocks_add_their_input():
    """With norms that give nothing, a stage without a shortcut is the identity."""
    image = jax.random.normal(jax.random.key(1), (1, 8, 8, 3))
    module = ResNet(width=4)
    apply = jax.jit(module.apply)
    variables = jax.jit(module.init)(jax.random.key(0), image)
    silent = jax.tree.map(jnp.array, variables)
    for name in ("BatchNorm_2", "BatchNorm_4"):  # the last of both blocks of stage 1
        silent["params"][name]["scale"] = jnp.zeros(4)
    changed = jax.tree.map(jnp.array, silent)
    for name in ("Conv_1", "Conv_2", "Conv_3", "Conv_4"):
        changed["params"][name]["kernel"] = jnp.ones_like(
            silent["params"][name]["kernel"]
        )
    np.testing.assert_array_equal(apply(silent, image), apply(changed, image))
    assert np.any(apply(variables, image) != apply(silent, image))


def test_a_transformer_does_not_look_ahead():
    module = Transformer(num_tokens=11, width=8, depth=2, num_heads=2)
    tokens = jnp.arange(6)[None]
    variables = module.init(jax.random.key(0), tokens)
    before = module.apply(variables, tokens)
    after = module.apply(variables, tokens.at[0, 4].set(9))
    np.testing.assert_array_equal(before[0, :4], after[0, :4])
    assert np.all(np.any(before[0, 4:] != after[0, 4:], axis=-1))


TOKENS = jnp.array([[0, 1, 2, 3, 4, 5], [0, 3, 6, 9, 1, 4]], jnp.int32)


def of_transformer(**options):
    """A small transformer, and its first variables."""
    module = Transformer(num_tokens=11, width=8, depth=2, num_heads=2, **options)
    return module, module.init(jax.random.key(0), TOKENS)


def test_dropout_of_a_transformer_depends_on_the_key_and_only_in_training():
    module, variables = of_transformer(dropout=0.5)

    def run(number, train=True):
        rngs = {"dropout": jax.random.key(number)}
        return module.apply(variables, TOKENS, train=train, rngs=rngs)

    np.testing.assert_array_equal(run(0), run(0))
    assert np.all(np.any(run(0) != run(1), axis=-1))
    np.testing.assert_array_equal(run(0, train=False), run(1, train=False))
    plain, _ = of_transformer()
    np.testing.assert_array_equal(
        run(0, train=False), plain.apply(variables, TOKENS, train=True)
    )


def test_dropout_drops_each_sequence_in_its_own_way():
    module, variables = of_transformer(dropout=0.5)
    equal = jnp.tile(TOKENS[:1], (2, 1))
    rngs = {"dropout": jax.random.key(0)}
    first, second = module.apply(variables, equal, train=True, rngs=rngs)
    assert np.any(first != second)


def test_every_weight_of_the_attention_is_dropped_by_itself():
    module, variables = of_transformer(dropout=0.5)
    rngs = {"dropout": jax.random.key(0)}
    drawn = jax.make_jaxpr(lambda: module.apply(variables, TOKENS, True, rngs=rngs))()
    # By sequence, head, and the two positions.
    assert "shape=(2, 2, 6, 6)" in str(drawn)


def gradient(module, variables):
    def loss(params):
        logits = module.apply({"params": params}, TOKENS)
        return jnp.sum(jax.nn.log_softmax(logits)[..., 0])

    return jax.grad(loss)(variables["params"])


def test_tied_weights_get_the_gradients_of_both_of_their_uses():
    tied, variables = of_transformer()
    apart, _ = of_transformer(tie_weights=False)
    embedding = variables["params"]["Embed_0"]["embedding"]
    # The same model, with a matrix of its own for the logits.
    own = {**variables["params"], "Dense_4": {"kernel": embedding.T}}
    both = gradient(apart, {"params": own})
    shared = gradient(tied, variables)["Embed_0"]["embedding"]
    parts = both["Embed_0"]["embedding"], both["Dense_4"]["kernel"].T
    np.testing.assert_allclose(shared, sum(parts), rtol=1e-4, atol=1e-5)
    assert all(np.abs(x).max() > 0.1 for x in parts)


def test_a_transformer_without_biases_has_matrices_and_scales_alone():
    _, variables = of_transformer(use_bias=False)
    names = {path[-1].key for path, _ in jax.tree.leaves_with_path(variables)}
    assert names == {"kernel", "embedding", "scale"}


def test_a_transformer_computes_in_half_precision_with_whole_parameters():
    module, variables = of_transformer(dtype=jnp.bfloat16)
    assert {x.dtype for x in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    logits = module.apply(variables, TOKENS)
    assert logits.dtype == jnp.float32
    plain, _ = of_transformer()
    expected = plain.apply(variables, TOKENS)
    # bfloat16 has 8 significant bits.
    np.testing.assert_allclose(logits, expected, atol=0.05)
    assert np.any(logits != expected)
