"""The plan of a cutover as a document. No Spark in this module."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from spark_jobs.runs.life.documents import Document, DocumentPart


class StartOffset(DocumentPart):
    """Where the new job begins to read one partition."""

    topic: str = Field(description="the topic; empty: the history is no topic")
    partition: int = Field(description="its number")
    offset: int = Field(description="the first offset that the new job reads")
    arrival: str | None = Field(default=None, description="when the record there was appended; null: none is there yet")
    kept_until: str | None = Field(default=None, description="the topic keeps that record until then; null: not known")
    read_again: int = Field(default=0, description="records from that offset on that the history holds already")
    earlier: int = Field(default=0, description="of them, those whose event time is before the cutover")


class Differing(DocumentPart):
    """A window that the new job would give otherwise, or not at all."""

    key: dict[str, str | None] = Field(description="the key columns, as text")
    start: str = Field(description="the window's start")
    end: str = Field(description="its end")
    old: dict[str, str | None] | None = Field(default=None, description="the values by the whole history; null: no row")
    new: dict[str, str | None] | None = Field(default=None, description="the values from the offsets on; null: no row")


class CutoverPlan(Document):
    """`cutover.json`: how a new live job takes over with the windows from `at` on. Times are ISO-8601, in UTC."""

    FILE: ClassVar[str] = "cutover.json"

    pipeline: str = Field(description="the pipeline")
    definition_hash: str = Field(description="the definition that it was made for")
    at: str = Field(description="the windows that start at or after this instant come from the new job")
    history_until: str = Field(description="the last event time of the history that the plan was made from")
    offsets: tuple[StartOffset, ...] = Field(description="where the new job begins, by partition")
    windows: int = Field(default=0, description="windows from `at` on that were replayed from these offsets")
    late: int = Field(default=0, description="of them, those that have late records already")
    differing: int = Field(default=0, description="of them, those that come out otherwise")
    samples: tuple[Differing, ...] = Field(default=(), description="some of those that differ, the earliest first")
    exact_from: str | None = Field(default=None, description="the first instant whose offsets give the same windows")
    backfill_waits: bool = Field(default=False, description="windows that start before `at` are still open")
    doubts: tuple[str, ...] = Field(default=(), description="what can differ, and for how long")

    @property
    def is_exact(self) -> bool:
        """Whether a replay from the offsets, with an empty state, gives the windows of the whole history."""
        return not self.differing

    @property
    def read_again(self) -> int:
        """The records that the new job reads although the old one has read them."""
        return sum(one.read_again for one in self.offsets)

    @property
    def earlier(self) -> int:
        """Of these, the records that belong to no window of the new job, or to windows that it must not write."""
        return sum(one.earlier for one in self.offsets)

    @property
    def topics(self) -> dict[str, dict[int, int]]:
        """The offsets by topic and partition."""
        found: dict[str, dict[int, int]] = {}
        for one in self.offsets:
            found.setdefault(one.topic, {})[one.partition] = one.offset
        return found
