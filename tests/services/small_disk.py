"""A file system that is soon full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_file_system(folder: Path, *, mebibytes: int) -> Iterator[Path]:
    """A new folder with a file system of this size. Mounting one takes rights that not everybody has."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(file: Path) -> None:
    """Write the file until its file system is full."""
    with pytest.raises(OSError, match="No space"), file.open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)
