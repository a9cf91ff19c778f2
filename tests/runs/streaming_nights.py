"""A log of random records and the checkpoint of a query that has read it, written night after night."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.definition import Pipeline
from tests.runs.small_runs import MINUTE, T0, write

SECOND = 1000
TOPIC = "orders"
WINDOWS = {
    "tumbling": {"type": "tumbling", "size": "1 min"},
    "sliding": {"type": "sliding", "size": "2 min", "slide": "30 s"},
    "session": {"type": "session", "gap": "8 s"},
}


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch: when it was planned (epoch ms), its watermark, and the end offset of each partition."""

    timestamp: int
    watermark: int
    ends: tuple[int, int]


def records_of(draw: random.Random, count: int) -> list[dict]:
    """Of two partitions, a second or two apart: some late by minutes, some without an event time or a key."""
    rows, arrival, offsets = [], T0, [0, 0]
    for number in range(count):
        arrival += draw.choice((0, 700, 1000, 2500))
        partition = 0 if number < 5 else draw.randrange(2)
        behind = draw.randrange(60 * SECOND, 15 * MINUTE) if draw.random() < 0.08 else draw.randrange(0, 12 * SECOND)
        time = None if draw.random() < 0.03 else max(T0, arrival - behind)
        key = draw.choice(("a", "b", None, f"once {number}"))
        rows.append({"p": partition, "o": offsets[partition], "a": arrival, "k": key, "t": time, "v": number})
        offsets[partition] += 1
    return rows


def batches_of(draw: random.Random, records: list[dict], delay: int) -> list[Planned]:
    """The batches of a query that reads these records, batches without data among them."""
    made, clock, watermark, done, ends = [], T0, 0, 0, [0, 0]
    latest = 0
    while done < len(records):
        until = min(len(records), done + draw.randrange(1, 25))
        for record in records[done:until]:
            ends[record["p"]] = record["o"] + 1
        clock = max(clock, records[until - 1]["a"]) + draw.choice((0, 0, 1, SECOND))
        made.append(Planned(clock, watermark, (ends[0], ends[1])))
        latest = max([latest, *(r["t"] for r in records[done:until] if r["t"] is not None)])
        done = until
        if max(watermark, latest - delay) > watermark:
            watermark = latest - delay
            if draw.random() < 0.5:  # a batch without data, with the watermark that has moved
                clock += draw.choice((0, SECOND))
                made.append(Planned(clock, watermark, (ends[0], ends[1])))
    return made


class WrittenQuery:
    """The files of a checkpoint, and of an archive of the topic, in a folder."""

    def __init__(self, folder: Path, records: list[dict], batches: list[Planned]) -> None:
        self.checkpoint, self.data = folder / "checkpoint", folder / "data"
        self.records, self.batches = records, batches
        self._written = self._archived = 0
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text('{"id":"11111111-2222-3333-4444-555555555555"}')

    def go_on(self, until: int, *, pending: bool, ahead: int) -> None:
        """Write the batches before number `until`; `pending`: and plan that one. The archive is `ahead` of them."""
        self._write(range(self._written, min(until + pending, len(self.batches))), until)
        self._written = until
        planned = self.batches[min(until, len(self.batches) - 1)].ends
        there = max(self._archived, min(sum(planned) + ahead, len(self.records)))
        if there > self._archived:
            write(self.data, self.records[self._archived : there], f"part-{until:05}.json")
            self._archived = there

    def forget(self, most: int) -> None:
        """Remove all but the last batches, as Spark does."""
        for name in ("offsets", "commits"):
            for file in (self.checkpoint / name).iterdir():
                if file.name.isdigit() and int(file.name) < self._written - most:
                    file.unlink()

    def remember(self) -> None:
        """Write all batches again."""
        self._write(range(self._written), self._written)

    def _write(self, numbers: range, committed: int) -> None:
        for number in numbers:
            batch = self.batches[number]
            metadata = {"batchWatermarkMs": batch.watermark, "batchTimestampMs": batch.timestamp, "conf": {}}
            ends = {str(partition): end for partition, end in enumerate(batch.ends)}
            lines = ("v1", json.dumps(metadata), json.dumps({TOPIC: ends}))
            (self.checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
            if number < committed:
                following = self.batches[min(number + 1, len(self.batches) - 1)].watermark
                commit = f'v1\n{{"nextBatchWatermarkMs":{following}}}'
                (self.checkpoint / "commits" / str(number)).write_text(commit)


def defined(query: WrittenQuery, name: str, window: str, mode: str, panes: str, **more: object) -> Pipeline:
    """The query's definition, over the archive of its topic, with a delay of 10 seconds."""
    return Pipeline.model_validate(
        {
            "name": name,
            "history": {
                "kind": "files",
                "path": str(query.data / "*.json"),
                "format": "json",
                "position": {"partition": "p", "offset": "o", "arrival": "a", "arrival_unit": "ms"},
            },
            "value": {"schema": "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"},
            "keys": {"k": "k"},
            "event_time": {"expression": "t", "unit": "ms"},
            "engine": "spark",
            "watermark": {"delay": "10 s", "checkpoint": str(query.checkpoint)},
            "output_mode": mode,
            "panes": panes,
            "window": WINDOWS[window],
            "allowed_lateness": 0,
            "aggregates": {"n": "count(*)", "total": "sum(v)", "top": "max(v)"},
            "output": {"namespace": "nightly_tests"},
            **more,
        }
    )
