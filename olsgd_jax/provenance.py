"""Where numbers come from: versions and commit of the code that made them."""

import functools
import importlib.metadata
import pathlib
import platform
import subprocess

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "scikit-learn", "olsgd_jax")


@functools.cache
def versions() -> dict[str, str]:
    """Gives the versions of Python and of the packages that decide the numbers."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "from sources"  # then the commit tells more
    return found


@functools.cache
def commit() -> str | None:
    """Gives the commit of this library; None where it runs outside of git."""
    here = pathlib.Path(__file__)

    def git(*args: str) -> str:
        command = ["git", "-C", str(here.parent), *args]
        return subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout.strip()

    try:
        # Installed inside of someone's repository, this file is not part of it.
        git("ls-files", "--error-unmatch", here.name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None
