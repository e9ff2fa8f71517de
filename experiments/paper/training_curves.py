"""Training and validation curves of the strategies in the paper's tables."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from experiments.pages.figures import Line, draw_lines
from experiments.pages.sections import Picture, Section
from experiments.paper.accuracy import said_of_diverged
from experiments.paper.cases import Case, Seeds, groups
from experiments.paper.published import COMPARED
from olsgd_jax.training import Record, Run

SYNC_PERIOD = 2  # in the paper's figures
MEANING = (
    f"Means over seeds at τ = {SYNC_PERIOD}. The train loss is averaged over workers "
    "and over the local steps since the previous record."
)


def section(runs: Iterable[Run]) -> Section | None:
    """Shows the curves if there are two strategies to compare."""
    pictures = []
    for group in groups(runs):
        cases = {
            case: seeds
            for case, seeds in group.cases.items()
            if _belongs(case) and all(run.facts for run in seeds.values())
        }
        if len(cases) > 1:
            note = said_of_diverged(cases)
            for field, log in (("train_loss", True), ("test_accuracy", False)):
                words = field.replace("_", " ")
                figure = draw_lines(_lines(cases, field), "epochs", words, log)
                title = f"{words.capitalize()}: {group.title}"
                pictures.append(Picture(title, figure, note))
    return Section("Curves", MEANING, pictures=pictures) if pictures else None


def _belongs(case: Case) -> bool:
    is_compared = case.strategy in COMPARED and case.sync_period == SYNC_PERIOD
    return case.is_tuned and (is_compared or case.strategy == "sync_sgd")


def _lines(cases: Mapping[Case, Seeds], field: str) -> dict[str, Line]:
    lines = {}
    for case, seeds in sorted(cases.items(), key=lambda item: item[0].look):
        epochs, values = mean_curve(list(seeds.values()), field)
        if epochs:
            lines[case.name] = Line(epochs, values, case.look)
    return lines


def mean_curve(seeds: Sequence[Run], field: str) -> tuple[list[float], list[float]]:
    """Averages a field over runs that differ in their seed, record by record.

    Runs that diverged are left out, unless all did: then the curve ends where the first
    of them does.

    Returns:
      Epochs, and the values there.
    """
    shown = [run for run in seeds if run.outcome == "finished"] or seeds
    num = min(len(run.records) for run in shown)
    epochs = [_epochs(shown[0], record) for record in shown[0].records[:num]]
    values = [
        statistics.mean(getattr(run.records[i], field) for run in shown)
        for i in range(num)
    ]
    return epochs, values


def _epochs(run: Run, record: Record) -> float:
    """Computes the number of passes over the examples of all workers."""
    assert run.facts is not None
    return record.examples / sum(map(sum, run.facts["histogram"]))
