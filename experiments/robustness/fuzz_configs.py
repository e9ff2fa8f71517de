"""Random options of a config: good, bad, and any mixture."""

from typing import Literal, get_args, get_origin

from hypothesis import strategies as st

from olsgd_jax import STRATEGIES
from olsgd_jax.training import OPTIMIZERS, PARTITIONS, Config, option_types
from olsgd_jax.types import EvaluatedModel

TYPES = option_types(Config)


def _any_of(name: str) -> st.SearchStrategy:
    """Draws one of the values of a switch or a choice."""
    kind, may_be_none, *_ = TYPES[name]
    choices = (False, True) if kind is bool else get_args(kind)
    return st.sampled_from((None, *choices) if may_be_none else choices)


# Valid options, in sizes that train in a moment.
GOOD: dict[str, st.SearchStrategy] = {
    **{
        name: _any_of(name)
        for name, x in TYPES.items()
        if x.kind is bool or get_origin(x.kind) is Literal
    },
    "dataset": st.just("digits"),
    "data_dir": st.sampled_from([None, "somewhere"]),
    "partition": st.sampled_from(sorted(PARTITIONS)),
    "concentration": st.floats(0.01, 1000),
    "augment": st.just(False),
    "model": st.just("mlp"),
    "width": st.one_of(st.none(), st.integers(1, 12)),
    "depth": st.one_of(st.none(), st.integers(1, 3)),
    "tie_weights": st.just(True),  # the mlp has nothing to tie
    "dropout": st.floats(0, 0.9),
    "strategy": st.sampled_from(sorted(STRATEGIES)),
    "reduction": st.sampled_from(["exact", "low_rank"]),
    "num_workers": st.integers(1, 8),
    "sync_period": st.integers(1, 4),
    "batch_size": st.integers(1, 8),
    "optimizer": st.sampled_from(sorted(OPTIMIZERS)),
    "learning_rate": st.floats(1e-4, 1),
    "warmup_epochs": st.floats(0, 10),
    "decay_epochs": st.lists(st.floats(0.01, 10), max_size=3),
    "warmup_steps": st.integers(0, 1),
    "final_fraction": st.floats(0, 1),
    "momentum": st.floats(0, 0.99),
    "beta2": st.floats(0, 0.999),
    "clip_norm": st.one_of(st.none(), st.floats(0.01, 10)),
    "weight_decay": st.floats(0, 0.01),
    "seed": st.integers(0, 2**32 - 1),
    "evaluate": st.lists(
        st.sampled_from(get_args(EvaluatedModel)), min_size=1, unique=True
    ),
    "evaluate_every": st.integers(1, 3),
}
# Valid arguments of the strategies, and of the reduction in low rank.
_BELOW_1 = st.floats(0, 0.99)
ARGS: dict[str, st.SearchStrategy] = {
    "overlap_local_sgd": st.fixed_dictionaries(
        {"pullback": st.floats(0, 1)}, optional={"anchor_momentum": _BELOW_1}
    ),
    "slowmo": st.fixed_dictionaries(
        {"momentum": _BELOW_1}, optional={"step_size": st.floats(0.1, 2)}
    ),
    "easgd": st.fixed_dictionaries({"moving_rate": st.floats(0.1, 1)}),
}
RANKS = st.fixed_dictionaries({"rank": st.integers(1, 3)})
# Arguments of another strategy, or of none.
ODD_ARGS = st.dictionaries(
    st.sampled_from(["pullback", "anchor_momentum", "momentum", "moving_rate", "rank"]),
    st.one_of(st.integers(-1, 3), st.floats(-0.5, 1.5)),
    max_size=2,
)
# Invalid for most options: another type, or a number at the end of its range.
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(["", "x", "digits", "iid", "slowmo", "resnet18", "anchor", "0.5"]),
    st.sampled_from([0, -1, 1, 2**31 - 1, 2**31, 2**64, 10**400]),
    st.sampled_from([0.0, -0.0, 1.0, 2.0, 5e-324, 1e-30, 1e30, 1e308]),
    st.sampled_from([float("nan"), float("inf"), float("-inf"), 1j]),
    st.lists(st.one_of(st.none(), st.integers(), st.floats(), st.text()), max_size=2),
    st.dictionaries(st.text(max_size=3), st.floats(), max_size=2),
    st.text(max_size=3),
    st.builds(object),
)
# Sizes of single options that are refused, or take too much time or memory.
_SIZES = {
    "num_workers": (1440, 1441, 10**9),
    "batch_size": (181, 10**9),
    **dict.fromkeys(("sync_period", "width", "evaluate_every"), (10**9,)),
    "concentration": (1e-12, 1e12),
    "dataset": ("cifar10",),
    "augment": (True,),
    "model": ("resnet8",),
}
SIZES = st.sampled_from([(name, x) for name, own in _SIZES.items() for x in own])


def _unused(options: dict) -> tuple[str, ...]:
    """Names what schedule and optimizer have no use for, which would be refused."""
    of_schedule = {
        "steps": ("warmup_steps", "final_fraction"),
        "warmup_cosine": ("warmup_epochs", "decay_epochs"),
    }
    is_sgd = options.get("optimizer", Config.optimizer) == "sgd"
    unused = of_schedule[options.get("schedule", Config.schedule)]
    return (*unused, "beta2") if is_sgd else unused


@st.composite
def configs(draw: st.DrawFn) -> dict:
    """Draws the options of a config of two rounds, up to two of them odd."""
    options = draw(st.fixed_dictionaries({}, optional=GOOD))
    strategy = options.get("strategy", Config.strategy)
    if strategy in ARGS and draw(st.booleans()):
        options["strategy_args"] = draw(ARGS[strategy])
    if options.get("reduction") == "low_rank" and draw(st.booleans()):
        options["reduction_args"] = draw(RANKS)
    for name in _unused(options):
        options.pop(name, None)
    options["num_rounds"] = 2
    odd = st.one_of(
        st.tuples(st.sampled_from(tuple(TYPES)), ODD),
        st.tuples(st.just("strategy_args"), ODD_ARGS),
        SIZES,
    )
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        name, value = draw(odd)
        options[name] = value
    if options["num_rounds"] in (1, 2**31 - 1):  # would run, but not two rounds
        options["num_rounds"] = 2
    return options
