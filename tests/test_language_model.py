"""Language models: losses per token, texts that they write, and runs that resume."""

import importlib
import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsgd_jax.training import (
    DATASETS,
    Checkpoints,
    Config,
    Due,
    Evaluation,
    Record,
    Task,
    build,
    describe,
    evaluate,
    load_dataset,
    read_records,
    sample_text,
    train,
    write_records,
)
from olsgd_jax.training.components import build_task
from olsgd_jax.training.data.dataset import NO_LABEL
from olsgd_jax.training.data.named_datasets import Source
from tests.texts import ALPHABET, SMALL, verses

# The package's name for it is the function.
evaluation = importlib.import_module("olsgd_jax.training.evaluate")


@pytest.fixture(autouse=True)
def _verses(monkeypatch):
    """Gives users' numbers, and a text by the name of verses."""
    monkeypatch.setitem(DATASETS, "verses", Source(lambda _: verses(), verses))
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def config_of(**options):
    kept = {"num_workers": 2, "sync_period": 2, "num_rounds": 4, "evaluate_every": 3}
    return Config(**{**SMALL, **kept, **options})


def model_of(config):
    """The task of a config, its first params and its text."""
    components = build(config)
    params, _ = components.task.init(jax.random.key(1))
    return components.task, params, components.dataset


def first_windows(text):
    arrays = {"inputs": text.train_inputs, "labels": text.train_labels}
    return {name: jnp.asarray(x[:5]) for name, x in arrays.items()}


def loss_of(logits, labels):
    """The definition, in float64: the mean of −log softmax(logits)[label]."""
    logits = np.asarray(logits, np.float64)
    log_sums = np.log(np.exp(logits).sum(axis=-1))
    picked = np.take_along_axis(logits, np.asarray(labels)[..., None], -1)[..., 0]
    return log_sums - picked


@pytest.mark.parametrize("chunk", [1, 12, 18, 4096])
def test_the_test_loss_is_per_token_of_the_whole_text(chunk, monkeypatch):
    monkeypatch.setattr(evaluation, "CHUNK", chunk)  # of labels; a window has 6
    task, params, text = model_of(config_of())
    counts = text.test_labels != NO_LABEL
    assert counts.sum() == 39 < text.test_labels.size
    logits = task.predict(params, {}, jnp.asarray(text.test_inputs))
    losses = loss_of(logits, np.where(counts, text.test_labels, 0))
    expected = losses[counts].mean(), (logits.argmax(-1) == text.test_labels)[counts]
    found = evaluate(task, params, {}, text.test_inputs, text.test_labels)
    np.testing.assert_allclose(found.loss, expected[0], rtol=1e-6)
    np.testing.assert_allclose(found.accuracy, expected[1].mean())


def test_the_train_loss_is_the_mean_over_all_tokens_of_a_batch():
    task, params, text = model_of(config_of())
    batch = first_windows(text)
    loss, _ = task.loss(params, {}, batch, jax.random.key(0))
    logits = task.predict(params, {}, batch["inputs"])
    np.testing.assert_allclose(loss, loss_of(logits, batch["labels"]).mean(), rtol=1e-6)


def test_the_perplexity_of_equal_chances_is_their_number():
    assert Evaluation(math.log(65), 0.0).perplexity == pytest.approx(65)
    assert Evaluation(0.0, 1.0).perplexity == 1
    assert Evaluation(1e30, 0.0).perplexity == math.inf


def test_dropout_depends_on_the_key():
    task, params, text = model_of(config_of(dropout=0.5))
    batch = first_windows(text)
    losses = [task.loss(params, {}, batch, jax.random.key(i))[0] for i in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def test_a_config_names_depth_heads_and_untied_weights():
    config = config_of(depth=3, num_heads=4, tie_weights=False, dtype="bfloat16")
    params = model_of(config)[1]
    attention = [x for x in params if x.startswith("MultiHead")]
    assert len(attention) == 3
    assert params[attention[0]]["query"]["kernel"].shape == (8, 4, 2)
    assert params["Dense_6"]["kernel"].shape == (8, len(ALPHABET))
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}


def test_an_epoch_of_a_text_is_one_pass_over_its_characters():
    config = config_of(optimizer="sgd", learning_rate=1.0, decay_epochs=(1.0,))
    schedule = build(config).schedule
    num_windows = 394  # of 400 characters
    last = num_windows / (6 * 2 * 4)  # local steps of two workers, in batches of 4
    rates = [float(schedule(step)) for step in (int(last), int(last) + 1)]
    np.testing.assert_allclose(rates, [1, 0.1], rtol=1e-6)


def test_an_mlp_has_as_many_hidden_layers_as_asked_for():
    task = build_task(Config(width=4, depth=3), load_dataset("digits"))
    assert len(task.init(jax.random.key(0))[0]) == 4


def without_seconds(entries):
    return [x._replace(seconds=0) if isinstance(x, Record) else x for x in entries]


def bits_of(config, directory):
    with Checkpoints(directory) as checkpoints:
        found = checkpoints.restore(build(config).init())
    tree = found.tree._replace(key=jax.random.key_data(found.tree.key))
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize("mapping", ["vmap", "shard_map"])
def test_a_run_that_was_stopped_ends_with_the_same_bits(mapping, tmp_path):
    config = config_of(
        mapping=mapping,
        partition="contiguous",
        dropout=0.1,
        schedule="warmup_cosine",
        clip_norm=1.0,
        num_rounds=5,
    )

    def run(name, num_records=None):
        with Checkpoints(tmp_path / name) as checkpoints:
            records = train(config, checkpoints=checkpoints, due=Due(2))
            return without_seconds(itertools.islice(records, num_records))

    whole = run("whole")
    assert run("again") == whole  # samples too
    assert run("stopped", 1) == whole[:1]
    assert run("stopped") == whole
    names = ("whole", "again", "stopped")
    first, *others = [bits_of(config, tmp_path / name) for name in names]
    assert others == [first, first]


@pytest.mark.parametrize("strategy", ["overlap_local_sgd", "cocod_sgd"])
def test_muon_trains_several_workers(strategy):
    config = config_of(strategy=strategy, optimizer="muon", num_rounds=1)
    [record] = train(config)
    assert 0 < record.test_loss < 3
    assert record.spread > 0


def test_a_language_model_learns_and_says_so():
    config = config_of(num_rounds=60, evaluate_every=60, clip_norm=1.0)
    [record] = train(config)
    # The entropy of the text: 0.9 for one character ahead and 0.1 for three.
    entropy = -0.9 * math.log(0.9) - 0.1 * math.log(0.1)
    assert entropy - 0.2 < record.test_loss < entropy + 0.3
    assert record.test_perplexity == math.exp(record.test_loss)
    assert record.examples == 60 * 2 * 2 * 4
    assert record.tokens == 6 * record.examples
    assert record.score == -record.test_loss
    following = [
        (ALPHABET.index(b) - ALPHABET.index(a)) % len(ALPHABET)
        for a, b in itertools.pairwise("\n" + record.sample)
    ]
    assert following.count(1) > 0.7 * len(following)


def test_records_keep_tokens_and_text_and_old_ones_have_neither(tmp_path):
    config = config_of(num_rounds=1)
    records = list(train(config))
    write_records(tmp_path / "text.jsonl", config, records, describe(config))
    run = read_records(tmp_path / "text.jsonl")
    assert run.records == records
    assert len(records[0].sample) == 300
    assert run.facts["histogram"] == [[197], [197]]  # windows of both workers
    epochs = 2 * 2 * 4 * 6 / 394
    assert run.facts["num_epochs"] == pytest.approx(epochs)
    image = records[0]._replace(tokens=None, sample=None)
    write_records(tmp_path / "image.jsonl", config, [image])
    row = json.loads((tmp_path / "image.jsonl").read_text().splitlines()[1])
    assert not {"tokens", "sample"} & row.keys()
    assert read_records(tmp_path / "image.jsonl").records == [image]


def test_a_sample_that_is_no_text_is_an_error(tmp_path):
    config = config_of(num_rounds=1)
    write_records(tmp_path / "run.jsonl", config, train(config))
    header, row, _ = (tmp_path / "run.jsonl").read_text().splitlines()
    row = json.dumps({**json.loads(row), "sample": 3})
    (tmp_path / "run.jsonl").write_text(f"{header}\n{row}\n")
    with pytest.raises(TypeError, match="line 2: sample must be text, got 3"):
        read_records(tmp_path / "run.jsonl")


CONTEXT = 4
TABLE = np.random.default_rng(5).normal(size=(CONTEXT, 8, 8)).astype(np.float32)


def sums_of_the_window(params, model_state, tokens):
    """Logits at each position: a table's rows for the tokens up to it, summed up."""
    length = jnp.arange(tokens.shape[1])
    rows = jnp.asarray(TABLE)[length[:, None], tokens[0][:, None]][:, 0]
    return jnp.cumsum(rows, axis=0)[None]


def sampled(predict=sums_of_the_window, **options):
    task = Task(None, None, predict)
    return sample_text(task, (), (), ALPHABET, CONTEXT, **{"length": 12, **options})


def test_a_cold_sample_takes_the_likeliest_token_after_the_last_window():
    seen = [0]  # a line break
    for _ in range(12):
        window = seen[-CONTEXT:]
        logits = sum(TABLE[i, token] for i, token in enumerate(window))
        seen.append(int(logits.argmax()))
    assert sampled(temperature=1e-4) == "".join(ALPHABET[token] for token in seen[1:])


def test_samples_follow_their_seed():
    assert sampled(seed=3) == sampled(seed=3) != sampled(seed=4)


def test_a_temperature_divides_the_logits():
    def two_tokens(params, model_state, tokens):
        return jnp.log(jnp.array([0.2, 0.8] + [0.0] * 6)) + jnp.zeros((1, CONTEXT, 1))

    for temperature in (1.0, 0.5):
        text = sampled(two_tokens, length=4000, temperature=temperature)
        power = 1 / temperature
        expected = 0.8**power / (0.8**power + 0.2**power)
        assert set(text) == {"\n", "a"}
        assert text.count("a") / 4000 == pytest.approx(expected, abs=0.02)


def test_no_text_comes_from_a_task_that_predicts_nothing():
    with pytest.raises(ValueError, match="task must have a predict to sample from"):
        sampled(predict=None)
    with pytest.raises(ValueError, match=r"temperature must be in \(0, 1e\+06\], "):
        sampled(temperature=0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "mlp"}, "model must be one of transformer for verses, which has te"),
        ({"num_heads": 3}, "width must be a multiple of num_heads, got 8 and 3"),
        ({"context": 40}, "context must be below the number of tokens in the text"),
        ({"partition": "dirichlet"}, "partition must be one of iid, contiguous for a"),
        ({"augment": True}, "augment must be False for verses, which has text"),
    ],
)
def test_options_that_do_not_fit_a_text_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        build(config_of(**options))


@pytest.mark.parametrize(
    ("name", "value"), [("num_heads", 2), ("depth", 2), ("dropout", 0.5)]
)
def test_options_of_a_transformer_are_not_for_a_resnet(name, value):
    config = Config(dataset="cifar10", model="resnet8", **{name: value})
    dataset = load_dataset("digits")
    images = dataset._replace(train_inputs=np.zeros((1440, 8, 8, 3), np.uint8))
    with pytest.raises(ValueError, match=f"{name} must be left out with model resnet8"):
        build_task(config, images)
