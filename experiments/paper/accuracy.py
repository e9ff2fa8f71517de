"""Accuracy of runs that differ only in their seed."""

import statistics
from collections.abc import Iterable, Mapping

from experiments.paper.cases import Case, Seeds
from olsgd_jax.training import Run


def accuracy_of(seeds: Iterable[Run]) -> str:
    """Formats the last accuracy of runs that differ in their seed, in percent."""
    seeds = list(seeds)
    finished = [100 * accuracy for accuracy in last_accuracies(seeds)]
    diverged = len(seeds) - len(finished)
    if not finished:
        return "diverged" if diverged else "—"
    text = f"{statistics.mean(finished):.2f}"
    if len(finished) > 1:
        text += f" [{min(finished):.2f}, {max(finished):.2f}]"
    return text + (f", {diverged} of {len(seeds)} diverged" if diverged else "")


def last_accuracies(seeds: Iterable[Run]) -> list[float]:
    """Returns the last accuracy, in [0, 1], of every run that did not diverge."""
    finished = (run for run in seeds if run.outcome == "finished")
    return [run.records[-1].test_accuracy for run in finished]


def said_of_diverged(cases: Mapping[Case, Seeds]) -> str:
    """Names the cases that no figure shows because none of their runs finished."""
    lost = [
        f"{case.name} at τ = {case.sync_period}"
        for case, seeds in cases.items()
        if not last_accuracies(seeds.values())
    ]
    return f"Diverged: {'; '.join(lost)}." if lost else ""
