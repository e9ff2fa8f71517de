"""Runs a command that is killed when its parent ends, however that ends.

python experiments/processes/bound.py COMMAND ...

The process asks for this itself: its parent may have threads, which no fork survives.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.execvp(sys.argv[1], sys.argv[1:])
