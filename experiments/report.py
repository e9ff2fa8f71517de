"""Question: how do these runs compare?

Run:     python -m experiments.report results --out results/report.html
Cost:    half a minute for 72 runs (2 CPU cores)
Answer:  one self-contained HTML page, the same tables as Markdown, and every figure as
         .svg and .png. The paper's experiment comes first, as far as the runs cover it:
         findings, accuracies, trade-off, pullbacks, curves and partitions. Then come
         the timeline of a round, the time that strategies lose to a network and to
         stragglers, both measured and modelled, and the losses of language models with
         text that they write.
"""

import dataclasses
import itertools
import os
import pathlib
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence

from experiments import alpha_sweep, tables, tradeoff
from experiments.cli.options import command_parser
from experiments.language import results as language_results
from experiments.measured import (
    case_tables,
    exposed_time,
    model_check,
    network_tables,
    straggler_tables,
    timeline_figure,
)
from experiments.measured.exposed_time import SLOW_LINK
from experiments.measured.network_records import NETWORK, read
from experiments.measured.straggler_tables import STRAGGLERS
from experiments.measured.timeline_figure import TIMELINE
from experiments.pages import overview
from experiments.pages.drawing import save
from experiments.pages.html_page import to_page
from experiments.pages.markdown import to_markdown
from experiments.pages.reading import (
    check_regular,
    printable,
    reading,
    with_printable_text,
)
from experiments.pages.sections import Section, named_pictures
from experiments.paper import findings, partitions, training_curves
from olsgd_jax.training import Config, Run, read_records, writing

PAPER_DATASET = "cifar10"
"""Only runs on this data are compared with the paper's."""


def write_report(
    path: pathlib.Path,
    sources: Sequence[pathlib.Path],
    title: str = "Training runs",
    figures: pathlib.Path | None = None,
) -> None:
    """Writes one self-contained page about runs, and its tables as Markdown.

    Args:
      path: HTML file to write; the Markdown file is written next to it.
      sources: files of records, timelines, networks, stragglers and slow links, or
        directories to search for them.
      title: title of the page.
      figures: directory for figure files; None: none are written.
    """
    files = find_files(sources)
    markdown = path.with_suffix(".md")
    _check_output(path, markdown, files.values())
    others = {
        kind: [file for file in files.values() if file.name == kind]
        for kind in (TIMELINE, NETWORK, STRAGGLERS, SLOW_LINK)
    }
    records = {name: x for name, x in files.items() if x.name not in others}
    if not records:
        raise ValueError(
            f"sources must hold at least one file of records, got {_listed(sources)}"
        )
    runs = {name: _whole(read_records(file)) for name, file in records.items()}
    sections = make_sections(runs, *others.values())
    page = to_page(title, _lead(runs.values()), sections)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8", errors="replace")
    images = {}
    if figures:
        with writing(figures):
            figures.mkdir(parents=True, exist_ok=True)
            for name, picture in named_pictures(sections):
                save(picture.figure, figures / name)
                image = os.path.relpath(figures / f"{name}.svg", path.parent)
                images[name] = urllib.parse.quote(os.fsencode(image))
    text = to_markdown(sections, images)
    with writing(markdown):
        markdown.write_text(text, encoding="utf-8", errors="replace")


def find_files(sources: Sequence[pathlib.Path]) -> dict[str, pathlib.Path]:
    """Finds files for a report, each named after its path in its source."""
    found = []
    for source in sources:
        if source.is_dir():
            kinds = ("*.jsonl", TIMELINE, SLOW_LINK)
            paths = sorted(path for kind in kinds for path in source.rglob(kind))
            inside = (path.relative_to(source) for path in paths)
            names = [path.with_suffix("").as_posix() for path in inside]
            found += zip(names, paths, strict=True)
        else:
            found.append((source.stem, source))
    found = [(printable(name), path) for name, path in found]
    if len(dict(found)) < len(found):
        raise ValueError(f"sources must differ in name, got {_listed(sources)}")
    for _, path in found:
        check_regular(path)
    return dict(found)


def _check_output(
    page: pathlib.Path, markdown: pathlib.Path, files: Iterable[pathlib.Path]
) -> None:
    if page.suffix != ".html":
        raise ValueError(f"out must end with .html, got {page}")
    outputs = [path for path in (page, markdown) if path.exists()]
    for file, output in itertools.product(files, outputs):
        if file.samefile(output):
            raise ValueError(
                f"out must not replace a file that the report reads, got {page}, which "
                f"would replace {file}"
            )


def make_sections(
    runs: Mapping[str, Run],
    timelines: Sequence[pathlib.Path] = (),
    networks: Sequence[pathlib.Path] = (),
    slowed: Sequence[pathlib.Path] = (),
    links: Sequence[pathlib.Path] = (),
) -> list[Section]:
    """Makes every section that the runs and other files have data for."""
    with reading([*networks, *slowed]):
        measured, straggling = (
            [record for file in files for record in read(file)]
            for files in (networks, slowed)
        )
        of_networks = [
            network_tables.section(measured),
            straggler_tables.section(straggling),
            model_check.section(measured, straggling),
            case_tables.section(measured),
        ]
    with reading(timelines):
        timeline = timeline_figure.section(timelines)
    with reading(links):
        exposed = exposed_time.section(links)
    of_paper = [x for x in runs.values() if x.config["dataset"] == PAPER_DATASET]
    found = [
        exposed,
        findings.section(of_paper),
        tables.section(of_paper),
        tradeoff.section(of_paper),
        alpha_sweep.section(of_paper),
        training_curves.section(of_paper),
        partitions.section(runs.values()),
        timeline,
        *of_networks[:3],
        language_results.section(runs),
        overview.results(runs),
        overview.options(runs),
        of_networks[3],
    ]
    return [section for section in found if section]


def _whole(run: Run) -> Run:
    """Fills in options newer than the run, and makes its text printable."""
    return run._replace(
        config=with_printable_text({**dataclasses.asdict(Config()), **run.config}),
        versions=with_printable_text(run.versions),
        commit=run.commit and printable(run.commit),
        devices=printable(run.devices),
    )


def _lead(runs: Iterable[Run]) -> list[str]:
    """Lists devices, packages and commits of the runs, each once."""
    facts = {}
    for run in runs:
        packages = ", ".join(f"{name} {x}" for name, x in run.versions.items())
        commit = f"commit {(run.commit or 'unknown')[:10]}"
        facts |= dict.fromkeys([run.devices, packages, commit])
    return list(facts)


def _listed(sources: Sequence[pathlib.Path]) -> str:
    return ", ".join(map(str, sources)) or "none"


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    sources = "files of records, or directories that hold them"
    add("sources", type=pathlib.Path, nargs="+", help=sources)
    add("--out", type=pathlib.Path, required=True, help="HTML file to write")
    add("--title", default="Training runs", help="title of the page; %(default)r")
    add("--figures", type=pathlib.Path, help="directory; default: next to the page")
    args = parser.parse_args()
    figures = args.figures or args.out.with_name("figures")
    try:
        write_report(args.out, args.sources, args.title, figures)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(printable(str(args.out)))


if __name__ == "__main__":
    main()
