"""Where numbers come from: the code that made them, and the devices it ran on."""

import functools
import importlib.metadata
import pathlib
import platform
import subprocess
from collections.abc import Mapping

import jax

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
_PACKAGES += ("scikit-learn", "olsgd_jax")


@functools.cache
def versions() -> dict[str, str]:
    """Gives the versions of Python and of the packages that decide the numbers.

    >>> from olsgd_jax.training import versions
    >>> versions()["jax"]
    '0...'
    """
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "from sources"  # then the commit tells more
    return found


def devices() -> str:
    """Says how many devices of which kind all processes have."""
    return f"{jax.device_count()} x {jax.devices()[0].device_kind}"


def changed_versions(found: Mapping[str, str]) -> list[str]:
    """Lists what ran in another version than it does now.

    >>> changed_versions({**versions(), "jax": "0.4.1"})
    ['jax was 0.4.1, is ...']
    """
    return [
        f"{name} was {found.get(name, 'not noted')}, is {version}"
        for name, version in versions().items()
        if found.get(name) != version
    ]


@functools.cache
def commit() -> str | None:
    """Gives the commit of this library; None where it runs outside of git.

    >>> from olsgd_jax.training import commit
    >>> commit() is None or len(commit().removesuffix("-dirty")) == 40
    True
    """
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
