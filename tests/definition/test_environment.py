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
    assert substitute(text, {**environment, "REWINDOW_VARIABLES": "*"}) == result


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("${KAFKA}/x", "environment variable `KAFKA` is not set; set it, or write a default: `${KAFKA:-...}`"),
        ("${LAKE_DAT}/x", "environment variable `LAKE_DAT` is not set (`LAKE_DATA` is set); set it, or write a default: `${LAKE_DAT:-...}`"),
        ("${A B}/x", "`${A B}` is not a variable; write `${NAME}`, `${NAME:-default}`, or `$${` for a plain `${`"),
        ("${A/x", "`${A/x` is not a variable; write `${NAME}`, `${NAME:-default}`, or `$${` for a plain `${`"),
    ],
)  # fmt: skip
def test_a_variable_that_cannot_be_replaced_is_refused_with_its_line(
    refusals, definition, path: str, message: str
) -> None:
    assert refusals(definition(("data/*.parquet", path)), {"LAKE_DATA": "/d"}) == [f"p.yaml:4: history.path: {message}"]


PLACES = """
name: placed
history:
  kind: kafka
  servers: "${KAFKA_HOST:-localhost}:9092"
  topic: ${KAFKA_TOPIC}
  options: {fetch.max.bytes: "${KAFKA_BYTES:-5}"}
  secrets: {sasl.jaas.config: "${KAFKA_WHICH:-KAFKA_JAAS}"}
  connection: ${KAFKA_CONNECTION:-kafka_prod}
value: {format: avro, schema_file: "${LAKE_SCHEMA:-schema.avsc}"}
keys: {k: k}
event_time: {expression: t, unit: ms}
watermark: {generator: ascending, partitions: [0]}
window: {type: tumbling, size: 1 h}
aggregates: {n: count(*)}
output: {namespace: "${LAKE_STAGE:-dev}", table: "${LAKE_STAGE:-dev}_table"}
live: {source: {kind: files, path: "${LAKE_LIVE:-out}/*.json", format: json, schema: "n BIGINT"}, values: {n: n}}
"""


def test_variables_count_where_a_definition_says_where_things_are(tmp_path) -> None:
    (tmp_path / "p.yaml").write_text(PLACES)
    (tmp_path / "schema.avsc").write_text('{"type": "record", "name": "r", "fields": []}')
    pipeline = load_pipeline(tmp_path / "p.yaml", {"KAFKA_TOPIC": "orders", "LAKE_STAGE": "prod"})
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
        ("REWINDOW_CATALOG_CONF", "*", "a setting of Rewindow's own"),
        ("rewindow_catalog_conf", "REWINDOW_CATALOG_CONF,*", "a setting of Rewindow's own"),
        ("KAFKA_PASSWORD", None, "named like a secret"),
        ("AWS_SECRET_ACCESS_KEY", "", "not among those that definitions may name"),
        ("DATABASE_URL", None, "not among those that definitions may name"),
        ("HOME", None, "KAFKA, REGISTRY, LAKE, DATA, REWINDOW_KAFKA, REWINDOW_SAMPLE or REWINDOW_STREAMING"),
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


NO_SECRETS_OF_A_DEFINITION = ("AIRFLOW__CORE__FERNET_KEY", "REWINDOW_CATALOG_CONF", "AWS_SECRET_ACCESS_KEY", "HOME")


@pytest.mark.parametrize("variable", ["KAFKA_PASSWORD", *NO_SECRETS_OF_A_DEFINITION])
def test_a_secret_is_taken_from_the_variables_of_a_definition_only(tmp_path, variable) -> None:
    """It would go to the brokers that the definition names."""
    (tmp_path / "schema.avsc").write_text('{"type": "record", "name": "r", "fields": []}')
    (tmp_path / "p.yaml").write_text(PLACES.replace("${KAFKA_WHICH:-KAFKA_JAAS}", variable))
    if variable not in NO_SECRETS_OF_A_DEFINITION:
        load_pipeline(tmp_path / "p.yaml", {"KAFKA_TOPIC": "t"})
        return
    with pytest.raises(DefinitionError, match=r"history.secrets.sasl.jaas.config: environment variable `\w+` is"):
        load_pipeline(tmp_path / "p.yaml", {"KAFKA_TOPIC": "t"})


def test_a_schema_file_is_read_below_the_project_or_a_listed_folder_only(tmp_path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
        (folder / "schema.avsc").write_text('{"type": "record", "name": "r", "fields": []}')
    (project / "link.avsc").symlink_to(other / "schema.avsc")
    (project / "loop.avsc").symlink_to(project / "loop.avsc")
    file = project / "p.yaml"
    for place in (str(other / "schema.avsc"), "../other/schema.avsc", "/etc/passwd", "link.avsc"):
        file.write_text(PLACES.replace("${LAKE_SCHEMA:-schema.avsc}", place))
        with pytest.raises(DefinitionError, match="outside the project's folder"):
            load_pipeline(file, {"KAFKA_TOPIC": "t"})
        if place != "/etc/passwd":
            load_pipeline(file, {"KAFKA_TOPIC": "t", "REWINDOW_SCHEMA_FOLDERS": f"/nowhere:{other}"})
    for odd in ("loop.avsc", "a\0b", "x" * 5000):
        file.write_text(PLACES.replace('"${LAKE_SCHEMA:-schema.avsc}"', json.dumps(odd)))
        with pytest.raises(DefinitionError):
            load_pipeline(file, {"KAFKA_TOPIC": "t"})


def test_a_history_may_be_any_file(load, definition) -> None:
    """Whoever may edit a definition may have any file read that Spark's user can read: the trust model says so."""
    assert load(definition(("data/*.parquet", "/etc/passwd"))).history.path == ("/etc/passwd",)


def test_a_variable_cannot_change_the_structure(load, definition) -> None:
    text = definition(("data/*.parquet", "${DATA}"))
    assert load(text, {"DATA": "{a: 1}"}).history.path[0].endswith("/{a: 1}")


def test_a_quoted_variable_stays_text(load, definition) -> None:
    text = definition(
        ("path: data/*.parquet", 'path: data\n  options:\n    mergeSchema: "${DATA_X}"\n    int96RebaseMode: ${DATA_X}')
    )
    assert load(text, {"DATA_X": "1"}).history.options == {"mergeSchema": "1", "int96RebaseMode": 1}


@pytest.mark.parametrize("field", ["history.path", "description"])
@pytest.mark.parametrize("text", ["${" + "A" * 60_000 + "}", "${" + "? " * 30_000, "${AIRFLOW" + "_" * 60_000 + "}"])
def test_a_long_reference_is_quoted_in_part(field: str, text: str) -> None:
    *above, last = field.split(".")
    value: object = {last: text}
    for step in reversed(above):
        value = {step: value}
    (problem,) = read_tree(json.dumps(value), "p.yaml", {}).problems
    assert len(str(problem)) < 500


REGISTRY = """
name: p
history: {kind: kafka, servers: localhost, topic: t}
value: {format: avro, registry: {url: URL, subject: s, auth: {bearer: TOKEN}}}
event_time: {expression: t, unit: ms}
watermark: {generator: bounded_out_of_orderness, bound: 3 s}
window: {type: tumbling, size: 1 h}
aggregates: {n: count(*)}
"""


@pytest.mark.parametrize("variable", NO_SECRETS_OF_A_DEFINITION)
def test_a_registry_gets_only_what_definitions_may_name(load, variable) -> None:
    text = REGISTRY.replace("URL", "https://elsewhere")
    assert load(text.replace("TOKEN", "REGISTRY_TOKEN")).value.registry.auth.bearer == "REGISTRY_TOKEN"
    with pytest.raises(DefinitionError, match=rf"value.registry.auth.bearer: environment variable `{variable}` is"):
        load(text.replace("TOKEN", variable))


@pytest.mark.parametrize(("url", "is_taken"), [
    ("http://registry.example:8081", False), ("HTTP://registry.example", False), ("http://127.0.0.1.example", False),
    ("http://localhost@registry.example", False), ("https://registry.example", True), ("http://localhost:8081", True),
    ("http://127.0.0.1:8081", True), ("http://[::1]:8081", True), ("${REGISTRY}", False),
])  # fmt: skip
def test_credentials_go_over_plain_http_to_this_machine_only(load, url, is_taken) -> None:
    text = REGISTRY.replace("TOKEN", "REGISTRY_TOKEN").replace("URL", json.dumps(url))
    environment = {"REGISTRY": "http://registry.example"}
    if is_taken:
        assert load(text, environment).value.registry.auth is not None
        return
    with pytest.raises(DefinitionError, match=r"value\.registry\.(auth|url): .*(in clear|holds credentials)"):
        load(text, environment)
    assert load(text.replace(", auth: {bearer: REGISTRY_TOKEN}", "").replace("localhost@", ""), environment)


@pytest.mark.parametrize("url", [
    "file:///etc/passwd", "data:,[1]", "ftp://h/x", "http://", "http://a b", "http://h/?a=b", "http://h#f",
    "http:///x", "javascript:alert(1)", "//h",
])  # fmt: skip
@pytest.mark.parametrize("hidden", ["", "#$${", "?$${A}", "/$${"])
def test_a_registrys_address_is_one_of_the_web(load, url, hidden) -> None:
    """`$${` stands for `${`, which the address of a definition that was kept may hold."""
    text = REGISTRY.replace(", auth: {bearer: TOKEN}", "").replace("URL", json.dumps(url + hidden))
    with pytest.raises(DefinitionError, match=r"value\.registry\.url: .*is not a web address"):
        load(text)
