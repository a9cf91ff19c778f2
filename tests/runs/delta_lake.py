"""The checks of a Delta table as a history. They need a Spark with Delta, so `test_delta_history` runs this file."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.runs.job import RunResult
from spark_jobs.runs.nightly import reconcile
from spark_jobs.runs.progress import LogProgress
from spark_jobs.sources import AlreadyRead, open_history, source_of
from spark_jobs.spark.session import spark_session
from tests.runs.small_nights import tables_of
from tests.runs.small_runs import contents, definition_text, record, run, write

SCHEMA = "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"
_numbers = itertools.count()


def definition(folder: Path, name: str, history: str) -> Pipeline:
    """A pipeline over another history than files."""
    text = definition_text(name, folder / "data")
    files = f"  kind: files\n  path: {folder}/data/*.json\n  format: json\n"
    assert files in text
    path = folder / f"{name}.yaml"
    path.write_text(text.replace(files, history))
    return load_pipeline(path)


@dataclass(frozen=True)
class Lake:
    spark: SparkSession
    folder: Path
    name: str

    @property
    def path(self) -> str:
        return str(self.folder / self.name)

    def frame(self, records: list[dict]) -> DataFrame:
        return self.spark.createDataFrame(records, SCHEMA).coalesce(1)

    def append(self, numbers: Iterable[int], **other: object) -> None:
        self.frame([record(i, **other) for i in numbers]).write.format("delta").mode("append").save(self.path)

    def pipeline(self) -> Pipeline:
        name = f"{self.name}_{next(_numbers)}"
        return definition(self.folder, name, f"  kind: table\n  format: delta\n  table: {self.path}\n")

    def sql(self, text: str) -> None:
        self.spark.sql(text.format(f"delta.`{self.path}`")).collect()

    def is_as_one_full_run(self, defined: Pipeline) -> bool:
        whole = self.pipeline()
        run(self.spark, whole)
        return tables_of(self.spark, defined) == tables_of(self.spark, whole)


def night(spark: SparkSession, defined: Pipeline) -> RunResult:
    return reconcile(spark, defined, LogProgress())


def nights(spark: SparkSession, folder: Path) -> None:
    lake = Lake(spark, folder, "nights")
    lake.append(i for i in range(200) if i not in (120, 121))
    defined = lake.pipeline()
    assert night(spark, defined).continued_from is None
    before = open_history(spark, defined)
    assert before.snapshot is not None and before.snapshot.snapshot == 0
    lake.append(range(200, 300))
    lake.sql("OPTIMIZE {}")
    lake.append(range(300, 350))
    opened = open_history(spark, defined)
    later = source_of(spark, defined).since(opened, AlreadyRead({0: 100, 1: 100}, before.snapshot)).frame
    assert later.count() == 150, "only what was appended, not what compaction has written"
    second = night(spark, defined)
    assert second.continued_from is not None and "full run" not in second.note, second.note
    assert lake.is_as_one_full_run(defined)
    lake.append(range(350, 360))
    lake.sql("OPTIMIZE {}")
    lake.sql("VACUUM {} RETAIN 0 HOURS")  # the appended file itself is gone: its records are found by their offsets
    assert night(spark, defined).continued_from is not None
    assert lake.is_as_one_full_run(defined)
    lake.sql("OPTIMIZE {}")
    assert "nothing has arrived" in night(spark, defined).note
    lake.append([120, 121])
    note = night(spark, defined).note
    assert "below the end offsets" in note and "full run" in note, note
    assert lake.is_as_one_full_run(defined)


def changes(spark: SparkSession, folder: Path) -> None:
    lake = Lake(spark, folder, "changes")
    lake.append(range(200))
    lake.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    defined = lake.pipeline()
    night(spark, defined)
    lake.sql("UPDATE {} SET v = 1000 WHERE v = 17")
    note = night(spark, defined).note
    assert "has rows that were changed" in note and "full run" in note, note
    lake.sql("DELETE FROM {} WHERE v = 18")
    assert open_history(spark, defined).frame.count() == 199
    lake.append(range(200, 240))
    assert night(spark, defined).continued_from is not None


def restored(spark: SparkSession, folder: Path) -> None:
    lake = Lake(spark, folder, "restored")
    lake.append(range(100))
    lake.append(range(100, 200))
    defined = lake.pipeline()
    night(spark, defined)
    lake.sql("RESTORE TABLE {} TO VERSION AS OF 0")
    lake.append(range(100, 200), v=7)
    note = night(spark, defined).note
    assert "was rolled back" in note and "full run" in note, note


def formats(spark: SparkSession, folder: Path) -> None:
    """The same records give the same tables from files, from Hive, Iceberg and Delta, by name and by folder."""
    records = [record(i) for i in range(400)]
    write(folder / "data", records)
    files = folder / "files.yaml"
    files.write_text(definition_text("of_files", folder / "data"))
    lake = Lake(spark, folder, "formats")
    frame = lake.frame(records)
    frame.write.format("delta").save(lake.path)
    spark.sql("CREATE DATABASE raw")
    frame.write.format("delta").partitionBy("p").saveAsTable("raw.of_delta")
    frame.write.format("parquet").saveAsTable("raw.of_hive")
    spark.sql("CREATE NAMESPACE rewindow.raw")
    frame.writeTo("rewindow.raw.of_iceberg").create()
    histories = {
        "hive": "  kind: hive\n  table: raw.of_hive\n",
        "iceberg": "  kind: table\n  table: rewindow.raw.of_iceberg\n",
        "delta": "  kind: table\n  format: delta\n  table: raw.of_delta\n",
        "folder": f"  kind: table\n  format: delta\n  table: {lake.path}\n",
    }
    pipelines = {name: definition(folder, f"of_{name}_", text) for name, text in histories.items()}
    assert source_of(spark, pipelines["delta"]).partition_columns() == ("p",)
    whole = load_pipeline(files)
    run(spark, whole)
    expected = contents(spark, whole)[:2]
    for name, defined in pipelines.items():
        run(spark, defined)
        assert contents(spark, defined)[:2] == expected, name


if __name__ == "__main__":
    home = Path(sys.argv[1])
    started = spark_session("delta", home=home / "home", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    started.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")  # for VACUUM at once
    checks = (formats, nights, changes, restored)
    for check in [one for one in checks if one.__name__ in sys.argv[2:] or len(sys.argv) == 2]:
        (home / check.__name__).mkdir()
        check(started, home / check.__name__)
        print(f"{check.__name__}: as expected", flush=True)
