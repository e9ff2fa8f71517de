"""Statistics of rounds timed with and without communication."""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Numbers(NamedTuple):
    """Medians over rounds, but for `one`; times in seconds."""

    steps: float  # a round without communication: its local steps and mix
    mean: float  # the means of a round, alone
    # The quickest mean of one number; in slower ones, threads waited for their core.
    one: float
    round: float
    exposed: tuple[float, float, float]  # round less steps; the middle is its median
    cpu: float  # of the transport, per process
    sent: float  # bytes a host sends

    @property
    def exposed_percent(self) -> float:
        """Exposed time in percent of the steps."""
        return 100 * self.exposed[1] / self.steps

    @property
    def of_limit(self) -> float:
        """The round divided by its lower limit, the larger of steps and mean."""
        return self.round / max(self.steps, self.mean)

    @property
    def utilisation(self) -> float:
        """Fraction of a round in which a worker computes."""
        return self.steps / self.round


def numbers_of(samples: Mapping[str, Sequence[float]]) -> Numbers:
    """Computes medians, and the quartiles of the exposed time of each round."""
    median = {name: statistics.median(values) for name, values in samples.items()}
    exposed = [a - b for a, b in zip(samples["with"], samples["without"], strict=True)]
    low, middle, high = statistics.quantiles(exposed, n=4)
    return Numbers(
        steps=median["without"],
        mean=median["mean"],
        one=min(samples["one"]),
        round=median["with"],
        exposed=(low, middle, high),
        cpu=median["with_cpu"] - median["without_cpu"],
        # Both include the same mean of one number, by which hosts meet.
        sent=median["with_bytes"] - median["without_bytes"],
    )


def of_hosts(samples: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list]:
    """Combines what hosts measured of the same rounds.

    The time of a round is that of the slowest host; CPU time and bytes are means.
    """
    return {
        name: [
            statistics.mean(x) if name.endswith(("_cpu", "_bytes")) else max(x)
            for x in zip(*(own[name] for own in samples), strict=True)
        ]
        for name in samples[0]
    }
