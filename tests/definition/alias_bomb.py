"""A small YAML file that stands for more than any memory holds."""

from __future__ import annotations

BOMB = "name: p\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 8)
)
"""3 kB at most that stand for 100 million values."""
