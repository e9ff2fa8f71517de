"""Workers of several devices: the numbers of one device, arrays where they belong."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from olsgd_jax import (
    exact,
    init_state,
    low_rank,
    make_round,
    model_of,
    overlap_local_sgd,
    plain_loss,
    spread,
    sync_sgd,
    worker_mesh,
)
from olsgd_jax.drivers.forms.base import flat_form
from olsgd_jax.drivers.platforms import Platform
from olsgd_jax.training import MLP, classification, make_batches, partition_iid
from olsgd_jax.workers.mesh import worker_devices
from olsgd_jax.workers.sharding import batch_shardings, state_shardings

TAU, M = 3, 2
SHAPES = [{"data": 4}, {"fsdp": 4}, {"data": 2, "fsdp": 2}]
# A norm over all gradients, which no part of them knows.
OPTIMIZER = optax.chain(
    optax.clip_by_global_norm(0.1), optax.sgd(0.1, 0.9, nesterov=True)
)
PARAMS = {
    "w": jax.random.normal(jax.random.key(0), (5, 8)),
    "b": jnp.ones(8),
    "out": jax.random.normal(jax.random.key(1), (8, 3)),
    "scale": jnp.array(2.0),
}
DELAYED = overlap_local_sgd(0.6, 0.7)


@plain_loss
def loss(params, batch):
    hidden = jnp.tanh(batch["x"] @ params["w"] + params["b"])
    return jnp.mean((params["scale"] * hidden @ params["out"] - batch["y"]) ** 2)


def batches(r, size=16):
    x = jax.random.normal(jax.random.key(r), (M, TAU, size, 5))
    return {"x": x, "y": x[..., :3]}


def after_rounds(strategy, mesh, reduction=exact(), **options):
    state = init_state(
        PARAMS, OPTIMIZER, strategy, mesh=mesh, num_workers=M, reduction=reduction
    )
    run = make_round(
        loss,
        OPTIMIZER,
        strategy,
        sync_period=TAU,
        mesh=mesh,
        reduction=reduction,
        **options,
    )
    for r in range(3):
        state, record = run(state, batches(r))
    return state, record


def assert_close(ours, other, rtol=1e-12):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol / 10),
        ours,
        other,
    )


def assert_same(ours, other):
    assert_close(
        (ours[0]._replace(key=()), ours[1]),
        (other[0]._replace(key=()), other[1]),
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("strategy", "reduction"),
    [(DELAYED, exact()), (sync_sgd(), exact()), (sync_sgd(), low_rank(rank=2))],
    ids=lambda x: x.name,
)
def test_a_worker_of_several_devices_computes_what_one_device_would(
    strategy, reduction, shape
):
    one = after_rounds(strategy, None, reduction)
    assert_same(after_rounds(strategy, worker_mesh(M, **shape), reduction), one)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("options", [{"driver": "host"}, {"stream": True}], ids=str)
def test_so_it_does_in_every_way_to_run_a_round(options, shape):
    one = after_rounds(DELAYED, None)
    assert_same(after_rounds(DELAYED, worker_mesh(M, **shape), **options), one)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_and_with_the_mean_as_one_vector_of_which_each_device_has_a_part(shape):
    mesh = worker_mesh(M, **shape)
    platform = Platform(flat_form(mesh), {})
    ours = after_rounds(DELAYED, mesh, platform=platform)
    assert_same(ours, after_rounds(DELAYED, None))


@pytest.mark.parametrize("options", [{}, {"driver": "host"}], ids=str)
def test_every_round_leaves_the_arrays_where_they_were(options):
    mesh = worker_mesh(M, fsdp=4)
    state, _ = after_rounds(DELAYED, mesh, **options)
    for tree in (
        state.params,
        state.strategy_state.anchor,
        state.opt_state[1][0].trace,
    ):
        assert tree["w"].sharding.spec == PartitionSpec("workers", None, "fsdp")
        assert tree["out"].sharding.spec == PartitionSpec("workers", "fsdp")
        assert tree["scale"].sharding.spec == PartitionSpec("workers")
    parts = {x.data.shape for x in state.params["w"].addressable_shards}
    assert parts == {(1, 5, 2)}


@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((4, 8), (None, "fsdp")),
        ((8, 4), ("fsdp",)),
        ((8, 8), ("fsdp",)),  # the first of equals
        ((9, 4), (None, "fsdp")),  # the longest of those that four devices divide
        ((9, 7), ()),
        ((0, 3), ()),
        ((), ()),
    ],
)
def test_the_longest_axis_that_can_be_cut_is_cut(shape, spec):
    x = jax.ShapeDtypeStruct((M, *shape), jnp.float32)
    sharding = state_shardings(x, worker_mesh(M, fsdp=4))
    assert sharding.spec == PartitionSpec("workers", *spec)
    whole = state_shardings(x, worker_mesh(M, data=4))
    assert whole.spec == PartitionSpec("workers")


def test_dropout_is_that_of_the_whole_batch():
    inputs = jax.ShapeDtypeStruct((1, 5), jnp.float32)
    task = classification(MLP(8, num_classes=3, dropout=0.5), inputs)
    x = batches(0)["x"].astype(jnp.float32)
    ends = []
    with jax.numpy_dtype_promotion("standard"):
        params, _ = task.init(jax.random.key(0))
        for mesh in (None, worker_mesh(M, data=2, fsdp=2)):
            state = init_state(params, OPTIMIZER, DELAYED, mesh=mesh, num_workers=M)
            run = make_round(task.loss, OPTIMIZER, DELAYED, sync_period=TAU, mesh=mesh)
            labels = jnp.zeros(x.shape[:-1], int)
            ends.append(run(state, {"inputs": x, "labels": labels})[0].params)
    assert_close(*ends, rtol=1e-5)


def test_models_are_evaluated_as_those_of_one_device():
    state, mesh = after_rounds(DELAYED, None)[0], worker_mesh(M, data=2, fsdp=2)
    placed = jax.device_put(state, state_shardings(state, mesh))
    for which in ("worker", "consensus", "anchor", "virtual"):
        assert_close(
            model_of(placed, DELAYED, which, mesh), model_of(state, DELAYED, which)
        )
    np.testing.assert_allclose(spread(placed, mesh), spread(state), rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_devices_of_a_worker_share_its_batches(shape):
    examples, mesh = np.arange(64), worker_mesh(M, **shape)
    shards = partition_iid(64, M, seed=0)
    sizes = {"sync_period": TAU, "batch_size": 8, "seed": 0}
    ours = make_batches(examples, shards, mesh=mesh, **sizes)(1)
    np.testing.assert_array_equal(ours, make_batches(examples, shards, **sizes)(1))
    assert {x.data.shape for x in ours.addressable_shards} == {(1, TAU, 2)}
    assert ours.sharding == batch_shardings(ours, mesh)


def test_a_batch_that_the_devices_cannot_share_is_refused():
    mesh = worker_mesh(M, data=4)
    run = make_round(loss, OPTIMIZER, DELAYED, sync_period=TAU, mesh=mesh)
    state = init_state(PARAMS, OPTIMIZER, DELAYED, mesh=mesh)
    with pytest.raises(
        ValueError, match="batch size divisible by the 4 devices of a worker"
    ):
        run(state, batches(0, size=6))


def test_pmap_has_no_workers_of_several_devices():
    with pytest.raises(ValueError, match="mapping must be 'shard_map' for workers of"):
        make_round(
            loss,
            OPTIMIZER,
            DELAYED,
            sync_period=TAU,
            mesh=worker_mesh(M, data=2),
            mapping="pmap",
        )


def test_devices_of_a_worker_follow_each_other():
    mesh = worker_mesh(2, data=2, fsdp=4)
    assert dict(mesh.shape) == {"workers": 2, "data": 2, "fsdp": 4}
    assert [x.id for x in mesh.devices.flat] == list(range(16))
    assert worker_devices(mesh) == 8


@pytest.mark.parametrize("shape", [{"data": 0}, {"fsdp": 1.5}], ids=str)
def test_a_count_of_devices_is_a_whole_number(shape):
    with pytest.raises((ValueError, TypeError), match=f"{next(iter(shape))} must be"):
        inspect.unwrap(worker_mesh)(2, **shape)


def test_too_many_devices_say_how_many_there_are():
    with pytest.raises(ValueError, match="5 workers of 4 devices and 16 devices"):
        worker_mesh(5, data=2, fsdp=2)
