"""The packages of `make setup`: pip installs the pinned ones, and a line says how far it is.

`python -m tests.tools.packages FILE` ends with the exit code of pip, whose lines are shown if it fails.
It needs the standard library only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

_PIP = ("install", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--progress-bar", "off", "-r")
_BEGUN = re.compile(r"\s*(?:Collecting|Requirement already satisfied:) ([\w.-]+)")
_STEP = 25


def main(requirements: str) -> int:
    """Install the packages of a file; pip's exit code."""
    pinned = len(re.findall(r"^[\w.-]+(?:\[[\w,-]+\])?==", Path(requirements).read_text(), re.MULTILINE))
    process = subprocess.Popen(
        [sys.executable, "-m", "pip", *_PIP, requirements], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said = show(process.stdout, pinned, sys.stderr)
    code = process.wait()
    if code:
        print("".join(said[-30:]), file=sys.stderr)
    return code


def show(lines: Iterable[str], pinned: int, out: TextIO) -> list[str]:
    """Show on `out` how many of about `pinned` packages pip's lines have begun with; the lines.

    A terminal has one line that counts, anything else a line for every 25th package.
    """
    said, begun = [], 0
    for line in lines:
        said.append(line)
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
