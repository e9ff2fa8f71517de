"""Question: how many models does a worker keep for each strategy, with both faces?

Run:     python -m experiments.memory
Cost:    2 seconds; only shapes are computed
Answer:  beyond params and the optimizer's own state, Overlap Local-SGD keeps 3 models
         in `distribute` (anchor, velocity, fragments) and 2 in `make_round`; CoCoD-SGD
         2 (start, fragments) and 0. README.md has the table.
"""

import jax
import jax.numpy as jnp
import optax
from rich.console import Console

from experiments.cli.options import command_parser
from experiments.cli.table import make_table
from olsgd_jax import STRATEGIES, distribute, exact, low_rank, sync_sgd
from olsgd_jax.training import Config, build_strategy

FACES = ("distribute", "make_round")
PARAMS = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)


def models_kept() -> dict[str, tuple[float, float]]:
    """Counts models by strategy: with `distribute`, and with `make_round`.

    All have the exact mean, but for PowerSGD.
    """
    optimizer = optax.adamw(1e-3)
    built = {
        name: (build_strategy(Config(strategy=name)), exact()) for name in STRATEGIES
    }
    built["PowerSGD"] = sync_sgd(), low_rank()

    def models(*inits) -> float:
        trees = [jax.eval_shape(init, PARAMS) for init in inits]
        return sum(x.size for x in jax.tree.leaves(trees)) / PARAMS.size

    return {
        name: (
            models(distribute(optimizer, strategy, 4, reduction=reduction).init)
            - models(optimizer.init),
            models(strategy.init, reduction.init),
        )
        for name, (strategy, reduction) in built.items()
    }


def main() -> None:
    command_parser(__doc__).parse_args()
    jax.config.update("jax_platforms", "cpu")
    rows = [[name, *(f"{x:.2f}" for x in own)] for name, own in models_kept().items()]
    heads, title = ("Strategy", *FACES), "Models kept beyond params and optimizer"
    Console().print(make_table(heads, rows, title))


if __name__ == "__main__":
    main()
