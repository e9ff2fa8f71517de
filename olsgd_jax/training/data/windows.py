"""Windows of a text: the examples of a language model.

An example is a window of `context` tokens, and its labels are the same window one token
later, so together they are `context + 1` characters in a row. Workers learn from
windows that begin anywhere. These overlap, and are not copied until they are used. The
test text is cut into windows that lie side by side, so each of its labels counts once.
"""

import numpy as np
from jaxtyping import Int32
from numpy.lib.stride_tricks import sliding_window_view

from olsgd_jax.training.data.dataset import NO_LABEL, Dataset

Row = Int32[np.ndarray, " tokens"]
Windows = Int32[np.ndarray, "windows context"]


def in_windows(text: Dataset, context: int) -> Dataset:
    """Cuts a text into windows.

    The last window of the test text ends where the text does. The labels that it shares
    with the window before are `NO_LABEL`.

    Args:
      text: a text as one row of tokens.
      context: tokens in a window.

    >>> import numpy as np
    >>> from olsgd_jax.training.data.dataset import text_dataset
    >>> row = np.arange(6, dtype=np.int32)
    >>> windows = in_windows(text_dataset(row, row, alphabet="abcdef"), context=3)
    >>> windows.train_inputs[1], windows.train_labels[1]
    (array([1, 2, 3], dtype=int32), array([2, 3, 4], dtype=int32))
    >>> windows.test_labels.tolist()
    [[1, 2, 3], [-1, 4, 5]]
    """
    shortest = min(len(text.train_inputs), len(text.test_inputs))
    if context > shortest:
        raise ValueError(
            "context must be below the number of tokens in the text, got "
            f"{context} and {shortest + 1}; use a smaller one"
        )
    return text._replace(
        train_inputs=sliding_window_view(text.train_inputs, context),
        train_labels=sliding_window_view(text.train_labels, context),
        test_inputs=_side_by_side(text.test_inputs, context),
        test_labels=_counted_once(_side_by_side(text.test_labels, context), text),
    )


def _side_by_side(row: Row, context: int) -> Windows:
    firsts = np.arange(0, len(row), context)
    firsts[-1] = len(row) - context
    return sliding_window_view(row, context)[firsts]


def _counted_once(labels: Windows, text: Dataset) -> Windows:
    num_shared = labels.size - len(text.test_labels)
    labels[-1, :num_shared] = NO_LABEL
    return labels
