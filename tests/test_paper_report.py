"""What the report says of runs of the paper's experiment."""

import re

import numpy as np
import pytest

from experiments import report
from experiments.pages.html_page import to_page
from experiments.pages.markdown import to_markdown
from experiments.paper.relative_time import MEAN_COST
from tests.pages import line_of, relative, run_of, svg_of, table_after

OVERLAP = "overlap_local_sgd"


def sections_of(*runs):
    return report.make_sections({f"run{i}": run for i, run in enumerate(runs)})


def page_of(*runs):
    return to_page("", [], sections_of(*runs))


def titles_of(*runs):
    return [section.title for section in sections_of(*runs)][:-2]


TABLES = [
    *(
        run_of("cocod_sgd", 2, accuracy, seed=i)
        for i, accuracy in enumerate((0.5, 0.25))
    ),
    run_of("cocod_sgd", 8, 0.5, seed=0, partition="dirichlet"),
    run_of("cocod_sgd", 8, 0.1, seed=1, partition="dirichlet", outcome="diverged"),
    run_of("easgd", 8, 0.1, partition="dirichlet", outcome="diverged"),
    run_of("sync_sgd", 24, 0.75),
]


def test_accuracies_stand_beside_the_papers_in_page_and_markdown():
    page, markdown = page_of(*TABLES), to_markdown(sections_of(*TABLES))
    assert table_after(page, "<h3>IID") == [
        ["CoCoD-SGD", "37.50 [25.00, 50.00] (94.99)"]
    ]
    assert "| CoCoD-SGD | 37.50 [25.00, 50.00] (94.99) |" in markdown
    skewed = [["CoCoD-SGD", "50.00, 1 of 2 diverged (diverged)"]]
    skewed += [["EAMSGD", "diverged (88.88)"]]
    assert table_after(page, "<h3>Non-IID data (dirichlet)") == skewed
    assert "Fully synchronous SGD: 75.00 (94.97)" in page


def test_runs_are_told_apart_by_what_they_are_of_not_by_their_files():
    chosen = run_of(OVERLAP, 2, 0.5)
    again = run_of(OVERLAP, 2, 0.5, mapping="vmap", data_dir="elsewhere")
    stopped = run_of(OVERLAP, 2, 0.9, seed=1, outcome=None)
    args = {"pullback": 0.2, "anchor_momentum": 0.7}
    swept = run_of(OVERLAP, 2, 0.1, strategy_args=args)
    args = {"anchor_momentum": 0.7, "pullback": 0.5}
    tuned = run_of(OVERLAP, 1, 0.75, strategy_args=args, learning_rate=0.15)
    args = {"pullback": 0.5, "anchor_momentum": 0.7}
    same = run_of(OVERLAP, 1, 0.75, strategy_args=args, learning_rate=0.15)
    page = page_of(chosen, again, stopped, swept, tuned, same)
    cells = ["Overlap Local-SGD", "75.00 (95.19)", "50.00 (95.16)"]
    assert table_after(page, "<h3>IID") == [cells]


def test_runs_of_another_setting_have_a_table_of_their_own():
    small, large = run_of(OVERLAP, 2, 0.5), run_of(OVERLAP, 2, 0.75, batch_size=64)
    page = page_of(small, large)
    assert table_after(page, "IID data, batch_size 32") == [
        ["Overlap Local-SGD", "50.00 (95.16)"]
    ]
    assert table_after(page, "IID data, batch_size 64") == [
        ["Overlap Local-SGD", "75.00 (95.16)"]
    ]


def test_the_trade_off_is_true_to_scale_and_labelled():
    runs = [run_of("local_sgd", tau, 1 - tau / 10) for tau in (1, 2, 4)]
    lost = run_of("local_sgd", 8, 0.1, outcome="diverged")
    page = page_of(*runs, run_of("sync_sgd", 8, 0.5), lost)
    time = [1 + MEAN_COST / tau for tau in (1, 2, 4)]
    figure = page[page.index('<h2 id="trade-off">') :]
    x, y = line_of(figure, "IID data", run=4).T
    np.testing.assert_allclose(relative(x), relative(time), atol=1e-4)
    np.testing.assert_allclose(relative(y), relative([0.1, 0.2, 0.4]), atol=1e-4)
    assert (x[-1] < x[0], y[-1] < y[0]) == (True, True)
    rows = table_after(page, '<h2 id="trade-off">')
    assert rows[1] == ["Local SGD", "2", f"{time[1]:.3f}", "80.00"]
    assert "Diverged: Local SGD at τ = 8." in page
    for tau in (1, 2, 4):
        assert f">{tau}</text>" in svg_of(figure, "IID data")


def test_pullbacks_are_compared_over_the_seeds_they_share():
    def swept(pullback, accuracy, **options):
        args = {"pullback": pullback, "anchor_momentum": 0.7}
        return run_of(OVERLAP, 2, accuracy, strategy_args=args, **options)

    runs = [swept(0.2, 0.1), swept(0.4, 0.4), swept(1.0, 0.2), swept(0.4, 0.9, seed=1)]
    lost = swept(0.6, 0.1, outcome="diverged")
    page = page_of(*runs, lost)
    page = page[page.index('<h2 id="pullback">') :]
    assert table_after(page, "IID") == [
        ["0.2", "10.00"],
        ["0.4", "40.00"],
        ["0.6", "diverged"],
        ["1", "20.00"],
    ]
    x, y = line_of(page, "IID data", run=0).T
    np.testing.assert_allclose(relative(x), relative([0.2, 0.4, 1.0]), atol=1e-4)
    np.testing.assert_allclose(relative(y), relative([0.1, 0.4, 0.2]), atol=1e-4)


def test_curves_are_means_of_the_seeds_that_finished():
    runs = [
        run_of("cocod_sgd", 2, *x, seed=i) for i, x in enumerate([(0, 1), (0.5, 0)])
    ]
    lost = run_of("cocod_sgd", 2, 0.9, seed=2, outcome="diverged")
    other = run_of("sync_sgd", 24, 0.25, 0.5)
    page = page_of(*runs, lost, other)
    title = "Test accuracy: IID data"
    drawn = np.array([line_of(page, title, run)[:, 1] for run in (2, 1)]).ravel()
    # Means 0.25 and 0.5, so the two lines lie on each other.
    np.testing.assert_allclose(drawn[:2], drawn[2:], atol=1e-3)
    # 512 examples of the 512 that workers have are one epoch.
    axis = re.findall(r">(\S+)</text>", svg_of(page, title))
    assert (axis[0], "2.0" in axis) == ("1.0", True)


def test_cells_of_a_partition_are_as_dark_as_their_part_of_a_workers_examples():
    page = page_of(run_of(OVERLAP, 2, 0.5))
    svg = svg_of(page, "cifar10, iid, 2 workers, seed 0")
    shades = [float(x) for x in re.findall(r"--run-0\); opacity: (\S+?)[;\"]", svg)]
    counts = [int(x) for x in re.findall(r">(\d+)</text>", svg) if int(x) > 9]
    assert counts == [300, 100, 50, 62]
    parts = [300 / 400, 100 / 400, 50 / 112, 62 / 112]
    np.testing.assert_allclose(np.array(shades) / shades[0], np.array(parts) / parts[0])


def test_of_a_large_partition_the_first_workers_and_classes_are_shown():
    counts = [[10] * 40] * 1_000
    page = page_of(run_of(OVERLAP, 2, 0.5, facts={"histogram": counts}))
    svg = svg_of(page, "cifar10, iid, 1000 workers, seed 0")
    shades = re.findall(r"--run-0\); opacity: (\S+?)[;\"]", svg)
    # Of all that a worker has, not of what is shown of it.
    assert [float(x) for x in shades] == pytest.approx([0.7 / 40] * 32 * 20)
    assert "Shows the first 32 of 1,000 workers and the first 20 of 40 classes." in page


def test_of_every_partition_the_first_seed_is_shown():
    runs = [run_of(OVERLAP, 2, 0.5, seed=seed) for seed in (2, 1)]
    titles = re.findall("<h3>(cifar10, .*?)</h3>", page_of(*runs))
    assert titles == ["cifar10, iid, 2 workers, seed 1"]


def test_powersgd_is_no_curve_of_synchronous_sgd():
    runs = [run_of(name, 2, 0.5) for name in ("easgd", "cocod_sgd")]
    page = page_of(*runs, run_of("sync_sgd", 8, 0.6, reduction="low_rank"))
    assert ">CoCoD-SGD</text>" in svg_of(page, "Train loss: IID data")
    assert "SGD, rank" not in page
    assert ">PowerSGD</text>" not in svg_of(page, "Train loss: IID data")


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([run_of("slowmo", 2, 0.5)], ["Partitions"]),
        ([run_of("slowmo", 2, 0.5)._replace(facts=None)], []),
        ([run_of(OVERLAP, 2, 0.5)], ["Accuracy", "Partitions"]),
        ([run_of("local_sgd", 2, 0.5),
          run_of("sync_sgd", 8, 0.5, reduction="low_rank")],
         ["Trade-off", "Partitions"]),
        ([run_of("easgd", 2, 0.5), run_of("cocod_sgd", 2, 0.5)],
         ["Findings", "Accuracy", "Curves", "Partitions"]),
        ([run_of(OVERLAP, 2, 0.5, strategy_args={"pullback": x, "anchor_momentum": 0.7})
          for x in (0.1, 0.2)], ["Pullback", "Partitions"]),
    ],
)  # fmt: skip
def test_a_section_is_there_where_runs_have_what_it_needs(runs, expected):
    assert titles_of(*runs) == expected
    digits = [run._replace(config=run.config | {"dataset": "digits"}) for run in runs]
    assert set(titles_of(*digits)) <= {"Partitions"}
