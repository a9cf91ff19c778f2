"""Night after night: what new records touch is recomputed, and the tables are those of a full run."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.window_history import window_history
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.runs.life.start import Asked
from spark_jobs.runs.night.affected import PreviousRun
from spark_jobs.runs.night.nightly import reconcile, why_ahead
from spark_jobs.runs.night.reading import Reading
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.evaluation import EndPolicy
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import LogProgress
from spark_jobs.sources import Inspection, spool
from tests.faults.boundaries import watched_steps
from tests.runs.small_nights import CASES, TICKS, a_week_later, assert_history_is_whole, log_of, pipeline, tables_of
from tests.runs.small_runs import BOUNDED, MINUTE, T0, write
from tests.runs.small_runs import pipeline as small_pipeline
from tests.sampling import first_of, in_turn

POSITIONS = ("x_from", "arrival", "major", "minor")


@pytest.mark.parametrize(("case", "seed"), first_of(in_turn((case, seed) for seed, case in enumerate(CASES))))
def test_every_night_ends_in_the_tables_of_a_full_run(spark, tmp_path, monkeypatch, case, seed) -> None:
    if seed % 2:  # these nights read their files each time, as they do with large ones
        monkeypatch.setattr(spool, "SMALL_BYTES", 0)
    records = log_of(seed)
    draw = random.Random(seed + 100)
    cuts = [draw.randrange(60, len(records) - 60), len(records)]
    nightly = pipeline(tmp_path, f"nightly_{seed}", case)
    done = 0
    for night, cut in enumerate(cuts):
        write(tmp_path / "data", records[done:cut], f"part-{night}.json")
        done = cut
        prepared: list[bool] = []
        ends = EndPolicy(prepare=lambda prepared=prepared: prepared.append(True))
        result = reconcile(spark, nightly, LogProgress(), end_policy=ends)
        assert (result.continued_from is None) == (night == 0), result.note
        assert prepared
    full = pipeline(tmp_path, f"full_{seed}", case)
    execute(spark, full, make_plan(spark, full), LogProgress())
    assert tables_of(spark, nightly) == tables_of(spark, full)
    assert_history_is_whole(spark, nightly)
    causes = (
        PublishedTable(spark, Tables.of(nightly).windows).revisions().where("revision > 1").select("cause").distinct()
    )
    assert {row[0] for row in causes.collect()} <= {"late_arrivals", "retraction", "closed", "open"}
    prepared = []
    again = reconcile(spark, nightly, LogProgress(), end_policy=EndPolicy(prepare=lambda: prepared.append(True)))
    assert "nothing has arrived" in again.note
    assert not prepared  # the gate's seconds are for nights with work


@pytest.mark.long
def test_a_tick_that_was_due_after_the_last_record_closes_as_it_would_have(spark, tmp_path) -> None:
    """The last record takes the watermark past a window's end, but the timer that shows it runs only a night later."""
    defined = pipeline(tmp_path, "between_ticks", "cumulative, periodic")
    second = 1000

    def record(partition: int, offset: int, arrival: int, time: int) -> dict:
        return {"p": partition, "o": offset, "a": T0 + arrival * second, "k": "a", "t": T0 + time * second, "v": offset}

    first = [record(p, o, 30 * o + p, 30 * o + p) for o in range(2) for p in range(2)]
    first += [record(p, 2, 91 + p, 91 + p) for p in range(2)]  # watermark at 81 s, to be seen at 95 s
    write(tmp_path / "data", first, "part-0.json")
    assert reconcile(spark, defined, LogProgress()).counts.records_late == 0
    late = record(0, 3, 96, 40)  # behind the first window and its 20 s
    write(tmp_path / "data", [late, record(1, 3, 97, 97)], "part-1.json")
    night = reconcile(spark, defined, LogProgress())
    assert night.continued_from is not None
    assert night.counts.records_late == 1
    full = pipeline(tmp_path, "between_ticks_full", "cumulative, periodic")
    execute(spark, full, make_plan(spark, full), LogProgress())
    assert tables_of(spark, defined) == tables_of(spark, full)


@pytest.mark.long
def test_a_partition_whose_records_come_a_night_later_closes_windows_when_it_did(spark, tmp_path) -> None:
    """The other one was far ahead then: when it had passed what in between, its last position does not say."""
    defined = pipeline(tmp_path, "uneven", "tumbling, per event")
    second = 1000

    def record(partition: int, offset: int, arrival: int, time: int) -> dict:
        return {"p": partition, "o": offset, "a": T0 + arrival * second, "k": "a", "t": T0 + time * second, "v": offset}

    ahead = [record(0, o, at, at) for o, at in enumerate((10, 100, 200))]
    write(tmp_path / "data", [*ahead, record(1, 0, 20, 20)], "part-0.json")
    reconcile(spark, defined, LogProgress())
    behind = [record(1, 1, 110, 110), record(1, 2, 150, 30), record(1, 3, 210, 210)]
    write(tmp_path / "data", behind, "part-1.json")
    reconcile(spark, defined, LogProgress())
    full = pipeline(tmp_path, "uneven_full", "tumbling, per event")
    assert execute(spark, full, make_plan(spark, full), LogProgress()).counts.records_late == 1
    assert tables_of(spark, defined) == tables_of(spark, full)


def test_a_record_that_came_before_the_end_of_the_run_before_is_told_with_both_times(spark, tmp_path) -> None:
    """With idleness: what another partition did then may depend on it."""
    idle = f"{BOUNDED}, {TICKS}, idleness: 10 s"
    defined = small_pipeline(tmp_path, "ahead", window="window: {type: tumbling, size: 1 min}", watermark=idle)
    spec = spec_of(defined, [0, 1])
    state = {"kind": "simulation", "processing_time_end": T0 + 9_000, "last": None}
    steps = InMemoryTimeline.of_table(pa.table({name: pa.array([], pa.int64()) for name in POSITIONS}))
    reading = Reading((), {}, {}, "")
    before = PreviousRun("r1", {0: 3, 1: 0}, T0 + 9_000, state, steps, 3, reading)
    columns = "rw_arrival BIGINT, rw_partition INT, rw_offset BIGINT"
    seen = Inspection((), 0, 0, 0, None)

    def ahead(arrival: int) -> str:
        new = spark.createDataFrame([(T0 + arrival, 1, 0)], columns)
        return why_ahead(before, spec, new, seen)

    assert ahead(9_000) == ""
    times = "one arrived at 2020-09-13T12:27:08.999Z, and run r1 has read another partition up to 2020-09-13T12:27:09Z"
    assert ahead(8_999) == f"the saved watermark state is ahead of new records: {times}"


@pytest.mark.long
def test_a_window_tells_its_life_and_a_changed_definition_is_a_logic_change(spark, tmp_path) -> None:
    case = "tumbling, per event"
    records = log_of(7)
    defined = pipeline(tmp_path, "life", case)
    write(tmp_path / "data", records[:200], "part-0.json")
    reconcile(spark, defined, LogProgress())
    write(tmp_path / "data", records[200:], "part-1.json")
    reconcile(spark, defined, LogProgress())
    path = tmp_path / "life.yaml"
    path.write_text(path.read_text().replace("top: max(v)", "top: max(v) + 1"))
    changed = load_pipeline(path)
    result = reconcile(spark, changed, LogProgress(), asked=Asked("off by one"))
    assert "another definition" in result.note
    facts = PublishedTable(spark, Tables.of(changed).windows)
    latest = facts.current().where("cause = 'logic_change'")
    assert latest.count() == facts.current().count() > 0
    of_night = "cause IN ('late_arrivals', 'closed', 'open')"
    touched = facts.revisions().where(f"{of_night} AND revision = 2 AND k IS NOT NULL").head()
    assert touched is not None
    start = int(touched["window_start"].timestamp() * 1000)
    life = window_history(spark, changed, [("k", touched["k"])], start)
    assert [r.cause for r in life] == ["backfill", touched["cause"], "logic_change"]
    assert life[0].definition_hash == life[1].definition_hash != life[2].definition_hash
    assert life[2].reason == "off by one"
    assert life[2].values["top"] == life[1].values["top"] + 1


@pytest.mark.long
def test_later_windows_that_a_rival_publishes_meanwhile_stay(spark, tmp_path) -> None:
    """A night stands for what it has seen; of what was published behind that in between it says nothing."""
    case = "tumbling, per event"
    defined = pipeline(tmp_path, "overtaken", case)
    records = log_of(23, count=160)
    later = a_week_later(records[120:])
    facts = PublishedTable(spark, Tables.of(defined).windows)
    write(tmp_path / "data", records[:60], "part-0.json")
    reconcile(spark, defined, LogProgress())
    write(tmp_path / "data", records[60:120], "part-1.json")
    passed: list[str] = []
    rivals: list[RunResult] = []

    def overtake(boundary: str) -> None:
        passed.append(boundary)
        if boundary == "before prepare" and passed.count(boundary) == 1:
            write(tmp_path / "data", later, "part-2.json")
            plan = make_plan(spark, defined, start=later[0]["t"] - MINUTE)
            rivals.append(execute(spark, defined, plan, LogProgress()))

    with watched_steps(overtake):
        night = reconcile(spark, defined, LogProgress())
    assert night.continued_from is not None and "retracted" not in night.changes
    current = {row[0]: row[1] for row in facts.current().groupBy("run_id").count().collect()}
    assert current[rivals[0].run_id] == rivals[0].changes["inserted"] > 0
    reconcile(spark, defined, LogProgress())
    full = pipeline(tmp_path, "overtaken_full", case)
    execute(spark, full, make_plan(spark, full), LogProgress())
    assert tables_of(spark, defined) == tables_of(spark, full)
    assert_history_is_whole(spark, defined)


def causes(spark: SparkSession, defined: Pipeline) -> dict[str, int]:
    """How many current windows have each cause."""
    counted = PublishedTable(spark, Tables.of(defined).windows).current().groupBy("cause").count().collect()
    return {row[0]: row[1] for row in counted}


@pytest.mark.long
def test_the_cause_says_why_a_window_changed(spark, tmp_path) -> None:
    """First run, nothing new, a gap of a week, repaired records, another definition, and the night after each."""
    case = "tumbling, per event"
    defined = pipeline(tmp_path, "causes", case)
    records = log_of(13, count=240)
    later = a_week_later(records[160:])
    later[40]["t"] = records[80]["t"]  # of a window that has been closed for a week
    write(tmp_path / "data", records[:160], "part-0.json")

    first = reconcile(spark, defined, LogProgress())
    assert first.continued_from is None and "nothing has been published yet" in first.note
    assert causes(spark, defined) == {"backfill": first.changes["inserted"]}
    facts = PublishedTable(spark, Tables.of(defined).windows)
    head = facts.head()
    idle = reconcile(spark, defined, LogProgress())
    assert "nothing has arrived" in idle.note and facts.head() == head

    write(tmp_path / "data", later, "part-1.json")
    second = reconcile(spark, defined, LogProgress())
    assert second.continued_from == first.run_id
    assert second.changes["updated"] > 0
    of_now = causes(spark, defined)
    assert set(of_now) - {"closed", "open"} == {"backfill", "late_arrivals"}
    old = facts.current().where("cause = 'late_arrivals' AND revision > 1").collect()
    late_for = [
        r for r in old if r["window_start"].timestamp() * 1000 <= records[80]["t"] < r["window_end"].timestamp() * 1000
    ]
    assert len(late_for) == 1 and late_for[0]["k"] == later[40]["k"] and late_for[0]["records_dropped"] >= 1

    # A repair: other values at the same offsets. The night sees that the file was written again.
    repaired = [dict(r) for r in records[:160]]
    repaired[50]["v"] += 1_000
    write(tmp_path / "data", repaired, "part-0.json")
    repair = reconcile(spark, defined, LogProgress(), asked=Asked("wrong meter"))
    assert "part-0.json was written again" in repair.note
    assert repair.changes == {"updated": 1}
    (mended,) = facts.current().where("cause = 'source_repair'").collect()
    assert mended["k"] == repaired[50]["k"] and mended["run_id"] == repair.run_id
    assert sum(causes(spark, defined).values()) == sum(of_now.values())

    # The night after goes on from the repair, and nothing of it is taken back.
    last = [r | {"a": r["a"] + 1, "o": r["o"] + 1, "p": 0, "k": "a"} for r in later[-1:]]
    last[0]["o"] = max(r["o"] for r in records if r["p"] == 0) + 1
    write(tmp_path / "data", last, "part-2.json")
    third = reconcile(spark, defined, LogProgress())
    assert third.continued_from == repair.run_id
    assert causes(spark, defined)["source_repair"] == 1

    # Another definition between two nights, and new records with it.
    path = tmp_path / "causes.yaml"
    path.write_text(path.read_text().replace("total: sum(v)", "total: sum(v) * 2"))
    changed = load_pipeline(path)
    write(tmp_path / "data", [last[0] | {"a": last[0]["a"] + 1, "o": last[0]["o"] + 1}], "part-3.json")
    fourth = reconcile(spark, changed, LogProgress())
    assert "another definition" in fourth.note
    assert set(causes(spark, changed)) == {"logic_change"}
    full = tmp_path / "causes_full.yaml"
    full.write_text(path.read_text().replace("name: causes", "name: causes_full"))
    whole = load_pipeline(full)
    execute(spark, whole, make_plan(spark, whole), LogProgress())
    assert tables_of(spark, changed) == tables_of(spark, whole)
    assert_history_is_whole(spark, changed)


@pytest.mark.long
def test_two_runs_over_the_same_windows_one_wins_and_the_other_says_so(spark, tmp_path, monkeypatch) -> None:
    from spark_jobs.errors import CatalogError
    from spark_jobs.runs.work import job as jobs

    defined = pipeline(tmp_path, "rivals", "tumbling, per event")
    write(tmp_path / "data", log_of(3)[:200], "part-0.json")
    execute(spark, defined, make_plan(spark, defined), LogProgress())
    path = tmp_path / "rivals.yaml"
    path.write_text(path.read_text().replace("total: sum(v)", "total: sum(v) + 1"))
    other = load_pipeline(path)

    class Slow(PublishedTable):
        """Another run publishes between this one's staging and its publishing."""

        def publish(self, *arguments):
            with monkeypatch.context() as patch:
                patch.setattr(jobs, "PublishedTable", PublishedTable)
                execute(spark, other, make_plan(spark, other), LogProgress())
            return super().publish(*arguments)

    path.write_text(path.read_text().replace("total: sum(v) + 1", "total: sum(v) + 2"))
    mine = load_pipeline(path)
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "PublishedTable", Slow)
        with pytest.raises(CatalogError, match="published windows of the same range meanwhile"):
            execute(spark, mine, make_plan(spark, mine), LogProgress())
    statuses = [
        r["status"]
        for r in spark.table(Tables.of(defined).runs).where("pipeline = 'rivals'").orderBy("started_at").collect()
    ]
    assert statuses == ["published", "failed", "published"]
    assert_history_is_whole(spark, defined)
