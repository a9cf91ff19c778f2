"""What OpenLineage is given of a run, from the run's documents: names of datasets, and the run facet."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.orchestration.lineage import FACET, files_of, history_of, iceberg, lineage_of
from spark_jobs.runs.life.status import Stage
from spark_jobs.runs.life.store import DEFINITION, RunStore
from tests.report import documents

SAMPLE = Path("dags/pipelines/departures_hourly.yaml")
POSITION = "position: {partition: p, offset: o, arrival: a}"
HISTORIES = {
    "{kind: files, path: [/lake/in/*.json, /lake/in/more.json], format: json, POSITION}": [
        ("file", "/lake/in"), ("file", "/lake/in/more.json"),
    ],
    "{kind: files, path: 's3a://lake/in/day=*/*.parquet', format: parquet, POSITION}": [("s3://lake", "in")],
    "{kind: hive, table: raw.flights, metastore: 'thrift://meta:9083', POSITION}": [
        ("hive://meta:9083", "raw.flights")
    ],
    "{kind: hive, table: raw.flights, POSITION}": [("hive://of-the-session:9083", "raw.flights")],
    "{kind: kafka, servers: 'b1:9094,b2:9094', topic: flights}": [("kafka://b1:9094", "flights")],
    "{kind: stitched, past: {table: raw.flights, metastore: 'thrift://meta', POSITION},"
    "recent: {servers: b1, topic: t}}": [("hive://meta:9083", "raw.flights"), ("kafka://b1:9092", "t")],
    "{kind: stitched, past: {table: lake.raw.flights, POSITION}, recent: {servers: b1, topic: t}}": [
        ("lake", "raw.flights"), ("kafka://b1:9092", "t")
    ],
    "{kind: stitched, past: {table: 's3a://lake/flights', format: delta, POSITION}, recent: {servers: b1, topic: t}}": [
        ("s3://lake", "flights"), ("kafka://b1:9092", "t")
    ],
    "{kind: table, format: delta, table: raw.flights, POSITION}": [("hive://of-the-session:9083", "raw.flights")],
}  # fmt: skip
CATALOGS = {
    "type=hive,uri=thrift://meta:9083,warehouse=s3a://lake/w": ("hive://meta:9083", "demo.t", []),
    "type=rest,uri=https://me:secret@catalog/api,warehouse=prod": ("https://catalog/api", "demo.t", []),
    "type=glue,warehouse=s3://lake/w": ("s3://lake/w", "demo.t", []),
    "type=jdbc,uri=jdbc:postgresql://me:secret@host/cat?password=x,warehouse=s3a://lake/w": (
        "s3://lake", "w/demo/t", [("jdbc:postgresql://host/cat", "demo.t", "TABLE")],
    ),
    "type=hadoop,warehouse=/lake/w": ("file", "/lake/w/demo/t", [("/lake/w", "demo.t", "TABLE")]),
}  # fmt: skip


@pytest.mark.parametrize("history", HISTORIES)
def test_a_history_has_the_name_that_other_tools_give_it(history: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("REWINDOW_SPARK_CONF", "spark.hadoop.hive.metastore.uris=thrift://of-the-session:9083")
    file = tmp_path / "p.yaml"
    value = "" if "kafka" in history or "stitched" in history else "column: value, "
    file.write_text(
        f"name: p\nhistory: {history.replace('POSITION', POSITION)}\nvalue: {{format: json, {value}schema: t BIGINT}}\n"
        "keys: {k: key}\nevent_time: {expression: t, unit: ms}\n"
        "watermark: {generator: bounded_out_of_orderness, bound: 1 s}\n"
        "window: {type: tumbling, size: 1 h}\naggregates: {n: count(*)}\n"
    )
    assert [(one.namespace, one.name) for one in history_of(load_pipeline(file))] == HISTORIES[history]


@pytest.mark.parametrize("catalog", CATALOGS)
def test_a_table_has_its_folder_or_its_name_in_the_catalog_and_no_secret(catalog: str, monkeypatch) -> None:
    monkeypatch.setenv("REWINDOW_CATALOG_CONF", catalog)
    dataset = iceberg("demo.t")
    links = dataset.facets["symlinks"].identifiers if dataset.facets else []
    assert (dataset.namespace, dataset.name, [(i.namespace, i.name, i.type) for i in links]) == CATALOGS[catalog]


def test_each_stage_names_what_it_reads_and_what_it_has_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("REWINDOW_RUNS", str(tmp_path))
    monkeypatch.setenv("REWINDOW_CATALOG_CONF", "type=hive,uri=thrift://meta:9083")
    documents.written(tmp_path, "night-1", outcome=documents.outcome("published", run_id="night-1"))
    folder = RunStore.configured().folder("night-1")
    assert lineage_of(folder, Stage.PUBLISH).inputs == []  # its definition could not be read
    corrections = "\ncorrections: {to: {kind: files, path: /lake/corrections}}\n"
    folder.write_text(DEFINITION, SAMPLE.read_text() + corrections)

    def names(stage: Stage) -> tuple[list[str], list[str]]:
        found = lineage_of(folder, stage)
        return [one.name.rpartition("/")[2] for one in found.inputs], [one.name for one in found.outputs]

    windows = "demo.departures_hourly"
    assert names(Stage.PLAN) == (["events.parquet"], [])
    assert names(Stage.PUBLISH) == (["events.parquet"], [windows, f"{windows}__late", f"{windows}__quarantine"])
    assert names(Stage.CORRECT) == ([windows], ["/lake/corrections"])
    read = ["events.parquet", "emitted_hourly.parquet"]
    assert names(Stage.COMPARE) == (read, [f"{windows}__verdicts", f"{windows}__comparisons"])
    facet = lineage_of(folder, Stage.PUBLISH).run_facets[FACET]
    assert (facet.runId, facet.pipeline, facet.kind, facet.status) == (
        "night-1", "departures_hourly", "reconcile", "published",
    )  # fmt: skip
    assert facet.asOf == {"0": 1000, "1": 2000, "2": 3000}
    assert (facet.start, facet.end) == ("2013-02-08T00:00:00Z", "2013-02-10T00:00:00Z")
    assert facet.processingTime == "2013-02-10T00:00:00Z"

    documents.written(tmp_path, "night-1", outcome=documents.outcome("gate_failed", run_id="night-1"))
    assert names(Stage.PUBLISH) == (["events.parquet"], [])
    assert names(Stage.CORRECT) == ([windows], [])


@pytest.mark.parametrize(("path", "namespace"), [
    ("ftp://ann:s3cret@host/data/*.csv", "ftp://host"),
    ("sftp://ann@host:22/data", "sftp://host:22"),
    ("hdfs://ann:s3cret@name:8020/x", "hdfs://name:8020"),
    ("https://ann:s3%40cret@host/x", "https://host"),
    ("s3a://KEY:s3cret@bucket/x", "s3://bucket"),
    ("abfss://lake@account.dfs.core.windows.net/x", "abfss://lake@account.dfs.core.windows.net"),
])  # fmt: skip
def test_no_user_and_no_password_of_an_address_is_told(path: str, namespace: str) -> None:
    assert [dataset.namespace for dataset in files_of([path])] == [namespace]
