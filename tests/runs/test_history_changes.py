"""A night looks at its history: files that come late, twice, replaced or removed, and a log that begins anew."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import DefinitionError, HistoryError, SourceError
from spark_jobs.eventtime.durations import DAY
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.columns import HISTORY_GONE
from spark_jobs.runs.life.documents import Changes
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan, plan_from_json, read_planned
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import LogProgress
from spark_jobs.sources import spool
from tests.runs.small_nights import pipeline, tables_of
from tests.runs.small_runs import MINUTE, T0, record, write
from tests.sampling import IN_FULL, sample

CASE = "tumbling, per event"
_numbers = itertools.count()


@dataclass(frozen=True)
class Nights:
    """A pipeline over a folder of its own, and what a full run of another one over the same files gives."""

    spark: SparkSession
    folder: Path
    defined: Pipeline

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def put(self, name: str, numbers: range | list[int], **other: object) -> Path:
        write(self.data, [record(i, **other) for i in numbers], name)
        return self.data / name

    def put_another_log(self, name: str, numbers: range) -> None:
        """The same offsets, a day later."""
        rows = (record(i) for i in numbers)
        write(self.data, [row | {"a": row["a"] + DAY, "t": row["t"] + DAY} for row in rows], name)

    def night(self, **options: object) -> RunResult:
        return reconcile(self.spark, self.defined, LogProgress(), **options)  # pyright: ignore[reportArgumentType]

    def full(self, **options: object) -> RunResult:
        plan = make_plan(self.spark, self.defined, **options)  # pyright: ignore[reportArgumentType]
        return execute(self.spark, self.defined, plan, LogProgress())

    def windows(self) -> dict[tuple, tuple]:
        """Records, sum and state by key and start."""
        rows = self.spark.table(Tables.of(self.defined).windows).collect()
        return {(r["k"], r["window_start"]): (r["n__complete"], r["total__complete"], r["state"]) for r in rows}

    def assert_as_one_full_run(self) -> None:
        fresh = pipeline(self.folder, f"{self.defined.name}_full", CASE)
        execute(self.spark, fresh, make_plan(self.spark, fresh), LogProgress())
        assert tables_of(self.spark, self.defined) == tables_of(self.spark, fresh)


@pytest.fixture
def nights(spark: SparkSession, tmp_path: Path) -> Nights:
    return Nights(spark, tmp_path, pipeline(tmp_path, f"past_{next(_numbers)}", CASE))


@pytest.fixture(params=sample(["small"], ["small", "large"]))
def of_any_size(request: pytest.FixtureRequest, nights: Nights, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """Small files are in memory, large ones are read by file."""
    if request.param == "large":
        monkeypatch.setattr(spool, "SMALL_BYTES", 0)
    return nights


@pytest.mark.long
def test_files_that_come_late_or_are_written_again_are_read(of_any_size: Nights) -> None:
    nights = of_any_size
    nights.put("a.json", range(100))
    nights.put("c.json", range(160, 240))
    nights.night()
    nights.put("b.json", range(100, 160))
    result = nights.night()
    assert "60 records of" in result.note and "b.json lie below the end offsets of run" in result.note
    if IN_FULL:
        nights.assert_as_one_full_run()
    assert "nothing has arrived" in nights.night().note
    nights.put("a.json", range(100), v=7)
    os.utime(nights.data / "a.json", (1, 1))
    assert "was written again" in nights.night().note
    nights.assert_as_one_full_run()


@pytest.mark.long
def test_a_file_that_is_loaded_twice_is_refused_until_it_is_gone(of_any_size: Nights) -> None:
    nights = of_any_size
    nights.put("a.json", range(120))
    nights.night()
    before = nights.windows()
    twice = nights.put("a-again.json", range(120))
    nights.put("b.json", range(120, 200))
    with pytest.raises(HistoryError, match="offset 0 is there twice"):
        nights.night()
    assert nights.windows() == before
    twice.unlink()
    assert nights.night().continued_from is not None
    assert sum(count for count, *_ in nights.windows().values()) == 200


@pytest.mark.long
def test_windows_keep_their_values_where_retention_has_removed_the_records(of_any_size: Nights) -> None:
    nights = of_any_size
    first = nights.put("a.json", range(120))
    nights.put("b.json", range(120, 300))
    nights.night()
    before = nights.windows()
    first.unlink()
    late = [record(300, t=T0 + 30_000), record(301, t=T0 + 150_000), *(record(i) for i in range(302, 330))]
    write(nights.data, late, "c.json")
    result = nights.night()
    assert result.continued_from is not None and "history_gone" in result.note
    after = nights.windows()
    gone = {window: value for window, value in after.items() if value[2] == HISTORY_GONE}
    assert gone and all(before[window][:2] == value[:2] for window, value in gone.items())
    assert before.keys() <= after.keys()
    kept = Changes.read(RunStore.configured().folder(result.run_id))
    assert kept is not None and kept.history_gone == len(gone)
    # A window that has all its records is computed again, and so it stays: the loss is not forgotten.
    assert after["a", _at(2)][0] + after["b", _at(2)][0] == before["a", _at(2)][0] + before["b", _at(2)][0] + 1
    write(nights.data, [record(330, t=T0 + 90_000)], "d.json")
    nights.night()
    assert {w: v[:2] for w, v in nights.windows().items() if w in before and w[1] < _at(2)} == {
        w: v[:2] for w, v in before.items() if w[1] < _at(2)
    }
    full = nights.full()
    assert "retracted" not in full.changes and "updated" not in full.changes
    now = nights.windows()
    assert {w: now[w] for w in gone} == gone


@pytest.mark.long
def test_as_many_new_records_as_are_gone_hide_nothing(of_any_size: Nights) -> None:
    """Counts alone would say that all is there."""
    nights, in_one = of_any_size, {"k": "a", "t": T0 + 30_000}
    first = nights.put("a.json", range(20), **in_one)
    nights.put("c.json", range(40, 60), **in_one)
    nights.put("d.json", range(60, 180))
    nights.night()
    before = nights.windows()
    first.unlink()
    nights.put("b.json", range(20, 40), **in_one)
    assert "history_gone" in nights.night().note
    window = "a", _at(0)
    assert nights.windows()[window] == (*before[window][:2], HISTORY_GONE)
    nights.put("a.json", range(20), **in_one)
    nights.night()
    count, _, state = nights.windows()[window]
    assert count == before[window][0] + 20 and state != HISTORY_GONE, "all of it is there again"
    # A file is written again with fewer records, and as many come behind the end offsets.
    nights.put("d.json", range(60, 120))
    nights.put("e.json", range(180, 240))
    assert "history_gone" in nights.night().note
    after = nights.windows()
    gone = [window for window in before if window[1] == _at(2)]
    assert gone and all(after[window] == (*before[window][:2], HISTORY_GONE) for window in gone)
    # The log ends earlier for a while: what counted its last records is right again once they are back.
    last = (nights.data / "e.json").rename(nights.folder / "e.json")
    nights.full()
    assert nights.windows() != after
    last.rename(nights.data / "e.json")
    nights.night()
    assert nights.windows() == after
    # Another log is refused, also where the definition has changed too.
    for file in nights.data.iterdir():
        file.unlink()
    nights.put_another_log("y.json", range(40))
    text = (nights.folder / f"{nights.defined.name}.yaml").read_text().replace("sum(v)", "sum(v + 1)")
    changed = replace(nights, defined=load_pipeline(nights.folder / f"{nights.defined.name}.yaml", text=text))
    with pytest.raises(HistoryError, match="the history is another one"):
        changed.night()
    assert nights.windows() == after


def _at(minute: int) -> datetime:
    return datetime.fromtimestamp((T0 + minute * MINUTE) / 1000, UTC).replace(tzinfo=None)


@pytest.mark.long
def test_a_log_that_begins_anew_is_refused(of_any_size: Nights) -> None:
    nights = of_any_size
    nights.put("a.json", range(200)).rename(nights.data / "x.json")
    nights.night()
    (nights.data / "x.json").unlink()
    nights.put_another_log("y.json", range(40))
    before = nights.windows()
    for begin in (nights.night, nights.full, lambda: nights.full(start=T0 + DAY)):
        with pytest.raises(HistoryError, match="the history is another one") as refused:
            begin()
        assert "--another-log" in (refused.value.hint or "")
    with pytest.raises(DefinitionError, match="over a part of the range"):
        nights.full(start=T0 + DAY, another_log=True)
    assert nights.windows() == before
    plan = make_plan(nights.spark, nights.defined, another_log=True)
    assert "all that is published goes" in plan.warnings[-1] and plan_from_json(plan.to_json()) == plan
    nights.full(another_log=True)
    nights.assert_as_one_full_run()
    nights.put_another_log("z.json", range(40, 60))
    assert nights.night().continued_from is not None, "it is the log that was read now"
    assert nights.full(another_log=True).changes == {}, "and the same log is no other one"


@pytest.mark.long
def test_a_log_that_is_written_into_other_files_is_read_as_a_whole(of_any_size: Nights) -> None:
    nights = of_any_size
    for number in range(3):
        nights.put(f"{number}.json", range(number * 50, number * 50 + 50))
    nights.night()
    for number in range(3):
        (nights.data / f"{number}.json").unlink()
    nights.put("all.json", range(160))
    assert "150 records of" in (note := nights.night().note) and "lie below the end offsets" in note
    nights.assert_as_one_full_run()


def test_a_file_replaced_by_one_of_its_size_stops_a_run_that_was_planned(nights: Nights) -> None:
    file = nights.put("a.json", range(100), v=1)
    plan = make_plan(nights.spark, nights.defined)
    nights.put("a.json", range(100), v=2)
    os.utime(file, (1, 1))
    with pytest.raises(SourceError, match="a file of the plan has changed: it was written at"):
        read_planned(nights.spark, nights.defined, plan)
