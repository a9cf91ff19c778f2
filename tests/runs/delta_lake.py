"""The checks of a Delta table as a history. They need a Spark with Delta, so `test_delta_history` runs this file."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.errors import DefinitionError, HistoryError, SourceError
from spark_jobs.operations.archive import archive
from spark_jobs.orchestration.lineage import history_of
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan, open_planned, plan_from_json
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import LogProgress
from spark_jobs.sources import canonical, open_history, quarantined, source_of
from spark_jobs.spark.session import spark_session
from tests.kafka import Sent, produce
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


def refused(kind: type[Exception], words: str, action: Callable[[], object]) -> None:
    try:
        action()
    except kind as error:
        assert words in str(error), str(error)
    else:
        raise AssertionError(f"not refused: {words}")


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
    later = source_of(spark, defined).since(opened, {0: 100, 1: 100}, (before.snapshot,))
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


def pins(spark: SparkSession, folder: Path) -> None:
    lake = Lake(spark, folder, "pins")
    lake.append(range(100))
    defined = lake.pipeline()
    plan = plan_from_json(make_plan(spark, defined).to_json())
    assert "version 0" in plan.source
    lake.append(range(100, 150))
    assert open_planned(spark, defined, plan).frame.count() == 100
    assert open_history(spark, defined).frame.count() == 150
    run(spark, defined)
    lake.sql("OPTIMIZE {}")
    lake.sql("VACUUM {} RETAIN 0 HOURS")
    refused(SourceError, "version 0 of the plan was vacuumed", lambda: open_planned(spark, defined, plan))
    nothing = definition(folder, "nothing", f"  kind: table\n  format: delta\n  table: {folder}/nothing\n")
    refused(SourceError, "there is no such Delta table", lambda: open_history(spark, nothing))
    other = Lake(spark, folder, "anew")
    other.append(range(50))
    shutil.rmtree(lake.path)
    Path(other.path).rename(lake.path)
    refused(HistoryError, "was made anew", lambda: night(spark, defined))
    refused(SourceError, "was made anew since the plan", lambda: open_planned(spark, defined, plan))


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
    other = lake.frame([record(400)]).withColumn("k", F.expr("CAST(X'4DFC6E' AS STRING)"))
    other.write.format("delta").mode("append").save(lake.path)
    read = canonical(open_history(spark, pipelines["folder"]), pipelines["folder"])
    assert [row.reason for row in quarantined(read).collect()] == ["column `k`: not valid UTF-8"]


def stitched(spark: SparkSession, folder: Path) -> None:
    """A Delta table for the past, the topic for the rest: nights give what one full run of the topic alone gives."""
    with KafkaBroker(folder / "kafka") as broker:
        broker.create_topic("log", 2, APPEND_TIME)
        path = str(folder / "past")

        def send(numbers: Iterable[int]) -> None:
            records = [record(i) for i in numbers]
            produce(spark, broker.servers, "log", [Sent(json.dumps(one), one["p"]) for one in records])

        def move(offsets: str) -> None:
            options = {"kafka.bootstrap.servers": broker.servers, "subscribe": "log"}
            log = spark.read.format("kafka").options(**options).load().where(offsets)
            moved = log.select("partition", "offset", "timestamp", "key", "value").coalesce(1)
            moved.write.format("delta").mode("append").save(path)

        topic = {"servers": broker.servers, "topic": "log"}
        past = {"table": path, "format": "delta"}
        send(range(40))
        move("offset < 10")
        defined = of_topic("of_both", {"kind": "stitched", "past": past, "recent": topic})
        plan = plan_from_json(make_plan(spark, defined).to_json())
        assert plan.topic is not None and plan.snapshot is not None and "version 0" in plan.source
        assert (plan.records, [part.start for part in plan.topic.ranges]) == (40, [10, 10])
        assert [one.name for one in history_of(defined)] == [path, "log"]
        assert night(spark, defined).continued_from is None
        move("offset BETWEEN 10 AND 14")  # the split is another one now, the records are the same
        assert open_planned(spark, defined, plan).frame.count() == 40
        send(range(40, 120))
        second = night(spark, defined)
        assert second.continued_from is not None and "full run" not in second.note, second.note
        spark.sql(f"UPDATE delta.`{path}` SET value = value WHERE offset = 3")
        assert "has rows that were changed" in night(spark, defined).note
        whole = of_topic("of_topic", {"kind": "kafka", **topic})
        run(spark, whole)
        assert tables_of(spark, defined) == tables_of(spark, whole)
        refused(DefinitionError, "this is a Delta table", lambda: archive(spark, defined))


def of_topic(name: str, history: dict) -> Pipeline:
    """A pipeline over values as those of `record`."""
    return Pipeline.model_validate(
        {
            "name": name,
            "history": history,
            "value": {"format": "json", "schema": "k STRING, t BIGINT, v BIGINT"},
            "keys": {"k": "k"},
            "event_time": {"expression": "t", "unit": "ms"},
            "watermark": {"generator": "bounded_out_of_orderness", "bound": "10 s"},
            "window": {"type": "tumbling", "size": "1 min"},
            "aggregates": {"n": "count(*)", "total": "sum(v)"},
        }
    )


if __name__ == "__main__":
    home = Path(sys.argv[1])
    started = spark_session("delta", home=home / "home", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    started.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")  # for VACUUM at once
    checks = (formats, nights, changes, restored, pins, stitched)
    for check in [one for one in checks if one.__name__ in sys.argv[2:] or len(sys.argv) == 2]:
        (home / check.__name__).mkdir()
        check(started, home / check.__name__)
        print(f"{check.__name__}: as expected", flush=True)
