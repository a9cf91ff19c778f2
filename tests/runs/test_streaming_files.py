"""Runs of a real Structured Streaming query over files, replayed by the log of its file source."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_jobs.comparison.compare import compare_planned
from spark_jobs.definition import Pipeline
from spark_jobs.definition.mode import Mode
from spark_jobs.errors import DefinitionError, HistoryError
from spark_jobs.eventtime.spark.checkpoint import Checkpoint, read_checkpoint
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan, planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources import checkpoint, open_history, spool
from tests.runs.live_query import (
    SCHEMA,
    START,
    WINDOWS,
    LiveQuery,
    as_rows,
    backfilled,
    files_stream,
    live_section,
    over_files,
)

FILES: list[list[tuple[str, int]]] = [
    [("a", 5), ("a", 30), ("b", 20), ("a", 30)],
    [("a", 70), ("b", 65), ("a", 30)],
    [("b", 10), ("a", 50), ("a", 130), ("a", 70)],
    [("b", 15), ("a", 66), ("b", 118), ("a", 130)],
    [("a", 119), ("b", 200)],
    [("a", 61), ("b", 150), ("a", 125), ("a", 260)],
]
"""Records by file: key, seconds after START. Some are late: the watermark is 10 s behind the latest; some are twice."""


class Landing:
    """A folder into which files land whole."""

    def __init__(
        self, spark: SparkSession, folder: Path, kind: str, files: list[list[tuple[str, int]]] | None = None
    ) -> None:
        self.spark, self.folder, self.kind = spark, folder / "landing zone", kind
        self.files = FILES if files is None else files
        self.folder.mkdir()

    def land(self, number: int, name: str = "") -> None:
        rows = [(key, START + seconds * 1000, seconds) for key, seconds in self.files[number]]
        temporary = self.folder.parent / "temporary"
        self.spark.createDataFrame(rows, SCHEMA).coalesce(1).write.mode("overwrite").format(self.kind).save(
            str(temporary)
        )
        (part,) = temporary.glob("part-*")
        part.rename(self.folder / (name or f"file {number}.{self.kind}"))


def defined(live: LiveQuery, landing: Landing, name: str, window: dict, /, **more: object) -> Pipeline:
    return over_files(live, landing.folder, landing.kind, name, window, **more)


def started(spark: SparkSession, landing: Landing, folder: Path) -> LiveQuery:
    stream = files_stream(spark, landing.folder, "json", "10 seconds", maxFilesPerTrigger="1")
    return LiveQuery([stream], folder, "append", "tumbling")


def plant_faults(live: LiveQuery) -> None:
    """In place of the query's rows: one with another sum, one left out, one of a key that has no record, the others."""
    changed, _, *others = live.emitted()
    rows = [{**changed, "total": changed["total"] + 1}, {**changed, "k": "nobody"}, *others]
    for file in live.rows.iterdir():
        file.unlink()
    (live.rows / "00000.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.long
def test_each_record_is_decided_by_the_batch_that_has_read_its_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(spark, tmp_path, "json")
    live = started(spark, landing, tmp_path)
    live.run([lambda: [landing.land(number) for number in (0, 1, 2)]])
    live = started(spark, landing, tmp_path)
    live.run([lambda: [landing.land(number) for number in (3, 4)]])
    # The batch after the one that reads the last file lets a window out, and fails: is its row out?
    landing.land(5)
    with pytest.raises(StreamingQueryException):
        started(spark, landing, tmp_path).run([lambda: None], before=partial(next, iter([None])))
    landing.land(0, "unread.json")  # in no batch

    pipeline = defined(live, landing, "of_files", WINDOWS["tumbling"])
    readings: list[Checkpoint] = []
    monkeypatch.setattr(
        checkpoint, "read_checkpoint", lambda files: readings.append(read_checkpoint(files)) or readings[-1]
    )
    with planned_records(spark, pipeline) as (plan, records):
        assert any("was planned and not committed" in warning for warning in plan.warnings)
        tables = execute(spark, pipeline, plan, NoProgress(), records=records).tables
        report = compare_planned(spark, pipeline, plan, NoProgress(), records=records)
        emitted = live.emitted()
        plant_faults(live)
        faults = compare_planned(spark, pipeline, plan, NoProgress(), records=records)
    assert [faults.counts.get(one) for one in ("mismatch", "missing", "extra")] == [1, 1, 1]
    assert len(readings) == 1, "the plan, the run and the comparison read the checkpoint once, all of them together"
    rows = spark.table(tables.windows).where("pane IS NOT NULL").collect()
    assert {(row["k"], row["n"], row["total"]) for row in rows} == {(r[0], *r[3:]) for r in as_rows(emitted)}
    assert len(rows) == 5 and plan.fidelity == "recorded"
    late_rows = {(row["offset"] >> 40, row["offset"] % (1 << 40)) for row in spark.table(tables.late).collect()}
    assert late_rows == {(3, 0), (3, 1), (3, 2), (4, 0), (5, 0), (5, 1), (5, 2)}, "file, record in it"
    fine = {"match", "late_arrivals", "all_late", "not_closed"}
    assert {name for name, n in report.counts.items() if n} <= {*fine, "undecided"}
    assert report.labels["undecided"] == {"batch_not_committed": 1}
    assert not spark.table(tables.checkpoint).where("file LIKE 'sources/%'").count(), "Spark keeps that log itself"

    lost = {"delay": "10 seconds", "checkpoint": str(tmp_path / "lost"), "gaps": "approximate", "trigger": "1 s"}
    shutil.copytree(live.checkpoint, tmp_path / "lost")
    (tmp_path / "lost/offsets/0").unlink()
    with pytest.raises(DefinitionError, match="a file's time says when it was written, not when the query listed it"):
        make_plan(spark, defined(live, landing, "of_lost", WINDOWS["tumbling"], watermark=lost))
    with pytest.raises(DefinitionError, match="only its checkpoint says which batch has read each"):
        empty = {name: value for name, value in lost.items() if name != "checkpoint"}
        open_history(spark, defined(live, landing, "of_nothing", WINDOWS["tumbling"], watermark=empty))

    first = landing.folder / "file 0.json"
    was = first.stat()
    os.utime(first, (was.st_atime, was.st_mtime + 60))
    with pytest.raises(HistoryError, match="written again after the query had listed it"):
        make_plan(spark, pipeline)
    first.unlink()
    with pytest.raises(HistoryError, match="has read a file that is not among those of the history"):
        make_plan(spark, pipeline)
    position = {"partition": "0", "offset": "v", "arrival": "ts", "arrival_unit": "ms"}
    history = {"kind": "files", "path": str(landing.folder), "format": "json", "position": position}
    with pytest.raises(DefinitionError, match="no source of the query reads this topic"):
        make_plan(spark, defined(live, landing, "placed", WINDOWS["tumbling"], history=history))


def test_windows_that_an_uncommitted_batch_touched_are_undecided_in_update_mode(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its rows are out here, which nobody knows: file 2 has a late record, and those of two windows of key a."""
    landing = Landing(spark, tmp_path, "json")
    stream = files_stream(spark, landing.folder, "json", "10 seconds", maxFilesPerTrigger="1")
    live = LiveQuery([stream], tmp_path, "update", "tumbling")
    live.run([lambda: [landing.land(number) for number in (0, 1)]])
    landing.land(2)
    with pytest.raises(StreamingQueryException):
        live.run([lambda: None], after=partial(next, iter(())))
    pipeline = defined(live, landing, "of_update", WINDOWS["tumbling"], live={**live_section(live), "pane": "batch"})
    with planned_records(spark, pipeline) as (plan, records):
        report = compare_planned(spark, pipeline, plan, NoProgress(), records=records)
    windows = {(row["k"], (row["s"] - START) // 1000) for row in live.emitted()}
    assert windows == {("a", 0), ("b", 0), ("a", 60), ("b", 60), ("a", 120)}
    assert report.labels["undecided"] == {"batch_not_committed": 1}, "a from 60 s; from 120 s nothing is planned"
    assert report.counts["match"] == 3


@pytest.mark.long
@pytest.mark.parametrize("is_out", [True, False], ids=["out", "not out"])
def test_sessions_that_an_uncommitted_batch_touched_are_undecided_in_complete_mode(
    spark: SparkSession, tmp_path: Path, is_out: bool
) -> None:
    """File 2 is in it: its record of a makes the session longer, that of b is late. From 150 s nothing is planned."""
    files = [[("a", 5), ("a", 20), ("b", 50)], [("c", 100)], [("a", 35), ("b", 15), ("c", 150)]]
    landing = Landing(spark, tmp_path, "json", files)
    stream = files_stream(spark, landing.folder, "json", "10 seconds", maxFilesPerTrigger="1")
    live = LiveQuery([stream], tmp_path, "complete", "session")
    live.run([lambda number=number: landing.land(number) for number in (0, 1)])
    landing.land(2)
    fails, goes_on = partial(next, iter(())), lambda: None
    with pytest.raises(StreamingQueryException):
        live.run([lambda: None], before=goes_on if is_out else fails, after=fails)
    *former, last = sorted(live.rows.iterdir())  # a sink of complete mode has the rows of the last batch alone
    for file in former:
        file.unlink()
    assert last.name == ("00002.json" if is_out else "00001.json")
    pipeline = defined(live, landing, f"of_complete_{is_out}".lower(), WINDOWS["session"])
    with planned_records(spark, pipeline) as (plan, records):
        report = compare_planned(spark, pipeline, plan, NoProgress(), records=records)
    assert report.labels.get("undecided", {}) == ({"batch_not_committed": 2} if is_out else {}), "a twice"
    assert not {"mismatch", "missing", "extra"} & {name for name, count in report.counts.items() if count}
    assert report.counts["match"] + report.counts.get("late_arrivals", 0) == (3 - is_out)


@pytest.mark.long
def test_a_night_takes_up_the_files_that_a_batch_has_read_since_and_moved_files_are_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SMALL_BYTES", 0)  # files are read each time, as large ones are
    landing = Landing(spark, tmp_path, "json")
    live = started(spark, landing, tmp_path)
    live.run([lambda: [landing.land(number) for number in (0, 1, 2)]])
    pipeline = defined(live, landing, "of_night", WINDOWS["tumbling"])
    found, *_ = backfilled(spark, pipeline)
    assert found == as_rows(live.emitted()) and found
    landing.land(3)
    assert backfilled(spark, pipeline)[0] == found, "no batch has read it yet"
    started(spark, landing, tmp_path).run([lambda: landing.land(4)])
    night = reconcile(spark, pipeline, NoProgress())
    tables = night.tables
    assert night.continued_from is not None
    rows = spark.table(tables.windows).where("pane IS NOT NULL").collect()
    assert {(row["k"], row["n"], row["total"]) for row in rows} == {(r[0], *r[3:]) for r in as_rows(live.emitted())}

    (tmp_path / "elsewhere").mkdir()
    moved = Landing(spark, tmp_path / "elsewhere", "json")
    shutil.copytree(landing.folder, moved.folder, dirs_exist_ok=True)
    found, *_ = backfilled(spark, defined(live, moved, "of_moved", WINDOWS["tumbling"]))
    assert found == as_rows(live.emitted())


@pytest.mark.long
@pytest.mark.parametrize("ids", [(), ("k", "v")], ids=["sessions", "duplicates"])
def test_sessions_and_duplicates_of_parquet_files_are_the_query_s(
    spark: SparkSession, tmp_path: Path, ids: tuple[str, ...]
) -> None:
    landing = Landing(spark, tmp_path, "parquet")
    stream = files_stream(spark, landing.folder, "parquet", "10 seconds")
    window = "tumbling" if ids else "session"
    live = LiveQuery([stream], tmp_path, "append", window, ids=ids)
    live.run([lambda number=number: landing.land(number) for number in range(len(FILES))])
    more = {"deduplicate": {"by": list(ids)}} if ids else {}
    pipeline = defined(live, landing, f"of_parquet_{window}", WINDOWS[window], **more)
    found, late, _ = backfilled(spark, pipeline)
    assert found == as_rows(live.emitted()) and found
    assert late > 0


def test_a_checkpoint_without_files_says_what_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    for part in ("offsets", "commits", "sources/0"):
        (tmp_path / "checkpoint" / part).mkdir(parents=True)
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"c0ffee"}')
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": START, "conf": {}})
    (tmp_path / "checkpoint" / "offsets" / "0").write_text(f'v1\n{metadata}\n{{"t":{{"0":3}}}}')
    (tmp_path / "checkpoint" / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (tmp_path / "checkpoint" / "sources" / "0" / "0").write_text('\0v1\n{"t":{"0":0}}')
    landing = Landing(spark, tmp_path, "json")
    landing.land(0)
    live = LiveQuery([files_stream(spark, landing.folder, "json", "10 seconds")], tmp_path, "append", "tumbling")
    with pytest.raises(DefinitionError, match=r"no source of the query reads files.*history\.position"):
        make_plan(spark, defined(live, landing, "of_topic", WINDOWS["tumbling"]))
    both = defined(live, landing, "of_complete", WINDOWS["tumbling"])
    complete = both.model_copy(update={"mode": Mode.COMPLETE, "live": None})
    assert make_plan(spark, complete).records == 4, "complete values need no position"
