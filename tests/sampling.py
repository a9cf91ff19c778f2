"""How much a long test does: a sample in `make test`, everything in `make test-long`, which is for a night."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

IN_FULL = os.environ.get("REWINDOW_TESTS") == "long"


def sample(some: T, everything: T) -> T:
    """`some` in `make test`, `everything` in `make test-long`."""
    return everything if IN_FULL else some
