from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.errors import DefinitionError

TEXT = """\
name: p
history:
  kind: kafka
  servers: ${KAFKA:-localhost:9092}
  topic: flights
value: {format: json, schema: ts BIGINT}
event_time: {expression: ts, unit: ms}
watermark: {generator: bounded_out_of_orderness, bound: 3 s}
window: {type: tumbling, size: 1 h}
aggregates: {n: count(*)}
"""


@pytest.fixture
def load(tmp_path: Path):
    def load(more: str = "", value: str = "{format: json, schema: ts BIGINT}"):
        file = tmp_path / "p.yaml"
        text = TEXT.replace("  topic: flights\n", f"  topic: flights\n{more}")
        file.write_text(text.replace("{format: json, schema: ts BIGINT}", value))
        return load_pipeline(file, {})

    return load


def test_a_topic_needs_servers_and_a_name_and_knows_its_position(load) -> None:
    pipeline = load()
    position = pipeline.history.position
    assert (position.partition, position.offset, position.arrival) == ("partition", "offset", "timestamp")
    assert pipeline.value.column == "value"
    assert "${KAFKA:-localhost:9092}" in pipeline.to_canonical_json()


@pytest.mark.parametrize(
    ("written", "start"),
    [("earliest", "earliest"), ("2013-01-01T00:00:00Z", 1_356_998_400_000), ("{0: 12, 1: 0}", {0: 12, 1: 0})],
)
def test_a_start_is_a_word_a_time_or_offsets(load, written: str, start: object) -> None:
    assert load(f"  start: {written}\n").history.start == start


@pytest.mark.parametrize(
    ("more", "value", "message"),
    [
        ("  start: latest\n", None, "history.start: `latest` is not a position in the log; write `earliest`, a time"),
        ("  start: 12\n", None, "history.start: `12` is not a position in the log"),
        ("  end: {0: -1}\n", None, "history.end: are not offsets by partition"),
        ("  accept: [everything]\n", None, "history.accept[0]: `everything` is not known; write one of lost_start"),
        ("  options: {ssl.truststore.password: hunter2}\n", None, "is a secret and does not belong in a definition"),
        ("  options: {kafka.client.id: x}\n", None, "begins with Spark's prefix; write `client.id`"),
        ("  options: {group.id: x}\n", None, "is set by Rewindow; leave it out"),
        ("  secrets: {sasl.jaas.config: hunter2 x}\n", None, "does not name an environment variable"),
        ("  tabel: x\n", None, "history.tabel: unknown field"),
        ("", "{}", "value.format: is missing: a topic's values are bytes; write `format: json`, `csv`"),
        ("", "{format: json, schema: a INT, column: v}", "value.column: a topic has its payload in `value`"),
        ("", "{format: avro}", "value.schema: is missing: format `avro` needs it"),
        ("", "{format: avro, schema: a INT}", "value.schema: not JSON"),
        ("", "{format: avro, schema_file: no.avsc}", "no.avsc` cannot be read"),
        ("", "{format: text, schema: a INT}", "has no meaning for format `text`"),
        ("", "{format: csv, schema: a INT, framing: confluent}", "value.framing: is for format `avro`"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(load, more: str, value: str | None, message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        load(more, **({"value": value} if value else {}))
    assert message in str(refused.value) and "p.yaml:" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_an_avro_schema_file_is_part_of_the_definition(load, tmp_path: Path) -> None:
    schema = '{"type": "record", "name": "e", "fields": [{"name": "ts", "type": "%s"}]}'
    (tmp_path / "e.avsc").write_text(schema % "long")
    first = load(value="{format: avro, schema_file: e.avsc}")
    (tmp_path / "e.avsc").write_text(schema % "int")
    assert first.definition_hash != load(value="{format: avro, schema_file: e.avsc}").definition_hash
