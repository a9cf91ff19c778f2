"""The jars that Rewindow fetches, by their SHA-256: one that is another file than the pinned one is refused.

`jars.sha256` beside this module has them in the form of `sha256sum`. A package whose own jar is there is pinned, and so
are all jars that come with it. Packages that `REWINDOW_PACKAGES` adds are their author's, and are pinned where they are
listed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from hashlib import file_digest
from pathlib import Path

from spark_jobs.atomic import replace_file
from spark_jobs.errors import EnvironmentSetupError

_LIST = Path(__file__).parent / "jars.sha256"
_IN_IVYS_FOLDER = re.compile(r"^[A-Za-z][\w.-]*?_(?=[^_])")
"""The group before the artifact, as Ivy names the jars of `spark.jars.packages`."""

Stamps = Mapping[str, tuple[int, int]]
"""Size and time of change (ns) of files that were checked."""


@cache
def pinned() -> Mapping[str, str]:
    """SHA-256 by the name of the file, `artifact-version.jar`."""
    lines = (line.split() for line in _LIST.read_text().splitlines() if line and not line.startswith("#"))
    return {name: digest for digest, name in lines}


def is_pinned(package: str) -> bool:
    """Whether the jars of a package (`group:artifact:version`) must be pinned ones."""
    _, artifact, version = package.split(":")
    return f"{artifact}-{version}.jar" in pinned()


def check_jars(files: Iterable[Path], packages: Iterable[str], stamps: Path) -> None:
    """Check the jars of these packages; those that have not changed since they were checked are not read again.

    `stamps`: the file that keeps what was checked.

    Raises:
        EnvironmentSetupError: A jar is not the pinned one, or is not pinned though all of the packages are.
    """
    known, all_pinned = _read_stamps(stamps), all(map(is_pinned, packages))
    seen = {}
    for file in files:
        seen[file.name] = stamp = _stamp(file)
        if known.get(file.name) != stamp:
            _check(file, all_pinned=all_pinned)
    if seen != known:
        _keep_stamps(stamps, seen)


def _check(file: Path, *, all_pinned: bool) -> None:
    expected = _expected(file.name)
    if expected is None and not all_pinned:
        return
    with file.open("rb") as content:
        found = file_digest(content, "sha256").hexdigest()
    if found == expected:
        return
    wanted = "no SHA-256, because it is not pinned" if expected is None else f"the SHA-256 {expected}"
    raise EnvironmentSetupError(
        f"the jar {file.name} is not the pinned one: expected {wanted}, found {found}",
        str(file),
        "Remove the file and try again: it is fetched anew. If it comes back the same, the repository (Maven Central, "
        "or the mirror that spark-defaults.conf names) has another file: do not use it.",
    )


def _expected(name: str) -> str | None:
    return pinned().get(name) or pinned().get(_IN_IVYS_FOLDER.sub("", name))


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _read_stamps(path: Path) -> Stamps:
    try:
        return {name: (size, at) for name, (size, at) in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _keep_stamps(path: Path, stamps: Stamps) -> None:
    with suppress(OSError):  # a folder that cannot be written: the jars are checked the next time too
        replace_file(path, json.dumps(stamps).encode())
