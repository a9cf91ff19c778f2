"""The package as one archive, for `--py-files`: a cluster needs no installation of Rewindow.

The archive's code goes ahead of the installed package. So it lies in a folder that only this user can write, under the
SHA-256 of its content, and it is compared with that content each time before it is used.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from pathlib import Path

import spark_jobs
from spark_jobs import __version__
from spark_jobs.atomic import replace_file
from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.settings import cache_folder

ENTRY = Path(__file__).parent / "main.py"
"""The entry script, for spark-submit."""

ERROR = "error: "
"""How the line begins in which the script says why it ends with an error."""

_EPOCH = (2020, 1, 1, 0, 0, 0)


def packaged(folder: Path | None = None) -> Path:
    """The archive of this installation's `spark_jobs`: the same files give the same archive under the same name.

    Args:
        folder: where the archive lies; by default `$XDG_CACHE_HOME/rewindow`, else `~/.cache/rewindow`. It is made
            where it is missing, and closed to other users (mode 0700).

    Raises:
        EnvironmentSetupError: the folder cannot be written, is a link, or belongs to somebody else.
    """
    folder = _private(folder or cache_folder())
    content = _archive()
    target = folder / f"rewindow-{__version__}-{hashlib.sha256(content).hexdigest()}.zip"
    try:
        if not _holds(target, content):
            replace_file(target, content, mode=0o600)
    except OSError as problem:
        raise _unwritable(folder, problem) from problem
    return target


def _private(folder: Path) -> Path:
    """The folder itself, made and closed to others."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise EnvironmentSetupError(
                "not a folder of this user alone", str(folder), "Remove it, or set XDG_CACHE_HOME to another folder."
            )
        if stat.S_IMODE(found.st_mode) != 0o700:
            folder.chmod(0o700)
    except OSError as problem:
        raise _unwritable(folder, problem) from problem
    return folder


def _unwritable(folder: Path, problem: OSError) -> EnvironmentSetupError:
    return EnvironmentSetupError(
        f"the archive for spark-submit cannot be written: {problem.strerror or problem}",
        str(folder),
        "Check free space and permissions, or set XDG_CACHE_HOME to a folder that you can write.",
    )


def _archive() -> bytes:
    """A zip of all files of the package, with one date for all, so that it depends on their content alone."""
    root = Path(spark_jobs.__file__).parent
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                entry = zipfile.ZipInfo(str(Path("spark_jobs") / file.relative_to(root)), _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.read_bytes())
    return written.getvalue()


def _holds(target: Path, content: bytes) -> bool:
    """Whether there is a plain file with exactly this content; links are not followed."""
    return not target.is_symlink() and target.is_file() and target.read_bytes() == content
