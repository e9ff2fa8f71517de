"""The question of scale runs from end to end, and says what its files say."""

import argparse
import json

import pytest

from experiments import scale
from experiments.planning.assumptions import LINKS, MODELS, step_seconds
from olsgd_jax.timing import RingOrTree


@pytest.fixture(scope="module")
def smallest(tmp_path_factory):
    """Everything modelled for 2 and 16 workers."""
    out = tmp_path_factory.mktemp("scale")
    scale.main(["--out", str(out), "--num-workers", "2", "16", "--sync-period", "4"])
    return out


def test_every_case_is_modelled(smallest):
    rows = json.loads((smallest / "scale.json").read_text())["rows"]
    cases = {(row["model"], row["link"], row["num_workers"]) for row in rows}
    assert len(rows) == len(cases) == len(MODELS) * len(LINKS) * 2
    for row in rows:
        sync, local, overlap = row["utilisation"].values()
        assert 0 < sync < local < overlap < 1


def test_the_tables_and_figures_show_them(smallest):
    text = (smallest / "scale.md").read_text()
    [row] = [
        row
        for row in json.loads((smallest / "scale.json").read_text())["rows"]
        if (row["model"], row["link"], row["num_workers"]) == ("1 B", "10 Gbit", 16)
    ]
    assert (
        f"| 10 Gbit | 16 | 6 | ring | {100 * row['utilisation']['sync_sgd']:.3g} %"
        in text
    )
    assert f"{100 * row['utilisation']['overlap_local_sgd']:.3g} % | 7 |" in text
    for model in ("11-m", "1-b", "100-b"):
        assert f"(scale-{model}-parameters.svg)" in text
        assert (smallest / f"scale-{model}-parameters.svg").exists()


def utilisation(**changes):
    """Of Overlap Local-SGD where its mean is shorter than its local steps."""
    options = {"sync_period": 8, "batch_size": None, "flops": 3e14, "utilisation": 0.4}
    args = argparse.Namespace(**options, **{"stragglers": 0.1, "seed": 0, **changes})
    row = scale.row_of("11 M", "400 Gbit", 16, args)
    return row["utilisation"]["overlap_local_sgd"]


def test_a_seed_decides_what_stragglers_do():
    first, same, other = (utilisation(seed=seed) for seed in (0, 0, 1))
    assert first == same != other


def test_without_stragglers_nothing_is_exposed():
    assert utilisation(stragglers=0) == 1


def test_a_step_is_its_operations_over_those_of_its_accelerators():
    model = MODELS["100 B"]._replace(batch_size=2)
    assert step_seconds(model, 1e15, 0.5) == 2 * 6e11 * 2048 / (64 * 0.5e15)


def test_a_mean_goes_the_faster_way():
    network = RingOrTree(*LINKS["10 Gbit"])
    names = [type(network.faster(4e7, m)).__name__ for m in (16, 10**5)]
    assert names == ["Ring", "Tree"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--utilisation", "1.5", "utilisation must be in (0, 1], got 1.5"),
        ("--flops", "0", "flops must be in (0, inf), got 0.0"),
        ("--stragglers", "-1", "stragglers must be in [0, inf), got -1.0"),
        ("--batch-size", "0", "batch_size must be at least 1, got 0"),
        ("--num-workers", "0", "num_workers must be at least 1, got 0"),
    ],
)
def test_a_command_line_without_a_meaning_is_refused(option, value, message, capsys):
    with pytest.raises(SystemExit):
        scale.main([option, value])
    assert message in capsys.readouterr().err
