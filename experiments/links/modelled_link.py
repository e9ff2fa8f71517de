"""What a slow link would add to measured local steps, by the model of time.

For machines that cannot provide the link itself (see `slow_link`). The two workers are
alike, so both have the same times.
"""

from experiments.links.hosts import bits_per_second
from olsgd_jax.timing import Constant, Ring, Setting, round_time
from olsgd_jax.training import Config, build_strategy

NUM_WORKERS = 2


def ring(rate: str) -> Ring:
    """Models two workers on one link whose directions share its rate."""
    return Ring(bandwidth=bits_per_second(rate) / 8 / NUM_WORKERS)


def modelled(
    strategy: str, step_seconds: float, sync_period: int, rate: str, num_bytes: int
) -> Setting:
    """Describes two workers on a link to the model of time.

    `num_bytes` is the size of a model, and so of a gradient.
    """
    built = build_strategy(Config(strategy=strategy, num_workers=NUM_WORKERS))
    num_means = sync_period if built.mean_of == "gradients" else 1
    return Setting(
        built,
        sync_period,
        bytes_per_round=num_means * num_bytes,
        num_workers=NUM_WORKERS,
        compute=Constant(step_seconds),
        network=ring(rate),
    )


def modelled_spans(
    setting: Setting, num_rounds: int
) -> list[dict[str, int | str | float]]:
    """Models when workers compute and send, as `slow_link` records it of real ones."""
    num = setting.means_per_round
    compute = setting.steps_per_mean * float(setting.compute.means(NUM_WORKERS)[0])
    apart = round_time(setting).seconds / num
    spans = []
    for i in range(num_rounds * num):
        start = i * apart
        sent = start if setting.is_delayed else start + compute
        parts = {
            "local steps": (start, start + compute),
            "mean": (sent, sent + setting.mean_seconds),
        }
        spans += [
            {"worker": j, "round": i // num, "part": part, "start": begin, "end": end}
            for j in range(NUM_WORKERS)
            for part, (begin, end) in parts.items()
        ]
    return spans
