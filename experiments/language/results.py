"""Loss of language models over the tokens they have seen, and text that they write."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from experiments.pages.figures import Line, draw_lines
from experiments.pages.reading import printable
from experiments.pages.sections import Picture, Quote, Section, Table
from olsgd_jax.training import Record, Run

MAX_RUNS = 12  # in figures, and of which text is shown
MEANING = (
    "Losses are in nats per token; the perplexity is e to that power. The test loss "
    "counts every token of the test text once. The train loss is averaged over workers "
    "and over the local steps since the previous record. Tokens are those that all "
    "workers have processed, repeats included."
)
HEADS = ["Run", "Tokens", "Test loss", "Perplexity", "Train loss"]


def section(runs: Mapping[str, Run]) -> Section | None:
    """Shows the language models among the runs, if there are any."""
    found = {
        name: run.records
        for name, run in runs.items()
        if run.records and run.records[-1].tokens is not None
    }
    if not found:
        return None
    table = Table(HEADS, [_row(name, own[-1]) for name, own in found.items()])
    shown = dict(list(found.items())[:MAX_RUNS])
    pictures = [
        Picture("Test loss over tokens", _curves(shown, "test_loss")),
        Picture("Train loss over tokens", _curves(shown, "train_loss")),
    ]
    quotes = [
        Quote(f"Text sampled from {name}", _printable_lines(own[-1].sample or ""))
        for name, own in shown.items()
    ]
    return Section("Language models", MEANING, [table], pictures, quotes=quotes)


def _row(name: str, last: Record) -> list[str]:
    return [
        name,
        f"{last.tokens:,}",
        f"{last.test_loss:.4f}",
        f"{last.test_perplexity:.3f}",
        f"{last.train_loss:.4f}",
    ]


def _curves(runs: Mapping[str, list[Record]], field: str) -> Figure:
    lines = {
        name: Line([r.tokens or 0 for r in own], [getattr(r, field) for r in own], look)
        for look, (name, own) in enumerate(runs.items())
    }
    return draw_lines(lines, "tokens", field.replace("_", " "))


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
