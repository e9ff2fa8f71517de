"""The worker axis: the mean, the mesh, the mappings."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, PartitionSpec

from olsgd_jax import WORKERS, on_workers, to_workers, worker_mean, worker_mesh


@pytest.mark.parametrize("mapping", ["vmap", "pmap", "shard_map"])
@pytest.mark.parametrize("m", [1, 3, 16])
def test_the_mean_is_the_mean_on_every_worker(mapping, m):
    tree = {"x": jnp.arange(m * 6.0).reshape(m, 2, 3), "y": jnp.ones(m)}
    mesh = None if mapping == "vmap" else worker_mesh(m)
    mean = on_workers(worker_mean, mesh, mapping)(tree)
    for name, own in tree.items():
        expected = np.broadcast_to(own.mean(axis=0), own.shape)
        np.testing.assert_allclose(mean[name], expected, atol=1e-12)


def test_what_holds_the_sum_gets_it_before_it_is_divided():
    def both(x):
        return worker_mean(x), worker_mean(x, hold=lambda total: total + 3)

    mean, held = on_workers(both, worker_mesh(3))(jnp.arange(3.0) ** 2)
    np.testing.assert_allclose(held, mean + 1, rtol=1e-15)


@pytest.mark.parametrize("places", [1, 2, 3])
def test_a_place_may_have_several_workers(places):
    tree = {"x": jnp.arange(6 * 4.0).reshape(6, 2, 2) ** 2}
    mean = on_workers(worker_mean, worker_mesh(places))(tree)
    expected = np.broadcast_to(tree["x"].mean(axis=0), (6, 2, 2))
    np.testing.assert_allclose(mean["x"], expected, atol=1e-12)


def test_the_mean_can_be_carried_by_a_checked_shard_map():
    def one(x):
        return jax.lax.scan(lambda c, _: (worker_mean(c), None), x, length=2)[0]

    spec = PartitionSpec(WORKERS)
    fn = jax.shard_map(one, mesh=worker_mesh(4), in_specs=spec, out_specs=spec)
    np.testing.assert_allclose(jax.jit(fn)(jnp.arange(4.0)), 1.5)


def test_a_loss_may_scan_from_a_constant_on_a_mesh():
    def one(x):  # a checked shard_map would refuse the type of this carry
        return jax.lax.scan(lambda c, _: (c + x, None), 0.0, length=2)[0]

    np.testing.assert_allclose(
        on_workers(one, worker_mesh(4))(jnp.arange(4.0)), 2 * jnp.arange(4.0)
    )


def test_workers_can_be_some_of_the_axes_of_a_larger_mapping():
    def inner(x):
        return worker_mean(x, ("hosts", "chips"))

    x = jnp.arange(6.0).reshape(2, 3)
    mean = jax.vmap(jax.vmap(inner, axis_name="chips"), axis_name="hosts")(x)
    np.testing.assert_allclose(mean, 2.5)


def test_copies_lie_one_on_each_device():
    copies = to_workers({"w": jnp.arange(3.0)}, 4, worker_mesh(4))
    assert copies["w"].shape == (4, 3)
    for shard in copies["w"].addressable_shards:
        np.testing.assert_array_equal(shard.data, [[0.0, 1.0, 2.0]])
    assert len(copies["w"].sharding.device_set) == 4


def test_the_mesh_takes_the_devices_it_is_given():
    devices = jax.devices()[3:7]
    assert list(worker_mesh(4, devices).devices.flat) == devices


@pytest.mark.parametrize("mapping", ["pmap", "shard_map"])
def test_workers_run_on_the_devices_of_their_mesh(mapping):
    mesh = worker_mesh(4, jax.devices()[3:7])
    result = jax.jit(on_workers(worker_mean, mesh, mapping))(np.arange(4.0))
    assert result.sharding.device_set == set(jax.devices()[3:7])


def test_more_workers_than_devices_are_refused():
    message = (
        "num_workers must be at most the number of devices, got 17 workers and "
        "16 devices; .*--xla_force_host_platform_device_count=17"
    )
    with pytest.raises(ValueError, match=message):
        worker_mesh(17)


def test_no_workers_are_refused():
    with pytest.raises(ValueError, match="num_workers must be at least 1, got 0"):
        worker_mesh(0)


def test_a_mesh_for_lanes_is_refused():
    with pytest.raises(ValueError, match="mesh must be None under vmap"):
        on_workers(worker_mean, worker_mesh(4), "vmap")


def test_a_mesh_without_workers_is_refused():
    mesh = Mesh(np.array(jax.devices()[:2]), ("batch",), axis_types=(AxisType.Auto,))
    with pytest.raises(ValueError, match="mesh must have an axis 'workers' under shar"):
        on_workers(worker_mean, mesh)


def test_pmap_without_a_mesh_is_refused():
    with pytest.raises(ValueError, match="mesh must have an axis 'workers' under pmap"):
        on_workers(worker_mean, None, "pmap")


def test_an_unknown_mapping_is_refused():
    message = "mapping must be one of vmap, pmap, shard_map, got 'xmap'"
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(on_workers)(worker_mean, None, "xmap")
