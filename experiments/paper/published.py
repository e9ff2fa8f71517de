"""What the paper reports: test accuracies on CIFAR-10, in percent.

Reference: J. Wang, H. Liang, G. Joshi, ICASSP 2020, arXiv:2002.09539, tables 1 and 2.
"""

from experiments.pages.names import LABELS

SYNC_PERIODS = (1, 2, 8, 24)

ACCURACY: dict[str, dict[str, tuple[float | None, ...]]] = {
    "iid": {
        "cocod_sgd": (94.98, 94.99, 94.05, 92.54),
        "easgd": (94.51, 93.89, 92.43, 89.93),
        "overlap_local_sgd": (95.19, 95.16, 94.25, 92.92),
    },
    "non_iid": {
        "cocod_sgd": (91.50, 91.67, None, None),
        "easgd": (91.38, 91.12, 88.88, 85.59),
        "overlap_local_sgd": (91.56, 91.61, 91.45, 88.73),
    },
}
"""By data, strategy and `SYNC_PERIODS`; None if the run diverged."""

COMPARED = tuple(ACCURACY["iid"])
"""Strategies of the tables, in order."""

SYNC_SGD = {"iid": 94.97, "non_iid": 85.88}
"""Fully synchronous SGD by data."""

NAMES = LABELS | {"easgd": "EAMSGD"}
"""Names of strategies in the paper, where the optimizer of `easgd` has momentum."""
