r"""Question: which strategy, sync period and reduction suit hardware you do not have?

Run:     python -m experiments.plan --target h100:1x16x8 --model resnet18 \
             --bandwidth 10gbit
Cost:    a compilation: half a minute for GPUs, a few minutes for TPUs (2 CPU cores)
Answer:  the time of a local step and of a mean, the smallest sync period that hides
         the mean, and the fraction of time that workers compute with each strategy;
         for each reduction the smallest sync period that hides its mean, and for a
         given --sync-period the reduction with the most bits that is hidden

Needs the compilers: pip install "olsgd_jax[aot]". All times are modelled, not measured.
The time of a step is its flops divided by --utilisation of the hardware's peak; if you
have measured it, give --step-seconds. Coding and decoding of fewer bits take no time in
this model.
"""

import json

import jax
from rich.console import Console

from experiments.cli.options import command_parser
from experiments.cli.table import make_table
from experiments.links.hosts import bits_per_second
from experiments.measured.network_records import name_of
from olsgd_jax.aot import SENDING, TARGETS, WORKLOADS, Plan, plan
from olsgd_jax.timing import RoundTime
from olsgd_jax.types import Option

TIMES = ("round, ms", "exposed, ms", "utilisation")
HEADS = ("strategy", "sync period", "MB a round", *TIMES)
REDUCTION_HEADS = ("reduction", "hidden from sync period", "MB a round", *TIMES)


def rows(planned: Plan) -> list[list[str]]:
    """Formats the expected times of every strategy; HEADS are the columns."""
    return [
        [
            name_of(f"{x.strategy}:{'stream:' if x.stream else ''}{x.reduction}"),
            f"{x.sync_period}",
            f"{x.bytes_per_round / 1e6:,.1f}",
            *_times(x.time),
        ]
        for x in planned.expected
    ]


def reduction_rows(planned: Plan) -> list[list[str]]:
    """Formats what every reduction needs; REDUCTION_HEADS are the columns."""
    return [
        [
            x.reduction,
            "none" if x.hiding_period is None else f"{x.hiding_period}",
            f"{x.bytes_per_round / 1e6:,.1f}",
            *_times(x.time),
        ]
        for x in planned.reductions
    ]


def _times(time: RoundTime) -> list[str]:
    return [
        f"{1e3 * time.seconds:,.1f}",
        f"{1e3 * time.exposed:,.1f}",
        f"{time.utilisation:.1%}",
    ]


def facts(planned: Plan) -> str:
    """Describes what all strategies have in common."""
    flops = planned.step_flops
    computes = "" if flops is None else f" ({flops / 1e9:,.1f} Gflop on a device)"
    return (
        f"{planned.num_workers} workers, {planned.parameter_bytes / 1e6:,.1f} MB of "
        f"parameters. A local step takes {1e3 * planned.step_seconds:,.2f} ms"
        f"{computes}, a mean {1e3 * planned.mean_seconds:,.1f} ms: the smallest sync "
        f"period that hides it is {planned.hiding_period}."
    )


def streaming(planned: Plan) -> str:
    """Advises what to do if a step is too short for its fragment."""
    [streamed] = [x for x in planned.expected if x.stream]
    [whole] = [
        x for x in planned.expected if x[:2] == (streamed.strategy, not streamed.stream)
    ]
    if streamed.time.utilisation > 0.99 * whole.time.utilisation:
        return ""
    return (
        "A local step is too short to stream: it takes "
        f"{1e3 * planned.step_seconds:,.2f} ms, and the fragment that goes with it "
        f"{1e3 * planned.fragment_seconds:,.2f} ms, so workers would compute "
        f"{streamed.time.utilisation:.0%} of the time. Use make_round without stream, "
        f"which sends once a round ({whole.time.utilisation:.0%}). A longer "
        "sync period makes fragments smaller, but not their latency."
    )


def reducing(planned: Plan) -> str:
    """Says which reduction drops the fewest bits and is hidden."""
    sync_period = planned.reductions[0].sync_period
    best = planned.most_bits
    if best is not None:
        return (
            f"With a sync period of {sync_period}, {best.reduction} sends the most "
            "bits of the reductions whose mean is hidden."
        )
    periods = [x.hiding_period for x in planned.reductions if x.hiding_period]
    if not periods:
        return (
            "No sync period hides a mean: the latency alone takes longer than a step."
        )
    return (
        f"No mean is hidden with a sync period of {sync_period}; the smallest that "
        f"hides one is {min(periods)}."
    )


def to_json(planned: Plan) -> dict:
    """Converts a plan to what JSON can hold."""

    def plain(rows: tuple) -> list[dict]:
        return [{**x._asdict(), "time": _numbers(x.time)} for x in rows]

    return {
        **planned._asdict(),
        "expected": plain(planned.expected),
        "reductions": plain(planned.reductions),
    }


def _numbers(time: RoundTime) -> dict[str, Option]:
    return {x: getattr(time, x) for x in ("seconds", "exposed", "utilisation")}


def main() -> None:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add(
        "--target",
        required=True,
        help=f"one of {', '.join(TARGETS)}, with a topology, as in h100:1x16x8",
    )
    models = tuple(WORKLOADS)
    add("--model", default="resnet18", choices=models, help="network; %(default)s")
    add("--bandwidth", required=True, help="rate of the slowest link, such as 10gbit")
    add("--latency", type=float, default=50e-6, help="seconds per message; %(default)g")
    add(
        "--sync-period",
        type=int,
        help="local steps in a round; default: the smallest that hides the mean",
    )
    add(
        "--reductions",
        nargs="+",
        default=SENDING,
        choices=SENDING,
        metavar="NAME",
        help="how the mean of the models is sent, one or more of "
        f"{', '.join(SENDING)}; all",
    )
    add("--worker-devices", type=int, default=1, help="devices per worker; %(default)s")
    add(
        "--share",
        default="data",
        choices=("data", "fsdp"),
        help="what a worker's devices share: batches, or batches and the model; "
        "%(default)s",
    )
    add(
        "--utilisation",
        type=float,
        default=0.4,
        help="fraction of the peak reached; %(default)g",
    )
    add(
        "--stragglers",
        type=float,
        default=0.0,
        help="mean delay, in local steps; %(default)g",
    )
    add("--step-seconds", type=float, help="measured time of a local step, if known")
    add("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    # For the little that runs here; the compilers of the targets need no backend.
    jax.config.update("jax_platforms", "cpu")
    console = Console(width=max(Console().width, 100))
    try:
        with console.status(f"compiling {args.model} for {args.target}"):
            planned = plan(
                args.target,
                args.model,
                bandwidth=bits_per_second(args.bandwidth) / 8,
                latency=args.latency,
                sync_period=args.sync_period,
                utilisation=args.utilisation,
                stragglers=args.stragglers,
                step_seconds=args.step_seconds,
                reductions=args.reductions,
                **{args.share: args.worker_devices},
            )
    except (ValueError, ModuleNotFoundError) as error:
        parser.error(str(error))
    if args.json:
        return print(json.dumps(to_json(planned)))
    title = f"{args.model} on {args.target}, {args.bandwidth}"
    console.print(make_table(HEADS, rows(planned), title))
    console.print(facts(planned))
    title = f"Delayed strategies, sync period {planned.reductions[0].sync_period}"
    console.print(make_table(REDUCTION_HEADS, reduction_rows(planned), title))
    console.print(reducing(planned))
    if said := streaming(planned):
        console.print(said)


if __name__ == "__main__":
    main()
