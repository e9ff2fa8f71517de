"""Times that `slow_link` measured or modelled: how long rounds wait for the network."""

import pathlib
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from experiments.measured.timeline_figure import draw_groups
from experiments.pages.reading import parse_json
from experiments.pages.sections import Picture, Section, Table

SLOW_LINK = "slow_link.json"
"""Name of a file of these times."""

NAMES = {
    "sync_sgd": "Synchronous SGD",
    "local_sgd": "Local SGD",
    "overlap_local_sgd": "Overlap Local-SGD",
}
HEADS = ("Seconds per round", "Without the mean", "Exposed")
_MEASURED = (
    "Measured in two processes on this machine, each pinned to one core, connected by "
    "a real link: a private loopback with this rate, shared by both directions. "
    "Exposed communication is the time of a round minus the time of the same round "
    "without its mean. The two took turns in one run of all strategies. Medians over "
    "rounds; a round lasts as long as on the slower worker."
)
_MODELLED = (
    "Modelled, not measured: this machine could not provide a slow link. The local "
    "steps were measured in one process on one core (the column without the mean). "
    "What the link would add, and the timeline, are modelled."
)
_LANES = (
    "Time runs to the right, on one axis for all strategies. Each worker has a lane "
    "for its computation and a lane for the mean, from its call to its result. From "
    "the top: {} rounds."
)


class Exposed(NamedTuple):
    """Medians of a strategy, in seconds."""

    round: float
    without: float  # the same round with the mean left out

    @property
    def exposed(self) -> float:
        """Time that the mean adds to the round."""
        return self.round - self.without


def exposed_times(found: dict) -> dict[str, Exposed]:
    """Computes the medians of every strategy."""
    return {
        name: Exposed(*(statistics.median(own[x]) for x in ("with", "without")))
        for name, own in found["rounds"].items()
    }


def row(name: str, time: Exposed) -> list[str]:
    """Formats a strategy as a row: its name, then the columns of HEADS."""
    seconds = time.round, time.without, time.exposed
    # Rounded first, and without the sign of a negative zero.
    return [NAMES[name], *(f"{round(x, 2) + 0.0:.2f}" for x in seconds)]


def title_of(found: dict) -> str:
    """Describes what was measured."""
    return (
        f"{found['link']} link ({found['how']}), τ = {found['sync_period']}, "
        f"{found['num_parameters']:,} parameters"
    )


def headline(found: dict) -> str:
    """Sums up the result in a sentence, whatever it is."""
    times, mean = exposed_times(found), statistics.median(found["mean"])
    sync_sgd, local_sgd, own = (times[name] for name in NAMES)
    hidden = min(max(0.0, 1 - own.exposed / mean), 1.0)
    if found["how"] == "modelled":
        start, hides, fails = "Modelled, not measured: ", "would hide", "would not hide"
        takes = "would take"
    else:
        start, hides, fails, takes = "", "hid", "did not hide", "took"
    if hidden < 0.5:
        what = f"{fails} its communication (only {hidden:.0%} of it)"
    else:
        what = f"{hides} {hidden:.0%} of its communication"
    return (
        f"{start}Overlap Local-SGD {what}: {own.round:.2f} s a round, where Local SGD "
        f"{takes} {local_sgd.round:.2f} s and synchronous SGD {sync_sgd.round:.2f} s."
    )


def remark(found: dict) -> str:
    """Explains rounds that took less time with the mean than without."""
    if min(x.exposed for x in exposed_times(found).values()) > -0.005:
        return ""
    return "A negative exposed time is noise, for example from other programs."


def section(files: Iterable[pathlib.Path]) -> Section | None:
    """Shows the times, with all strategies in one figure."""
    answers, texts, tables, pictures = [], [], [], []
    for file in files:
        found = parse_json(file.read_text(encoding="utf-8"))
        is_modelled = found["how"] == "modelled"
        answers.append(headline(found))
        rows = [row(*x) for x in exposed_times(found).items()]
        texts.append(_MODELLED if is_modelled else _MEASURED)
        mean = statistics.median(found["mean"])
        note = (
            f"One mean alone, {found['how']}: {mean:.2f} s. Batch size "
            f"{found['batch_size']}; {found['machine']}."
        )
        if text := remark(found):
            note += f" {text}"
        if is_modelled:
            note += f" Why there was no slow link: {found['why']}."
        tables.append(Table(["Strategy", *HEADS], rows, title_of(found), note))
        spans = {NAMES[x]: own for x, own in found["spans"].items()}
        nums = [str(1 + max(x["round"] for x in own)) for own in spans.values()]
        shown = " and ".join([", ".join(nums[:-1]), nums[-1]])
        title = f"Who computes and who communicates, {found['how']}"
        pictures.append(Picture(title, draw_groups(spans), _LANES.format(shown)))
    if not tables:
        return None
    return Section(
        title="Is the network hidden?",
        text=" ".join(dict.fromkeys(texts)),
        tables=tables,
        pictures=pictures,
        answer=" ".join(answers),
    )
