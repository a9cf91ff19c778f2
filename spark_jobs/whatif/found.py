"""What was measured of each definition. No Spark in this module."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Delay(BaseModel):
    """How long after a window's end its value came, ms of processing time, of the windows that the watermark closed."""

    median: int
    most_95: int = Field(description="95 of 100 windows had it by then")
    longest: int


class Differs(BaseModel):
    """A window whose value is not the published one. `before` and `after` are texts; None: there is no such window."""

    window_start: str
    window_end: str
    keys: dict[str, str | None]
    column: str
    before: str | None
    after: str | None


class Against(BaseModel):
    """The windows beside the published ones.

    `largest` and `total`: by aggregate, how far the numbers are apart, in the aggregate's own unit.
    """

    same: int
    different: int
    only_published: int
    only_here: int
    largest: dict[str, float]
    total: dict[str, float]
    samples: tuple[Differs, ...]


class Measured(BaseModel):
    """One definition.

    Attributes:
        dropped: Records that no window took, or that a window they belong to dropped.
        late: Pairs of record and window that came late, and made the window fire again.
        first, last: When windows had their first value, and their last one; None: none was closed.
        state: The most windows (of a key) that were held at once, between a window's first record and its cleanup. A
            session counts once, also before a record has joined its parts.
        against: None: nothing is published.
    """

    name: str
    definition_hash: str
    windows: int
    records: int
    dropped: int
    late: int
    first: Delay | None
    last: Delay | None
    state: int
    against: Against | None


class WhatIf(BaseModel):
    """Several definitions over one history; the first is the pipeline's own."""

    pipeline: str
    as_of: dict[int, int]
    definitions: tuple[Measured, ...]
