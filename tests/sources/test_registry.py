"""Values whose schemas are in a registry: what it answers, and how records of several schemas are decoded."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from spark_jobs.definition import Pipeline
from spark_jobs.definition.payload import Registry
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.errors import EnvironmentSetupError, RewindowError, SourceError
from spark_jobs.runs.planning.plan import make_plan, plan_from_json, read_planned
from spark_jobs.sources import check_expressions, good, quarantined
from spark_jobs.sources.records.registry import versions_of
from tests.kafka import Sent, produce
from tests.registry import USER_INFO, SchemaRegistry
from tests.sources.avro import encoded, framed
from tests.sources.conftest import BASE


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as service:
        yield service


def asked(**fields: Any) -> Registry:
    return Registry.model_validate({"url": "http://127.0.0.1:1", "subject": "s-value", **fields})


def refusal(**fields: Any) -> str:
    with pytest.raises(RewindowError) as refused:
        versions_of(asked(**fields), {"REGISTRY_USER_INFO": fields.pop("secret", "reader:wrong-s3cret")})
    return str(refused.value)


def record(*fields: dict[str, Any], name: str = "Flight", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "x", "fields": list(fields), **more}


T = {"name": "t", "type": "long"}


def test_a_registry_that_is_not_there_or_not_asked_rightly_is_told_in_a_sentence() -> None:
    with SchemaRegistry(with_access=True) as service:
        service.register("s-value", record(T))
        basic = {"basic": "REGISTRY_USER_INFO"}
        assert "schema registry asks for credentials (401)" in refusal(url=service.url)
        wrong = refusal(url=service.url, auth=basic)
        assert (
            "refuses the credentials (401)" in wrong
            and "variable REGISTRY_USER_INFO" in wrong
            and "s3cret" not in wrong
        )
        with pytest.raises(EnvironmentSetupError, match="variable REGISTRY_USER_INFO is not set"):
            versions_of(asked(url=service.url, auth=basic), {})
        found = versions_of(asked(url=service.url, auth=basic), {"REGISTRY_USER_INFO": USER_INFO})
        assert [(one.number, one.id, one.kind) for one in found] == [(1, 1, "AVRO")]
        with pytest.raises(SourceError, match="has no subject `other`") as missing:
            versions_of(asked(url=service.url, auth=basic, subject="other"), {"REGISTRY_USER_INFO": USER_INFO})
        assert "<topic>-value" in str(missing.value)
    assert "does not answer" in refusal(url=service.url) and "value.registry.url" in refusal(url=service.url)
    assert "does not answer" in refusal(url="http://no-such-host.invalid:8081")


def test_a_registry_that_accepts_and_is_silent_is_given_up_within_ten_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert "does not answer: timed out" in refusal(url=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert time.monotonic() - began < 10


VERSION = {"version": 1, "id": 7, "schema": "{}"}


@pytest.mark.parametrize(
    "answer",
    [
        b"[" * 100_000, b"null", b"[true]", b"[-1]", f"[{2**32}]".encode(), b"\xff",
        *(
            json.dumps(VERSION | changed).encode()
            for changed in (
                {"id": "7"}, {"id": 2**32}, {"id": -1}, {"id": True}, {"version": 1.5},
                {"schema": {}}, {"schema": None},
                {"schemaType": 7}, {"references": 7}, {"references": [7]},
                {"references": [{"subject": 7, "version": 1}]},
                {"references": [{"subject": "a", "version": "1"}]},
            )
        ),
    ],
)  # fmt: skip
def test_an_answer_of_another_form_is_no_schema_registry_s(answer: bytes) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_list = self.path.partition("?")[0].endswith("/versions")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[1]" if is_list and answer.startswith(b"{") else answer)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert "no schema registry" in refusal(url=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def test_credentials_do_not_follow_a_redirect_and_other_services_are_no_registry() -> None:
    seen: list[str | None] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(302 if "redirect" in self.path else 200)
            port = self.server.server_port  # pyright: ignore[reportAttributeAccessIssue]
            self.send_header("Location", f"http://localhost:{port}/elsewhere")
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert "no schema registry" in refusal(url=url)
        assert "answers 302" in refusal(url=f"{url}/redirect", auth={"basic": "REGISTRY_USER_INFO"})
        server.shutdown()
    assert seen == [None, f"Basic {base64.b64encode(b'reader:wrong-s3cret').decode()}"]


def test_subjects_with_slashes_deleted_versions_and_references_are_found(registry: SchemaRegistry) -> None:
    shop = registry.register("shop", record({"name": "city", "type": "string"}, name="Shop"))
    one = registry.register("a/b c-value", record(T))
    reference = [{"name": "x.Shop", "subject": "shop", "version": 1}]
    two = registry.register("a/b c-value", record(T, {"name": "shop", "type": "x.Shop"}), references=reference)
    registry.delete("a/b c-value", 1)
    found = versions_of(asked(url=registry.url, subject="a/b c-value"), {})
    assert [(version.id, version.is_deleted) for version in found] == [(one, True), (two, False)]
    assert len(found[1].references) == 1 and '"Shop"' in found[1].references[0] and shop not in (one, two)


ODD = ["file:///etc/passwd", "data:,[1]", "ftp://ann:pw@host/x"]


@pytest.mark.parametrize("url", [*ODD, "http://elsewhere.example"])
def test_the_client_asks_web_addresses_only_and_sends_nothing_in_clear(url: str) -> None:
    """A kept definition holds `${NAME}` in its address: what the variable holds has passed no other check."""
    registry = asked(auth={"basic": "REGISTRY_USER_INFO"}).model_copy(update={"url": url})
    with pytest.raises(SourceError, match=r"not a web address|holds credentials|in clear") as refused:
        versions_of(registry, {"REGISTRY_USER_INFO": USER_INFO})
    assert "s3cret" not in str(refused.value) and "pw@" not in str(refused.value)


VERSION = {"subject": "s-value", "version": 1, "id": 7, "schema": '"string"'}


@pytest.mark.parametrize("answer", [
    *({"id": value} for value in (None, -1, True, 1.5, "7", [], 1 << 31, 1 << 70)),
    *({"schema": value} for value in (None, 3, {}, [])),
    *({"schemaType": value} for value in (3, ["AVRO"])),
    *({"references": value} for value in (3, "s", {"a": 1}, [3], [{}], [{"subject": 1, "version": 1}])),
    {"references": [{"subject": "s", "version": "1/../../x"}]},
    "deep", "endless",
])  # fmt: skip
def test_what_a_registry_answers_is_checked(answer: Any) -> None:
    """Endless: each version refers to the next one."""

    class Odd(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = [1] if "versions?" in self.path or self.path.endswith("versions") else {**VERSION}
            if isinstance(said, dict) and answer == "endless":
                number = int(self.path.partition("?")[0].rpartition("/")[2])
                said |= {"version": number, "references": [{"subject": "s", "version": number + 1}]}
            elif isinstance(said, dict) and answer != "deep":
                said |= answer
            text = "[" * 200_000 if isinstance(said, dict) and answer == "deep" else json.dumps(said)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(SourceError, match=r"no schema registry|refers to more than 100 others"):
            versions_of(asked(url=f"http://127.0.0.1:{server.server_port}"), {})
        server.shutdown()


def of_topic(kafka: KafkaBroker, topic: str, value: dict[str, Any], **sections: Any) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "p",
            "history": {"kind": "kafka", "servers": kafka.servers, "topic": topic, "tombstones": "drop"},
            "value": value,
            "event_time": {"expression": "t", "unit": "ms"},
            "watermark": {"generator": "bounded_out_of_orderness", "bound": "30 min"},
            "window": {"type": "tumbling", "size": "1 h"},
            "aggregates": {"n": "count(*)"},
            "quarantine": {"threshold": 99},
            **sections,
        }
    )


def topic_of(spark, kafka: KafkaBroker, name: str, values: Sequence[bytes | str | None]) -> str:
    kafka.create_topic(name, 1, APPEND_TIME)
    produce(spark, kafka.servers, name, [Sent(value) for value in values])
    return name


OLD = record(
    T,
    {"name": "miles", "type": "int"},
    {"name": "carrier", "type": "string"},
    {"name": "gone", "type": "string"},
    {"name": "code", "type": {"type": "enum", "name": "Code", "symbols": ["A", "B"]}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "shop", "type": record({"name": "city", "type": "string"}, name="Shop")},
)
NEW = record(
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "distance", "type": "double", "aliases": ["miles"]},
    T,
    {"name": "carrier", "type": ["null", "string"]},
    {"name": "code", "type": {"type": "enum", "name": "Code", "symbols": ["B", "A", "C"]}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "shop", "type": record({"name": "city", "type": "string"}, {"name": "zip", "type": "int", "default": 7},
                                    name="Shop")},
    {"name": "level", "type": "int", "default": 3},
)  # fmt: skip
OTHER_SCALE = record(
    T, {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 3}}
)
NO_DISTANCE = record(T, {"name": "carrier", "type": "string"})


def test_records_of_several_schemas_become_records_of_one(spark, kafka: KafkaBroker, registry: SchemaRegistry) -> None:
    subject = "several-value"
    old, scale, lacks = (registry.register(subject, one) for one in (OLD, OTHER_SCALE, NO_DISTANCE))
    new = registry.register(subject, NEW)
    foreign = registry.register("another-value", NO_DISTANCE)
    of_old = {"t": BASE, "miles": 7, "carrier": "AA", "gone": "!", "code": "B", "price": "\u0004\u00d2", "day": 19_000,
              "shop": {"city": "Köln"}}  # fmt: skip
    of_new = {"note": {"string": "x"}, "distance": 1.5, "t": BASE + 1, "carrier": None, "code": "C", "price": "\u0001",
              "day": {"int": 1}, "shop": {"city": "b", "zip": 8}, "level": 4}  # fmt: skip
    poor = encoded(spark, NO_DISTANCE, {"t": BASE, "carrier": "AA"})
    sent = [
        framed(old, encoded(spark, OLD, of_old)),
        framed(new, encoded(spark, NEW, of_new)),
        framed(lacks, poor),
        framed(scale, encoded(spark, OTHER_SCALE, {"t": BASE, "price": "\u0001"})),
        framed(foreign, poor),
        framed(old, encoded(spark, OLD, of_old)[:-1]),
        framed(new, encoded(spark, NEW, of_new) + b"!"),
        b"{}",
        b"\0\0",
        None,
    ]
    value = {"format": "avro", "registry": {"url": registry.url, "subject": subject}}
    pipeline = of_topic(kafka, topic_of(spark, kafka, "several", sent), value)
    assert check_expressions(spark, pipeline) == []
    plan = make_plan(spark, pipeline)
    assert plan.schemas is not None and (plan.schemas.version, sorted(plan.schemas.writers)) == (
        4,
        [old, scale, lacks, new],
    )
    asked_before = registry.requests
    frame = read_planned(spark, pipeline, plan_from_json(plan.to_json()))
    rows = (
        good(frame)
        .orderBy("rw_offset")
        .select("note", "distance", "t", "carrier", "code", "price", "day", "shop", "level")
    )
    found = [one.asDict(recursive=True) for one in rows.collect()]
    assert [(one["note"], one["distance"], one["t"], one["carrier"], one["code"], one["level"]) for one in found] == [
        (None, 7.0, BASE, "AA", "B", 3),
        ("x", 1.5, BASE + 1, None, "C", 4),
    ]
    assert [one["price"] for one in found] == [Decimal("12.34"), Decimal("0.01")]
    assert [one["shop"] for one in found] == [{"city": "Köln", "zip": 7}, {"city": "b", "zip": 8}]
    assert [str(one["day"]) for one in found] == ["2022-01-08", "1970-01-02"]
    reasons = {one.offset: one.reason for one in quarantined(frame).collect()}
    no_frame = "not in Confluent's framing: the first byte is not 0"
    assert reasons == {
        2: f"schema id {lacks} does not fit the schema that it is read by: it has no field `distance`, and the field "
        "has no default",
        3: f"schema id {scale}: field price is decimal(6, 3) there, and decimal(8, 2) in the schema that it is read by",
        4: f"schema id {foreign}, which is of no version of the subject {subject}",
        5: "not valid Avro for this schema",
        6: "not valid Avro for this schema",
        7: no_frame,
        8: no_frame,
    }
    assert registry.requests == asked_before


@pytest.mark.long
def test_a_version_or_a_file_says_which_fields_records_get(spark, kafka: KafkaBroker, registry: SchemaRegistry) -> None:
    subject = "chosen-value"
    first, second = record(T), record(T, {"name": "n", "type": "long", "default": 5})
    ids = [registry.register(subject, one) for one in (first, second)]
    registry.register(subject, "{}", kind="JSON")
    values = [
        framed(ids[0], encoded(spark, first, {"t": BASE})),
        framed(ids[1], encoded(spark, second, {"t": BASE, "n": 6})),
    ]
    name = topic_of(spark, kafka, "chosen", values)
    own = '{"type": "record", "name": "x.Flight", "fields": [{"name": "time", "type": "long", "aliases": ["t"]}]}'
    for chosen, fields, time_field in (
        ({"version": 1}, {"t"}, "t"),
        ({"version": 2}, {"t", "n"}, "t"),
        ({}, {"t", "n"}, "t"),
        ({"schema": own}, {"time"}, "time"),
    ):
        more = {"schema": chosen.pop("schema")} if "schema" in chosen else {}
        value = {"format": "avro", "registry": {"url": registry.url, "subject": subject, **chosen}, **more}
        pipeline = of_topic(kafka, name, value, event_time={"expression": time_field, "unit": "ms"})
        frame = read_planned(spark, pipeline, make_plan(spark, pipeline))
        assert {"t", "n", "time"} & set(frame.columns) == fields
        assert good(frame).count() == 2
    for wrong, message in (
        ({"version": 9}, "has no version 9: it has 1, 2"),
        ({"subject": "none-value"}, "has no subject `none-value`"),
    ):
        value = {"format": "avro", "registry": {"url": registry.url, "subject": subject, **wrong}}
        with pytest.raises(SourceError, match=message):
            make_plan(spark, of_topic(kafka, name, value))


@pytest.mark.long
def test_json_behind_the_framing_is_decoded_and_its_ids_are_checked(
    spark, kafka: KafkaBroker, registry: SchemaRegistry
) -> None:
    known = registry.register("json-value", "{}", kind="JSON")
    sent = [
        framed(known, b'{"t": %d}' % BASE),
        framed(known + 50, b'{"t": 1}'),
        b'{"t": 1}',
        framed(known, b"\xff"),
        None,
    ]
    value = {"format": "json_schema", "schema": "t BIGINT"}
    name = topic_of(spark, kafka, "json_schema", sent)
    pipeline = of_topic(kafka, name, {**value, "registry": {"url": registry.url, "subject": "json-value"}})
    frame = read_planned(spark, pipeline, make_plan(spark, pipeline))
    assert [one.t for one in good(frame).collect()] == [BASE]
    assert {one.offset: (one.reason, one.raw) for one in quarantined(frame).collect()} == {
        1: (f"schema id {known + 50}, which is of no version of the subject json-value", '{"t": 1}'),
        2: ("not in Confluent's framing: the first byte is not 0", " 1}"),
        3: ("not valid UTF-8", "\ufffd"),
    }
    frame = read_planned(spark, *(lambda one: (one, make_plan(spark, one)))(of_topic(kafka, name, value)))
    assert sorted(one.t for one in good(frame).collect()) == [1, BASE]


@pytest.mark.long
def test_changes_in_debeziums_envelope_are_opened_from_avro_too(
    spark, kafka: KafkaBroker, registry: SchemaRegistry
) -> None:
    row = record(T, {"name": "id", "type": "int"}, name="Value")
    envelope = record(
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "x.Value"], "default": None},
        {"name": "op", "type": "string"},
        name="Envelope",
    )
    number = registry.register("shop-value", envelope)
    one = {"x.Value": {"t": BASE, "id": 1}}
    changes = [{"before": None, "after": one, "op": "c"}, {"before": one, "after": None, "op": "d"}]
    name = topic_of(
        spark, kafka, "shop", [*(framed(number, encoded(spark, envelope, change)) for change in changes), None]
    )
    value = {"format": "avro", "registry": {"url": registry.url, "subject": "shop-value"}}
    for deletes, rows in (("drop", [(1, "c")]), ("keep", [(1, "c"), (1, "d")])):
        pipeline = of_topic(kafka, name, {**value, "envelope": {"kind": "debezium", "deletes": deletes}})
        frame = read_planned(spark, pipeline, make_plan(spark, pipeline))
        assert [(found.id, found.op) for found in good(frame).orderBy("rw_offset").collect()] == rows
        assert quarantined(frame).count() == 0
