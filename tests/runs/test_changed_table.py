"""Somebody else changes the published table: the next run notices, and ends with what a full run gives, or refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.output import Policy
from spark_jobs.errors import CatalogError, DefinitionError
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.maintain import maintain
from spark_jobs.runs.life.reopening import publish_staged
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.definition_change import with_change
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.spark.gateway import loaded_iceberg_table
from tests.runs.small_nights import rows
from tests.runs.small_runs import MINUTE, definition_text, record, write
from tests.sampling import IN_FULL, sample


def defined(tmp_path: Path, name: str, total: str = "sum(v)", **output: str) -> Pipeline:
    path = tmp_path / f"{name}{'' if total == 'sum(v)' else '_other'}.yaml"
    text = definition_text(name, tmp_path / "data").replace("total: sum(v)", f"total: {total}")
    table = output.get("table", name)
    path.write_text(text.replace("{namespace: run_tests}", f"{{namespace: stranger_tests, table: {table}}}"))
    return load_pipeline(path)


class Nights:
    """A pipeline whose files come night by night; what it publishes is compared with one full run elsewhere."""

    def __init__(self, spark: SparkSession, tmp_path: Path, name: str) -> None:
        self.spark, self.folder, self.name = spark, tmp_path, name
        self.pipeline = defined(tmp_path, name)
        self.tables = Tables.of(self.pipeline)
        self.count = 0

    def arrive(self, more: int = 100) -> None:
        records = [record(i) for i in range(self.count, self.count + more)]
        write(self.folder / "data", records, f"part-{self.count}.json")
        self.count += more

    def night(self, more: int = 100) -> RunResult:
        if more:
            self.arrive(more)
        return reconcile(self.spark, self.pipeline, NoProgress())

    def sql(self, text: str) -> None:
        named = text.replace("WINDOWS", self.tables.windows).replace("LATE", self.tables.late)
        self.spark.sql(named.replace("IDENTIFIER", self.tables.windows.removeprefix("rewindow.")))

    def snapshots(self) -> list[int]:
        """Those of `main` that published a run, the oldest first."""
        found = self.spark.sql(
            f"SELECT snapshot_id FROM {self.tables.windows}.snapshots "
            "WHERE summary['rewindow.run-id'] IS NOT NULL ORDER BY committed_at"
        ).collect()
        history = {r[0] for r in self.spark.sql(f"SELECT snapshot_id FROM {self.tables.windows}.history").collect()}
        return [row[0] for row in found if row[0] in history]

    def assert_as_one_full_run(self) -> None:
        fresh = defined(self.folder, f"{self.name}_fresh")
        execute(self.spark, fresh, make_plan(self.spark, fresh), NoProgress())
        for table in ("windows", "late"):
            names = sorted(self.spark.table(getattr(Tables.of(fresh), table)).columns)
            found, expected = (
                rows(self.spark.table(getattr(t, table)).select(*names)) for t in (self.tables, Tables.of(fresh))
            )
            assert found == expected, table
        facts = PublishedTable(self.spark, self.tables.windows)
        live = facts.revisions().where("valid_to IS NULL AND cause <> 'retraction'")
        assert rows(live) == rows(facts.current()), "the history of revisions ends in what readers see"


def roll_back(nights: Nights) -> None:
    *_, first, _ = nights.snapshots()
    nights.sql(f"CALL rewindow.system.rollback_to_snapshot('IDENTIFIER', {first})")


def roll_back_and_expire(nights: Nights) -> None:
    roll_back(nights)
    expire(nights)


def expire(nights: Nights) -> None:
    late = round((datetime.now(UTC) + timedelta(days=1)).timestamp() * 1000)
    for name in (nights.tables.windows, nights.tables.late):
        table = loaded_iceberg_table(nights.spark, name)
        table.expireSnapshots().expireOlderThan(late).retainLast(1).commit()


def compact(nights: Nights) -> None:
    for table in ("IDENTIFIER", "IDENTIFIER__late"):
        options = "options => map('rewrite-all', 'true')"
        nights.sql(f"CALL rewindow.system.rewrite_data_files(table => '{table}', {options})")


def copy_of_rows(nights: Nights) -> None:
    nights.sql("INSERT INTO WINDOWS SELECT * FROM WINDOWS WHERE k = 'a'")


def another_row(nights: Nights) -> None:
    columns = nights.spark.table(nights.tables.windows).columns
    values = {"k": "'z'", "n": "7L", "window_start": "TIMESTAMP '2020-01-01 00:00:00'"}
    nights.sql(f"INSERT INTO WINDOWS SELECT {', '.join(values.get(c, 'NULL') for c in columns)}")


CHANGES: dict[str, tuple[Callable[[Nights], None], str]] = {
    "dropped": (lambda n: n.sql("DROP TABLE WINDOWS"), "it was dropped"),
    "dropped the late ones": (lambda n: n.sql("DROP TABLE LATE"), "__late was dropped"),
    "rolled back": (roll_back, "rolled back"),
    "rolled back and expired": (roll_back_and_expire, "rolled back|have expired|nobody knows"),
    "deleted rows": (lambda n: n.sql("DELETE FROM WINDOWS WHERE k = 'a'"), r"snapshot \d+ \((delete|overwrite)"),
    "deleted all rows": (lambda n: n.sql("DELETE FROM WINDOWS WHERE TRUE"), r"snapshot \d+ \((delete|overwrite)"),
    "deleted late rows": (lambda n: n.sql("DELETE FROM LATE WHERE k = 'b'"), r"__late: snapshot \d+"),
    "updated rows": (lambda n: n.sql("UPDATE WINDOWS SET n = n + 1 WHERE k = 'b'"), r"snapshot \d+ \(overwrite"),
    "added copies": (copy_of_rows, r"snapshot \d+ \(append"),
    "added a row": (another_row, r"snapshot \d+ \(append"),
    "dropped a column": (lambda n: n.sql("ALTER TABLE WINDOWS DROP COLUMN total"), "column `total` was dropped"),
    "renamed a column": (lambda n: n.sql("ALTER TABLE WINDOWS RENAME COLUMN total TO sums"), "column `total` was"),
    "renamed a key": (lambda n: n.sql("ALTER TABLE WINDOWS RENAME COLUMN k TO kk"), "column `k` was"),
}
FEW = ("dropped the late ones", "rolled back", "deleted rows", "renamed a column")


@pytest.mark.long
def test_what_somebody_else_did_to_the_tables_is_noticed_and_corrected_by_a_full_run(spark, tmp_path) -> None:
    nights = Nights(spark, tmp_path, "noticed")
    nights.night()
    nights.night()
    for change in sample(FEW, tuple(CHANGES)):
        act, said = CHANGES[change]
        act(nights)
        nights.arrive(40)
        if IN_FULL or change == FEW[0]:
            plan = make_plan(spark, nights.pipeline)
            part = make_plan(spark, nights.pipeline, start=plan.span.start, end=plan.span.start + MINUTE)
            with pytest.raises(CatalogError, match=f"another program has changed the published table.*({said})"):
                execute(spark, nights.pipeline, part, NoProgress())
        result = nights.night(0)
        assert re.search(f"another program has changed the published table.*({said})", result.note), (change, result)
        if IN_FULL:  # what one run has not corrected, no later one corrects
            nights.assert_as_one_full_run()
            last = nights.night(40)
            assert last.continued_from == result.run_id, (change, last.note)
    assert nights.night(40).continued_from is not None
    nights.assert_as_one_full_run()


@pytest.mark.long
def test_a_full_run_by_hand_corrects_it_too_and_a_run_that_waits_is_not_published(spark, tmp_path) -> None:
    nights = Nights(spark, tmp_path, "by_hand")
    nights.night()
    other = defined(tmp_path, "by_hand", "sum(v) + 1")
    waiting = execute(
        spark, other, make_plan(spark, other), NoProgress(), end_policy=EndPolicy(policy=Policy.ON_APPROVAL)
    )
    nights.sql("DELETE FROM WINDOWS WHERE k = 'a'")
    with pytest.raises(CatalogError, match=r"snapshot \d+ \((delete|overwrite).*start a run over the whole history"):
        publish_staged(lambda _: spark, waiting.run_id, NoProgress(), "it is right")
    result = execute(spark, nights.pipeline, make_plan(spark, nights.pipeline), NoProgress())
    assert set(result.changes) == {"inserted"}, "only what was deleted comes back"
    nights.assert_as_one_full_run()
    waiting = execute(
        spark, other, make_plan(spark, other), NoProgress(), end_policy=EndPolicy(policy=Policy.ON_APPROVAL)
    )
    compact(nights)
    nights.sql("ALTER TABLE WINDOWS ADD COLUMN note STRING")
    assert publish_staged(lambda _: spark, waiting.run_id, NoProgress(), "it is right").changes


@pytest.mark.long
def test_what_changes_no_rows_is_no_reason_for_a_full_run(spark, tmp_path) -> None:
    nights = Nights(spark, tmp_path, "harmless")
    nights.night()
    later = datetime.now(UTC) + timedelta(hours=1)
    harmless: list[Callable[[Nights], object]] = [
        compact,
        expire,
        lambda n: n.sql("ALTER TABLE WINDOWS ADD COLUMN note STRING"),
        lambda n: (compact(n), expire(n)),
    ]
    before = nights.night()
    if IN_FULL:
        for act in harmless[:2]:
            act(nights)
            assert nights.night().continued_from == before.run_id
            before = nights.night()
    for act in harmless[2:]:
        act(nights)
    before = nights.night()
    assert before.continued_from is not None
    for number in range(sample(2, 3)):  # nothing is published in between
        maintain(spark, nights.pipeline, NoProgress(), now=later + timedelta(hours=number), keep_snapshots=timedelta(0))
        nights.sql("ALTER TABLE WINDOWS WRITE LOCALLY ORDERED BY window_start")
    assert nights.night().continued_from == before.run_id
    nights.assert_as_one_full_run()


@pytest.mark.long
def test_runs_follow_each_other_as_the_table_has_them_whatever_their_clocks_say(spark, tmp_path) -> None:
    nights = Nights(spark, tmp_path, "clocks")
    ahead = datetime.now(UTC) + timedelta(days=1)
    nights.arrive()
    reconcile(spark, nights.pipeline, NoProgress(), now=lambda: ahead)
    nights.arrive()
    other = defined(tmp_path, "clocks", "sum(v) + 1")
    reconcile(spark, other, NoProgress())
    nights.night()
    nights.assert_as_one_full_run()
    published = Ledger(spark, nights.tables).published()
    assert len(published) == 1, "the last run over the whole history is the last one, not the one that ended last"


def test_two_pipelines_do_not_write_to_one_table(spark, tmp_path) -> None:
    nights = Nights(spark, tmp_path, "owned")
    nights.night()
    intruder = defined(tmp_path, "intruder", table="owned")
    for run in (
        lambda: reconcile(spark, intruder, NoProgress()),
        lambda: execute(spark, intruder, make_plan(spark, intruder), NoProgress()),
        lambda: with_change(spark, intruder, make_plan(spark, intruder)),
    ):
        with pytest.raises(DefinitionError, match="holds the windows of the pipeline owned"):
            run()
    assert nights.night().continued_from is not None, "the owner goes on"
