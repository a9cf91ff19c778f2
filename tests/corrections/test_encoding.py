"""Corrections as records of a topic: bounds and times as the live job writes them, JSON, and row kinds. No broker."""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false
from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row

from spark_jobs.corrections.columns import columns_of
from spark_jobs.corrections.due import CorrectionScope
from spark_jobs.corrections.topic import HEADER, TopicDestination, bound_value, json_text, time_text
from spark_jobs.definition import Pipeline
from spark_jobs.definition.corrections import TimeSpelling
from spark_jobs.definition.live import TopicEmitted, WindowColumns
from spark_jobs.errors import DefinitionError, RunStateError
from spark_jobs.lakehouse.corrections import CorrectionTable, Delivery
from spark_jobs.lakehouse.delivery import (
    TRANSITIONS,
    DeliveryEvent,
    DeliveryKind,
    DeliveryStatus,
    next_delivery_status,
)
from spark_jobs.lakehouse.tables import Tables

NOON = 1_357_041_600_000  # 2013-01-01T12:00:00Z


@pytest.mark.parametrize(
    ("window", "bound", "spelling", "value"),
    [
        ({"start": "s", "unit": "ms"}, "window_start", "sql", NOON),
        ({"start": "s", "unit": "s"}, "window_start", "sql", NOON // 1000),
        ({"end": "e", "unit": "us", "inclusive_end": 1}, "window_end", "sql", (NOON - 1) * 1000),
        ({"start": "s"}, "window_start", "sql", "2013-01-01 12:00:00"),
        ({"start": "s", "time_zone": "America/New_York"}, "window_start", "iso", "2013-01-01T07:00:00"),
        ({"start": "s", "unit": "iso"}, "window_start", "iso", "2013-01-01T12:00:00Z"),
        ({"end": "e", "inclusive_end": 1}, "window_end", "sql_utc", "2013-01-01 11:59:59.999Z"),
    ],
)
def test_bounds_are_written_as_the_live_job_writes_them(window: dict, bound: str, spelling: str, value: Any) -> None:
    assert bound_value(NOON, bound, WindowColumns(**window), TimeSpelling(spelling)) == value


def test_json_is_compact_and_keeps_digits_and_nulls() -> None:
    at = datetime(2013, 1, 1, 12, 0, 0, 500_000, UTC)
    fields = {"d": Decimal("12.340"), "n": None, "t": at, "day": date(2013, 1, 1), "s": 'é"'}
    text = json_text(fields, TimeSpelling.ISO).decode()
    assert text == '{"d":12.340,"n":null,"t":"2013-01-01T12:00:00.5","day":"2013-01-01","s":"é\\""}'
    assert time_text(at, TimeSpelling.SQL_UTC) == "2013-01-01 12:00:00.5Z"


def pipeline(mode: str, **corrections: Any) -> Pipeline:
    value = {"format": "json", "schema": "n BIGINT, op STRING"}
    key = {"format": "json", "schema": "k STRING, s BIGINT"}
    source = {"kind": "kafka", "servers": "s", "topic": "t", "key": key, "value": value}
    return Pipeline.model_validate(
        {
            "name": "p",
            "history": {"kind": "files", "path": "history", "format": "parquet"},
            "keys": {"k": "key"},
            "event_time": {"expression": "ts", "unit": "ms"},
            "watermark": {"generator": "ascending"},
            "window": {"type": "tumbling", "size": "1 h"},
            "aggregates": {"n": "count(*)"},
            "live": {
                "source": source,
                "mode": mode,
                "window": {"start": "s", "unit": "ms"},
                **({"operation": "op"} if mode == "changelog" else {}),
            },
            "corrections": corrections,
        }
    )


def sent(spark, mode: str, **row: Any) -> list[tuple[bytes | None, dict | None, int | None]]:
    job = pipeline(mode)
    assert job.live is not None and job.corrections is not None and isinstance(job.live.source, TopicEmitted)
    tables = Tables.of(job)
    ledger = CorrectionTable(spark, tables.corrections, ("k",))
    scope = CorrectionScope(spark, job, job.live, job.corrections, tables, ("n",), ledger)
    topic = TopicDestination(scope, job.live.source, columns_of(scope), job.live.mode, job.live.operation)
    kind, status, now = DeliveryKind.CORRECTION, DeliveryStatus.PREPARED, datetime.now(UTC)
    delivery = Delivery("id", 1, kind, status, "d", 1, {}, None, now, None)
    whole = {"k": "UA", "window_start": NOON, "window_end": NOON + 1, "revision": 2, "action": "upsert", **row}
    place = {"rw_topic_key": None, "rw_topic_value": None, "rw_topic_partition": None}
    records = list(topic._records(Row(**{**place, **whole}), delivery))
    assert all(r.headers[HEADER] == "id" for r in records)
    return [(r.key, r.value and json.loads(r.value), r.partition) for r in records]


def test_a_changelog_has_flinks_row_kinds_and_an_upsert_a_null_value(spark) -> None:
    known = {"rw_topic_key": b"K", "rw_topic_value": b'{"n":1,"x":true}', "rw_topic_partition": 3}
    update = {"existed": True, "n__old": 1, "n__new": 5, **known}
    assert sent(spark, "changelog", **update) == [
        (b"K", {"n": 1, "x": True, "op": "-U"}, 3),
        (b"K", {"n": 5, "x": True, "op": "+U"}, 3),
    ]
    assert sent(spark, "upsert", **update) == [(b"K", {"n": 5, "x": True}, 3)]
    new, key = {"existed": False, "n__old": None, "n__new": 5}, f'{{"k":"UA","s":{NOON}}}'.encode()
    assert sent(spark, "changelog", **new) == [(key, {"n": 5, "op": "+I"}, None)]
    gone = {"existed": True, "n__old": 1, "n__new": None, "action": "delete", **known}
    assert sent(spark, "changelog", **gone) == [(b"K", {"n": 1, "x": True, "op": "-D"}, 3)]
    assert sent(spark, "upsert", **gone) == [(b"K", None, 3)]


def test_a_delivery_goes_from_prepared_to_delivered_and_no_other_way() -> None:
    assert [(t.source, t.target) for t in TRANSITIONS] == [
        (None, DeliveryStatus.PREPARED),
        (DeliveryStatus.PREPARED, DeliveryStatus.DELIVERED),
    ]
    for status, event in ((DeliveryStatus.DELIVERED, DeliveryEvent.FINISH), (None, DeliveryEvent.FINISH)):
        with pytest.raises(RunStateError):
            next_delivery_status("d", status, event)


def test_corrections_change_no_result_and_need_a_place() -> None:
    assert pipeline("upsert").definition_hash == pipeline("upsert", value="complete").definition_hash
    with pytest.raises(ValueError, match="no aggregate of this definition"):
        pipeline("upsert", values={"m": "m"})


def test_an_expression_is_no_column_to_write_to(spark) -> None:
    job = pipeline("upsert", values={"n": "after.n"})
    assert job.live is not None and job.corrections is not None
    ledger = CorrectionTable(spark, "t", ("k",))
    with pytest.raises(DefinitionError, match="is an expression"):
        columns_of(CorrectionScope(spark, job, job.live, job.corrections, Tables.of(job), ("n",), ledger))


@pytest.mark.parametrize(
    "text", ["\x000\x00", "\\u00000\\u0000", '"\\u00000\\u0000"', '\\"', "1.50", "\u2028</script>"]
)
def test_no_text_becomes_a_number_or_another_field(text: str) -> None:
    """A key that a producer writes names the window that a correction is for."""
    fields = {"key": text, text: {text: [text, Decimal("2.50")]}, "amount": Decimal("1.50"), "none": None, "yes": True}
    written = json.loads(json_text(fields, TimeSpelling.ISO), parse_float=Decimal)
    assert written == fields and str(written["amount"]) == "1.50"
