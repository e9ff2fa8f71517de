"""How orbax is asked to write checkpoints: with as little work as it can be.

It takes time from the rounds, wherever they leave no core to spare. So nothing is
compressed, since trained numbers hardly are, and nothing is written beside the arrays
that is known when they are read: shapes and places. Every part of an array is a file;
a database of them (OCDBT) would be written twice, for each process and for all.
"""

import contextlib
import logging
import pathlib
from collections.abc import Callable

import jax
import numpy as np
import orbax.checkpoint as ocp

from olsgd_jax.training.files import writing

UNNAMED = ".orbax-checkpoint-tmp"
"""How the name of a checkpoint ends until it is whole."""


def make_writer(when_written: Callable[[], None]) -> ocp.AsyncCheckpointer:
    """Makes orbax write in the background.

    Args:
      when_written: called with a checkpoint's files written, but not yet named.
    """
    logging.getLogger("absl").addFilter(_is_news)
    arrays = ocp.type_handlers.ArrayHandler(enable_write_sharding_file=False)
    # Nobody changes what is on the host: it was taken there to be written.
    on_host = ocp.type_handlers.NumpyHandler(deepcopy_host_arrays=False)
    handler = ocp.PyTreeCheckpointHandler(
        use_compression=False,
        use_ocdbt=False,
        type_handler_registry=ocp.type_handlers.create_type_handler_registry(
            (jax.Array, arrays), (np.ndarray, on_host)
        ),
    )
    options = ocp.AsyncOptions(post_finalization_callback=when_written)
    return ocp.AsyncCheckpointer(handler, async_options=options)


def writing_checkpoint(
    directory: pathlib.Path, number: int
) -> contextlib.AbstractContextManager[None]:
    """Says of an error of the system which checkpoint could not be written."""
    what = f"checkpoint {number} in {directory}"
    return writing(what, "those before it are as they were")


def _is_news(record: logging.LogRecord) -> bool:
    """Leaves out what orbax logs of errors that it raises, and of files not asked for.

    The first come with their traces. The others it would merge if there were any.
    """
    if "orbax" not in record.pathname:
        return True
    return not record.exc_info and "Skipping merge of OCDBT" not in str(record.msg)
