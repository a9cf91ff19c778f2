"""The packages of `make setup`: pip installs the pinned ones, and a line says how far it is.

PyPI has PySpark as source alone. Its wheel is built while pip fetches and unpacks the others. Python compiles a module
when it is first imported: most modules of the packages never are.

`python -m tests.tools.packages FILE` ends with the exit code of pip, whose lines are shown if it fails.
It needs the standard library only.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
_PINNED = ("--no-deps", "--require-hashes", "--progress-bar", "off", "-r")
_INSTALL = (*_PIP, "install", "--no-compile")
_PIN = re.compile(r"^(?=[\w.-]+(?:\[[\w,-]+\])?==)", re.MULTILINE)
_BEGUN = re.compile(r"\s*(?:Collecting|Requirement already satisfied:) ([\w.-]+)")
_STEP = 25
_SOURCE, _BUILDER = "pyspark==", "setuptools=="
"""What is built from its source, and what builds it."""


def main(requirements: str) -> int:
    """Install the packages of a file; pip's exit code."""
    parts = _PIN.split(Path(requirements).read_text())
    pinned = len(parts) - 1
    with tempfile.TemporaryDirectory() as folder:
        builder, source, others = (Path(folder, name) for name in ("builder.txt", "source.txt", "others.txt"))
        builder.write_text("".join(part for part in parts if part.startswith(_BUILDER)))
        source.write_text("".join(part for part in parts if part.startswith(_SOURCE)))
        others.write_text("".join(part for part in parts if not part.startswith(_SOURCE)))
        if not source.read_text():
            return _told([*_INSTALL, *_PINNED, str(others)], pinned)
        return _told([*_INSTALL, *_PINNED, str(builder)], 0) or _side_by_side(source, others, pinned)


def _side_by_side(source: Path, others: Path, pinned: int) -> int:
    """Build the wheel of `source` while the others are installed, and install it; pip's exit code."""
    wheels = source.parent / "wheels"
    command = [*_PIP, "wheel", "--no-build-isolation", "--wheel-dir", str(wheels), *_PINNED, str(source)]
    with (source.parent / "built.log").open("w+") as log:
        built = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        code = _told([*_INSTALL, *_PINNED, str(others)], pinned)
        if built.wait():
            log.seek(0)
            print(log.read(), file=sys.stderr)
    return code or built.returncode or _told([*_INSTALL, "--no-deps", *map(str, wheels.glob("*.whl"))], 0)


def _told(command: Sequence[str], pinned: int) -> int:
    """Carry out a command of pip, which tells how far it is; its exit code."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    said = show(process.stdout, pinned, sys.stderr)
    code = process.wait()
    if code:
        print("".join(said[-30:]), file=sys.stderr)
    return code


def show(lines: Iterable[str], pinned: int, out: TextIO) -> list[str]:
    """Show on `out` how many of about `pinned` packages pip's lines have begun with; the lines.

    A terminal has one line that counts, anything else a line for every 25th package. Of 0 packages nothing is shown.
    """
    said, begun = [], 0
    for line in lines:
        said.append(line)
        if not pinned:
            continue
        if found := _BEGUN.match(line):
            begun += 1
            text = f"  {begun} of about {pinned} packages: {found[1]}"
            if out.isatty():
                print(f"\r{text[:78]:<78}", end="", file=out, flush=True)
            elif begun % _STEP == 0:
                print(text, file=out, flush=True)
        elif line.startswith("Installing collected packages") and begun:
            end = "\r" if out.isatty() else ""
            print(f"{end}{f'  {begun} packages are here; installing them':<78}", file=out, flush=True)
    return said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
