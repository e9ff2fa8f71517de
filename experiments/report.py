"""Question: what do these runs show, side by side?

Run:     python -m experiments.report out/demo/*.jsonl --out out/demo/report.html
Cost:    2 seconds (2 CPU cores)
Answer:  one page that needs nothing but a browser: a table of the last records, and
         figures of all of them
"""

import argparse
import html
import pathlib
import string
from collections.abc import Iterable, Sequence

from experiments.figures import bars, curves, key
from olsgd_jax import Record, Run, read_records

COLUMNS = {
    "test_accuracy": "{:.2%}",
    "test_loss": "{:.4f}",
    "train_loss": "{:.4f}",
    "spread": "{:.3g}",
    "bytes_per_step": "{:,.0f}",
    "seconds": "{:.2f}",
}
"""Fields of a record that the tables show, each with its format."""


def write_report(
    path: pathlib.Path, files: Sequence[pathlib.Path], title: str = "Training runs"
) -> None:
    """Writes one self-contained page about the runs in some files of records."""
    runs = {file.stem: read_records(file) for file in files}
    if len(runs) < len(files) or not runs:
        names = ", ".join(map(str, files)) or "none"
        raise ValueError(f"files must be at least one and differ in name, got {names}")
    for file, run in zip(files, runs.values(), strict=True):
        if not run.records:
            raise ValueError(f"{file} must hold at least one record, got none")
    page = pathlib.Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        string.Template(page).substitute(
            title=html.escape(title),
            lead=_lead(runs.values()),
            results=_results(runs),
            legend="".join(f"<span>{_name(i, x)}</span>" for i, x in enumerate(runs)),
            figures=_figures({name: run.records for name, run in runs.items()}),
            options=_options(runs),
        ),
        encoding="utf-8",
    )


def heads(fields: Iterable[str] = tuple(COLUMNS)) -> list[str]:
    """Writes fields of a record as the heads of a table."""
    return [field.replace("_", " ").capitalize() for field in fields]


def cells(record: Record, fields: Iterable[str] = tuple(COLUMNS)) -> list[str]:
    """Writes a record as the row of a table."""
    return [COLUMNS[field].format(getattr(record, field)) for field in fields]


def _results(runs: dict[str, Run]) -> str:
    rows = [
        [_name(i, name), *map(html.escape, cells(run.records[-1]))]
        for i, (name, run) in enumerate(runs.items())
    ]
    return _table(["Run", *heads()], rows, "results")


def _figures(runs: dict[str, list[Record]]) -> str:
    figures = {
        "Test accuracy": curves(runs, "examples", "test_accuracy"),
        "Train loss": curves(runs, "examples", "train_loss", log=True),
        "Spread of the workers": curves(runs, "round", "spread", log=True),
        "Communication": bars(runs, "bytes_per_step"),
    }
    zero = [
        name for name, records in runs.items() if not any(r.spread for r in records)
    ]
    note = f"Zero throughout: {html.escape(', '.join(zero))}." if zero else ""
    notes = {"Spread of the workers": note}
    return "".join(
        f"<figure><h2>{name}</h2>{svg}<figcaption>{notes.get(name, '')}</figcaption>"
        "</figure>"
        for name, svg in figures.items()
    )


def _options(runs: dict[str, Run]) -> str:
    names = dict.fromkeys(name for run in runs.values() for name in run.config)
    rows = [
        [html.escape(name)]
        + [html.escape(str(run.config.get(name, ""))) for run in runs.values()]
        for name in names
    ]
    return _table(["Option", *map(html.escape, runs)], rows, "")


def _lead(runs: Iterable[Run]) -> str:
    """Says what the runs ran on, each different answer once."""
    facts = {}
    for run in runs:
        packages = ", ".join(f"{name} {x}" for name, x in run.versions.items())
        commit = f"commit {run.commit or 'unknown'}"
        facts |= dict.fromkeys([run.devices, packages, commit])
    return " · ".join(html.escape(fact) for fact in facts)


def _name(i: int, name: str) -> str:
    return key(i) + html.escape(name)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str) -> str:
    head = "".join(f'<th scope="col">{x}</th>' for x in heads)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{x}</td>" for x in rest)}</tr>'
        for first, *rest in rows
    )
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead>{body}</table>'


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=pathlib.Path, nargs="+", help="files of records")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="page to write")
    args = parser.parse_args()
    write_report(args.out, args.files)
    print(args.out)


if __name__ == "__main__":
    main()
