"""The code that computed a run's numbers, and the devices it ran on."""

import functools
import importlib.metadata
import pathlib
import platform
import subprocess
from collections.abc import Mapping

import jax

_PACKAGES = "jax jaxlib flax optax orbax-checkpoint numpy scikit-learn olsgd_jax"


@functools.cache
def versions() -> dict[str, str]:
    """Gives the versions of Python and of the packages that affect the numbers.

    >>> from olsgd_jax.training import versions
    >>> versions()["jax"]
    '0...'
    """
    found = {"python": platform.python_version()}
    for package in _PACKAGES.split():
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "from sources"  # the commit says more
    return found


def devices() -> str:
    """Gives number and kind of the devices of all processes."""
    return f"{jax.device_count()} x {jax.devices()[0].device_kind}"


def changed_versions(found: Mapping[str, str]) -> list[str]:
    """Lists the packages whose versions have changed.

    >>> changed_versions({**versions(), "jax": "0.4.1"})
    ['jax was 0.4.1, now ...']
    """
    return [
        f"{name} was {found.get(name, 'not recorded')}, now {version}"
        for name, version in versions().items()
        if found.get(name) != version
    ]


@functools.cache
def commit() -> str | None:
    """Gives the commit of this library; None outside git.

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
        # The library may be installed inside another repository.
        git("ls-files", "--error-unmatch", here.name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None
