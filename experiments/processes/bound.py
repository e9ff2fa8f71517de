"""Becomes a command that is killed when its parent ends, however that ends.

python experiments/processes/bound.py COMMAND ...

It sets this for itself, as its parent may have threads that do not survive a fork.
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
