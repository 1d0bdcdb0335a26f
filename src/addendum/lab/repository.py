"""A small Git repository for scenarios with a real Git server; the same commits each time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anyio

from addendum.errors import ConfigurationError

_COMMITS = (
    ("README.md", "# Harbour\n\nBerths and their timetable.\n", "Begin the timetable"),
    ("berths.csv", "berth,ship\n1,Meridian\n2,Aurora\n", "Add the first two berths"),
    ("berths.csv", "berth,ship\n1,Meridian\n2,Borealis\n", "Berth 2 goes to Borealis"),
)
_WHEN = "2026-01-05T09:00:00+00:00"


async def make_repository(folder: Path) -> Path:
    """Make a repository with three commits in a new folder, and return the folder.

    Args:
        folder: Where; it must not be there yet.

    Raises:
        ConfigurationError: There is no git, or it fails.
    """
    if shutil.which("git") is None:
        raise ConfigurationError("this scenario needs git; install it")
    await anyio.Path(folder).mkdir(parents=True)
    await _git(folder, "init", "--quiet", "--initial-branch=main")
    for name, text, message in _COMMITS:
        await anyio.Path(folder / name).write_text(text, "utf-8")
        await _git(folder, "add", name)
        await _git(folder, "commit", "--quiet", "--message", message)
    return folder


async def _git(folder: Path, *arguments: str) -> None:
    # Nothing of the user's own set-up: no name, no hooks, no signing.
    own = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Harbour",
        "GIT_AUTHOR_EMAIL": "harbour@example.org",
        "GIT_COMMITTER_NAME": "Harbour",
        "GIT_COMMITTER_EMAIL": "harbour@example.org",
        "GIT_AUTHOR_DATE": _WHEN,
        "GIT_COMMITTER_DATE": _WHEN,
    }
    done = await anyio.run_process(["git", *arguments], cwd=folder, env=own, check=False)
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())[:200]
        raise ConfigurationError(f"git {arguments[0]} failed: {said}; check your git")
