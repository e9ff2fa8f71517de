"""Where numbers come from."""

import shutil
import subprocess

import jax
import pytest

from olsgd_jax.training.records import provenance


def test_versions_are_those_of_the_packages_that_run():
    assert provenance.versions()["jax"] == jax.__version__


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_that_of_the_library_and_says_if_it_was_changed(
    tmp_path, monkeypatch
):
    def git(*args):
        command = [
            "git",
            "-C",
            str(tmp_path),
            "-c",
            "user.name=a",
            "-c",
            "user.email=b",
        ]
        return subprocess.run(
            [*command, *args], check=True, capture_output=True, text=True
        ).stdout.strip()

    library = tmp_path / "provenance.py"
    library.write_text("first")
    monkeypatch.setattr(provenance, "__file__", str(library))
    commit = provenance.commit.__wrapped__  # asks every time
    assert commit() is None  # outside of git
    git("init")
    git("commit", "--allow-empty", "--message", "someone's own")
    assert commit() is None  # in a repository that is not its own
    git("add", library.name)
    git("commit", "--message", "first")
    assert commit() == git("rev-parse", "HEAD")
    library.write_text("second")
    assert commit() == git("rev-parse", "HEAD") + "-dirty"


def test_git_is_asked_once(monkeypatch):
    first = provenance.commit()
    monkeypatch.setattr(provenance.subprocess, "run", None)
    assert provenance.commit() == first
