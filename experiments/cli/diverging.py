"""Command-line options for what a run does when it diverges."""

import argparse

from olsgd_jax.training import RollbackPolicy, option_types


def add_divergence_options(parser: argparse.ArgumentParser) -> None:
    """Adds options for a run whose numbers are no longer finite."""
    meanings = option_types(RollbackPolicy)
    group = parser.add_argument_group("divergence")
    group.add_argument(
        "--on-divergence",
        choices=("stop", "record", "rollback"),
        default="stop",
        help="stop: end with status 1; record: end with status 0 and count as a "
        "result; rollback: continue from the last checkpoint, or from the start, "
        "with all workers at the anchor or the consensus and a lower learning rate; "
        "%(default)s",
    )
    group.add_argument(
        "--rollback-scale",
        type=float,
        help=f"{meanings['scale'].meaning}; {RollbackPolicy.scale}",
    )
    group.add_argument(
        "--rollbacks",
        type=int,
        help=f"{meanings['times'].meaning}; {RollbackPolicy.times}",
    )


def rollbacks_of(args: argparse.Namespace) -> RollbackPolicy:
    """Makes the rollback policy that a command line asks for."""
    options = {"scale": args.rollback_scale, "times": args.rollbacks}
    given = {name: value for name, value in options.items() if value is not None}
    if args.on_divergence == "rollback":
        return RollbackPolicy(**given)
    if given:
        raise ValueError(
            "--rollback-scale and --rollbacks need --on-divergence rollback, got "
            f"{args.on_divergence}"
        )
    return RollbackPolicy(times=0)
