"""A run as its user sees it: plan, tables, repetition, ranges, refusal, and what a killed run leaves."""

# pyright: reportArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import DefinitionError, EmptyRangeError, HistoryError
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.spec import Mode
from spark_jobs.runs.life.documents import Gate, GateVerdict, Quarantine
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.planning.plan import make_plan, plan_from_json
from spark_jobs.runs.work import job as jobs
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import LogProgress
from spark_jobs.runs.work.staged_run import StagedRun
from spark_jobs.spark import shuffles
from tests.runs.small_runs import MINUTE, T0, contents, definition_text, pipeline, record, rows, run, write
from tests.sampling import IN_FULL


@dataclass(frozen=True, slots=True)
class Whole:
    """A pipeline over 600 records in `folder`, its first run over all of them, and what that left."""

    folder: Path
    defined: Pipeline
    first: RunResult
    contents: list[list[str]]


@pytest.fixture(scope="module")
def whole(spark, tmp_path_factory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    write(folder / "data", [record(i) for i in range(600)])
    defined = pipeline(folder, "repeated")
    first = run(spark, defined)
    return Whole(folder, defined, first, contents(spark, defined))


def test_a_run_can_be_repeated_and_gives_the_same_tables(spark, whole: Whole, monkeypatch) -> None:
    defined, first = whole.defined, whole.first
    checked: list[StagedRun] = []

    def gate(staged: StagedRun) -> Gate:
        checked.append(staged)
        assert spark.conf.get("spark.sql.shuffle.partitions") == "60"
        return Gate(verdict=GateVerdict.PASSED, blocks=False)

    monkeypatch.setattr(shuffles, "ROWS_OF_A_TASK", 10)  # many records have more tasks, and the same result
    second = run(spark, defined, end_policy=EndPolicy(gate=gate), chunks=4)
    assert checked[0].is_distinct  # a sum over the chunks' metadata shows it; the gate does not count
    assert contents(spark, defined) == whole.contents
    assert first.counts.windows == second.counts.windows > 0
    assert first.counts.records_late == second.counts.records_late > 0
    assert first.counts.pairs_on_time + first.counts.pairs_dropped == 600
    ledger = spark.table(first.tables.runs).where("pipeline = 'repeated'").collect()
    assert {r["run_id"] for r in ledger} == {first.run_id, second.run_id}
    assert all(r["as_of"] == {0: 300, 1: 300} and r["fidelity"] == "log_order" for r in ledger)


def test_ranges_one_after_another_give_what_one_run_gives(spark, whole: Whole) -> None:
    parts = pipeline(whole.folder, "parts")
    middle = T0 + 5 * MINUTE
    run(spark, parts, end=middle)
    run(spark, parts, start=middle)
    if IN_FULL:
        run(spark, parts, start=T0, end=middle)  # again, on top of what is there
    assert contents(spark, parts)[:2] == whole.contents[:2]


@pytest.mark.long
def test_between_windows_a_lateness_for_ever_reads_from_the_start(spark, tmp_path) -> None:
    """Its closes lie below every watermark, so an earlier run's state does not know them."""
    gaps = "window: {type: sliding, size: 20 s, slide: 1 min, gaps_between: true}\nallowed_lateness: forever"
    write(tmp_path / "data", [record(i) for i in range(300)])
    defined, fresh = (pipeline(tmp_path, name, end="freeze", window=gaps) for name in ("gaps", "gaps_at_once"))
    run(spark, defined)
    write(tmp_path / "data", [record(i) for i in range(300, 600)], "part-1.json")
    assert run(spark, defined, start=T0 + 5 * MINUTE).continued_from is None
    run(spark, fresh, start=T0 + 5 * MINUTE)
    late = [
        spark.table(Tables.of(p).late).where(f"event_time >= timestamp_millis({T0 + 5 * MINUTE})")
        for p in (defined, fresh)
    ]
    assert rows(late[0]) == rows(late[1]) != []


@pytest.mark.long
def test_a_later_run_goes_on_from_the_timeline_that_an_earlier_one_saved(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(300)])
    defined = pipeline(tmp_path, "continued", end="freeze")
    run(spark, defined)
    write(tmp_path / "data", [record(i) for i in range(300, 600)], "part-1.json")
    later = T0 + 5 * MINUTE
    second = run(spark, defined, start=later)
    assert second.continued_from is not None
    fresh = pipeline(tmp_path, "not_continued", end="freeze")
    again = run(spark, fresh, start=later)
    assert again.continued_from is None
    assert contents(spark, fresh)[1] == [r for r in contents(spark, defined)[1] if r in contents(spark, fresh)[1]]
    tables = [Tables.of(p).windows for p in (defined, fresh)]
    mine, theirs = (spark.table(t).where(f"window_start >= timestamp_millis({later})") for t in tables)
    assert rows(mine) == rows(theirs)


def test_a_frozen_job_leaves_windows_open(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(300)])
    result = run(spark, pipeline(tmp_path, "frozen", end="freeze"))
    assert result.counts.windows_open > 0
    states = {r[0] for r in spark.table(result.tables.windows).select("state").distinct().collect()}
    assert "open" in states
    open_windows = spark.table(result.tables.windows).where("state = 'open'")
    assert {(r["n"], r["pane"]) for r in open_windows.collect()} == {(None, None)}


def test_an_as_of_vector_cuts_the_history(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(300)])
    short = pipeline(tmp_path, "short")
    run(spark, short)
    write(tmp_path / "data", [record(i) for i in range(300, 600)], "part-1.json")
    cut = pipeline(tmp_path, "cut")
    run(spark, cut, as_of={0: 150, 1: 150})
    assert contents(spark, cut) == contents(spark, short)


def test_end_offsets_say_what_is_left_out_and_what_is_gone(spark, tmp_path) -> None:
    """A partition without an end offset is not read; a record below the end offsets that is not there is gone."""
    write(tmp_path / "data", [record(i) for i in range(280)])
    write(tmp_path / "data", [record(i) for i in range(280, 300)], "part-1.json")
    defined, fresh = (pipeline(tmp_path, name) for name in ("asked_of_one", "asked_of_one_fresh"))

    def numbers(of: Pipeline) -> list[str]:
        return rows(spark.table(Tables.of(of).windows).select("window_start", "k", "n", "total", "records_dropped"))

    run(spark, defined)
    everything = numbers(defined)
    for one in (defined, fresh):
        run(spark, one, as_of={0: 150})
    assert numbers(defined) == numbers(fresh) != everything
    run(spark, defined)
    assert numbers(defined) == everything
    (tmp_path / "data" / "part-1.json").unlink()
    run(spark, defined, as_of={0: 150, 1: 150})
    assert numbers(defined) == everything


@pytest.mark.long
def test_a_run_that_dies_before_publishing_leaves_the_tables_as_they_were(spark, tmp_path, monkeypatch) -> None:
    write(tmp_path / "data", [record(i) for i in range(300)])
    defined = pipeline(tmp_path, "killed")
    run(spark, defined)
    before = contents(spark, defined)
    write(tmp_path / "data", [record(i) for i in range(300, 600)], "part-1.json")

    class Dies(PublishedTable):
        def publish(self, *_: object) -> None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "PublishedTable", Dies)
        with pytest.raises(KeyboardInterrupt):
            run(spark, defined)
    assert contents(spark, defined)[0] == before[0]

    run(spark, defined)
    refs = spark.sql(f"SELECT name FROM {Tables.of(defined).windows}.refs").collect()
    assert sorted(r[0] for r in refs) == ["main", "revisions"], "what the killed run staged is gone"
    assert not spark.sql("SHOW TABLES IN rewindow.run_tests LIKE 'killed__staging*'").collect()
    monkeypatch.undo()
    undisturbed = pipeline(tmp_path, "undisturbed")
    for file in ("part-1.json", "part-0.json"):
        (tmp_path / "data" / file).unlink()
    write(tmp_path / "data", [record(i) for i in range(300)])
    run(spark, undisturbed)
    write(tmp_path / "data", [record(i) for i in range(300, 600)], "part-1.json")
    run(spark, undisturbed)
    assert contents(spark, defined) == contents(spark, undisturbed)
    ledger = spark.table(Tables.of(defined).runs).where("pipeline = 'killed'").orderBy("started_at").collect()
    assert [r["status"] for r in ledger] == ["published", "abandoned", "published"]


def test_more_bad_records_than_allowed_fail_before_anything_is_written(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(90)] + [record(i, t=-5) for i in range(90, 100)])
    defined = pipeline(tmp_path, "too_many_bad")
    with pytest.raises(HistoryError, match="10 of 100 records cannot be used"):
        run(spark, defined)
    assert not spark.catalog.tableExists(Tables.of(defined).windows)


def test_bad_records_go_to_quarantine_with_position_and_reason_and_the_good_ones_go_on(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(98)] + [record(98, t=-5), record(99, t=None)])
    defined = pipeline(tmp_path, "some_bad", missing="quarantine", threshold="5 %")
    result = run(spark, defined)
    assert result.counts.records_quarantined == 2
    bad = spark.table(result.tables.quarantine).select("partition", "offset", "reason").collect()
    assert {(r[0], r[1]) for r in bad} == {(0, 49), (1, 49)}
    assert all(r[2] for r in bad)
    told = Quarantine.read(RunStore.configured().folder(result.run_id))
    assert told is not None and sum(one.records for one in told.reasons) == 2
    assert {(one.partition, one.offset) for one in told.reasons} <= {(0, 49), (1, 49)}
    assert all(one.value.startswith("{") for one in told.reasons)
    assert result.counts.pairs_on_time + result.counts.pairs_dropped == 98


@pytest.mark.long
def test_a_run_takes_the_place_of_the_bad_records_that_it_has_read_itself(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(98)] + [record(98, t=-5), record(99, t=None)])
    defined = pipeline(tmp_path, "some_bad_again", missing="quarantine", threshold="5 %")
    result = run(spark, defined)

    def runs_by_position() -> set[tuple]:
        rows = spark.table(result.tables.quarantine).select("partition", "offset", "run_id").collect()
        return {tuple(row) for row in rows}

    # A run that finds the same changes nothing.
    run(spark, defined, as_of={0: 50, 1: 49})
    assert runs_by_position() == {(0, 49, result.run_id), (1, 49, result.run_id)}
    # A run that changes windows takes the place of what it has read itself, and of no more.
    path = tmp_path / "some_bad_again.yaml"
    path.write_text(path.read_text().replace("sum(v)", "sum(v) + 1"))
    again = run(spark, load_pipeline(path), as_of={0: 50, 1: 49})
    assert runs_by_position() == {(0, 49, again.run_id), (1, 49, result.run_id)}


def test_a_missing_event_time_fails_the_run_as_it_fails_flink(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(98)] + [record(98, t=None), record(99)])
    defined = pipeline(tmp_path, "no_time")
    with pytest.raises(HistoryError, match="partition 0, offset 49"):
        run(spark, defined)
    assert not spark.catalog.tableExists(Tables.of(defined).windows)


def test_a_definition_changed_since_the_plan_is_refused(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(100)])
    planned = make_plan(spark, pipeline(tmp_path, "changed"))
    with pytest.raises(DefinitionError, match="has changed since the plan was made"):
        execute(spark, pipeline(tmp_path, "changed", end="freeze"), planned, LogProgress())


@pytest.mark.long
def test_a_plan_reads_back_from_json_and_runs(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(100)])
    defined = pipeline(tmp_path, "planned")
    made = make_plan(spark, defined, chunks=3)
    assert plan_from_json(made.to_json()) == made
    assert execute(spark, defined, plan_from_json(made.to_json()), LogProgress()).counts.windows > 0
    with pytest.raises(DefinitionError, match="not a plan"):
        plan_from_json('{"pipeline": "x"}')


def test_planning_has_no_side_effect(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(100)])
    defined = pipeline(tmp_path, "only_planned")
    at = datetime.now(UTC)
    assert make_plan(spark, defined, now=lambda: at) == make_plan(spark, defined, now=lambda: at)
    assert not spark.catalog.tableExists(Tables.of(defined).windows)


def test_ranges_without_data_reversed_ranges_and_empty_histories_are_refused(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(100)])
    defined = pipeline(tmp_path, "ranges")
    with pytest.raises(DefinitionError, match="reversed or empty"):
        make_plan(spark, defined, start=T0, end=T0)
    with pytest.raises(EmptyRangeError, match="no event time falls into windows"):
        make_plan(spark, defined, start=T0 + 1000 * MINUTE)
    write(tmp_path / "data", [record(0, t=-1)])
    with pytest.raises(EmptyRangeError, match="no usable record"):
        make_plan(spark, defined)


def test_complete_values_alone_need_no_order(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(100)])
    path = tmp_path / "unordered.yaml"
    text = definition_text("unordered", tmp_path / "data")
    path.write_text(text.replace("position: {partition: p, offset: o, arrival: a, arrival_unit: ms}", "position: {}"))
    defined = load_pipeline(path)
    with pytest.raises(HistoryError, match="faithful results need the order of the log"):
        make_plan(spark, defined)
    result = run(spark, defined, mode=Mode.COMPLETE)
    assert spark.table(result.tables.windows).selectExpr("sum(n__complete)").collect()[0][0] == 100


def test_an_unregistered_partition_is_refused(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(100)] + [record(100, p=7)])
    with pytest.raises(HistoryError, match="partition 7, which watermark"):
        make_plan(spark, pipeline(tmp_path, "unregistered"))


@pytest.mark.long
def test_a_new_aggregate_becomes_a_new_column(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(100)])
    defined = pipeline(tmp_path, "grown")
    run(spark, defined)
    path = tmp_path / "grown.yaml"
    path.write_text(path.read_text().replace("total: sum(v)", "total: sum(v), top: max(v)"))
    result = run(spark, load_pipeline(path))
    assert {"top", "top__complete"} <= set(spark.table(result.tables.windows).columns)


def test_a_chunk_list_is_never_lost(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(300)])
    defined = pipeline(tmp_path, "chunked")
    planned = make_plan(spark, defined, chunks=5)
    assert len(planned.chunks) == 5
    assert planned.chunks[0].start == planned.span.start
    assert planned.chunks[-1].end == planned.span.end
    assert all(a.end == b.start for a, b in zip(planned.chunks, planned.chunks[1:], strict=False))
    assert planned.model_copy(update={"chunks": (planned.span,)}).as_of == planned.as_of
