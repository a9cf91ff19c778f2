"""Recorded queries of Structured Streaming: the sequential model, and the watermarks that follow from the records."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark_jobs.eventtime.spark.batches import INITIAL_WATERMARK
from tests.conformance.case import load_cases
from tests.conformance.formats import Engine, run_cases, try_case
from tests.conformance.microbatch_case import MicroBatchCase, delay_ms
from tests.sequential.spark import running_batches

FOLDER = Path("tests/golden/spark")
CASES = load_cases(FOLDER)


def test_the_recorded_queries_are_the_ones_of_the_index() -> None:
    index = json.loads((FOLDER / "index.json").read_text())["cases"]
    assert len(index) == 106
    assert {path.name for path in CASES} == {entry["file"] + ".gz" for entry in index}
    for entry in index:
        content = gzip.decompress((FOLDER / f"{entry['file']}.gz").read_bytes())
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], entry["file"]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name.split(".")[0])
def test_the_sequential_model_gives_what_the_query_gave(path: Path) -> None:
    assert try_case(path, Engine(set_based=False)).difference is None


@dataclass(slots=True)
class WatermarkTracker:
    """The watermark of a query between two starts, as Spark derives it from records (Spark rules 7 to 14).

    Times are epoch ms; `delays` has one for each input. `policy`: of `spark.sql.streaming.multipleWatermarkPolicy`, by
    which the watermarks of several inputs become one, `min` or `max`. A start makes a new one with the last watermark:
    the inputs' maxima are forgotten (Spark rules 10, 12).
    """

    delays: Sequence[int]
    policy: str
    watermark: int = INITIAL_WATERMARK
    _of_inputs: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self._of_inputs = [INITIAL_WATERMARK] * len(self.delays)

    def after_batch(self, maxima: Sequence[int | None]) -> int:
        """The watermark after a batch in which the inputs had these largest event times; None: no event time."""
        for i, (largest, delay) in enumerate(zip(maxima, self.delays, strict=True)):
            if largest is not None:
                self._of_inputs[i] = max(self._of_inputs[i], largest - delay)
        combined = min(self._of_inputs) if self.policy == "min" else max(self._of_inputs)
        self.watermark = max(self.watermark, combined)
        return self.watermark


def _moves_watermark_when_rejected(case: MicroBatchCase) -> bool:
    """Whether a record that the filter rejects moves the watermark all the same (Spark rule 13)."""
    condition = case.config.get("filter")
    return bool(condition) and condition["position"] == "after_watermark" and condition["column"] == "ts"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name.split(".")[0])
def test_the_watermark_of_each_batch_follows_from_its_records(path: Path) -> None:
    case = MicroBatchCase.read(path)
    reads = dict(case.by_batch())
    tracker: WatermarkTracker | None = None
    start = None
    for batch in running_batches(case.batches):
        entry = case.checkpoint.offsets[batch.number]
        if tracker is not None:
            assert batch.watermark == tracker.watermark
        if case.start_of(batch.number) != start:
            start = case.start_of(batch.number)
            delays = [delay_ms(delay) for delay in case.document["starts"][start]["delay"]]
            tracker = WatermarkTracker(delays, entry.policy or "min", watermark=batch.watermark)
        assert tracker is not None
        maxima: list[int | None] = [None] * case.inputs
        for record in (case.records[i] for i in reads.get(batch.number, [])):
            if record.timestamp is None or not (record.passes or _moves_watermark_when_rejected(case)):
                continue
            milliseconds = record.timestamp // case.ticks_per_ms
            maxima[record.input] = max(milliseconds, maxima[record.input] or milliseconds)
        after = tracker.after_batch(maxima)
        if batch.number in case.checkpoint.commits:
            assert after == case.checkpoint.commits[batch.number].next_watermark


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e["rows"].pop(),
        lambda e: e["rows"].append(e["rows"][-1]),
        lambda e: e["rows"][0].__setitem__(6, -1),
        lambda e: e["dropped"].append([0, 0, 10_000]),
        lambda e: e["ignored"].append(0),
        lambda e: e["unread"].append(0),
        lambda e: e["open"].pop(),
        lambda e: e.__setitem__("pending_batch", 2),
    ],
)
def test_a_query_that_is_said_to_have_done_something_else_fails_with_one_line(tmp_path: Path, change) -> None:
    document = MicroBatchCase.read(FOLDER / "sem_sliding_partly_late.json.gz").document
    change(document["expected"])
    (tmp_path / "case.json").write_text(json.dumps(document))
    lines: list[str] = []
    assert run_cases(tmp_path, "sequential", verbose=False, say=lines.append) == (0, 1)
    assert len(lines) == 1
    assert lines[0].startswith("FAIL case.json: ")
