"""The recorded cases of `flink_deduplication`, and the sequential model run on one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs.definition.deduplicate import UpdateType
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from tests.sequential.flink import FirstByProcessingTime, FirstByRowTime

FOLDER = Path("tests/golden/flink_deduplication")
CASES = sorted(FOLDER.glob("*.json"))


@dataclass(frozen=True)
class DeduplicationCase:
    """`records`: partition, offset, arrival, id, time. `given`: record, and how many had been consumed."""

    config: dict[str, Any]
    records: list[tuple[int, int, int, str, int]]
    given: list[tuple[int, int]]

    @classmethod
    def load(cls, path: Path) -> DeduplicationCase:
        document = json.loads(path.read_text())
        given = [(record, at) for record, at in document["expected"]["given"]]
        return cls(document["config"], [tuple(record) for record in document["records"]], given)

    @property
    def behind(self) -> int:
        """How far the watermark is behind the highest time."""
        watermark = self.config["watermark"]
        return watermark["lag_ms"] + (watermark["kind"] == "bounded_out_of_orderness")

    def watermarks(self) -> list[int | None]:
        """The watermark after each record."""
        highest: list[int | None] = [None] * self.config["partitions"]
        after: list[int | None] = []
        for partition, _, _, _, ts in self.records:
            highest[partition] = max(ts, highest[partition] or ts)
            known = [one for one in highest if one is not None]
            now = min(known) - self.behind if len(known) == len(highest) else None
            before = after[-1] if after else None
            after.append(now if before is None or now is None else max(before, now))
        return after


def run_sequential(case: DeduplicationCase) -> tuple[list[tuple[int, int]], set[int]]:
    """What went on, as `given`; and the records that were late."""
    within = case.config["within_ms"]
    if case.config["kind"] == "processing_time":
        first = FirstByProcessingTime(within, UpdateType(case.config["update_type"]))
        taken = [first.takes(id, arrival) for _, _, arrival, id, _ in case.records]
        return [(i, i + 1) for i, is_taken in enumerate(taken) if is_taken], set()
    by_row: FirstByRowTime[int] = FirstByRowTime(within)
    given: list[tuple[int, int]] = []
    late: set[int] = set()
    watermark: int | None = None
    for i, ((_, _, arrival, id, ts), after) in enumerate(zip(case.records, case.watermarks(), strict=True)):
        if by_row.is_late(ts, watermark):
            late.add(i)
        else:
            by_row.add(id, ts, i, arrival)
        if after is not None and after != watermark:
            given += [(element, i + 1) for element in by_row.advance(after, arrival)]
            watermark = after
    count, last = len(case.records), case.records[-1][2]
    return given + [(element, count) for element in by_row.advance(MAX_TIMESTAMP, last)], late
