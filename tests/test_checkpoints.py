"""Checkpoints: what is written is read again bit for bit, or not at all."""

import inspect
import logging
import os
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

from olsgd_jax import init_state, overlap_local_sgd, to_workers, worker_mesh
from olsgd_jax.training import Checkpoints, Config, train
from olsgd_jax.training.checkpoints import schedule as due_module
from olsgd_jax.training.checkpoints.schedule import Due
from olsgd_jax.training.components import build
from tests.helpers import by_name


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
    shapes = {"v": (4, 2), "m": (4, 6), "t": (4, 2, 5), "l": (4, 2**17 + 2)}
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


def test_types_of_32_bits_keep_their_bits(tmp_path):
    bits = jnp.array([0x7FC00001, 0xBFC00000, 1], jnp.uint32)  # NaN, -1.5, denormal
    tree = {
        "f": jax.lax.bitcast_convert_type(bits, jnp.float32),
        "i": jnp.array([-1, 0, 2**31 - 1], jnp.int32),
        "u": bits,
        "long": jnp.ones(3, jnp.int64),
        "g": jnp.arange(3, dtype=jnp.bfloat16) / 3,
        "h": jnp.ones(3, jnp.bfloat16),
    }
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, tree)
        assert_same_bits(checkpoints.restore(tree).tree, tree)


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


def test_what_a_killed_process_was_writing_is_gone(copied):
    (copied / "2").rename(copied / "7.orbax-checkpoint-tmp")
    with Checkpoints(copied) as checkpoints:
        assert checkpoints.numbers() == [1]
        checkpoints.save(2, state_of(5))
        checkpoints.wait()
        assert {path.name for path in copied.iterdir()} == {"1", "2"}
        assert_same_bits(checkpoints.restore(state_of()).tree, state_of(5))


@pytest.mark.parametrize(
    "name", ["about", "state", "metrics", "commit_success.txt", "*"]
)
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
    truncate(copied / "2" / "about" / "metadata")
    with Checkpoints(copied) as checkpoints:
        with pytest.warns(UserWarning, match="is damaged"):
            assert checkpoints.restore(state_of()).number == 1
        checkpoints.save(2, state_of(7), {"seed": 7})
        assert checkpoints.restore(state_of()).facts == {"seed": 7}


def test_plain_orbax_restores_what_train_wrote(tmp_path):
    config = Config(num_rounds=2, width=4, batch_size=4, num_workers=2)
    with Checkpoints(tmp_path) as checkpoints:
        list(train(config, checkpoints=checkpoints))
        found = checkpoints.restore(build(config).init())

    with ocp.CheckpointManager(tmp_path) as manager:
        items = ocp.args.Composite(state=ocp.args.StandardRestore())
        state = manager.restore(manager.latest_step(), args=items)["state"]

    assert_same_bits(by_name(state), by_name(found.tree))


def test_nothing_of_the_logging_is_changed(tmp_path):
    loggers = [logging.getLogger(name) for name in (None, "absl", "orbax")]
    before = [(x.level, [*x.filters], [*x.handlers]) for x in loggers]
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, jnp.ones(2))
    assert [(x.level, x.filters, x.handlers) for x in loggers] == before


def test_nothing_is_logged_unless_it_is_news(tmp_path, caplog):
    for number in (1, 3):
        with Checkpoints(tmp_path, keep=1) as checkpoints:
            checkpoints.restore(jnp.ones(2))
            checkpoints.save(number, jnp.ones(2))
            checkpoints.save(number + 1, jnp.ones(2), score=0.5)
    assert [x for x in caplog.records if x.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("score", [float("nan"), None])
def test_without_a_score_a_checkpoint_is_never_the_best(tmp_path, score):
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        for number, now in ((1, 0.1), (2, 0.9), (3, score), (4, score), (5, 0.3)):
            checkpoints.save(number, jnp.ones(2), score=now)
        assert checkpoints.numbers() == [5, 2]


@pytest.mark.parametrize("number", ["../x", "1", 1.0, True, -1, None])
def test_a_checkpoint_has_a_number(tmp_path, number):
    save = inspect.unwrap(Checkpoints.save)  # without the type check of the tests
    with Checkpoints(tmp_path / "here") as checkpoints:
        with pytest.raises((TypeError, ValueError), match="^number must be"):
            save(checkpoints, number, jnp.ones(2))
        assert checkpoints.numbers() == []
    assert [path.name for path in tmp_path.rglob("*")] == ["here"]


@pytest.mark.parametrize("number", [1, 2])
def test_numbers_rise(copied, number):
    with Checkpoints(copied) as checkpoints:
        with pytest.raises(ValueError, match="^number must be above 2, the newest"):
            checkpoints.save(number, state_of(7))
        assert_same_bits(checkpoints.restore(state_of()).tree, state_of(2))


def test_a_run_outlives_its_directory(tmp_path):
    with Checkpoints(tmp_path / "d", keep=1) as checkpoints:
        checkpoints.save(1, jnp.ones(2), score=0.9)
        checkpoints.wait()
        shutil.rmtree(tmp_path / "d")
        assert checkpoints.numbers() == []
        assert checkpoints.restore(jnp.ones(2)) is None
        for number, score in ((2, 0.2), (3, 0.3), (4, 0.1)):
            checkpoints.save(number, jnp.full(2, number), score=score)
        assert checkpoints.restore(jnp.ones(2, int)).tree.tolist() == [4, 4]
        assert checkpoints.numbers() == [4, 3]


@pytest.mark.parametrize(
    "tree",
    [
        {},
        None,
        {"none": jnp.ones((2, 0)), "some": jnp.ones(2)},
        {"none": jnp.ones((0, 3), jnp.int8)},
        (jnp.ones(1), (), {"a": None}, optax.EmptyState()),
        jnp.ones(0),
    ],
)
def test_a_tree_may_hold_little_or_nothing(tmp_path, tree):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, tree, {"seed": 3})
        checkpoints.save(2, tree, {"seed": 4})
        found = checkpoints.restore(tree)
    assert found.facts == {"seed": 4}
    assert_same_bits(found.tree, tree)


@pytest.mark.parametrize("places", [1, 4])
def test_what_is_empty_is_put_where_it_is_asked(tmp_path, places):
    like = to_workers({"none": jnp.ones(0)}, 4, worker_mesh(places))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"none": jnp.ones((4, 0))})
        found = checkpoints.restore(like).tree
    assert found["none"].sharding == like["none"].sharding


def test_facts_may_be_changed_at_once(tmp_path):
    facts = {"losses": [1.0]}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, jnp.ones(2), facts)
        facts["losses"].append(2.0)
        assert checkpoints.restore(jnp.ones(2)).facts == {"losses": [1.0]}


def replace(path, make):
    path.unlink()
    make(path)


STRANGE = {
    "a number with a zero": lambda d: shutil.copytree(d / "2", d / "010"),
    "other digits": lambda d: shutil.copytree(d / "2", d / "1\u0663"),
    "a file": lambda d: (d / "9").write_text("9"),
    "a pipe": lambda d: os.mkfifo(d / "9"),
    "a loop of links": lambda d: (d / "9").symlink_to("9"),
    "a link to nothing": lambda d: (d / "9").symlink_to("gone"),
    "an empty directory": lambda d: (d / "9").mkdir(),
}


@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE.keys())
def test_what_only_looks_like_a_checkpoint_is_set_aside(copied, make):
    make(copied)
    [strange] = [x.name for x in copied.iterdir() if x.name not in ("1", "2")]
    with (
        pytest.warns(UserWarning, match=f"{strange} is damaged: "),
        Checkpoints(copied) as checkpoints,
    ):
        assert_same_bits(checkpoints.restore(state_of()).tree, state_of(2))
    with Checkpoints(copied) as checkpoints:
        checkpoints.save(9, state_of(9))
        assert_same_bits(checkpoints.restore(state_of()).tree, state_of(9))


METRICS = ["{", "[1]", "1", '{"score": null}', '{"score": NaN}', "[" * 10**5]


@pytest.mark.parametrize("content", METRICS)
def test_a_score_that_cannot_be_read_is_damage(best_first, content):
    (best_first / "3" / "metrics" / "metrics").write_text(content)
    with (
        pytest.warns(UserWarning, match="3 is damaged: metrics/metrics cannot be read"),
        Checkpoints(best_first) as checkpoints,
    ):
        assert checkpoints.restore(jnp.ones(2)).number == 2


def test_a_score_may_become_unreadable_during_a_run(tmp_path):
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        checkpoints.save(1, jnp.ones(2), score=0.1)
        checkpoints.wait()
        (tmp_path / "1" / "metrics" / "metrics").write_text("{")
        with pytest.warns(UserWarning, match="1 is damaged"):
            checkpoints.save(2, jnp.ones(2), score=0.2)
        assert checkpoints.numbers() == [2]


FILE = "state/manifest.ocdbt"
UNREADABLE = {
    "a directory": lambda path: path.mkdir(),
    "a loop of links": lambda path: path.symlink_to(path.name),
    "a link to elsewhere": lambda path: path.symlink_to("/etc/passwd"),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("make", UNREADABLE.values(), ids=UNREADABLE.keys())
@pytest.mark.parametrize("name", ["checksums.json", "about/metadata", FILE])
def test_a_file_that_cannot_be_read_is_damage(copied, name, make):
    replace(copied / "2" / name, make)
    with (
        pytest.warns(UserWarning, match=f"2 is damaged: {name}"),
        Checkpoints(copied) as checkpoints,
    ):
        assert_same_bits(checkpoints.restore(state_of()).tree, state_of(1))


CHECKSUMS = ["{}", "[]", "null", '{"format": 2}', '{"format": 2, "files": {}}']
CHECKSUMS += ['{"format": 2, "files": ["about"]}', "[" * 10**5]
CHECKSUMS += ['{"format": 2, "files": {"a\\u0000b": "1"}}']


@pytest.mark.parametrize("content", CHECKSUMS)
def test_checksums_of_nothing_are_damage(copied, content):
    (copied / "2" / "checksums.json").write_text(content)
    with pytest.warns(UserWarning, match="2 is damaged"), Checkpoints(copied) as found:
        assert found.restore(state_of()).number == 1


@pytest.mark.parametrize(
    ("content", "version"),
    [('{"about.json": "3 00000000"}', "1"), ('{"format": 3}', "3")],
)
def test_another_format_is_refused_and_stays(copied, content, version):
    (copied / "2" / "checksums.json").write_text(content)
    with Checkpoints(copied) as checkpoints:
        message = f"2 has format {version}, but this version of the library reads form"
        with pytest.raises(ValueError, match=message):
            checkpoints.restore(state_of())
        assert checkpoints.numbers() == [2, 1]


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


def test_a_checkpoint_is_due_every_ten_minutes(tmp_path, monkeypatch):
    # A round takes a minute on the clock that `Due` reads.
    now = 0.0

    class Minutes(Due):
        def __call__(self, number):
            nonlocal now
            now += 60.0
            is_due = super().__call__(number)
            asked[number] = is_due
            return is_due

    asked = {}
    monkeypatch.setattr(due_module.time, "monotonic", lambda: now)
    config = Config(num_rounds=35, width=4, batch_size=4, num_workers=2)
    with Checkpoints(tmp_path) as checkpoints:
        list(train(config, checkpoints=checkpoints, due=Minutes(minutes=10)))
    assert [number for number, is_due in asked.items() if is_due] == [10, 20, 30]


def test_what_is_read_may_depend_on_the_facts(copied):
    with Checkpoints(copied) as checkpoints:
        found = checkpoints.restore(lambda facts: state_of(facts["seed"]))
    assert_same_bits(found.tree, state_of(2))
