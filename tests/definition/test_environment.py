# ruff: noqa: E501 (a message stands on one line)
"""Variables from the environment in a definition's text."""

from __future__ import annotations

import json
import re

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.definition.environment import substitute
from spark_jobs.definition.yaml_tree import read_tree
from spark_jobs.errors import DefinitionError


@pytest.mark.parametrize(
    ("text", "environment", "result"),
    [
        ("${A}/x", {"A": "/data"}, "/data/x"),
        ("${A}${B}", {"A": "1", "B": "2"}, "12"),
        ("${A:-d}", {}, "d"),
        ("${A:-d}", {"A": ""}, "d"),
        ("${A}", {"A": ""}, ""),
        ("${A:-}", {}, ""),
        ("$${A} costs $5", {"A": "1"}, "${A} costs $5"),
        ("${A}", {"A": "${B}"}, "${B}"),
    ],
)
def test_a_variable_is_replaced_as_in_a_shell(text: str, environment: dict[str, str], result: str) -> None:
    assert substitute(text, environment) == result


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("${DATA}/x", "environment variable `DATA` is not set; set it, or write a default: `${DATA:-...}`"),
        ("${REWINDOW_DAT}/x", "environment variable `REWINDOW_DAT` is not set (`REWINDOW_DATA` is set); set it, or write a default: `${REWINDOW_DAT:-...}`"),
        ("${A B}/x", "`${A B}` is not a variable; write `${NAME}`, `${NAME:-default}`, or `$${` for a plain `${`"),
        ("${A/x", "`${A/x` is not a variable; write `${NAME}`, `${NAME:-default}`, or `$${` for a plain `${`"),
    ],
)  # fmt: skip
def test_a_variable_that_cannot_be_replaced_is_refused_with_its_line(
    refusals, definition, path: str, message: str
) -> None:
    assert refusals(definition(("data/*.parquet", path)), {"REWINDOW_DATA": "/d"}) == [
        f"p.yaml:4: history.path: {message}"
    ]


PLACES = """
name: placed
history:
  kind: kafka
  servers: "${HOST:-localhost}:9092"
  topic: ${TOPIC}
  options: {fetch.max.bytes: "${BYTES:-5}"}
  secrets: {sasl.jaas.config: "${WHICH:-KAFKA_JAAS}"}
  connection: ${CONNECTION:-kafka_prod}
value: {format: avro, schema_file: "${SCHEMA:-schema.avsc}"}
keys: {k: k}
event_time: {expression: t, unit: ms}
watermark: {generator: ascending, partitions: [0]}
window: {type: tumbling, size: 1 h}
aggregates: {n: count(*)}
output: {namespace: "${STAGE:-dev}", table: "${STAGE:-dev}_table"}
live: {source: {kind: files, path: "${LIVE:-out}/*.json", format: json, schema: "n BIGINT"}, values: {n: n}}
"""


def test_variables_count_where_a_definition_says_where_things_are(tmp_path) -> None:
    (tmp_path / "p.yaml").write_text(PLACES)
    (tmp_path / "schema.avsc").write_text('{"type": "record", "name": "r", "fields": []}')
    pipeline = load_pipeline(tmp_path / "p.yaml", {"TOPIC": "orders", "STAGE": "prod"})
    assert (pipeline.history.servers, pipeline.history.topic) == ("localhost:9092", "orders")
    assert pipeline.history.options == {"fetch.max.bytes": "5"}
    assert (pipeline.output.namespace, pipeline.output.table) == ("prod", "prod_table")
    assert pipeline.live.source.path == (f"{tmp_path}/out/*.json",)


EVERYWHERE_ELSE = (
    "name", "description", "owner", "tags[0]", "links.wiki", "keys.path", "keys.${HOME}", "event_time.expression",
    "watermark.bound", "watermark.class", "watermark.parameters.path", "filter.before_watermark", "aggregates.table",
    "window.size", "publish.policy", "schedule.cron", "live.values.path", "live.keys.table", "history.position.offset",
)  # fmt: skip


@pytest.mark.parametrize("field", EVERYWHERE_ELSE)
def test_variables_count_nowhere_else(field: str) -> None:
    """What is shown to people, or computed: a definition's author would read the environment of the machine."""
    value: object = "${HOME}"
    for step in reversed(re.findall(r"[^.\[\]]+", field)):
        value = [value] if step == "0" else {step: value}
    tree = read_tree(json.dumps(value), "p.yaml", {"HOME": "s3cr3t"})
    (problem,) = tree.problems
    assert "variables count only where a definition says where things are" in problem.what
    assert "s3cr3t" not in str(tree.data) + str(problem)
    escaped = read_tree(json.dumps(value).replace("${HOME}", "$${HOME}"), "p.yaml", {"HOME": "s3cr3t"})
    assert not escaped.problems and "${HOME}" in str(escaped.data)


@pytest.mark.parametrize(
    ("name", "listed", "reason"),
    [
        ("AIRFLOW__API_AUTH__JWT_SECRET", None, "is Airflow's own"),
        ("AIRFLOW_CONN_DB", "AIRFLOW_CONN_DB", "is Airflow's own"),
        ("airflow__core__fernet_key", "*", "is Airflow's own"),
        ("REWINDOW_CATALOG_CONF", None, "a setting of Rewindow's own"),
        ("DB_PASSWORD", None, "named like a secret"),
        ("AWS_SECRET_ACCESS_KEY", "", "named like a secret"),
        ("HOME", "LAKE_*,KAFKA", "not among those that definitions may name"),
    ],
)
def test_a_variable_that_no_definition_may_name_is_refused(refusals, definition, name, listed, reason) -> None:
    environment = {name: "s3cr3t"} | ({} if listed is None else {"REWINDOW_VARIABLES": listed})
    (message,) = refusals(definition(("data/*.parquet", f"${{{name}}}/x")), environment)
    assert reason in message and "s3cr3t" not in message


def test_the_list_of_variables_names_those_that_count(load, definition) -> None:
    environment = {"LAKE_DATA": "/lake", "LAKE_TOKEN": "/t", "REWINDOW_VARIABLES": "KAFKA, LAKE_*"}
    for name in ("LAKE_DATA", "LAKE_TOKEN"):
        assert load(definition(("data/*.parquet", f"${{{name}}}/x")), environment).history.path[0].startswith("/")


@pytest.mark.parametrize(("variable", "is_taken"), [("KAFKA_PASSWORD", True), ("AIRFLOW__CORE__FERNET_KEY", False)])
def test_a_secret_is_not_taken_from_airflows_own_variables(tmp_path, variable, is_taken) -> None:
    """It would go to the brokers that the definition names."""
    (tmp_path / "schema.avsc").write_text('{"type": "record", "name": "r", "fields": []}')
    (tmp_path / "p.yaml").write_text(PLACES.replace("${WHICH:-KAFKA_JAAS}", variable))
    if is_taken:
        load_pipeline(tmp_path / "p.yaml", {"TOPIC": "t"})
        return
    with pytest.raises(DefinitionError, match="is Airflow's own"):
        load_pipeline(tmp_path / "p.yaml", {"TOPIC": "t"})


def test_a_schema_file_is_read_below_the_project_or_a_listed_folder_only(tmp_path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
        (folder / "schema.avsc").write_text('{"type": "record", "name": "r", "fields": []}')
    (project / "link.avsc").symlink_to(other / "schema.avsc")
    (project / "loop.avsc").symlink_to(project / "loop.avsc")
    file = project / "p.yaml"
    for place in (str(other / "schema.avsc"), "../other/schema.avsc", "/etc/passwd", "link.avsc"):
        file.write_text(PLACES.replace("${SCHEMA:-schema.avsc}", place))
        with pytest.raises(DefinitionError, match="outside the project's folder"):
            load_pipeline(file, {"TOPIC": "t"})
        if place != "/etc/passwd":
            load_pipeline(file, {"TOPIC": "t", "REWINDOW_SCHEMA_FOLDERS": f"/nowhere:{other}"})
    for odd in ("loop.avsc", "a\0b", "x" * 5000):
        file.write_text(PLACES.replace('"${SCHEMA:-schema.avsc}"', json.dumps(odd)))
        with pytest.raises(DefinitionError):
            load_pipeline(file, {"TOPIC": "t"})


def test_a_variable_cannot_change_the_structure(load, definition) -> None:
    text = definition(("data/*.parquet", "${DATA}"))
    assert load(text, {"DATA": "{a: 1}"}).history.path[0].endswith("/{a: 1}")


def test_a_quoted_variable_stays_text(load, definition) -> None:
    text = definition(
        ("path: data/*.parquet", 'path: data\n  options:\n    mergeSchema: "${X}"\n    int96RebaseMode: ${X}')
    )
    assert load(text, {"X": "1"}).history.options == {"mergeSchema": "1", "int96RebaseMode": 1}


@pytest.mark.parametrize("field", ["history.path", "description"])
@pytest.mark.parametrize("text", ["${" + "A" * 60_000 + "}", "${" + "? " * 30_000, "${AIRFLOW" + "_" * 60_000 + "}"])
def test_a_long_reference_is_quoted_in_part(field: str, text: str) -> None:
    *above, last = field.split(".")
    value: object = {last: text}
    for step in reversed(above):
        value = {step: value}
    (problem,) = read_tree(json.dumps(value), "p.yaml", {}).problems
    assert len(str(problem)) < 500
