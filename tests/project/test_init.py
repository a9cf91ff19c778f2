"""`rewindow init`: what is proposed from a few records, which questions are asked, and what is written."""

from __future__ import annotations

import csv
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import spark_jobs.cli
from spark_jobs.cli.app import app
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.payload import Envelope
from spark_jobs.errors import DefinitionError, SourceError
from spark_jobs.project.proposal import event_times, key_fields, propose_position
from spark_jobs.project.reading import read_files
from spark_jobs.project.sample import Sample, ddl_of
from spark_jobs.project.times import time_reading
from spark_jobs.project.yaml_text import scalar
from spark_jobs.quality.suites import load_suites
from spark_jobs.sources import check_expressions, fidelity

ROOT = Path(spark_jobs.cli.__file__).parents[2]
FLIGHTS = ROOT / "tests/data/flights/events.parquet"
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


def order(number: int, **more) -> dict:
    """An order every ten seconds; each tenth is five minutes late."""
    time = NOON + timedelta(seconds=10 * number) - timedelta(minutes=5 * (number % 10 == 9))
    return {
        "id": number,
        "shop": "north" if number % 3 else "south",
        "amount": 1.5,
        "ordered_at": time.isoformat(),
    } | more


def in_log(number: int) -> dict:
    """The same with its position in a log of two partitions."""
    arrived = NOON + timedelta(seconds=10 * number + 1)
    return order(number, kafka_partition=number % 2, kafka_offset=number // 2, append_time=arrived.isoformat())


def write_lines(file: Path, records: list[dict]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*arguments: str, answers: str | None = None) -> str:
    """The output of `rewindow init`; raises what it raises."""
    result = CliRunner().invoke(app, ["init", *arguments], input=answers)
    if isinstance(result.exception, DefinitionError | SourceError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def definition(project: Path, name: str) -> Pipeline:
    return load_pipeline(project / f"dags/pipelines/{name}.yaml")


def test_lines_without_a_position_allow_complete_values_only(project: Path) -> None:
    write_lines(project / "data/orders.jsonl", [order(number) for number in range(100)])
    output = " ".join(init("data/*.jsonl", "--name", "orders", "--yes").split())
    assert "fidelity complete_only" in output
    assert "at most by 4 min 50 s" in output
    assert "rewindow run orders" in output and "--mode" not in output
    made = definition(project, "orders")
    assert made.mode == "complete"
    assert (made.event_time.expression, made.event_time.unit) == ("ordered_at", "iso")
    assert made.keys == {"shop": "shop"}
    assert made.aggregates == {"records": "count(*)", "amount_sum": "sum(amount)"}
    text = (project / "dags/pipelines/orders.yaml").read_text()
    assert made.watermark.generator == "none"
    assert not {"watermark:", "bound:", "flink:", "allowed_lateness:"} & {
        line.split(" ")[0] for line in text.splitlines()
    }
    assert "  bound" not in text and "  flink" not in text, "no live job, so nothing of it to answer"
    assert fidelity(made).level == "complete_only"


def test_columns_that_are_named_as_a_position_give_the_order_of_the_log(project: Path) -> None:
    write_lines(project / "data/orders.jsonl", [in_log(number) for number in range(100)])
    assert "fidelity log_order" in init("data", "--name", "orders", "--yes")
    made = definition(project, "orders")
    position = made.history.position
    assert (position.partition, position.offset) == ("kafka_partition", "kafka_offset")
    assert (position.arrival, position.arrival_unit) == ("append_time", "iso")
    text = (project / "dags/pipelines/orders.yaml").read_text()
    assert "\n  # partitions: [0, 1, 2] " in text and '\n  flink: "2.3" ' in text, "what an engine adds are lines"
    flags = ("--engine", "flink", "--job", "datastream", "--bound", "5 min", "--key", "shop", "--time", "ordered_at")
    init("data", "--name", "told", *flags, "--yes")
    assert "CHECK" not in (project / "dags/pipelines/told.yaml").read_text(), "no advice for guesses that are not there"
    assert fidelity(made).level == "log_order"
    init("data", "--name", "by_producer", "--arrival-kind", "producer_time", "--yes")
    assert fidelity(definition(project, "by_producer")).level == "approximate"


def test_the_project_has_all_that_a_run_and_airflow_need(project: Path) -> None:
    write_lines(project / "data/orders.jsonl", [order(number) for number in range(20)])
    output = init("data", "--directory", "team", "--name", "orders", "--yes")
    team = project / "team"
    suites = load_suites(definition(team, "orders"))
    assert [suite.name for suite in suites.suites] == ["input", "windows", "reconciliation", "orders"]
    assert {file.name for file in (team / "dags").iterdir()} > {"rewindow_pipelines.py", "rewindow_refused.py"}
    text = (team / "dags/pipelines/orders.yaml").read_text()
    (schema,) = [line.partition("$schema=")[2] for line in text.splitlines() if line.startswith("# yaml-language")]
    assert json.loads((team / "dags/pipelines" / schema).read_text())["title"] == "Rewindow pipeline"
    assert "REWINDOW_HOME" in (team / ".env.example").read_text()
    assert max(map(len, (line for line in text.splitlines() if line.startswith("#")))) <= 118
    assert "cd team && rewindow check orders" in output


def test_files_that_are_there_stay_and_a_definition_is_overwritten_only_by_force(project: Path) -> None:
    write_lines(project / "data/orders.jsonl", [order(number) for number in range(20)])
    init("data", "--name", "orders", "--yes")
    (project / "expectations/windows.json").write_text("reviewed")
    with pytest.raises(DefinitionError, match="definition of this name already"):
        init("data", "--name", "orders", "--yes")
    init("data", "--name", "orders", "--size", "5 min", "--force", "--yes")
    assert (project / "expectations/windows.json").read_text() == "reviewed"
    assert "size: 5 min" in (project / "dags/pipelines/orders.yaml").read_text()


def test_a_person_is_asked_what_the_flags_leave_open_and_again_after_a_wrong_answer(project: Path) -> None:
    write_lines(project / "data/orders.jsonl", [in_log(number) for number in range(20)])
    # Empty lines take the proposals: engine, partition, offset, arrival, its clock; the kind of job, the generator;
    # namespace at the end.
    answers = "\nordered_at\n\n\n\n\nshpo\nshop, dated=substring(ordered_at, 1, 10)\n\n\nsoon\n2 min\n"
    answers += "session\n15 min\n1 min\nn=count(*)\n\n"
    output = init("data", "--name", "orders", answers=answers)
    assert "Did you mean `shop`?" in output
    assert "`soon` is not a duration" in output
    made = definition(project, "orders")
    assert made.keys == {"shop": "shop", "dated": "substring(ordered_at, 1, 10)"}
    assert (made.window.type, made.watermark.bound, made.allowed_lateness) == ("session", 120_000, 60_000)
    assert made.aggregates == {"n": "count(*)"}


@pytest.mark.parametrize(
    ("flags", "watermark", "window"),
    [
        (
            ("--engine", "spark", "--checkpoint", "/srv/checkpoints/orders"),
            {"delay": 300_000, "checkpoint": "/srv/checkpoints/orders"},
            "tumbling",
        ),
        (
            ("--engine", "spark", "--delay", "1 h", "--checkpoint", "none", "--window", "session"),
            {"delay": 3_600_000, "checkpoint": None, "gaps": "approximate", "trigger": 10_000},
            "session",
        ),
        (
            ("--engine", "kafka_streams", "--grace", "10 min", "--window", "hopping", "--advance", "5 min"),
            {"grace": 600_000},
            "hopping",
        ),
        (("--engine", "kafka_streams", "--window", "sliding"), {"grace": 300_000}, "between_events"),
    ],
)
def test_an_engine_is_asked_in_its_own_words(project: Path, flags: tuple, watermark: dict, window: str) -> None:
    write_lines(project / "data/orders.jsonl", [in_log(number) for number in range(100)])
    output = init("data", "--name", "orders", *flags, "--yes")
    made = definition(project, "orders")
    assert (made.engine, made.window.type) == (flags[1], window)
    assert {name: getattr(made.watermark, name) for name in watermark} == watermark
    assert ("fidelity recorded" in output) == ("/srv/checkpoints/orders" in flags)
    text = (project / "dags/pipelines/orders.yaml").read_text()
    assert "allowed_lateness" not in text and "end_of_input" not in text
    assert ("CHECK: this" in text) == (watermark.get("delay", watermark.get("grace")) == 300_000)


def test_kafka_streams_needs_no_clock_of_the_broker(project: Path) -> None:
    """In its topics the record's time is the event time: LogAppendTime would change the application itself."""
    write_lines(project / "data/orders.jsonl", [in_log(number) for number in range(100)])
    clock = ("--arrival", "append_time", "--arrival-kind", "producer_time", "--yes")
    assert "fidelity approximate" in init("data", "--name", "flink_orders", *clock)
    output = init("data", "--name", "orders", "--engine", "kafka_streams", "--grace", "10 min", *clock)
    assert "fidelity log_order" in output
    assert "LogAppendTime" not in output + (project / "dags/pipelines/orders.yaml").read_text()


def test_a_job_of_flink_sql_is_asked_for_its_delay_and_has_a_section(project: Path) -> None:
    write_lines(project / "data/orders.jsonl", [in_log(number) for number in range(100)])
    init("data", "--name", "orders", "--job", "sql", "--lag", "5 s", "--yes")
    made = definition(project, "orders")
    assert made.flink_sql is not None and made.flink_sql.aggregation == "auto"
    assert (made.watermark.generator, made.watermark.lag, made.allowed_lateness) == ("lag", 5_000, 0)
    with pytest.raises(DefinitionError, match="--bound belongs to a DataStream job"):
        init("data", "--name", "other", "--job", "sql", "--bound", "1 min", "--yes")


def test_a_flag_of_another_engine_is_refused_with_the_own_ones(project: Path) -> None:
    write_lines(project / "data/orders.jsonl", [in_log(number) for number in range(20)])
    with pytest.raises(DefinitionError, match="--bound belongs to engine `flink`, not to `kafka_streams`") as refused:
        init("data", "--engine", "kafka_streams", "--bound", "1 min", "--yes")
    assert "--grace" in refused.value.hint
    with pytest.raises(DefinitionError, match="Name it with --checkpoint") as refused:
        init("data", "--engine", "spark", "--yes")


def test_what_cannot_be_proposed_is_marked_and_what_is_wrong_is_refused(project: Path) -> None:
    write_lines(project / "data/sizes.jsonl", [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    init("data", "--name", "sizes", "--yes")
    text = (project / "dags/pipelines/sizes.yaml").read_text()
    assert "# CHECK: no field of the records that were read looks like a time" in text
    for time, unit in {"b": "iso", "a": "ms", "to_timestamp(b, 'dd.MM.yyyy')": "timestamp"}.items():
        init("data", "--name", "sizes", "--time", time, "--yes", "--force")
        text = (project / "dags/pipelines/sizes.yaml").read_text()
        assert "# CHECK: the unit is a guess; it can be" in text
        assert definition(project, "sizes").event_time.unit == unit
    with pytest.raises(DefinitionError, match="--bound: `30` has no unit"):
        init("data", "--time", "a", "--unit", "s", "--bound", "30", "--yes")
    with pytest.raises(DefinitionError, match=r"kafka://HOST:PORT/TOPIC"):
        init("kafka:orders", "--yes")
    with pytest.raises(SourceError, match="no file is there"):
        init("nothing/*.jsonl", "--yes")


def test_csv_of_pandas_and_of_doubled_pipes_is_taken_for_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "pandas.csv").write_text(',p,shop,note,Note\n0,1,"a ""b""",x,y\n1,2,"open\n2,3,c,x,y\n')
    sample = read_files(str(tmp_path / "pandas.csv"), 10)
    assert sample.options == {"header": True}
    assert list(sample.records) == [{"p": 1, "shop": 'a "b"'}, {"p": 3, "shop": "c"}]
    assert sample.unreadable == 1
    (tmp_path / "pipes.csv").write_text('p||shop\n1||"a\nb"\n')
    sample = read_files(str(tmp_path / "pipes.csv"), 10)
    options = {"header": True, "sep": "||", "multiLine": True}
    assert (sample.options, list(sample.records)) == (options, [{"p": 1, "shop": "a\nb"}])


def test_csv_files_with_a_header_and_another_delimiter(project: Path) -> None:
    with (project / "clicks.csv").open("w", newline="") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow(["user_id", "clicked_ms", "page", "price"])
        rows.writerows([number % 5, 1_709_290_000_000 + number * 1000, f"p{number % 3}", 0.5] for number in range(50))
    init("clicks.csv", "--yes")
    made = definition(project, "clicks")
    assert made.value.ddl == "user_id BIGINT, clicked_ms BIGINT, page STRING, price DOUBLE"
    assert made.event_time.unit == "ms"
    assert made.history.model_dump()["options"] == {"header": True, "sep": ";"}


def test_the_sample_of_flights_is_proposed_as_its_definition_has_it(project: Path) -> None:
    init(str(FLIGHTS), "--name", "flights", "--key", "carrier=key", "--yes")
    made, sample = definition(project, "flights"), load_pipeline(ROOT / "dags/pipelines/departures_hourly.yaml")
    assert made.event_time.expression == sample.event_time.expression
    assert made.value.column == sample.value.column
    assert made.history.position.model_dump() == sample.history.position.model_dump()
    assert fidelity(made) == fidelity(sample)


def test_spark_accepts_the_definitions(project: Path, spark) -> None:
    """For lines with nested and odd names, for CSV without a header, for Parquet, and for a glob that finds folders."""
    nested = [in_log(number) | {"buyer": {"home country": "de" if number % 2 else "fr"}, "tags": ["a"], "gone": None}
              for number in range(50)]  # fmt: skip
    write_lines(project / "data/nested.jsonl", nested)
    (project / "plain.csv").write_text("".join(f"{number % 3},{NOON:%Y-%m-%d %H:%M:%S}\n" for number in range(9)))
    init("data", "--name", "nested", "--key", "buyer.home country", "--yes")
    init("plain.csv", "--key", "c0", "--yes")
    init(str(FLIGHTS), "--name", "flights", "--yes")
    for day in ("1", "2"):
        write_lines(project / f"days/day={day}/hour=12/part.jsonl", [order(number) for number in range(30)])
    assert "days/*: 2 json files, 60 lines read" in init("days/*", "--yes")
    for name in ("nested", "plain", "flights", "days"):
        assert check_expressions(spark, definition(project, name)) == []


def sample_of(**values) -> Sample:
    """A sample with one record for each value."""
    names = list(values)
    return Sample([dict(zip(names, row, strict=True)) for row in zip(*values.values(), strict=True)], "test")


@pytest.mark.parametrize(
    ("values", "unit", "milliseconds"),
    [
        (["2024-03-01T12:00:00Z", "2024-03-01T12:00:00+02:00"], "iso", 1_709_294_400_000),
        (["2024-03-01 12:00:00", "2024-03-01 12:00:01"], "timestamp", 1_709_294_400_000),
        ([1_709_294_400, 1_709_294_401], "s", 1_709_294_400_000),
        ([1_709_294_400.25, 1_709_294_401.0], "s", 1_709_294_400_250),
        ([1_709_294_400_000, 1_709_294_400_001], "ms", 1_709_294_400_000),
        (["1709294400000000", "1709294400000001"], "us", 1_709_294_400_000),
        ([NOON, NOON], "timestamp", 1_709_294_400_000),
        ([NOON.replace(tzinfo=None)] * 2, "timestamp", 1_709_294_400_000),
        (["1709294400", 1_709_294_401], "s", 1_709_294_400_000),
        (["2024-03-01", "2024-03-02"], None, None),
        ([17, 18], None, None),
        (["north", "south"], None, None),
    ],
)
def test_times_are_recognized_with_their_unit(values: list, unit: str | None, milliseconds: int | None) -> None:
    (field,) = sample_of(event_time=values).fields
    reading = time_reading(field)
    assert (reading.unit if reading else None) == unit
    assert (reading.to_ms(values[0]) if reading else None) == milliseconds


def test_times_with_a_lower_case_letter_are_read_in_capital_letters() -> None:
    for text in ("2024-03-01t12:00:00Z", "2024-03-01T12:00:00z", "2024-03-01t13:00:00+01:00"):
        (field,) = sample_of(at=[text, text]).fields
        reading = time_reading(field)
        assert reading is not None
        found = (reading.expression, reading.unit, reading.to_ms(text))
        assert found == ("upper(at)", "iso", 1_709_294_400_000)


def test_seconds_are_known_by_the_name_of_what_happened() -> None:
    for name, is_time in (("clicked", True), ("last_seen", True), ("sent", True), ("speed", False), ("user_id", False)):
        (field,) = sample_of(**{name: [1_709_294_400, 1_709_294_401]}).fields
        assert (time_reading(field) is not None) == is_time, name


def test_the_likeliest_fields_come_first() -> None:
    times = ["2024-03-01T12:00:00Z"] * 4
    sample = sample_of(loaded_at=times, changed=times, event_time=times, note=list("abcd"), device_id=[1, 1, 2, 2])
    assert [field.name for field, _ in event_times(sample, propose_position(sample))] == [
        *("event_time", "changed", "loaded_at"),
    ]
    assert [field.name for field in key_fields(sample, [])] == ["device_id"]


def test_an_offset_needs_a_partition_and_positions_are_never_null() -> None:
    assert propose_position(sample_of(offset=[1, 2])).offset is None
    assert propose_position(sample_of(partition=[0, None], offset=[1, 2])).partition is None


def test_types_of_decoded_fields() -> None:
    mixed = [{"v": "3", "w": "x"}, {"v": 3, "w": 3}, {"v": "+4", "w": 4}]
    assert ddl_of(mixed) == "v BIGINT, w STRING"
    assert ddl_of([{"v": "3", "w": -(2**63)}, {"v": 2**63, "w": 1}]) == "v DECIMAL(38, 0), w BIGINT"
    records = [{"a": 1, "b": {"c d": [1.5]}, "e": None}, {"a": 2.5, "f": True, "g": "x"}]
    assert ddl_of(records) == "a DOUBLE, b STRUCT<`c d`: ARRAY<DOUBLE>>, e STRING, f BOOLEAN, g STRING"


def test_text_is_quoted_where_yaml_would_read_something_else() -> None:
    assert [scalar(text) for text in ("sum(amount)", "1 h 30 min", "no", "a: b", "5", "`x y`", "{a}", "*")] == [
        *("sum(amount)", "1 h 30 min", '"no"', '"a: b"', '"5"', '"`x y`"', '"{a}"', '"*"'),
    ]


def test_damaged_lines_are_counted_and_an_array_is_refused(project: Path) -> None:
    (project / "mixed.jsonl").write_text('{"a": 1}\nnot json\n')
    assert read_files("mixed.jsonl", 10).unreadable == 1
    (project / "array.json").write_text('[{"a": 1}]\n')
    with pytest.raises(SourceError, match="one JSON object"):
        read_files("array.json", 10)


def change(number: int) -> dict:
    """A change of a row as Debezium writes it; each tenth deletes."""
    row = {"order_id": 100 + number, "shop": "a" if number % 2 else "b", "total_cents": number % 7 * 100,
           "created_at": 1_700_000_000_000_000 + number * 1_000_000}  # fmt: skip
    is_delete = number % 10 == 9
    return {"op": "d" if is_delete else "c", "before": row if is_delete else None, "after": None if is_delete else row,
            "source": {"lsn": number, "table": "orders"}}  # fmt: skip


@pytest.mark.parametrize("schema_include", [False, True])
def test_changes_of_rows_are_known_and_their_deletes_are_left_out(project: Path, schema_include: bool) -> None:
    changes = [change(number) for number in range(100)]
    lines = [{"schema": {"type": "struct"}, "payload": one} for one in changes] if schema_include else changes
    write_lines(project / "data/shop.jsonl", lines)
    init("data/shop.jsonl", "--yes")
    made = definition(project, "shop")
    assert made.value.envelope == Envelope(kind="debezium", schema_include=schema_include)
    assert made.value.ddl == "order_id BIGINT, shop STRING, total_cents BIGINT, created_at BIGINT"
    assert made.event_time.expression == "created_at"
    assert made.keys == {"shop": "shop"}
    assert made.aggregates == {"records": "count(*)", "total_cents_sum": "sum(total_cents)"}
    assert "# CHECK: 10 of the 100 records read are deletes" in (project / "dags/pipelines/shop.yaml").read_text()
    init("data/shop.jsonl", "--yes", "--force", "--key", "after.shop", "--time", "after.created_at")
    assert definition(project, "shop").keys == {"shop": "shop"}


@pytest.mark.parametrize("file_format", ["avro", "orc"])
def test_files_with_a_schema_of_their_own_are_read_by_it(spark, project: Path, file_format: str) -> None:
    rows = [(number, "ab"[number % 2], NOON + timedelta(seconds=number)) for number in range(20)]
    frame = spark.createDataFrame(rows, "id INT, shop STRING, ordered_at TIMESTAMP")
    frame.coalesce(1).write.format(file_format).save(str(project / "data/rides"))
    init("data/rides", "--yes")
    made = definition(project, "rides")
    assert (made.history.format, made.value.format) == (file_format, "columns")
    assert (made.event_time.unit, made.keys) == ("timestamp", {"shop": "shop"})
    assert "ordered_at" in made.event_time.expression
    assert check_expressions(spark, made) == []


def test_null_keys_are_allowed_and_said(project: Path) -> None:
    write_lines(project / "data/clicks.jsonl", [order(n, shop=None if n % 20 == 0 else "a") for n in range(100)])
    init("data/clicks.jsonl", "--yes", "--key", "shop")
    text = (project / "dags/pipelines/clicks.yaml").read_text()
    assert "# CHECK: 5 of the 100 records read have no `shop`." in text and "guessed" not in text
    own = next(
        suite
        for suite in load_suites(definition(project, "clicks"), project / "expectations").suites
        if suite.name == "clicks"
    )
    assert own.leave_out == {"windows/keys-not-null"}


def test_event_times_of_1970_and_of_a_broken_clock_get_bounds_and_do_not_spoil_the_watermark(project: Path) -> None:
    second = 1_709_294_400
    times = [0 if n == 3 else 4_070_908_800 if n == 50 else second + 10 * n for n in range(100)]
    write_lines(project / "data/odd.jsonl", [{"ts": ts, "shop": "ab"[n % 2]} for n, ts in enumerate(times)])
    said = " ".join(init("data/odd.jsonl", "--yes").split())
    made = definition(project, "odd")
    assert (made.event_time.expression, made.event_time.unit) == ("ts", "s")
    assert made.event_time.model_dump(mode="json")["earliest"] == 1_672_531_200_000  # 2023
    assert made.event_time.model_dump(mode="json")["latest"] == 1_767_225_600_000  # 2026
    assert "none of the 100 records that were read lies behind an earlier one" in said


def test_fields_whose_names_differ_in_case_only_are_left_out(project: Path) -> None:
    """To Spark SQL they are one name: a definition with both would be refused."""
    lines = [order(n, userId=f"u{n % 3}", userid=f"v{n % 2}") for n in range(20)]
    write_lines(project / "data/twins.jsonl", lines)
    init("data/twins.jsonl", "--yes", "--key", "shop")
    made = definition(project, "twins")
    assert "userid" not in made.value.ddl.lower() and "shop" in made.value.ddl
    assert "CHECK: userId, userid: names that differ in case only" in (made.text or "")


def test_numbers_that_are_no_amounts_are_not_summed(project: Path) -> None:
    records = [
        order(
            n,
            userId=n * 7919,
            orderNo=5000 + n,
            temperature=20.5,
            serial=n,
            due_date=19783 + n % 9,
            priority=n % 3,
            qty=n % 5,
        )
        for n in range(100)
    ]
    write_lines(project / "data/numbers.jsonl", records)
    init("data/numbers.jsonl", "--yes", "--key", "shop")
    assert definition(project, "numbers").aggregates == {
        "records": "count(*)", "amount_sum": "sum(amount)", "temperature_avg": "avg(temperature)",
        "qty_sum": "sum(qty)",
    }  # fmt: skip


def test_folders_encodings_and_line_breaks_are_seen_as_a_run_reads_them(project: Path, spark) -> None:
    header = "id,ordered_at,note\n"
    for store, number in (("007", 1), ("A1", 2)):
        rows = "".join(f'{n},{NOON.isoformat()},"Grü\n{n},{NOON.isoformat()},x"\n' for n in range(10 * number))
        file = project / f"sales/store={store}/part.csv"
        file.parent.mkdir(parents=True)
        file.write_text(header + rows, encoding="latin-1")
    init("sales", "--yes", "--key", "store")
    made = definition(project, "sales")
    text = (project / "dags/pipelines/sales.yaml").read_text()
    assert made.history.model_dump()["options"] == {"header": True, "multiLine": True, "encoding": "windows-1252"}
    assert "# CHECK: the files are not UTF-8; that they are windows-1252 is a guess" in text
    assert made.history.model_dump()["path"] == ("sales",) or "path: sales" in text
    assert (made.keys, made.value.ddl) == ({"store": "store"}, "id BIGINT, ordered_at STRING, note STRING")
    assert check_expressions(spark, made) == []
    sample = read_files("sales", 100)
    assert {record["store"] for record in sample.records} == {"007", "A1"}
    assert sample.records[0]["note"] == f"Grü\n0,{NOON.isoformat()},x" and sample.unreadable == 0
    (project / "wide.csv").write_text("a,b\n1,2\n", encoding="utf-16")
    with pytest.raises(SourceError, match="look like UTF-16"):
        read_files("wide.csv", 10)


def test_letters_that_look_like_line_breaks_and_unfinished_writes_are_no_records(project: Path) -> None:
    letters = "\u2028\u0085\x0b\x1c"
    (project / "notes").mkdir()
    (project / "notes/a.csv").write_text("shop,ordered_at,v\n" + f"a{letters}b,{NOON.isoformat()},1\n" * 5)
    sample = read_files("notes", 10)
    assert (sample.records[0]["shop"], sample.unreadable) == (f"a{letters}b", 0)
    write_lines(project / "orders/a.jsonl", [order(1)])
    write_lines(project / "orders/_temporary/0/a.jsonl", [order(2)])
    write_lines(project / "orders/.staging/a.jsonl", [order(3)])
    (project / "orders/README.md").write_text("Orders.\n")
    sample = read_files("orders", 10)
    assert (sample.path, len(sample.records)) == ("orders/*.jsonl", 1)


def test_what_is_no_json_to_flink_or_nested_too_deeply_is_none_here(project: Path) -> None:
    deep = '{"v": ' + "[" * 9999 + "]" * 9999 + "}\n"
    (project / "a.jsonl").write_text('{"v": NaN}\n{"v": 1, "w": "a\tb"}\n{"v": -Infinity}\n' + deep)
    sample = read_files("a.jsonl", 10)
    assert (sample.records, sample.unreadable) == ([{"v": 1, "w": "a\tb"}], 3)


def test_the_first_line_that_excel_writes_is_no_header(project: Path) -> None:
    (project / "a.csv").write_text("sep=;\r\na;b\r\n1;2\r\n")
    with pytest.raises(SourceError, match="the first line is Excel's `sep=;`, which is no header"):
        read_files("a.csv", 10)


def test_a_date_that_is_named_as_the_event_time_is_its_midnight(project: Path) -> None:
    pq.write_table(pa.table({"day": [date(2024, 3, 1)] * 3, "v": [1, 2, 3]}), project / "days.parquet")
    init("days.parquet", "--yes", "--time", "day")
    assert definition(project, "days").event_time.expression == "CAST(day AS TIMESTAMP)"
    assert "# CHECK: a date is read as its midnight in UTC" in (project / "dags/pipelines/days.yaml").read_text()
