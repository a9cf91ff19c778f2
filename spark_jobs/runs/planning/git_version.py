"""Which version of a file git has: so that a report can name the version of a run's definition."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 5


@dataclass(frozen=True, slots=True)
class GitVersion:
    """A file's last commit, its path in the repository, and whether it has been changed since."""

    commit: str
    path: str
    is_changed: bool

    @property
    def in_words(self) -> str:
        """`git show` of it, and whether the file was changed since."""
        changed = ", changed since that commit" if self.is_changed else ""
        return f"{self.commit[:12]}:{self.path}{changed}"


def git_version(file: str | None) -> GitVersion | None:
    """The version of a file; None where it is not in a repository, or git is not there."""
    if not file or not Path(file).is_file():
        return None
    path = Path(file).resolve()

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(path.parent), *arguments], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        return done.stdout.strip()

    try:
        commit = git("log", "-1", "--format=%H", "--", path.name)
        if not commit:
            return None
        name = git("ls-files", "--full-name", "--", path.name)
        return GitVersion(commit, name or path.name, bool(git("status", "--porcelain", "--", path.name)))
    except (OSError, subprocess.SubprocessError):
        return None
