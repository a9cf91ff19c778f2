"""Housekeeping changes no value that anybody reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.definition.output import Policy
from spark_jobs.errors import EmptyRangeError
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.maintain import maintain, not_covered
from spark_jobs.runs.life.reopening import publish_staged
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.small_nights import assert_history_is_whole, log_of, pipeline, tables_of
from tests.runs.small_runs import write


def test_housekeeping_keeps_every_value_and_lets_the_nights_go_on(spark, tmp_path) -> None:
    defined = pipeline(tmp_path, "tidy", "tumbling, per event")
    later = datetime.now(UTC) + timedelta(days=1)
    with pytest.raises(EmptyRangeError, match="no run has published"):
        maintain(spark, defined, NoProgress(), now=later)
    records = log_of(5, count=300)
    for night, start in enumerate((0, 100)):
        write(tmp_path / "data", records[start : start + 100], f"part-{night}.json")
        reconcile(spark, defined, NoProgress())
    facts = PublishedTable(spark, Tables.of(defined).windows)
    before = tables_of(spark, defined)
    revisions = sorted(map(repr, facts.revisions().collect()))
    done = maintain(spark, defined, NoProgress(), now=later, keep_snapshots=timedelta(0))
    assert done.snapshots_expired[facts.table] > 0 and done.revisions_deleted == 0
    assert tables_of(spark, defined) == before
    assert sorted(map(repr, facts.revisions().collect())) == revisions
    lying = spark.sql(f"SELECT _file, window_start FROM {facts.table} ORDER BY _file, _pos").collect()
    assert done.files_compacted[facts.table] > 0 and lying == sorted(lying)
    write(tmp_path / "data", records[200:], "part-2.json")
    assert reconcile(spark, defined, NoProgress()).continued_from is not None
    assert_history_is_whole(spark, defined)

    superseded = facts.revisions().where("valid_to IS NOT NULL").count()
    done = maintain(spark, defined, NoProgress(), now=later, keep_revisions=timedelta(0))
    assert done.revisions_deleted == superseded > 0
    assert facts.revisions().where("valid_to IS NOT NULL").isEmpty()


@pytest.mark.long
def test_old_runs_are_forgotten_but_for_what_is_still_needed(spark, tmp_path: Path) -> None:
    """Needed: the run to go on from, runs that revisions or late records name, what waits, and all since it began."""
    defined, store = pipeline(tmp_path, "forgetful", "tumbling, per event"), RunStore.configured()
    records = log_of(5, count=200)
    write(tmp_path / "data", records[:100], "part-0.json")
    first = reconcile(spark, defined, NoProgress())
    again = execute(spark, defined, make_plan(spark, defined), NoProgress())
    write(tmp_path / "data", records[100:], "part-1.json")
    night = reconcile(spark, defined, NoProgress())
    path = tmp_path / "forgetful.yaml"
    path.write_text(path.read_text().replace("sum(v)", "sum(v) + 1"))
    changed = load_pipeline(path)
    waiting = execute(
        spark, changed, make_plan(spark, changed), NoProgress(), end_policy=EndPolicy(policy=Policy.ON_APPROVAL)
    )
    tables = Tables.of(defined)

    def known() -> tuple[set[str], set[str]]:
        rows = {row["run_id"] for row in Ledger(spark, tables).runs().collect()}
        mine = {first.run_id, again.run_id, night.run_id, waiting.run_id}
        return rows, mine & set(store.run_ids())

    later = datetime.now(UTC) + timedelta(days=2)
    done = maintain(spark, defined, NoProgress(), now=later, keep_runs=timedelta(days=1))
    assert (done.runs_forgotten, done.folders_deleted) == (1, 3)
    assert known() == ({first.run_id, night.run_id, waiting.run_id}, {waiting.run_id})
    done = maintain(spark, defined, NoProgress(), now=later, keep_runs=timedelta(days=1))
    assert (done.runs_forgotten, done.folders_deleted, done.states_deleted) == (0, 0, 0)
    assert publish_staged(lambda _: spark, waiting.run_id, NoProgress(), "still right").changes
    assert_history_is_whole(spark, defined)


def test_only_runs_over_ranges_that_no_later_one_covers_decide_a_cause() -> None:
    def row(low: int, high: int) -> dict:
        day = datetime(2026, 1, 1, tzinfo=UTC)
        return {"range_start": day + timedelta(low), "range_end": day + timedelta(high)}

    rows = [row(4, 6), row(0, 2), row(0, 1), row(2, 4), row(1, 5), row(0, 9), row(0, 9)]
    assert not_covered(rows) == [rows[0], rows[1], rows[3], rows[5]]
    many = [row(number % 30, number % 30 + 1) for number in range(10_000)]
    assert len(not_covered(many)) == 30
