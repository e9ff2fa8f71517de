"""Checkpoints: what is written is read again bit for bit, or not at all."""

import shutil
import threading
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from olsgd_jax import init_state, overlap_local_sgd, worker_mesh
from olsgd_jax.training import Checkpoints
from olsgd_jax.training.checkpoints import manager as directory_module
from olsgd_jax.training.checkpoints import packs
from olsgd_jax.training.checkpoints import schedule as due_module
from olsgd_jax.training.checkpoints.packs import LARGEST, LARGEST_WHOLE, make_packs
from olsgd_jax.training.checkpoints.schedule import Due


def state_of(seed=0, width=3, mesh=None):
    params = {
        "w": jax.random.normal(jax.random.key(seed), (5, width)),
        "b": jnp.ones(3),
    }
    strategy = overlap_local_sgd(pullback=0.6, anchor_momentum=0.7)
    state = init_state(
        params, optax.adam(0.1), strategy, num_workers=4, seed=seed, mesh=mesh
    )
    half = jnp.arange(4, dtype=jnp.bfloat16) / 3  # of other widths
    return state._replace(model_state={"half": half, "seen": jnp.arange(4) % 2 == 0})


def assert_same_bits(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A directory with checkpoints 1 and 2, of other states."""
    directory = tmp_path_factory.mktemp("checkpoints")
    with Checkpoints(directory) as checkpoints:
        for number in (1, 2):
            checkpoints.save(number, state_of(number), {"seed": number})
    return directory


@pytest.fixture
def copied(written, tmp_path):
    return shutil.copytree(written, tmp_path / "copy")


def test_a_state_is_read_as_it_was_written(copied):
    with Checkpoints(copied) as checkpoints:
        found = checkpoints.restore(state_of())
    assert (found.number, found.facts) == (2, {"seed": 2})
    assert_same_bits(found.tree, state_of(2))


def test_pythons_numbers_are_read_as_arrays_that_give_way_as_they_do(tmp_path):
    numbers = {"step": 7, "rate": 0.1, "w": jnp.ones(2), "few": jnp.ones(2, jnp.int8)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, numbers)
        found = checkpoints.restore(like=numbers).tree
    assert_same_bits(found, jax.tree.map(jnp.asarray, numbers))
    assert found["step"] + jnp.int8(1) == 8  # an error if it did not
    assert {name for name, x in found.items() if x.weak_type} == {"step", "rate"}


@pytest.mark.parametrize("name", ["a/../../b", "long" * 100])
def test_names_need_not_be_names_of_files(tmp_path, name):
    tree = {name: jnp.arange(3), "other": jnp.ones(4), "": jnp.ones(5)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, tree)
        assert_same_bits(checkpoints.restore(tree).tree, tree)


@pytest.mark.parametrize("places", [1, 2, 4])
def test_it_is_read_to_where_it_is_asked(copied, places):
    mesh = worker_mesh(places)
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
        state_of(mesh=mesh),
    )
    with Checkpoints(copied) as checkpoints:
        found = checkpoints.restore(like)
    assert_same_bits(found.tree, state_of(2))
    assert found.tree.params["w"].sharding == like.params["w"].sharding


def placed(*axes):
    """Three small arrays and a large one, on four devices, split along some axes."""
    mesh = jax.make_mesh(
        (2, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2
    )
    place = NamedSharding(mesh, PartitionSpec(*axes))
    shapes = {"v": (4, 2), "m": (4, 6), "t": (4, 2, 5), "l": (4, LARGEST // 8 + 2)}
    arrays = {
        name: jax.random.normal(jax.random.key(i), shape)
        for i, (name, shape) in enumerate(shapes.items())
    }
    return jax.device_put(arrays, place)


@pytest.mark.parametrize("to", [(), ("a",), ("a", "b"), (None, "b")])
@pytest.mark.parametrize("of", [(), ("a",), ("a", "b")])
def test_arrays_may_be_read_to_other_places_than_they_had(tmp_path, of, to):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, placed(*of))
        found = checkpoints.restore(placed(*to)).tree
    assert_same_bits(found, placed(*to))
    for name, x in placed(*to).items():
        assert found[name].sharding == x.sharding


def test_small_arrays_whose_rows_are_whole_are_written_as_one():
    assert make_packs(placed("a")) == [["m", "t", "v"]]
    assert make_packs(placed("a", "b")) == []
    other_spelling = {**placed("a"), "m": placed("a", None)["m"]}
    assert make_packs(other_spelling) == [["m", "t", "v"]]
    with_number = {**placed("a"), "n": jnp.ones(()), "none": jnp.ones((4, 0))}
    assert make_packs(with_number) == [["m", "t", "v"]]


def test_types_of_32_bits_share_a_pack_and_keep_their_bits(tmp_path):
    bits = jnp.array([0x7FC00001, 0xBFC00000, 1], jnp.uint32)  # NaN, -1.5, denormal
    tree = {
        "f": jax.lax.bitcast_convert_type(bits, jnp.float32),
        "i": jnp.array([-1, 0, 2**31 - 1], jnp.int32),
        "u": bits,
        "long": jnp.ones(3, jnp.int64),
        "g": jnp.arange(3, dtype=jnp.bfloat16) / 3,
        "h": jnp.ones(3, jnp.bfloat16),
    }
    assert sorted(make_packs(tree)) == [["f", "i", "u"], ["g", "h"]]
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, tree)
        assert_same_bits(checkpoints.restore(tree).tree, tree)


@pytest.mark.parametrize(("largest", "num_parts"), [(LARGEST_WHOLE, 1), (0, 4)])
def test_a_small_pack_is_one_part_wherever_it_lies(
    tmp_path, monkeypatch, largest, num_parts
):
    monkeypatch.setattr(packs, "LARGEST_WHOLE", largest)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, placed("a"))
        assert_same_bits(checkpoints.restore(placed("b")).tree, placed("b"))
    parts = [path.name for path in (tmp_path / "1" / "packs.0").glob("[0-9]*")]
    assert len(parts) == num_parts


def test_one_state_is_a_handful_of_arrays(monkeypatch, tmp_path):
    written = []
    kept = ocp.args.PyTreeSave
    monkeypatch.setattr(
        ocp.args, "PyTreeSave", lambda tree: written.append(tree) or kept(tree)
    )
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state_of())
    assert len(jax.tree.leaves(written)) < len(jax.tree.leaves(state_of())) / 2


def test_where_there_is_none_there_is_none(tmp_path):
    with Checkpoints(tmp_path / "new") as checkpoints:
        assert checkpoints.restore(state_of()) is None


def test_the_newest_and_the_best_are_kept(tmp_path):
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for number, score in enumerate([0.1, 0.9, 0.2, 0.3, 0.4], start=1):
            checkpoints.save(number, jnp.ones(2), score=score)
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"2", "4", "5"}


def kept_after_going_on(directory):
    """Opens a directory with checkpoints 1 to 3, saves more, and lists what is left."""
    with Checkpoints(directory, keep=2) as checkpoints:
        assert checkpoints.restore(jnp.ones(2)).number == 3
        for number, score in ((4, 0.2), (5, 0.3), (6, 0.4)):
            checkpoints.save(number, jnp.ones(2), score=score)
    return {path.name for path in directory.iterdir()}


@pytest.fixture
def best_first(tmp_path):
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for number, score in enumerate([0.9, 0.1, 0.2], start=1):
            checkpoints.save(number, jnp.ones(2), score=score)
    return tmp_path


def test_no_more_are_kept_when_a_run_goes_on(best_first):
    assert kept_after_going_on(best_first) == {"1", "5", "6"}


def test_checkpoints_are_deleted_while_a_run_goes_on(tmp_path):
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        for number in range(1, 6):
            checkpoints.save(number, jnp.ones(2), score=number)
        assert checkpoints.numbers() == [5]
        # The last that was moved goes with the next that is written.
        assert [path.name for path in (tmp_path / "going").iterdir()] == ["4"]


def test_what_a_killed_process_was_deleting_is_gone(best_first, monkeypatch):
    # It dies with two checkpoints moved away, and with one of them half deleted.
    monkeypatch.setattr(directory_module, "delete_going", lambda directory: None)
    assert kept_after_going_on(best_first) == {"1", "5", "6", "going"}
    moved = sorted(path.name for path in (best_first / "going").iterdir())
    assert moved == ["2", "3", "4"]
    shutil.rmtree(best_first / "going" / "3" / "alone.0")
    monkeypatch.undo()
    with Checkpoints(best_first, keep=2) as checkpoints:
        assert {path.name for path in best_first.iterdir()} == {"1", "5", "6"}
        assert checkpoints.restore(jnp.ones(2)).number == 6


def test_what_a_killed_process_was_writing_is_gone(copied):
    (copied / "2").rename(copied / "2.orbax-checkpoint-tmp")
    with Checkpoints(copied) as checkpoints:
        assert {path.name for path in copied.iterdir()} == {"1"}
        checkpoints.save(2, state_of(5))
        assert_same_bits(checkpoints.restore(state_of()).tree, state_of(5))


@pytest.mark.parametrize("name", ["about.json", "alone.0", "commit_success.txt", "*"])
def test_one_that_is_damaged_is_not_the_best(best_first, name):
    for path in (best_first / "2").glob(name):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert kept_after_going_on(best_first) == {"1", "5", "6"}


def test_what_is_saved_may_be_donated_at_once(tmp_path):
    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.zeros((64, 1000))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, x)
        for _ in range(20):
            x = add(x)
        assert checkpoints.restore(x).tree.sum() == 0


def test_nothing_is_left_running(tmp_path):
    before = threading.active_count()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, jnp.ones(2))
    # Threads of a loop of asyncio's end a moment after it.
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (lambda: state_of(width=4), r"params.w is float64\[4,5,3\], not"),
        (lambda: state_of().params, "absent|not there"),
        (lambda: (state_of(), jnp.ones(2)), "is absent, not"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_and_stays(copied, like, message):
    with Checkpoints(copied) as checkpoints:
        with pytest.raises(ValueError, match="must be of the same model") as error:
            checkpoints.restore(like())
        assert error.match(message)
        assert checkpoints.restore(state_of()).number == 2


def files_of(directory):
    return sorted(path for path in (directory / "2").rglob("*") if path.is_file())


def truncate(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file):
    content = bytearray(file.read_bytes())
    for place in range(0, len(content), max(1, len(content) // 7)):
        content[place] ^= 0x10
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [truncate, flip, lambda file: file.unlink()])
def test_damage_is_noticed_wherever_it_is(written, tmp_path, damage):
    noticed = []
    for i, file in enumerate(files_of(written)):
        copied = shutil.copytree(written, tmp_path / str(i))
        damage(copied / file.relative_to(written))
        with (
            warnings.catch_warnings(record=True, action="always") as warned,
            Checkpoints(copied) as checkpoints,
        ):
            found = checkpoints.restore(state_of())
        told = [str(x.message) for x in warned if "is damaged" in str(x.message)]
        noticed += [file.relative_to(written / "2").as_posix()] if told else []
        # A file that nobody needs may be damaged; what is read is always right.
        assert found.number == (1 if told else 2), file
        assert_same_bits(found.tree, state_of(found.number))
        assert (copied / "2.damaged").exists() == bool(told)
        if told:
            assert f"{copied / '2'} is damaged" in told[0]
    # The names that orbax gives to a checkpoint's own two files are its affair.
    assert len(noticed) >= len(files_of(written)) - 2


def test_a_number_can_be_saved_again_once_it_was_damaged(copied):
    truncate(copied / "2" / "about.json")
    with Checkpoints(copied) as checkpoints:
        with pytest.warns(UserWarning, match="is damaged"):
            assert checkpoints.restore(state_of()).number == 1
        checkpoints.save(2, state_of(7), {"seed": 7})
        assert checkpoints.restore(state_of()).facts == {"seed": 7}


def test_minutes_are_minded_too():
    due = Due(every=10, minutes=0.05 / 60)
    assert due(20)
    assert not due(21)
    threading.Event().wait(0.06)
    assert due(21)
    due.restart(21)
    assert not due(22)


def test_processes_ask_for_the_time_rarely(monkeypatch):
    # A round takes 1 s on the first process' clock, and a minute are 60 of them.
    now, asked = 0.0, []

    def broadcast(left):
        asked.append(number)
        return left

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(due_module.time, "monotonic", lambda: now)
    monkeypatch.setattr(due_module.multihost_utils, "broadcast_one_to_all", broadcast)
    due, saved = Due(minutes=1), []
    for number in range(1, 121):
        now += 1.0
        if due(number):
            saved.append(number)
            due.restart(number)
    assert saved == [60, 120]
    assert asked == [1, 2, 4, 8, 16, 32, 60, 61, 62, 64, 68, 76, 92, 120]


def test_what_is_read_may_depend_on_the_facts(copied):
    with Checkpoints(copied) as checkpoints:
        found = checkpoints.restore(lambda facts: state_of(facts["seed"]))
    assert_same_bits(found.tree, state_of(2))
