"""Question: what does it cost a CPU to write messages in fewer bits, and to read them?

Run:     python -m experiments.codec_cost
Cost:    20 seconds (1 CPU core)
Answer:  bfloat16 0.7 ms, int8, int4 and int2 2.3 ms, top_k 11 ms; a copy takes 0.6 ms
         (jax 0.10.2, quiet machine)

One process, pinned to one core, codes and decodes the 2.1 million numbers of a model in
four buckets of two shards, as the host driver does with two workers. Kinds of work
alternate in one run; times are medians. A copy reads and writes the same numbers.
"""

import os
import statistics
from collections.abc import Callable

import jax
import jax.numpy as jnp
from rich.console import Console

from experiments.cli.options import command_parser, count
from experiments.cli.table import make_table
from experiments.measured.turns import take_turns
from olsgd_jax import REDUCTIONS
from olsgd_jax.types import ArrayTree

NUM_BUCKETS, NUM_SHARDS, SHARD_SIZE = 4, 2, 2**18
HEADS = ("reduction", "encode, ms", "decode, ms", "of a copy", "coded, MB")


def make_kinds() -> tuple[dict[str, Callable[[], None]], dict[str, int]]:
    """Makes the functions that are timed, and counts the bytes that codes take."""
    keys = jax.random.split(jax.random.key(0), NUM_BUCKETS)
    buckets = [jax.random.normal(key, (NUM_SHARDS, SHARD_SIZE)) for key in keys]

    def each(fn: Callable, *lists: list[ArrayTree]) -> Callable[[], None]:
        compiled = jax.jit(fn)

        def run() -> None:
            for args in zip(*lists, strict=True):
                jax.block_until_ready(compiled(*args))

        return run

    kinds, num_bytes = {"copy": each(jnp.copy, buckets)}, {}
    for name, build in REDUCTIONS.items():
        reduction = build()
        codec = reduction.codec
        if codec is None or reduction.is_lossless:
            continue
        shards = [x.reshape(NUM_SHARDS, -1, codec.block) for x in buckets]
        codes = [codec.encode(x) for x in shards]
        num_bytes[name] = sum(x.nbytes for x in jax.tree.leaves(codes))
        kinds[f"{name}, encode"] = each(codec.encode, shards)
        kinds[f"{name}, decode"] = each(codec.decode, codes, shards)
    return kinds, num_bytes


def main(repetitions: int) -> dict[str, tuple[float, float]]:
    kinds, num_bytes = make_kinds()
    samples = take_turns(kinds, repetitions)
    times = {kind: 1e3 * statistics.median(samples[kind]) for kind in kinds}
    found = {x: (times[f"{x}, encode"], times[f"{x}, decode"]) for x in num_bytes}
    rows = [
        [name, *(f"{x:.2f}" for x in own), f"{sum(own) / times['copy']:.1f}",
         f"{num_bytes[name] / 1e6:.2f}"]
        for name, own in found.items()
    ]  # fmt: skip
    title = f"A model of 2.1 million numbers; a copy takes {times['copy']:.2f} ms"
    Console().print(make_table(HEADS, rows, title))
    return found


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):  # not on macOS
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    parser = command_parser(__doc__)
    parser.add_argument(
        "--repetitions", type=count, default=30, help="times of each; %(default)s"
    )
    main(parser.parse_args().repetitions)
