"""The case format `spark-oracle-case/1`: one Structured Streaming query, its checkpoint, and what real Spark did."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any
from zoneinfo import ZoneInfo

from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.eventtime.spark.batches import Batches, batches_of
from spark_jobs.eventtime.spark.checkpoint import Checkpoint, read_checkpoint
from spark_jobs.eventtime.spark.intervals import CalendarInterval, parse_interval
from spark_jobs.eventtime.windows import (
    AnySessionWindows,
    CalendarSessionWindows,
    DynamicSessionWindows,
    SlidingWindows,
    TumblingWindows,
)
from spark_jobs.replay.deduplication import DeduplicationKind
from tests.conformance.case_file import CaseFile
from tests.sequential.spark import BatchSettings, Query, batch_of_offset

FORMAT = "spark-oracle-case/1"

_ALLOW_MULTIPLE = "spark.sql.streaming.statefulOperator.allowMultiple"
_MERGE_LOCALLY = "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition"
_TIME_ZONE = "spark.sql.session.timeZone"
_FILE = re.compile(r"part-0*([0-9]+)\.[^/]*$")
_COMPARES: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
}
SHOWN = ("committed", "failed after output", "killed after output", "commit lost")
"""The outcomes of a batch whose rows the sink got."""


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """One record; times in the case's unit. `session_end`: of its own session; None without sessions or without a
    gap."""

    input: int
    partition: int
    offset: int
    key: Any
    timestamp: int | None
    value: int | None
    id: Any
    session_end: int | None
    passes: bool


@dataclass(frozen=True)
class MicroBatchCase(CaseFile):
    """One case file."""

    @property
    def expected(self) -> dict[str, Any]:
        return self.document["expected"]

    @property
    def output_mode(self) -> OutputMode:
        return OutputMode(self.config["output_mode"])

    @property
    def inputs(self) -> int:
        return len(self.config["inputs"])

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint with what Spark has removed from it: what an archive would have kept."""
        files = {**self.document.get("checkpoint_removed", {}), **self.document["checkpoint"]}
        return read_checkpoint(files.items())

    @cached_property
    def batches(self) -> Batches:
        return batches_of(self.checkpoint)

    @property
    def ticks_per_ms(self) -> int:
        return 1000 if self.config.get("ts_unit", "ms") == "us" else 1

    @property
    def is_session(self) -> bool:
        return self.config["window"]["kind"] == "session"

    @cached_property
    def windows(self) -> TumblingWindows | SlidingWindows | None:
        """The aligned windows; None for sessions."""
        window = self.config["window"]
        offset = window.get("offset", 0)
        match window["kind"]:
            case "tumbling":
                return TumblingWindows(window["size"], offset)
            case "sliding":
                return SlidingWindows(window["size"], window["slide"], offset)
            case "session":
                return None
            case other:
                raise self.unknown("window kind", other, "tumbling", "sliding", "session")

    @property
    def deduplication(self) -> DeduplicationKind | None:
        kind = self.config.get("dedup")
        return None if kind is None else DeduplicationKind(kind["kind"])

    @property
    def query(self) -> Query:
        return Query(self.windows, self.output_mode, self.deduplication, self.ticks_per_ms)

    def settings(self, start: int) -> BatchSettings:
        """The settings of one start of the query, by its number."""
        of_start = self.document["starts"][start]
        conf = {**self.config.get("spark_conf", {}), **of_start.get("spark_conf", {})}
        return BatchSettings(
            allow_multiple=_flag(conf, _ALLOW_MULTIPLE, default=True),
            delay=delay_ms(of_start["delay"][0]) * self.ticks_per_ms,
            merge_locally=_flag(conf, _MERGE_LOCALLY, default=False),
        )

    def start_of(self, batch: int) -> int:
        """The last start that ran this batch."""
        ran = [
            i
            for i, start in enumerate(self.document["starts"])
            if start.get("first_batch") is not None and start["first_batch"] <= batch
        ]
        return ran[-1] if ran else 0

    @cached_property
    def records(self) -> list[CaseRecord]:
        """The records, in the file's order."""
        column = {name: i for i, name in enumerate(self.document["record_columns"])}
        passes = self._filter(column)

        def of(row: list[Any]) -> CaseRecord:
            timestamp = row[column["ts"]]
            return CaseRecord(
                row[column["input"]],
                row[column["partition"]],
                row[column["offset"]],
                row[column["key"]] if self.config.get("group_by_key", True) else None,
                timestamp,
                row[column["value"]],
                row[column["id"]] if "id" in column else None,
                None if timestamp is None or not self.is_session else self._session_end(timestamp, row, column),
                passes(row),
            )

        return [of(row) for row in self.document["records"]]

    @cached_property
    def batch_of_record(self) -> list[int | None]:
        """The batch that has read each record; None: none."""
        files = {
            (source, int(match[1])): batch
            for source, batches in self.batches.files.items()
            for path, batch in batches.items()
            if (match := _FILE.search(path))
        }
        of_file = self.config["source"] == "file"
        sources = self.sources

        def batch(record: CaseRecord) -> int | None:
            source = sources[record.input]
            if of_file:
                return files.get((source, record.partition))
            return batch_of_offset(self.batches, source, None, record.partition, record.offset)

        return [batch(record) for record in self.records]

    @cached_property
    def sources(self) -> list[str]:
        """The source id of each input: in the order of numbers, or with names in that of the topics."""
        ids = {source for entry in self.checkpoint.offsets.values() for source in entry.offsets}
        if all(source.isdigit() for source in ids):
            return [str(i) for i in range(self.inputs)]
        topics = {place.source: place.topic for place in self.batches.ranges}
        return sorted(ids, key=lambda source: (topics.get(source, ""), source))

    def _session_end(self, timestamp: int, row: list[Any], column: Mapping[str, int]) -> int | None:
        gap = self.config["window"]["gap"]
        if gap == "by record":
            own = row[column["gap_ms"]]
            return None if own is None else timestamp + own * self.ticks_per_ms
        if isinstance(gap, int):
            return timestamp + gap
        return self._calendar_end(timestamp, parse_interval(gap))

    def _calendar_end(self, timestamp: int, gap: CalendarInterval) -> int:
        per_tick = 1000 // self.ticks_per_ms
        return gap.added_to(timestamp * per_tick, self._zone) // per_tick

    @property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.config.get("spark_conf", {}).get(_TIME_ZONE, "UTC"))

    @property
    def session_windows(self) -> AnySessionWindows:
        """The sessions of a case, in its unit; where they follow no calendar by a column `gap` of each record."""
        gap = self.config["window"]["gap"]
        if isinstance(gap, int) or gap == "by record" or self.ticks_per_ms > 1:
            return DynamicSessionWindows("gap")
        return CalendarSessionWindows(parse_interval(gap), self._zone)

    def _filter(self, column: Mapping[str, int]) -> Callable[[list[Any]], bool]:
        condition = self.config.get("filter")
        if condition is None:
            return lambda row: True
        compares, at, value = _COMPARES[condition["op"]], column[condition["column"]], condition["value"]
        return lambda row: row[at] is not None and compares(row[at], value)

    def by_batch(self) -> Iterator[tuple[int, list[int]]]:
        """The records of each batch that has some: their numbers, in the order of input, partition and offset."""
        read = [(batch, i) for i, batch in enumerate(self.batch_of_record) if batch is not None]
        records = self.records

        def order(at: tuple[int, int]) -> tuple[int, int, int, int]:
            record = records[at[1]]
            return (at[0], record.input, record.partition, record.offset)

        for batch, group in groupby(sorted(read, key=order), key=lambda at: at[0]):
            yield batch, [i for _, i in group]


def _flag(conf: Mapping[str, str], name: str, *, default: bool) -> bool:
    return str(conf.get(name, default)).lower() == "true"


def delay_ms(delay: int | str) -> int:
    return delay if isinstance(delay, int) else parse_interval(delay).fixed_ms
