"""An Iceberg table as a history: windows as from files, pinned snapshots, and nights over what was appended."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import DefinitionError, HistoryError, SourceError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.pins import Change
from spark_jobs.replay.columns import HISTORY_GONE
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan, open_planned, plan_from_json
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import LogProgress
from spark_jobs.sources import open_history, source_of
from spark_jobs.sources.lake.iceberg import change_between, pin_snapshot
from spark_jobs.spark.gateway import JavaObject, jvm, loaded_iceberg_table
from spark_jobs.spark.snapshots import snapshots_back
from tests.runs.small_nights import tables_of
from tests.runs.small_runs import T0, contents, definition_text, record, run, write

SCHEMA = "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"
_numbers = itertools.count()


@dataclass(frozen=True)
class Lake:
    """A table with a log, and pipelines over it."""

    spark: SparkSession
    folder: Path
    table: str

    def append(self, numbers: Iterable[int], **other: object) -> None:
        self.frame([record(i, **other) for i in numbers]).writeTo(self.table).append()

    def frame(self, records: list[dict]) -> DataFrame:
        return self.spark.createDataFrame(records, SCHEMA).coalesce(1)

    def pipeline(self, name: str, **changes: str) -> Pipeline:
        text = definition_text(f"{self.folder.name}_{name}", self.folder / "data", **changes)
        files = f"  kind: files\n  path: {self.folder}/data/*.json\n  format: json\n"
        assert files in text
        path = self.folder / f"{name}.yaml"
        path.write_text(text.replace(files, f"  kind: table\n  table: {self.table}\n"))
        return load_pipeline(path)

    def night(self, defined: Pipeline) -> RunResult:
        return reconcile(self.spark, defined, LogProgress())

    def is_as_one_full_run(self, defined: Pipeline) -> bool:
        whole = self.pipeline(f"whole_{next(_numbers)}")
        run(self.spark, whole)
        return tables_of(self.spark, defined) == tables_of(self.spark, whole)

    def compact(self) -> None:
        options = "map('rewrite-all', 'true')"
        self.spark.sql(f"CALL rewindow.system.rewrite_data_files(table => '{self.table}', options => {options})")


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.lake")
    table = f"rewindow.lake.log_{next(_numbers)}"
    spark.sql(f"CREATE TABLE {table} ({SCHEMA}) USING iceberg TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    return Lake(spark, tmp_path, table)


def test_a_table_gives_what_files_give_and_a_plan_reads_the_snapshot_that_it_has_pinned(spark, lake: Lake) -> None:
    lake.append(range(300))
    defined = lake.pipeline("table")
    plan = plan_from_json(make_plan(spark, defined).to_json())
    assert plan.snapshot is not None and str(plan.snapshot.snapshot) in plan.source
    lake.append(range(300, 400))
    assert open_planned(spark, defined, plan).frame.count() == 300
    assert open_history(spark, defined).frame.count() == 400

    run(spark, defined)
    write(lake.folder / "data", [record(i) for i in range(400)])
    path = lake.folder / "files.yaml"
    path.write_text(definition_text("lake_files", lake.folder / "data"))
    files = load_pipeline(path)
    run(spark, files)
    assert contents(spark, defined)[:2] == contents(spark, files)[:2]

    spark.sql(f"CALL rewindow.system.expire_snapshots(table => '{lake.table}', older_than => now(), retain_last => 1)")
    with pytest.raises(SourceError, match=f"snapshot {plan.snapshot.snapshot} of the plan has expired"):
        open_planned(spark, defined, plan)


@pytest.mark.long
def test_nights_read_what_was_appended_and_end_as_one_full_run(spark, lake: Lake) -> None:
    defined = lake.pipeline("nights")
    lake.append(i for i in range(200) if i not in (120, 121))
    assert lake.night(defined).continued_from is None
    before = open_history(spark, defined)

    lake.append(range(200, 300))
    spark.sql(
        f"CALL rewindow.system.rewrite_data_files(table => '{lake.table}', options => map('rewrite-all', 'true'))"
    )
    lake.append(range(300, 350))
    opened = open_history(spark, defined)
    later = source_of(spark, defined).since(opened, {0: 100, 1: 100}, (before.snapshot,))
    assert later.count() == 150  # not one record of the files that compaction has written
    night = lake.night(defined)
    assert night.continued_from is not None and "full run" not in night.note
    assert lake.is_as_one_full_run(defined)

    spark.sql(
        f"CALL rewindow.system.rewrite_data_files(table => '{lake.table}', options => map('rewrite-all', 'true'))"
    )
    assert "nothing has arrived" in lake.night(defined).note

    lake.append([120, 121])  # below the end offsets
    late = lake.night(defined)
    assert "below the end offsets" in late.note and "full run" in late.note
    assert lake.is_as_one_full_run(defined)


@pytest.mark.long
def test_rows_that_somebody_removed_or_changed_are_noticed(spark, lake: Lake) -> None:
    defined = lake.pipeline("changed")
    lake.append(range(200))
    lake.night(defined)
    spark.sql(f"UPDATE {lake.table} SET v = 1000 WHERE v = 17")
    note = lake.night(defined).note
    assert "has rows that were changed" in note and "full run" in note

    before = contents(spark, defined)[0]
    spark.sql(f"DELETE FROM {lake.table} WHERE v = 18")
    assert open_history(spark, defined).frame.count() == 199
    lake.append(range(200, 240))
    night = lake.night(defined)
    assert night.continued_from is not None
    after = [row.replace(", records_not_counted=None", "") for row in contents(spark, defined)[0]]
    assert sum(HISTORY_GONE in row for row in after) <= 1 and len(after) >= len(before)
    assert sum(row in after for row in before) >= len(before) - 4  # those around the end have new records


@pytest.mark.long
def test_a_column_that_was_dropped_and_added_again_is_a_repair_where_no_record_came(spark, lake: Lake) -> None:
    lake.append(range(60))
    defined = lake.pipeline("column")
    run(spark, defined)
    for change in ("DROP COLUMN v", "ADD COLUMN v BIGINT"):
        spark.sql(f"ALTER TABLE {lake.table} {change}")
    lake.append(range(600, 660))
    lake.append([700])
    assert lake.night(defined).changes["updated"] > 0
    assert lake.is_as_one_full_run(defined)
    windows = spark.table(f"{Tables.of(defined).windows}.branch_revisions").where("valid_to IS NULL")
    early = windows.where(f"window_start < timestamp_millis({T0 + 60_000}) AND revision > 1")
    assert {row["cause"] for row in early.where("total IS NULL").collect()} == {"source_repair"}


@pytest.mark.parametrize("by_value", [False, True])
@pytest.mark.parametrize(("written", "change"), [(80, Change.NONE), (100, Change.REWRITTEN), (79, Change.REWRITTEN)])
def test_files_that_are_written_anew_have_the_rows_that_were_left(
    spark, lake: Lake, written: int, change: Change, by_value: bool
) -> None:
    """Rows that are marked as deleted, by position or by value, are gone; marks can outlive the files they are of."""
    for numbers in (range(50), range(50, 100)):
        rows = [record(i, k="gone" if 40 <= i < 60 else "a") for i in numbers]
        lake.frame(rows).writeTo(lake.table).append()
    if by_value:
        _delete_value(spark, lake.table, "k", "gone")
    else:
        spark.sql(f"DELETE FROM {lake.table} WHERE k = 'gone'")
    assert spark.table(lake.table).count() == 80
    before = pin_snapshot(spark, lake.table)
    other = Lake(spark, lake.folder, f"rewindow.lake.log_{next(_numbers)}")
    spark.sql(f"CREATE TABLE {other.table} ({SCHEMA}) USING iceberg")
    other.append(range(written))

    table, source = (loaded_iceberg_table(spark, name) for name in (lake.table, other.table))
    rewrite = table.newRewrite().validateFromSnapshot(before.snapshot)
    for snapshot in snapshots_back(table):
        for old in _data_files(snapshot.addedDataFiles(table.io())):
            rewrite.deleteFile(old)
    for new in _data_files(source.currentSnapshot().addedDataFiles(source.io())):
        rewrite.addFile(new)
    rewrite.commit()
    assert change_between(spark, before, pin_snapshot(spark, lake.table)) is change


def _data_files(files: JavaObject) -> list[JavaObject]:
    found, them = files.iterator(), []
    while found.hasNext():
        them.append(found.next())
    return them


def _delete_value(spark: SparkSession, name: str, column: str, value: str) -> None:
    """Delete the rows that have the value as Flink's upserts do: by a file of values."""
    iceberg, table = jvm(spark).org.apache.iceberg, loaded_iceberg_table(spark, name)
    schema = table.schema().select(jvm(spark).java.util.List.of(column))
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    ids: JavaObject = gateway.new_array(jvm(spark).int, 1)
    ids[0] = table.schema().findField(column).fieldId()
    file = table.io().newOutputFile(table.locationProvider().newDataLocation("deleted.parquet"))
    made = iceberg.data.GenericAppenderFactory(table.schema(), table.spec(), ids, schema, None)
    plain = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(file)
    writer = made.newEqDeleteWriter(plain, iceberg.FileFormat.PARQUET, None)
    row = iceberg.data.GenericRecord.create(schema)
    row.set(0, value)
    writer.write(row)
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


def test_marks_of_deleted_rows_that_compaction_leaves_behind_change_nothing(spark, lake: Lake) -> None:
    spark.sql(f"ALTER TABLE {lake.table} ADD PARTITION FIELD truncate(v, 25)")
    lake.append(range(100))
    spark.sql(f"DELETE FROM {lake.table} WHERE v >= 40 AND v < 60")
    before = pin_snapshot(spark, lake.table)
    lake.compact()
    assert spark.table(f"{lake.table}.delete_files").count(), "marks have outlived their files"
    assert change_between(spark, before, pin_snapshot(spark, lake.table)) is Change.NONE


def test_a_partition_that_was_written_over_where_nothing_was_is_read_as_new_rows(spark, tmp_path: Path) -> None:
    table = f"rewindow.lake.log_{next(_numbers)}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.lake")
    spark.sql(f"CREATE TABLE {table} ({SCHEMA}) USING iceberg PARTITIONED BY (truncate(o, 50))")
    lake = Lake(spark, tmp_path, table)

    def overwrite(numbers: Iterable[int], **other: object) -> None:
        lake.frame([record(i, **other) for i in numbers]).sortWithinPartitions("o").writeTo(table).overwritePartitions()

    defined = lake.pipeline("filled")
    overwrite(range(100))
    lake.night(defined)
    overwrite(range(100, 200))
    filled = lake.night(defined)
    assert filled.continued_from is not None and "full run" not in filled.note, filled.note
    assert lake.is_as_one_full_run(defined)

    overwrite(range(100, 200), v=5)
    assert "has rows that were changed" in lake.night(defined).note
    assert lake.is_as_one_full_run(defined)


@pytest.mark.long
def test_a_rolled_back_and_a_replaced_table_are_noticed(spark, lake: Lake) -> None:
    defined = lake.pipeline("rolled_back")
    lake.append(range(100))
    first = open_history(spark, defined).snapshot
    assert first is not None
    lake.append(range(100, 200))
    lake.night(defined)
    spark.sql(f"CALL rewindow.system.rollback_to_snapshot('{lake.table}', {first.snapshot})")
    lake.append(range(100, 200), v=7)
    note = lake.night(defined).note
    assert "was rolled back" in note and "full run" in note

    spark.sql(f"DROP TABLE {lake.table}")
    spark.sql(f"CREATE TABLE {lake.table} ({SCHEMA}) USING iceberg")
    lake.append(range(50), a=T0 + 10_000_000)
    with pytest.raises(HistoryError, match="another"):
        lake.night(defined)


def test_a_table_that_is_not_there_and_a_column_that_is_not_are_named(spark, lake: Lake) -> None:
    defined = lake.pipeline("wrong")
    lake.append(range(10))
    spark.sql(f"ALTER TABLE {lake.table} RENAME COLUMN a TO arrived")
    with pytest.raises((SourceError, DefinitionError), match="there is no column `a`"):
        open_history(spark, defined)
    spark.sql(f"DROP TABLE {lake.table}")
    with pytest.raises(SourceError, match="there is no such Iceberg table") as refused:
        open_history(spark, defined)
    assert "catalog.namespace.table" in (refused.value.hint or "")


@pytest.mark.long
@pytest.mark.parametrize(
    ("preset", "columns", "values"),
    [
        (
            "redpanda",
            "redpanda STRUCT<partition: INT, offset: BIGINT, timestamp: TIMESTAMP, key: BINARY>, value BINARY",
            "named_struct('partition', p, 'offset', o, 'timestamp', timestamp_millis(a), 'key', CAST(k AS BINARY)), "
            "CAST(to_json(struct(k, t, v)) AS BINARY)",
        ),
        (
            "kafka_connect",
            "_kafka_metadata_partition INT, _kafka_metadata_offset BIGINT, _kafka_metadata_timestamp BIGINT, "
            "value STRING",
            "p, o, a, to_json(struct(k, t, v))",
        ),
    ],
)
def test_tables_of_known_writers_are_read_by_a_preset(spark, lake: Lake, preset, columns, values) -> None:
    lake.append(range(120))
    table = f"{lake.table}_{preset}"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg")
    spark.sql(f"INSERT INTO {table} SELECT {values} FROM {lake.table}")
    plain = lake.pipeline("plain")
    text = (lake.folder / "plain.yaml").read_text()
    position = "  position: {partition: p, offset: o, arrival: a, arrival_unit: ms}\n"
    schema = '{schema: "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"}'
    assert position in text and schema in text
    text = text.replace(lake.table, table).replace(position, f"  preset: {preset}\n").replace("_plain", f"_{preset}")
    text = text.replace(schema, '{format: json, column: value, schema: "k STRING, t BIGINT, v BIGINT"}')
    path = lake.folder / f"{preset}.yaml"
    path.write_text(text)
    defined = load_pipeline(path)
    run(spark, plain)
    run(spark, defined)
    windows, late = contents(spark, defined)[:2]
    assert windows == contents(spark, plain)[0]
    assert len(late) == len(contents(spark, plain)[1]) > 0


@pytest.mark.parametrize("part", ["branch_b1", "tag_t1", "files", "snapshots"])
def test_a_part_of_a_table_is_refused_with_the_table_to_name(spark, lake: Lake, part: str) -> None:
    lake.append(range(100))
    spark.sql(f"ALTER TABLE {lake.table} CREATE BRANCH b1")
    spark.sql(f"ALTER TABLE {lake.table} CREATE TAG t1")
    named = Lake(lake.spark, lake.folder, f"{lake.table}.{part}")
    with pytest.raises(SourceError, match="of an Iceberg table, not a table") as refused:
        make_plan(spark, named.pipeline(part))
    assert f"`table: {lake.table}`" in refused.value.hint
