"""Corrections into a topic of a real broker: with the live job's own keys, once wherever a process ends."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from dataclasses import replace

import pytest

from spark_jobs.comparison.compare import run_compare
from spark_jobs.corrections.delivery import deliver, repeat, revert
from spark_jobs.corrections.topic import TopicDestination
from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import DefinitionError
from spark_jobs.lakehouse.corrections import CorrectionTable
from spark_jobs.lakehouse.delivery import DeliveryStatus
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.work.progress import NoProgress
from tests.corrections.boundaries import TOPIC, boundaries_of, ended_at
from tests.corrections.small_corrections import counts_of, defined, emitted_rows, published, read, with_faults
from tests.faults.boundaries import Stopped
from tests.kafka import Sent, produce
from tests.sampling import IN_FULL, sample

SECTIONS = """
live:
  source:
    kind: kafka
    servers: {servers}
    topic: {topic}
    key: {{format: json, schema: "k STRING, window_start STRING"}}
    value: {{format: json, schema: "n BIGINT, total BIGINT, op STRING, at BIGINT"}}
  mode: {mode}
  window: {{start: window_start, unit: iso}}
  emitted_at: at
  emitted_at_unit: ms
  {more}
corrections: {{value: complete, times: iso}}
"""
NUMBERS = itertools.count()


def records(rows: list[dict], operation: str | None) -> list[Sent]:
    """What Flink's JSON would be; two partitions, by the window's start."""
    sent = []
    for row in rows:
        key = json.dumps({"k": row["k"], "window_start": format_instant(row["window_start"])}, separators=(",", ":"))
        value = {"n": row["n"], "total": row["total"], "op": operation, "at": None, "more": "kept"}
        sent.append(Sent(json.dumps(value), row["window_start"] // 30_000 % 2, key))
    return sent


def set_up(spark, kafka, tmp_path, mode: str, more: str = "", operation: str | None = None):
    topic = f"corrected_{next(NUMBERS)}"
    kafka.create_topic(topic, 2)
    sections = SECTIONS.format(servers=kafka.servers, topic=topic, mode=mode, more=more)
    job = defined(tmp_path, topic, sections)
    produce(spark, kafka.servers, topic, records(with_faults(emitted_rows(spark, job)), operation))
    return topic, job, counts_of(published(spark, job))


@pytest.mark.long
def test_a_topic_is_put_right_once_wherever_a_process_ends(spark, kafka, tmp_path, monkeypatch) -> None:
    topic, job, before = set_up(spark, kafka, tmp_path, "upsert")
    assert before["mismatch"] == 1 and before["missing"] == 1 and before["late_arrivals"] > 3, before
    with ended_at(TOPIC, "after commit"), pytest.raises(Stopped):
        deliver(spark, job)
    done = deliver(spark, job)
    assert len(done.resumed) == 1 and not done.deliveries
    after = run_compare(spark, job, NoProgress()).counts
    assert {name for name, count in after.items() if count} <= {"match", "not_closed"}, (before, after)
    for boundary in sample(["after prepare", "before commit"], boundaries_of(TOPIC)):
        with ended_at(TOPIC, boundary), pytest.raises(Stopped):
            repeat(spark, job)
        deliver(spark, job)
    assert not deliver(spark, job).rows
    ledger = CorrectionTable(spark, Tables.of(job).corrections, tuple(job.keys)).deliveries()
    assert {d.status for d in ledger} == {DeliveryStatus.DELIVERED}
    found = read(spark, kafka.servers, topic)
    assert Counter(r["delivery"] for r in found if r["delivery"]) == {d.id: d.rows for d in ledger}
    # Of each key all records are in one partition, and the fields that are not corrected are as they were.
    places: dict[str, set[int]] = {}
    for row in found:
        places.setdefault(row["key"], set()).add(row["partition"])
    originals = {r["key"] for r in found if r["delivery"] is None}
    assert all(len(where) == 1 for where in places.values()) and len(set(places) - originals) >= 1
    assert all('"more":"kept"' in r["value"] for r in found if r["delivery"] and r["key"] in originals)
    monkeypatch.setattr(TopicDestination, "most_rows", 3)
    parts = revert(spark, job)
    assert len(parts.deliveries) == -(-sum(parts.rows.values()) // 3) > 1, "a transaction has as many as it can take"
    assert not deliver(spark, job).rows, "what was reverted does not come again by itself"


@pytest.mark.skipif(not IN_FULL, reason="in make test-long; the row kinds are tested without a broker")
def test_a_changelog_gets_flinks_row_kinds(spark, kafka, tmp_path) -> None:
    topic, job, _ = set_up(spark, kafka, tmp_path, "changelog", "operation: op", "+I")
    deliver(spark, job)
    found = [json.loads(r["value"]) for r in read(spark, kafka.servers, topic) if r["delivery"]]
    kinds = Counter(row["op"] for row in found)
    assert kinds["-U"] == kinds["+U"] > 3 and kinds["+I"] >= 1
    after = run_compare(spark, job, NoProgress()).counts
    assert {name for name, count in after.items() if count} <= {"match", "not_closed"}, after


def without_zones(sent: list[Sent]) -> list[Sent]:
    """The records with window starts that have no zone: which time that is nobody says."""
    return [replace(one, key=str(one.key).replace('Z"', '"')) for one in sent]


def test_what_cannot_be_read_is_not_taken_for_missing(spark, kafka, tmp_path) -> None:
    """A correction of such a window would have another key: readers would have it twice."""
    topic, job, _ = set_up(spark, kafka, tmp_path, "upsert")
    produce(spark, kafka.servers, topic, without_zones(records(emitted_rows(spark, job)[:1], None)))
    with pytest.raises(DefinitionError, match=r"window_start.* is of a window that cannot be read"):
        deliver(spark, job)
    assert not [row for row in read(spark, kafka.servers, topic) if row["delivery"]]


def test_where_not_one_row_can_be_read_nothing_is_compared_or_delivered(spark, kafka, tmp_path) -> None:
    topic = f"unread_{next(NUMBERS)}"
    kafka.create_topic(topic, 2)
    job = defined(tmp_path, topic, SECTIONS.format(servers=kafka.servers, topic=topic, mode="upsert", more=""))
    produce(spark, kafka.servers, topic, without_zones(records(emitted_rows(spark, job), None)))
    run = published(spark, job)
    verdicts = Verdicts.read(RunStore.configured().folder(run.run_id))
    assert verdicts is not None and re.search("not one of .* emitted rows can be read", verdicts.problem or "")
    assert not deliver(spark, job).rows
