"""Rounds of three strategies in two processes, with a slow link between them.

The link is a private loopback (see `loopback`). Where that is not possible, a single
process times the local steps, and `olsgd_jax.timing` models what the link would add.

The size of the model is chosen so that a mean takes about `MEAN_SECONDS` at any rate,
and the batch size so that this is `SHARE` of the local steps. So all strategies do the
same work on the same model, and the whole takes about equally long on any machine. Each
process is pinned to one core. In one run, rounds of all strategies with the mean
alternate with rounds of the same work without it.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from experiments.links.hosts import bits_per_second
from experiments.links.loopback import shaped_loopback
from experiments.links.modelled_link import NUM_WORKERS, modelled, modelled_spans, ring
from experiments.measured import timed_rounds
from experiments.measured.measure_all import conditions
from experiments.measured.network_numbers import of_hosts
from experiments.measured.network_rounds import means_alone, meeting, rounds
from experiments.measured.network_work import Work
from experiments.measured.timed_rounds import together
from experiments.measured.turns import Samples, take_turns
from experiments.processes.host_processes import answer, ask_inside, join, tell_progress
from olsgd_jax import exact, send_nothing, worker_mesh
from olsgd_jax.timing import round_time
from olsgd_jax.training import end_together

STRATEGIES = ("sync_sgd", "local_sgd", "overlap_local_sgd")
RATES = ("20mbit", "1gbit")
"""The slowest link and the fastest. Below, the shaper's burst is too large a part of a
message; above, cores are slower than the link."""
SYNC_PERIOD = 8
MEAN_SECONDS = 0.35
SHARE = 0.7
DEPTH = 4
NUM_DRAWN = {"sync_sgd": 1, "local_sgd": 4, "overlap_local_sgd": 6}
"""Rounds in the timeline, so that all strategies take about equally long."""

Watch = Callable[[dict], None]


def check_rate(rate: str) -> None:
    """Raises unless the rate is within `RATES`."""
    low, high = map(bits_per_second, RATES)
    if not low <= bits_per_second(rate) <= high:
        raise ValueError(f"rate must be {RATES[0]} to {RATES[1]}, got {rate!r}")


def width_for(rate: str) -> int:
    """Computes the width of the model whose mean takes about `MEAN_SECONDS`."""
    num_bytes = MEAN_SECONDS * ring(rate).bandwidth
    return max(32, 32 * round((num_bytes / 4 / DEPTH) ** 0.5 / 32))


def measure_link(rate: str, sync_period: int, repetitions: int, watch: Watch) -> dict:
    """Measures all strategies, in two processes with a slow link between them.

    Raises:
      NoLinkError: if such a link is not possible here.
    """
    question = rate, sync_period, repetitions, False
    with shaped_loopback(rate) as enter:
        answers = ask_inside(
            enter, "experiments.measured.slow_link", question, NUM_WORKERS, watch
        )
    seconds = of_hosts([x["samples"] for x in answers])
    return {
        "how": "measured",
        **_facts(rate, sync_period, answers),
        "mean": seconds["mean"],
        "rounds": {
            x: {kind: seconds[f"{x} {kind}"] for kind in ("with", "without")}
            for x in STRATEGIES
        },
        "spans": {
            x: together([own["spans"][x] for own in answers]) for x in STRATEGIES
        },
    }


def model_link(
    rate: str, sync_period: int, repetitions: int, why: str, watch: Watch
) -> dict:
    """Measures the local steps of all strategies, and models what the link adds.

    The result says `why` there is no real link.
    """
    question = rate, sync_period, repetitions, True
    answers = ask_inside([], "experiments.measured.slow_link", question, 1, watch)
    facts = _facts(rate, sync_period, answers)
    samples, num_bytes = answers[0]["samples"], 4 * facts["num_parameters"]
    steps = {x: samples[f"{x} without"] for x in STRATEGIES}
    settings = {
        x: modelled(
            x, statistics.median(own) / sync_period, sync_period, rate, num_bytes
        )
        for x, own in steps.items()
    }
    return {
        "how": "modelled",
        "why": why,
        **facts,
        "mean": [ring(rate).seconds(num_bytes, NUM_WORKERS)],
        "rounds": {
            x: {"with": [round_time(settings[x]).seconds], "without": own}
            for x, own in steps.items()
        },
        "spans": {x: modelled_spans(settings[x], NUM_DRAWN[x]) for x in STRATEGIES},
    }


def _facts(rate: str, sync_period: int, answers: Sequence[Mapping]) -> dict:
    return {
        "link": rate,
        "sync_period": sync_period,
        **answers[0]["sizes"],
        **conditions(),
    }


@end_together()
def run_process(rate: str, sync_period: int, repetitions: int, model: bool) -> None:
    """Takes part in one measurement, as `ask_inside` starts it."""
    is_first = join() == 0

    def tell(text: str, done: int = 0, num: int = 1) -> None:
        if is_first:
            tell_progress(text=text, done=done, num=num)

    mesh = worker_mesh(jax.device_count())
    tell("sizing the batches")
    work = Work("local_sgd", sync_period, width_for(rate), DEPTH)
    num_parameters = DEPTH * work.width**2
    if model:
        mean_seconds = ring(rate).seconds(4 * num_parameters, NUM_WORKERS)
    else:
        mean_seconds = _agreed(_quickest_seconds(means_alone(work, mesh)))
    work = fit_batches(work, mean_seconds / SHARE, mesh)
    works = {x: work._replace(strategy=x) for x in STRATEGIES}
    samples = _time_rounds(works, repetitions, mesh, model, tell)
    spans = {}
    for name, own in works.items() if not model else ():
        tell("noting the timeline", len(spans), len(works))
        spans[name] = timed_rounds.measure(own, NUM_DRAWN[name])
    answer(
        {
            "samples": samples,
            "spans": spans,
            "sizes": {"num_parameters": num_parameters, "batch_size": work.batch_size},
        }
    )


def fit_batches(work: Work, target: float, mesh: Mesh) -> Work:
    """Sizes the batches so that the local steps of a round take `target` seconds."""
    for _ in range(2):
        seconds = _agreed(_quickest_seconds(rounds(work, send_nothing(), mesh)))
        fitting = 8 * round(work.batch_size * target / seconds / 8)
        work = work._replace(batch_size=min(max(fitting, 8), 4096))
    return work


def _time_rounds(
    works: Mapping[str, Work],
    repetitions: int,
    mesh: Mesh,
    model: bool,
    tell: Callable[[str, int, int], None],
) -> Samples:
    kinds = {
        f"{x} without": rounds(own, send_nothing(), mesh) for x, own in works.items()
    }
    if not model:
        kinds["mean"] = means_alone(works["overlap_local_sgd"], mesh)
        for name, own in works.items():
            kinds[f"{name} with"] = rounds(own, exact(), mesh)
    return take_turns(
        kinds,
        repetitions,
        meeting(mesh),
        watch=lambda done, num: tell("timing rounds", done, num),
    )


def _quickest_seconds(run: Callable[[], None]) -> float:
    """Times the quickest of a few calls: other work only makes them longer."""
    return min(take_turns({"it": run}, 5)["it"])


def _agreed(seconds: float) -> float:
    """Averages over processes, so that all use the same value."""
    return float(np.mean(multihost_utils.process_allgather(np.float32(seconds))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=json.loads, required=True)
    run_process(*parser.parse_args().measure)
