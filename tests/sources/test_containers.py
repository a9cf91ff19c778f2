"""Avro container files and ORC files as histories."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.history import FilesHistory
from spark_jobs.errors import SourceError
from spark_jobs.sources import canonical, check_expressions, good, inspect_history, open_history, quarantined
from spark_jobs.sources.files.log_files import check_same_schema, find_files
from spark_jobs.spark.gateway import jvm
from tests.sampling import first_of
from tests.sources.conftest import BASE, make_pipeline, payload, records, write_log


def refusal(spark, path: Path, **history) -> str:
    with pytest.raises(SourceError) as refused:
        open_history(spark, make_pipeline(path, history=history))
    return str(refused.value)


@pytest.mark.parametrize("file_format", first_of(["avro", "orc"]))
def test_files_with_a_schema_of_their_own_hold_what_parquet_files_hold(spark, tmp_path: Path, file_format: str) -> None:
    rows = [*records((0, 0, 1), (0, 1, 2), (1, 0, 3)), (1, 1, 4, "BB", "{"), (1, 2, 5, "ü", payload(9, distance=7))]
    write_log(tmp_path / "log" / "day=01" / "a.parquet", rows)
    write_log(tmp_path / "log" / "day=02" / "a.parquet", records((0, 2, 6)))
    for day in ("day=01", "day=02"):
        frame = spark.read.parquet(str(tmp_path / "log" / day))
        frame.coalesce(1).write.format(file_format).save(str(tmp_path / file_format / day))
    keys = {"carrier": "key", "day": "day"}
    found = []
    for folder, chosen in (("log", "parquet"), (file_format, file_format)):
        pipeline = make_pipeline(tmp_path / folder, history={"format": chosen}, keys=keys)
        assert check_expressions(spark, pipeline) == []
        opened = open_history(spark, pipeline)
        frame = canonical(opened, pipeline)
        names = ["rw_partition", "rw_offset", "rw_arrival", "rw_event_time", "carrier", "day", "distance"]
        reasons = {(one.partition, one.offset): one.reason for one in quarantined(frame).collect()}
        found.append((sorted(map(tuple, good(frame).select(*names).collect())), reasons))
        assert inspect_history(spark, pipeline, opened).records == 6
        assert len(opened.pinned) == 2
        again = open_history(spark, pipeline, opened.pins)
        assert good(canonical(again, pipeline)).where("day = '02'").count() == 1
    assert found[0] == found[1] and len(found[0][0]) == 5 and found[0][1] == {(1, 1): "not valid JSON"}
    assert found[1][0][-1] == (1, 2, BASE + 5, BASE + 9, "ü", "01", 7)


@pytest.mark.parametrize("file_format", ["avro", "orc"])
def test_files_that_differ_or_are_damaged_are_named(spark, tmp_path: Path, file_format: str) -> None:
    frame = spark.read.parquet(str(write_log(tmp_path / "a.parquet", records((0, 0, 1)))))
    frame.coalesce(1).write.format(file_format).save(str(tmp_path / "one"))
    frame.drop("key").coalesce(1).write.format(file_format).save(str(tmp_path / "two"))
    (one,) = (tmp_path / "one").glob("*." + file_format)
    (two,) = (tmp_path / "two").glob("*." + file_format)
    both = tmp_path / "both"
    both.mkdir()
    (both / f"a.{file_format}").write_bytes(one.read_bytes())
    (both / f"b.{file_format}").write_bytes(two.read_bytes())
    told = refusal(spark, both, format=file_format)
    assert "different schemas: column `key` is only in the first" in told
    assert ("avroSchemaUrl" if file_format == "avro" else "mergeSchema: true") in told
    (both / f"b.{file_format}").write_bytes(b"no such file")
    told = refusal(spark, both, format=file_format)
    assert f"not an {'Avro container' if file_format == 'avro' else 'ORC'} file" in told and f"b.{file_format}" in told


def _over_orc(path: Path, time: str) -> Pipeline:
    return make_pipeline(
        path,
        history={"format": "orc", "position": {"partition": "0", "offset": "v", "arrival": "v", "arrival_unit": "ms"}},
        value={"format": "columns"},
        keys={},
        event_time={"expression": time, "unit": "timestamp"},
    )


def test_timestamps_of_a_local_time_zone_in_orc_files_are_their_instants(spark, tmp_path: Path) -> None:
    """Spark opens no such file, not for another column either."""
    moments = [datetime(2024, 3, 1, 10, 20, 30, 123456, tzinfo=UTC), None, datetime(1969, 12, 31, 23, tzinfo=UTC)]
    inner = pa.StructArray.from_arrays([pa.array(moments, pa.timestamp("ns", "UTC"))], ["at"])
    rows = {"v": [1, 2, 3], "t": moments, "r": inner, "k": ["a", None, "ä"], "d": pa.array(["1.50", None, "2.25"])}
    rows["d"] = rows["d"].cast(pa.decimal128(10, 2))
    for day in ("2024-03-01", "2024-03-02"):
        (tmp_path / f"day={day}").mkdir()
        orc.write_table(pa.table(rows), str(tmp_path / f"day={day}" / "a.orc"))
    frame = open_history(spark, _over_orc(tmp_path, "t")).frame
    shown = frame.selectExpr("v", "unix_micros(t)", "unix_micros(r.at)", "k", "string(d)", "string(day)")
    micros = [1_709_288_430_123_456, None, -3_600_000_000]
    wanted = zip([1, 2, 3], micros, micros, ["a", None, "ä"], ["1.50", None, "2.25"], strict=True)
    assert sorted(map(tuple, shown.where("day = '2024-03-02'").collect())) == [(*one, "2024-03-02") for one in wanted]
    assert frame.count() == 6


def test_orc_files_whose_times_are_of_two_kinds_are_refused(spark, tmp_path: Path) -> None:
    moment = datetime(2024, 3, 1)
    for name, kind in (("a", pa.timestamp("ns")), ("b", pa.timestamp("ns", "UTC"))):
        orc.write_table(pa.table({"v": [1], "t": pa.array([moment], kind)}), str(tmp_path / f"{name}.orc"))
    told = refusal(spark, tmp_path, format="orc")
    assert "column `t` is TIMESTAMP in one and TIMESTAMP WITH LOCAL TIME ZONE in the other" in told


def test_times_of_an_orc_file_from_another_zone_are_not_taken_for_instants(spark, tmp_path: Path) -> None:
    """Such a file has the writer's local time: its instants would be off by the difference of the zones."""
    zones = jvm(spark).java.util.TimeZone
    own = zones.getDefault()
    rows = spark.sql("SELECT 1L AS v, timestamp_millis(1709294400000) AS t, 'a' AS k").coalesce(1)
    try:
        for zone in ("America/New_York", "Etc/UTC"):
            zones.setDefault(zones.getTimeZone(zone))
            rows.write.format("orc").save(str(tmp_path / zone.replace("/", "_")))
    finally:
        zones.setDefault(own)
    with pytest.raises(SourceError, match="column `t` cannot be read: a timestamp by the clock of America/New_York"):
        open_history(spark, _over_orc(tmp_path / "America_New_York", "t"))
    unused = open_history(spark, _over_orc(tmp_path / "America_New_York", "timestamp_millis(v)"))
    assert unused.frame.select("k").collect()[0][0] == "a"
    (row,) = open_history(spark, _over_orc(tmp_path / "Etc_UTC", "t")).frame.selectExpr("unix_millis(t)").collect()
    assert row[0] == 1_709_294_400_000


def test_avro_files_of_several_schemas_are_read_by_one_that_is_named(spark, tmp_path: Path) -> None:
    frame = spark.read.parquet(str(write_log(tmp_path / "a.parquet", records((0, 0, 1)))))
    frame.coalesce(1).write.format("avro").save(str(tmp_path / "log/one"))
    later = frame.selectExpr("`partition`", "`offset` + 1 AS `offset`", "arrival", "key", "value", "'x' AS note")
    later.coalesce(1).write.format("avro").save(str(tmp_path / "log/two"))
    fields = '{"name": "partition", "type": ["null", "int"]}, {"name": "offset", "type": ["null", "long"]}, '
    fields += '{"name": "arrival", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}, '
    fields += '{"name": "key", "type": ["null", "string"]}, {"name": "value", "type": ["null", "string"]}, '
    fields += '{"name": "note", "type": "string", "default": "none"}'
    schema = '{"type": "record", "name": "topLevelRecord", "fields": [' + fields + "]}"
    history = {"format": "avro", "options": {"avroSchema": schema, "recursiveFileLookup": True}}
    pipeline = make_pipeline(tmp_path / "log", history=history, keys={"note": "note"})
    rows = good(canonical(open_history(spark, pipeline), pipeline)).orderBy("rw_offset").collect()
    assert [one.note for one in rows] == ["none", "x"]


_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."


def _long(**more: object) -> dict[str, object]:
    return {"type": "long", **more}


@pytest.mark.parametrize(
    ("reader", "writer", "said"),
    [
        (_long(logicalType="timestamp-millis"), _long(logicalType="timestamp-micros"), "timestamp-micros there"),
        (
            _long(logicalType="timestamp-millis"),
            _long(**{"connect.name": f"{_DEBEZIUM}MicroTimestamp"}),
            "micros there",
        ),
        (None, _long(**{"connect.name": f"{_DEBEZIUM}MicroTimestamp"}), "timestamp-micros there"),
        (_long(logicalType="timestamp-millis"), _long(**{"connect.name": f"{_CONNECT}Timestamp"}), ""),
        (_long(logicalType="timestamp-millis"), "long", ""),
        (
            ["null", _long(logicalType="timestamp-millis")],
            _long(logicalType="timestamp-nanos"),
            "timestamp-nanos there",
        ),
    ],
)
def test_avro_files_whose_numbers_have_another_unit_are_refused(
    spark: SparkSession, tmp_path: Path, reader: object, writer: object, said: str
) -> None:
    """`reader` None: there is no schema for all files, and the first file was written with milliseconds by its name."""
    first = _long(**{"connect.name": f"{_DEBEZIUM}Timestamp"}) if reader is None else reader
    schemas = [_of_time(one) for one in (first, writer)]
    for number, schema in enumerate(schemas):
        write_avro(spark, tmp_path / f"{number}.avro", schema)
    options = {} if reader is None else {"options": {"avroSchema": schemas[0]}}
    history = FilesHistory.model_validate({"kind": "files", "path": str(tmp_path), "format": "avro", **options})
    files = find_files(spark, history)
    if not said:
        check_same_schema(spark, history, files)
        return
    with pytest.raises(SourceError, match=rf"field at is .*{said}") as refused:
        check_same_schema(spark, history, files)
    assert "1.avro" in str(refused.value)


def _of_time(kind: object) -> str:
    return json.dumps({"type": "record", "name": "one", "fields": [{"name": "at", "type": kind}]})


def write_avro(spark: SparkSession, path: Path, schema: str) -> None:
    """A container file of this schema without records."""
    packages = jvm(spark)
    avro = packages.org.apache.avro
    parsed = avro.Schema.Parser().parse(schema)
    writer = avro.file.DataFileWriter(avro.generic.GenericDatumWriter(parsed))
    writer.create(parsed, packages.java.io.File(str(path))).close()
