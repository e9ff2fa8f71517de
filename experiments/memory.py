"""Question: how many models does a worker keep for each strategy, under both faces?

Run:     python -m experiments.memory
Cost:    2 seconds; nothing is computed, only shapes
Answer:  beyond params and the optimizer's own state, Overlap Local-SGD keeps 3 models
         in `distribute` (anchor, velocity, fragments) and 2 in `make_round`; CoCoD-SGD
         2 (start, fragments) and 0. README.md has the table.
"""

import argparse

import jax
import jax.numpy as jnp
import optax
from rich.console import Console
from rich.table import Column, Table

from olsgd_jax import (
    STRATEGIES,
    distribute,
)
from olsgd_jax.training import Config, build_strategy

PARAMS = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)


def models_kept() -> dict[str, tuple[float, float]]:
    """Counts models by strategy: under `distribute`, and under `make_round`."""
    optimizer = optax.adamw(1e-3)
    built = {name: build_strategy(Config(strategy=name)) for name in STRATEGIES}

    def models(*inits) -> float:
        trees = [jax.eval_shape(init, PARAMS) for init in inits]
        return sum(x.size for x in jax.tree.leaves(trees)) / PARAMS.size

    return {
        name: (
            models(distribute(optimizer, strategy, sync_period=4).init)
            - models(optimizer.init),
            models(strategy.init),
        )
        for name, strategy in built.items()
    }


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    jax.config.update("jax_platforms", "cpu")
    columns = [Column(x, justify="right") for x in ("distribute", "make_round")]
    table = Table("Strategy", *columns, title="Models kept beyond params and optimizer")
    for name, (step, a_round) in models_kept().items():
        table.add_row(name, f"{step:.2f}", f"{a_round:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
