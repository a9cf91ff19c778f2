"""The known walks that still go wrong, and what goes wrong in each."""

from __future__ import annotations

WRONG: dict[str, str] = {}
