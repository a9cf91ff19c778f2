# pyright: reportArgumentType=false

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.errors import SourceError
from spark_jobs.project.reading import read_files
from spark_jobs.sources import Pins, canonical, good, open_history, partition_columns, quarantined, reading
from spark_jobs.sources.files.log_files import find_files
from spark_jobs.spark.gateway import query_execution
from tests.sources.conftest import BASE, MakePipeline, payload, records, write_log


def refusal(spark, pipeline, **options) -> SourceError:
    with pytest.raises(SourceError) as refused:
        open_history(spark, pipeline, **options)
    assert "\n" not in str(refused.value)
    return refused.value


def test_the_files_that_match_are_pinned_with_their_sizes_in_the_order_of_their_names(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    second = write_log(tmp_path / "b.parquet", records((0, 1, 10)))
    first = write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    (tmp_path / "_SUCCESS").touch()
    opened = open_history(spark, pipeline(tmp_path / "*.parquet"))
    assert [Path(file.path.removeprefix("file:")) for file in opened.pinned] == [first, second]
    assert [file.size for file in opened.pinned] == [first.stat().st_size, second.stat().st_size]
    assert opened.frame.count() == 2
    assert f"{tmp_path}/*.parquet (2 files" in opened.description


def test_pinned_files_are_read_again_and_later_ones_are_not(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    definition = pipeline(tmp_path / "*.parquet")
    pinned = open_history(spark, definition).pinned
    write_log(tmp_path / "b.parquet", records((0, 1, 10)))
    assert open_history(spark, definition, Pins(pinned)).frame.count() == 1
    assert open_history(spark, definition).frame.count() == 2


def test_a_pinned_file_that_is_gone_or_has_changed_is_refused(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    file = write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    definition = pipeline(tmp_path / "*.parquet")
    pinned = open_history(spark, definition).pinned
    size = file.stat().st_size
    write_log(file, records((0, 0, 0), (0, 1, 10)) * 3)
    now = file.stat().st_size
    assert str(refusal(spark, definition, pins=Pins(pinned))) == (
        f"a file of the plan has changed: it had {size} bytes and has {now} now ({file}). Plan again."
    )
    file.unlink()
    assert str(refusal(spark, definition, pins=Pins(pinned))) == (
        f"a file of the plan is gone ({file}). Put it back, or plan again."
    )


def test_names_with_blanks_and_wildcards_in_them_are_files_like_others(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a b" / "[x] 100%.parquet", records((0, 0, 0)))
    write_log(tmp_path / "a b" / "y{1}.parquet", records((0, 1, 10)))
    opened = open_history(spark, pipeline(tmp_path / "a b"))
    assert opened.frame.count() == 2
    assert open_history(spark, pipeline(tmp_path / "a b"), opened.pins).frame.count() == 2


@pytest.mark.parametrize("path", ["*.parquet", "nothing/here", "empty"])
def test_no_file_is_refused_by_the_name_of_the_pattern(
    spark, tmp_path: Path, pipeline: MakePipeline, path: str
) -> None:
    (tmp_path / "empty").mkdir()
    assert str(refusal(spark, pipeline(tmp_path / path))) == (
        f"no file matches ({tmp_path}/{path}). Correct history.path, or put the files there."
    )


@pytest.mark.parametrize(
    ("table", "mark", "path", "what"),
    [
        ("t", "_delta_log/00000000000000000000.json", "t", "Delta table.*kind: table, format: delta, table: .*/t}"),
        ("t", "_delta_log/00000000000000000000.json", "t/day=1/*.parquet", "Delta table.*table: .*/t}"),
        ("a b", ".hoodie/hoodie.properties", "a b/day=1", "Hudi table"),
        ("t", "metadata/00001-5c.metadata.json", "t/data/day=1", "Iceberg table"),
    ],
)
def test_the_files_behind_a_lake_table_are_refused_since_not_all_of_them_count(
    spark, tmp_path: Path, pipeline: MakePipeline, table: str, mark: str, path: str, what: str
) -> None:
    below = "data/day=1" if "data" in path else "day=1"
    write_log(tmp_path / table / below / "part-0.parquet", records((0, 0, 0)))
    assert find_files(spark, pipeline(tmp_path / path).history)
    (tmp_path / table / mark).parent.mkdir(parents=True)
    (tmp_path / table / mark).write_text("{}")
    assert re.search(what, str(refusal(spark, pipeline(tmp_path / path))))
    with pytest.raises(SourceError, match=what):
        read_files(str(tmp_path / table), 10)


@pytest.mark.parametrize("kept", [0, 3, 200, -1])
def test_a_truncated_file_is_refused_by_its_name(spark, tmp_path: Path, pipeline: MakePipeline, kept: int) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    file = write_log(tmp_path / "b.parquet", records((0, 1, 10)))
    file.write_bytes(file.read_bytes()[:kept])
    error = refusal(spark, pipeline(tmp_path))
    assert error.what.startswith("truncated, or not a Parquet file: ")
    assert error.where == str(file)
    assert error.exit_code == 4


def test_a_file_damaged_before_its_footer_is_named_when_it_is_read(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    file = write_log(tmp_path / "a.parquet", records(*((0, offset, offset) for offset in range(1000))))
    content = bytearray(file.read_bytes())
    content[4:2000] = b"\xff" * 1996
    file.write_bytes(content)
    opened = open_history(spark, pipeline(tmp_path))
    with pytest.raises(SourceError) as refused, reading(opened.description):
        opened.frame.collect()
    assert refused.value.what.startswith("the file is truncated or damaged")
    assert refused.value.where == str(file)


def _table(path: Path, **columns: pa.Array) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_files_with_different_types_are_refused_by_both_names_and_the_column(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    first = _table(tmp_path / "a.parquet", k=pa.array(["x"]), distance=pa.array([1], pa.int64()))
    second = _table(tmp_path / "b.parquet", k=pa.array(["x"]), distance=pa.array([1.5]))
    assert str(refusal(spark, pipeline(tmp_path))) == (
        "the files have different schemas: column `distance` is BIGINT in one and DOUBLE in the other "
        f"({first} and {second}). Rewrite one of them or leave it out. Where a column was added later, "
        "write `options: {mergeSchema: true}`."
    )


@pytest.mark.parametrize(("extra", "which"), [("a", "first"), ("b", "second")])
def test_a_column_that_one_file_lacks_is_refused(
    spark, tmp_path: Path, pipeline: MakePipeline, extra: str, which: str
) -> None:
    for name in "ab":
        more = {"gate": pa.array(["1"])} if name == extra else {}
        _table(tmp_path / f"{name}.parquet", k=pa.array(["x"]), **more)
    error = refusal(spark, pipeline(tmp_path))
    assert error.what == f"the files have different schemas: column `gate` is only in the {which}"
    assert error.where == f"{tmp_path}/a.parquet and {tmp_path}/b.parquet"


def test_a_column_that_came_later_is_null_before_where_schemas_may_be_merged(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    table = pq.read_table(write_log(tmp_path / "b.parquet", records((0, 1, 10))))
    pq.write_table(table.append_column("gate", pa.array(["7"])), tmp_path / "b.parquet")
    opened = open_history(spark, pipeline(tmp_path, history={"options": {"mergeSchema": True}}))
    assert sorted(row.gate or "" for row in opened.frame.collect()) == ["", "7"]


def test_nullability_order_and_encoding_of_columns_may_differ(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    table = pq.read_table(write_log(tmp_path / "a.parquet", records((0, 0, 0))))
    schema = pa.schema([field.with_nullable(False) for field in table.schema])
    pq.write_table(
        table.cast(schema).select(["value", "key", "arrival", "offset", "partition"]),
        tmp_path / "b.parquet",
        compression="gzip",
        use_dictionary=False,
    )
    assert open_history(spark, pipeline(tmp_path)).frame.count() == 2


def test_a_missing_column_is_refused_with_the_known_ones(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    position = {"partition": "partition", "offset": "offsett", "arrival": "arrival"}
    assert str(refusal(spark, pipeline(tmp_path, history={"position": position}))) == (
        "there is no column `offsett` (p, history.position.offset). "
        "Did you mean `offset`? known columns: partition, offset, arrival, key, value"
    )
    value = {"format": "json", "column": "payload", "schema": "sched_dep STRING"}
    error = refusal(spark, pipeline(tmp_path, value=value))
    assert error.what == "there is no column `payload`"


def test_a_column_of_another_type_than_the_definition_says_is_refused(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0)))
    error = refusal(spark, pipeline(tmp_path, value={"format": "columns", "schema": "offset INT"}))
    assert error.what == "column `offset` is BIGINT, and the definition says INT"


@pytest.mark.long
def test_folders_named_by_a_value_are_columns_and_stay_so_when_pinned(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    for day in (1, 2):
        write_log(tmp_path / "log" / f"day={day}" / "a.parquet", records((0, day, day)))
    for path in ("log", "log/*/*.parquet", "log/day=*"):
        definition = pipeline(tmp_path / path, keys={"day": "day"}, filter={"before_watermark": "day > 1"})
        assert partition_columns(spark, definition) == ("day",)
        opened = open_history(spark, definition)
        again = open_history(spark, definition, opened.pins)
        for one in (opened, again):
            assert [row.day for row in canonical(one, definition).collect()] == ["2"]
            plan = query_execution(canonical(one, definition)).executedPlan().toString()
            assert re.search(r"PartitionFilters: \[[^\]]*day", plan)


def test_the_schema_gives_folders_another_type_than_text(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "day=02" / "a.parquet", records((0, 1, 1)))
    definition = pipeline(tmp_path, value={"format": "columns", "schema": "day INT"})
    assert [row.day for row in open_history(spark, definition).frame.collect()] == [2]
    plain = pipeline(tmp_path, value={"format": "columns"})
    assert [row.day for row in open_history(spark, plain).frame.collect()] == ["02"]


def test_several_paths_are_one_history(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "x" / "a.parquet", records((0, 0, 0)))
    write_log(tmp_path / "y" / "b.parquet", records((0, 1, 10)))
    definition = pipeline([f"{tmp_path}/x", f"{tmp_path}/y/b.parquet"])
    frame = good(canonical(open_history(spark, definition), definition))
    assert sorted(row.rw_event_time - BASE for row in frame.collect()) == [0, 10]


def test_reachable_says_nothing_or_what_is_wrong(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", [(0, 0, 0, "AA", payload(0))])
    assert open_history(spark, pipeline(tmp_path)).frame.columns
    with pytest.raises(SourceError):
        open_history(spark, pipeline(tmp_path / "b.parquet"))


def test_keys_of_parquet_files_are_text_and_typed_folders_cost_their_records_alone(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    keys = pa.array([b"M\xfcn", b"M\xf6n", b"ok"]).view(pa.string())
    for store in ("007", "A1"):
        (tmp_path / f"store={store}").mkdir()
        table = pa.table({"shop": keys, "t": pa.array([0, 0, 0], pa.int64())})
        pq.write_table(table, tmp_path / f"store={store}" / "a.parquet")
    definition = pipeline(
        tmp_path,
        history={"position": {}},
        value={"format": "columns", "schema": "store INT"},
        keys={"shop": "shop", "store": "store"},
        event_time={"expression": "t", "unit": "ms"},
    )
    records = canonical(open_history(spark, definition), definition)
    assert [(row.shop, row.store) for row in good(records).collect()] == [("ok", 7)]
    reasons = sorted(row.reason for row in quarantined(records).collect())
    assert reasons == ["column `shop`: not valid UTF-8"] * 2 + ["wrong type for field store"] * 3


def test_nanoseconds_in_a_struct_are_times(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    """Spark gives them as BIGINT, which no unit of a definition reads."""
    nanos = 1_709_294_400_123_456_789
    inner = pa.struct([("at", pa.timestamp("ns", "UTC")), ("local", pa.timestamp("ns")), ("v", pa.int64())])
    row = pa.array([{"e": {"at": nanos, "local": nanos, "v": 7}}, {"e": None}], pa.struct([("e", inner)]))
    table = pa.table({"partition": [0, 0], "offset": [0, 1], "arrival": [1, 2], "s": row})
    pq.write_table(table, tmp_path / "a.parquet")
    found = pipeline(
        tmp_path,
        history={"position": {"partition": "partition", "offset": "`offset`", "arrival_unit": "ms"}},
        value={"format": "columns"},
        keys={},
        event_time={"expression": "s.e.at", "unit": "timestamp", "missing": "quarantine"},
    )
    rows = good(canonical(open_history(spark, found), found)).selectExpr("rw_event_time", "s.e.local", "s.e.v")
    (only,) = rows.collect()
    assert (only[0], only.local.microsecond, only.v) == (1_709_294_400_123, 123_456, 7)
