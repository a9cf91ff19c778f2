# ruff: noqa: E501 (a message stands on one line)
"""Loading: defaults, paths, lines of fields, folders, and files that are no definition."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.loading import project_folder, refuse_shared
from spark_jobs.errors import DefinitionError

SAMPLE = Path(__file__).parents[2] / "dags" / "pipelines" / "departures_hourly.yaml"


def test_the_sample_pipeline_is_the_hourly_job() -> None:
    pipeline = load_pipeline(SAMPLE, {})
    assert pipeline.name == pipeline.output.table == "departures_hourly"
    assert pipeline.history.path == (str(SAMPLE.parents[2] / "tests/data/flights/events.parquet"),)
    assert (pipeline.watermark.generator, pipeline.watermark.bound) == ("bounded_out_of_orderness", 1_800_000)
    assert (pipeline.watermark.emission, pipeline.watermark.interval) == ("per_event", 0)
    assert pipeline.watermark.partitions == (0, 1, 2)
    assert (pipeline.window.type, pipeline.window.size, pipeline.window.offset) == ("tumbling", 3_600_000, 0)
    assert (pipeline.allowed_lateness, pipeline.end_of_input) == (0, "flush")
    assert pipeline.keys == {"carrier": "key"}
    assert list(pipeline.aggregates) == ["flights", "distance", "shortest", "longest"]


def test_what_is_left_out_has_its_default(load, definition) -> None:
    pipeline = load(definition())
    assert pipeline.value.format == "columns"
    assert (pipeline.event_time.missing, pipeline.event_time.earliest, pipeline.event_time.latest) == (
        "fail",
        0,
        4_102_444_800_000,
    )
    assert (pipeline.watermark.scope, pipeline.watermark.flink, pipeline.watermark.timer_start) == (
        "partition",
        "2.3",
        None,
    )
    assert (pipeline.allowed_lateness, pipeline.panes, pipeline.end_of_input) == (0, "last", "flush")
    assert (pipeline.quarantine.policy, pipeline.quarantine.threshold.share) == ("quarantine", 0.01)
    assert (pipeline.output.namespace, pipeline.output.table) == ("default", "p")


def test_a_loaded_pipeline_is_immutable(load, definition) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(definition()).panes = "all"


def test_a_pipeline_can_be_made_in_python_with_milliseconds() -> None:
    pipeline = Pipeline.model_validate(
        {
            "name": "p",
            "history": {"kind": "hive", "table": "raw.flights"},
            "event_time": {"expression": "ts"},
            "watermark": {"generator": "lag", "lag": 500, "emission": "periodic", "timer_start": 1_000},
            "window": {"type": "session", "gap": 300},
            "aggregates": {"n": "count(*)"},
        }
    )
    assert (pipeline.watermark.lag, pipeline.watermark.interval, pipeline.watermark.timer_start) == (500, 200, 1_000)
    assert pipeline.window.gap == 300
    assert pipeline.source_of(("window", "gap")) == pipeline.file == ""


def test_a_relative_path_starts_at_the_folder_that_holds_dags(tmp_path: Path) -> None:
    assert project_folder(tmp_path / "dags" / "pipelines" / "p.yaml") == tmp_path
    assert project_folder(tmp_path / "elsewhere" / "p.yaml") == tmp_path / "elsewhere"


@pytest.mark.parametrize("path", ["/data/x.parquet", "s3a://bucket/x/*.parquet", "file:/data/x.parquet"])
def test_an_absolute_path_and_a_uri_stay_as_they_are(load, definition, path: str) -> None:
    assert load(definition(("data/*.parquet", path))).history.path == (path,)


def test_each_path_of_a_list_is_completed(load, definition, tmp_path: Path) -> None:
    pipeline = load(definition(("data/*.parquet", "[a.parquet, /b.parquet]")))
    assert pipeline.history.path == (f"{tmp_path}/a.parquet", "/b.parquet")


def test_every_field_knows_its_line(load, definition, tmp_path: Path) -> None:
    pipeline = load(definition())
    assert pipeline.file == f"{tmp_path}/p.yaml"
    assert pipeline.source_of(("aggregates", "n")) == f"{tmp_path}/p.yaml:16"
    assert pipeline.source_of(("keys", "carrier")) == f"{tmp_path}/p.yaml:7"
    assert pipeline.source_of(("watermark", "idleness")) == f"{tmp_path}/p.yaml:9"
    assert pipeline.source_of(("panes",)) == f"{tmp_path}/p.yaml:1"


def test_all_problems_are_told_at_once_in_the_order_of_their_lines(refusals, definition) -> None:
    text = definition(
        ("kind: files", "kind: fils"),
        ("bound: 30 min", "bound: 30 minuts"),
        ("size: 1 h", "size: 0"),
        ("n: count(*)", "window_end: count(*)\npane: all"),
    )
    assert refusals(text) == [
        "p.yaml:3: history.kind: `fils` is not known; write `files`",
        "p.yaml:11: watermark.bound: `30 minuts` is not a duration: `minuts` is no unit; write `minutes`",
        "p.yaml:14: window.size: `0` is not positive; write a duration longer than 0",
        "p.yaml:16: aggregates.window_end: `window_end` is a column of Rewindow's own; choose another name",
        "p.yaml:17: pane: unknown field; did you mean `panes`?",
    ]


def test_the_error_carries_the_problems_as_data(load, definition) -> None:
    with pytest.raises(DefinitionError) as refused:
        load(definition(("size: 1 h", "size: 0")))
    (problem,) = refused.value.problems
    assert (problem.line, problem.field, refused.value.exit_code) == (14, "window.size", 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.yaml:1: the file is empty; begin with `name: my_pipeline`"),
        ("# only a comment\n", "p.yaml:1: the file is empty; begin with `name: my_pipeline`"),
        ("- a\n- b\n", "p.yaml:1: not a mapping; write `field: value` lines, as `name: my_pipeline`"),
        ("just text", "p.yaml:1: not a mapping; write `field: value` lines, as `name: my_pipeline`"),
        (
            "a: [1\nb: 2",
            "p.yaml:2: not valid YAML: expected ',' or ']', but got ':'; "
            "check the indentation, colons and quotes here and on the line above",
        ),
        (
            "name: p\n\twindow: x",
            "p.yaml:2: not valid YAML: found character '\\t' that cannot start any token; "
            "check the indentation, colons and quotes here and on the line above",
        ),
        (
            "a: 1\n---\nb: 2",
            "p.yaml:2: not valid YAML: expected a single document in the stream, but found another document; "
            "check the indentation, colons and quotes here and on the line above",
        ),
    ],
)
def test_a_file_that_is_no_yaml_mapping_is_refused(refusals, text: str, message: str) -> None:
    assert refusals(text) == [message]


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (("size: 1 h", "size: 1 h\n  size: 2 h"), "p.yaml:15: window.size: is given twice, first on line 14; keep one of the two"),
        (("name: p", "name: !!binary p"), "p.yaml:1: name: tag `!!binary` has no meaning here; leave the tag out"),
        (("keys: {carrier: key}", "keys: &k {a: *k}"), "p.yaml:7: keys.a: the alias stands for something that holds itself; write the value out"),
        (("keys: {carrier: key}", "keys: {<<: {a: b}}"), "p.yaml:7: keys.<<: merge keys are not supported; write the fields out"),
        (("keys: {carrier: key}", "keys: {[a, b]: c}"), "p.yaml:7: keys.?: this is no name; write `field: value`"),
        (("name: p", 'name: "\\ud800"'), "p.yaml:1: name: holds half of a character; write the character itself, not `\\u` escapes of its halves"),
    ],
)  # fmt: skip
def test_yaml_that_would_be_misread_is_refused(refusals, definition, replacement, message: str) -> None:
    assert refusals(definition(replacement)) == [message]


def test_a_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(b"name: \xff\xfe")
    with pytest.raises(DefinitionError, match=r"p\.yaml:1: not UTF-8 text; save the file as UTF-8"):
        load_pipeline(tmp_path / "p.yaml")


def test_a_missing_file_names_the_one_that_was_probably_meant(definition, tmp_path: Path) -> None:
    (tmp_path / "departures.yaml").write_text(definition())
    with pytest.raises(DefinitionError) as refused:
        load_pipeline(tmp_path / "departurs.yaml")
    assert str(refused.value) == (
        f"there is no such file ({tmp_path}/departurs.yaml). Did you mean `{tmp_path}/departures.yaml`?"
    )


def test_a_pipeline_is_refused_where_another_one_of_its_folder_has_its_table(definition, tmp_path: Path) -> None:
    same = "output: {namespace: repro, table: %s}"
    (tmp_path / "a.yaml").write_text(definition(("name: p", "name: p\n" + same % "same")))
    (tmp_path / "b.yaml").write_text(definition(("name: p", "name: q\n" + same % "SAME")))
    (tmp_path / "c.yaml").write_text(definition(("1 h", "1 hour long")))
    (tmp_path / "d.yaml").write_text(definition(("name: p", "name: r\n" + same % "another")))
    for file, other in (("a", "b"), ("b", "a")):
        with pytest.raises(DefinitionError) as refused:
            refuse_shared(load_pipeline(tmp_path / f"{file}.yaml"))
        assert f"{file}.yaml:2: output.table: `repro.same` is taken by {tmp_path}/{other}.yaml:2" in str(refused.value)
    refuse_shared(load_pipeline(tmp_path / "d.yaml"))
    (tmp_path / "d.yaml").write_text(definition(("name: p", "name: q\n" + same % "same")))
    (tmp_path / "a.yaml").unlink()
    refuse_shared(load_pipeline(tmp_path / "d.yaml"))  # a draft of the same pipeline
