# ruff: noqa: E501 (a message stands on one line)
"""Names, history, payload, quarantine and output."""

from __future__ import annotations

import pytest

from spark_jobs.definition.output import Threshold
from spark_jobs.eventtime.durations import FOREVER


@pytest.mark.parametrize(
    ("replacement", "messages"),
    [
        (("name: p", "name: My-Pipe"), ["1: name: `My-Pipe` is not a name; write lower-case letters, digits and _: `my_pipe`"]),
        (("name: p", "name: runs"), ["1: output.table: `runs` is a table of Rewindow's own; give the table another name"]),
        (("name: p\n", ""), ["1: name: is missing; write `name: departures_hourly`"]),
        (("name: p", "name: p\noutput: {table: a__late}"), ["2: output.table: `a__late` holds `__`, which sets the side tables apart; write `a_late`"]),
        (("name: p", "name: p\noutput: {namespace: a-b}"), ["2: output.namespace: `a-b` is not a namespace; write letters, digits and _, in parts joined by dots"]),
        (("name: p", "name: p\nbound: 3 s"), ["2: bound: unknown field; it belongs under `watermark`"]),
        (("  bound: 30 min", "  bound: 30 min\n  panes: all"), ["12: watermark.panes: unknown field; it belongs at the top, not indented"]),
        (("name: p", "name: p\nevent-time: ts"), ["2: event-time: unknown field; did you mean `event_time`?"]),
        (("unit: ms", "unit: ms, zzz: 1"), ["8: event_time.zzz: unknown field; the fields here are expression, unit, missing, earliest, latest"]),
        (("name: p", "name: p\nlinks: {Runbook: wiki/x}"), ["2: links.Runbook: `wiki/x` is not a web address; write one like `https://wiki.example.com/departures`"]),
        (("name: p", "name: p\nowner: " + "x" * 101), [f"2: owner: `{'x' * 57}...` is too long, or has characters that cannot be shown; write at most 100 letters"]),
        (("n: count(*)", "n:"), ["16: aggregates.n: is empty; write a SQL expression"]),
        (("n: count(*)", "n: 1"), ['16: aggregates.n: `1` is not text; write it in quotes: "1"']),
        (("  n: count(*)\n", ""), ["15: aggregates: is empty; write `aggregates: {flights: count(*)}`"]),
        (("aggregates:\n  n: count(*)\n", "aggregates: {}"), ["15: aggregates: is empty; write `aggregates: {flights: count(*)}`"]),
        (
            ("n: count(*)", "Carrier: sum(x)\n  rw_x: sum(y)\n  1a: min(z)\n  q: sum(x)\n  Q: sum(y)"),
            [
                "16: aggregates.Carrier: `Carrier` is already the name of the key `carrier`; choose another name",
                "17: aggregates.rw_x: names that begin with `rw_` are kept for Rewindow's own columns; choose another name",
                "18: aggregates.1a: `1a` is not a column name; write letters, digits and _, no digit first",
                "20: aggregates.Q: `Q` is already the name of `q`; choose another name",
            ],
        ),
    ],
)  # fmt: skip
def test_names_that_cannot_stand_are_refused(refusals, definition, replacement, messages: list[str]) -> None:
    assert refusals(definition(replacement)) == [f"p.yaml:{message}" for message in messages]


@pytest.mark.parametrize(
    ("replacement", "messages"),
    [
        (("kind: files", "kind: hive"), [
            "2: history.table: is missing; write `table: raw.flights`",
            "4: history.path: does not belong to kind `hive`; it is a field of files",
            "5: history.format: does not belong to kind `hive`; it is a field of files, table",
        ]),
        (("  kind: files\n", ""), ["2: history.kind: is missing; write one of files, hive, table, kafka, stitched, union"]),
        (("format: parquet", "format: xml"), ["5: history.format: `xml` is not known; write one of parquet, orc, avro, json, csv"]),
        (("files\n  path: data/*.parquet\n  format: parquet", "table\n  table: lake/flights"), ["4: history.table: `lake/flights` is a folder; write `format: delta`, or name a table"]),
        (("files\n  path: data/*.parquet\n  format: parquet", "table\n  table: lake/flights\n  format: delta"), ["4: history.table: `lake/flights` is a relative path; write an absolute path or an address, as s3a://lake/flights"]),
        (("files\n  path: data/*.parquet\n  format: parquet", "table\n  table: raw.flights\n  format: hudi"), ["5: history.format: `hudi` is not known; write one of iceberg, delta"]),
        (("files\n  path: data/*.parquet\n  format: parquet", "stitched\n  recent: {servers: b1, topic: t}\n  past: {table: /lake/flights}"), ["5: history.past.table: `/lake/flights` is a folder; write `format: delta`, or name a table", "6: history.position: does not belong to kind `stitched`; it is a field of files, hive, table"]),
        (("data/*.parquet", "[]"), ["4: history.path: is empty; write `path: data/flights/*.parquet`"]),
        (("data/*.parquet", "[1]"), ['4: history.path[0]: `1` is not text; write it in quotes: "1"']),
        (("partition: partition, ", ""), ['6: history.position.offset: an offset without a partition gives no order; name `partition`, or write `partition: "0"` if there is only one']),
        (("arrival: arrival}", "sequence: n}"), ["6: history.position.sequence: `sequence` orders equal arrivals, and there is no arrival; name `arrival` too"]),
    ],
)  # fmt: skip
def test_a_history_that_cannot_be_is_refused(refusals, definition, replacement, messages: list[str]) -> None:
    assert refusals(definition(replacement)) == [f"p.yaml:{message}" for message in messages]


@pytest.mark.parametrize(
    ("replacement", "messages"),
    [
        (("keys:", "value: {format: json}\nkeys:"), [
            "7: value.column: is missing: format `json` needs it; write `column: value`",
            "7: value.schema: is missing: format `json` needs it; write `schema: sched_dep STRING, distance BIGINT`",
        ]),
        (("keys:", "value: {column: value}\nkeys:"), ["7: value.column: has no meaning for format `columns`; leave it out, or write `format: json` or `format: csv`"]),
        (("keys:", "value: {format: csv, column: v, schema: a INT, envelope: debezium}\nkeys:"), ["7: value.envelope: is not for format `csv`, which has no rows in it; leave it out"]),
        (("keys:", "value: {format: json, column: v, schema: a INT, envelope: canal}\nkeys:"), ["7: value.envelope.kind: `canal` is not known; write one of debezium"]),
        (("keys:", "value: {format: json, column: v, schema: a INT, registry: {url: 'http://r', subject: s}}\nkeys:"), ["7: value.registry: is for the formats `avro` and `json_schema`; leave it out, or correct `format`"]),
        (("keys:", "value: {format: avro, column: v, registry: {url: 'http://u:secret@r', subject: s}}\nkeys:"), ["7: value.registry.url: holds credentials; write them into an environment variable, and its name under `auth`"]),
        (("keys:", "value: {format: avro, column: v, registry: {url: r:8081, subject: s}}\nkeys:"), ["7: value.registry.url: `r:8081` is not a web address; write one like `https://registry.example:8081`"]),
        (("keys:", "value: {format: avro, column: v, registry: {url: 'http://r', subject: s, auth: {basic: 'u:secret'}}}\nkeys:"), [
            "7: value.registry.auth.basic: does not name an environment variable; write the variable's name only",
        ]),
        (("keys:", "value: {format: avro, column: v, schema_id: 3, registry: {url: 'http://r', subject: s}}\nkeys:"), ["7: value.schema_id: has no meaning beside `registry`, which knows all ids; leave it out"]),
        (("keys:", "value: {format: avro, column: v, schema: '{\"type\": \"record\"}', registry: {url: 'http://r', subject: s, version: 2}}\nkeys:"), ["7: value.schema: is there beside `registry.version`; keep one of the two: it says the fields"]),
        (("expression: ts", "expression: ''"), ["8: event_time.expression: is empty; write a value"]),
        (("unit: ms", "unit: ns"), ["8: event_time.unit: `ns` is not known; write one of timestamp, s, ms, us, iso"]),
        (("unit: ms", "latest: 1960-01-01T00:00:00Z"), ["8: event_time.latest: `1960-01-01T00:00:00Z` is not after `earliest` (1970-01-01T00:00:00Z); good event times lie in [earliest, latest)"]),
        (("unit: ms", "earliest: 0"), ["8: event_time.earliest: `0` is not a time; write one like `2013-01-01T10:00:00Z`"]),
        (("window:", "filter: {before: x > 0}\nwindow:"), ["12: filter.before: unknown field; did you mean `before_watermark`?"]),
    ],
)  # fmt: skip
def test_a_payload_that_cannot_be_is_refused(refusals, definition, replacement, messages: list[str]) -> None:
    assert refusals(definition(replacement)) == [f"p.yaml:{message}" for message in messages]


@pytest.mark.parametrize(
    ("written", "threshold"),
    [
        ("threshold: 1 %", Threshold(share=0.01)),
        ("threshold: 0.5%", Threshold(share=0.005)),
        ("threshold: 0.25", Threshold(share=0.25)),
        ("threshold: 100", Threshold(count=100)),
        ("policy: quarantine", Threshold(share=0.01)),
        ("policy: fail", Threshold(count=0)),
    ],
)
def test_a_threshold_is_a_share_or_a_count(load, definition, written: str, threshold: Threshold) -> None:
    pipeline = load(definition(("keys:", f"quarantine: {{{written}}}\nkeys:")))
    assert pipeline.quarantine.threshold == threshold


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("threshold: 200 %", "threshold: `200 %` is not a threshold: a share is 0 % to 100 %, a count 0 or more; write a share like `1 %`, or a count of records like `100`"),
        ("threshold: few", "threshold: `few` is not a threshold; write a share like `1 %`, or a count of records like `100`"),
        ("threshold: -1", "threshold: `-1` is not a threshold: a share is 0 % to 100 %, a count 0 or more; write a share like `1 %`, or a count of records like `100`"),
        ("policy: fail, threshold: 2", "threshold: policy `fail` allows no record in quarantine; leave the threshold out, or write `policy: quarantine`"),
    ],
)  # fmt: skip
def test_a_threshold_that_cannot_be_is_refused(refusals, definition, written: str, message: str) -> None:
    assert refusals(definition(("keys:", f"quarantine: {{{written}}}\nkeys:"))) == [f"p.yaml:7: quarantine.{message}"]


def test_a_threshold_is_exceeded_only_above_it() -> None:
    assert not Threshold(share=0.29).is_exceeded(29, 100)
    assert Threshold(share=0.29).is_exceeded(30, 100)
    assert not Threshold(count=2).is_exceeded(2, 2)
    assert Threshold(count=2).is_exceeded(3, 1_000_000)


def test_allowed_lateness_can_be_for_ever(load, refusals, definition) -> None:
    assert load(definition(("keys:", "allowed_lateness: forever\nkeys:"))).allowed_lateness == FOREVER
    assert refusals(definition(("keys:", "allowed_lateness: -1 s\nkeys:"))) == [
        "p.yaml:7: allowed_lateness: `-1 s` is negative; write 0 or a positive duration"
    ]


@pytest.mark.parametrize("position", ["{going_back: running_maximum}", "{offset: o}"])
def test_a_topic_that_is_refused_leaves_its_values_their_column(refusals, definition, position: str) -> None:
    """One mistake is one message: where the history is refused, its values' column is not asked for."""
    text = definition(
        ("  kind: files\n  path: data/*.parquet\n  format: parquet\n", "  kind: kafka\n  servers: b:1\n  topic: t\n"),
        ("{partition: partition, offset: offset, arrival: arrival}", position),
        ("keys:", 'value: {format: json, schema: "ts BIGINT, key STRING"}\nkeys:'),
    )
    [message] = refusals(text)
    assert message.startswith("p.yaml:6: history.position: does not belong to kind `kafka`")
