"""A walk's records in files, and the checkpoint of a query that has read them in batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.walk import plan as s
from tests.walk.log import Log
from tests.walk.places import Files
from tests.walk.truth import BOUND

_PARTS = ("offsets", "commits")


class Query(Files):
    def __init__(self, spark: SparkSession, folder: Path, name: str, walk: s.Walk) -> None:
        super().__init__(spark, folder, name, walk)
        self.checkpoint = folder / f"{name}_checkpoint"
        self.job = f"engine: spark\nwatermark: {{delay: 10 s, checkpoint: {self.checkpoint}}}\noutput_mode: append"
        for part in _PARTS:
            (self.checkpoint / part).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text('{"id":"11111111-2222-3333-4444-555555555555"}')

    def change(self, step: s.Step, before: Log, after: Log) -> None:
        match step:
            case s.Batches():
                for number in range(len(before.batches), len(after.batches)):
                    self._plan(number, after)
            case s.Restore():
                self._remove(lambda number: number >= len(after.batches))
                for number in range(len(after.batches)):  # a copy has what Spark has purged since
                    self._plan(number, after)
            case s.Purge(kept):
                self._remove(lambda number: number < len(after.batches) - kept)
            case _:
                super().change(step, before, after)

    def _plan(self, number: int, log: Log) -> None:
        """Write the batch of this number, committed."""
        ends = {str(p): self._end(p, log.batches[number], log) for p in (0, 1)}
        facts = {"batchWatermarkMs": self._watermark(number, log), "batchTimestampMs": self._planned(number, log)}
        lines = ("v1", json.dumps(facts | {"conf": {}}), json.dumps({"orders": ends}))
        (self.checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
        following = json.dumps({"nextBatchWatermarkMs": self._watermark(number + 1, log)})
        (self.checkpoint / "commits" / str(number)).write_text(f"v1\n{following}")

    def _end(self, partition: int, below: int, log: Log) -> int:
        return sum(r.partition == partition for n, r in log.records.items() if n < below)

    def _planned(self, number: int, log: Log) -> int:
        return log.time_of(log.batches[number] - 1) + 1

    def _watermark(self, number: int, log: Log) -> int:
        """The watermark of a batch: what the batches before it have read decides."""
        read = log.batches[number - 1] if number else 0
        return max((r.time - BOUND for n, r in log.records.items() if n < read), default=0)

    def _remove(self, goes: Callable[[int], bool]) -> None:
        for part in _PARTS:
            for file in (self.checkpoint / part).iterdir():
                if goes(int(file.name)):
                    file.unlink()
