"""What `rewindow init` asks about a live job, and what it writes: told by each engine's definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TUMBLING, SESSION = {"tumbling": ("size",)}, {"session": ("gap",)}
SLIDING = {"sliding": ("size", "slide")}


@dataclass(frozen=True, slots=True)
class Question:
    """A question: its flag, which is the field's name, the question, and why it is asked."""

    flag: str
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The questions of an engine, and lines of its definitions.

    `flags` belong to this engine alone. `windows`: its kinds of windows with their lengths. `tolerance`: how far its
    watermark stays behind. `generators`: how its watermark can follow the records, the first one with that tolerance;
    none where it has one rule. Where it `has_lateness`, a definition of
    complete values alone needs no watermark. `behind_watermark`, `behind_window`, `at_end`: lines below these sections.
    """

    flags: tuple[str, ...]
    windows: Mapping[str, tuple[str, ...]]
    tolerance: Question
    generators: tuple[str, ...] = ()
    has_checkpoint: bool = False
    has_lateness: bool = False
    has_sql: bool = False
    behind_watermark: str = ""
    behind_window: str = ""
    at_end: str = ""
