"""The facts of real staged runs: what is counted agrees with the engine, and with a count by hand."""

# pyright: reportArgumentType=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from spark_jobs.definition import load_pipeline
from spark_jobs.definition.instants import parse_instant
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.spec import Mode
from spark_jobs.report.build import build_report
from spark_jobs.report.classified_records import classify_records
from spark_jobs.report.facts import gather
from spark_jobs.report.lateness_probe import MAX_COUNTED, counted_times, find_probe
from spark_jobs.runs.life.status import RunKind
from spark_jobs.runs.life.store import PAGE, REPORT
from spark_jobs.spark.cached import CachedFrames
from tests.report.documents import written
from tests.report.staged import staged_run
from tests.runs.small_runs import BOUNDED, write
from tests.runs.small_runs import pipeline as small_pipeline
from tests.sampling import first_of

ROOT = Path(__file__).parents[2]
FLIGHTS = ROOT / "dags" / "pipelines" / "departures_hourly.yaml"
MINUTE, HOUR = 60_000, 3_600_000


def flights(tmp_path: Path, name: str, **changed: str):
    """The sample pipeline with lines changed, under another name."""
    text = FLIGHTS.read_text().replace("name: departures_hourly", f"name: {name}")
    text = text.replace("${REWINDOW_SAMPLE:-tests/data/flights}", str(ROOT / "tests" / "data" / "flights"))
    text = text.replace("namespace: demo", "namespace: report_tests")
    for old, new in changed.items():
        before = {"bound": "bound: 30 min", "lateness": "allowed_lateness: 0"}[old]
        assert before in text
        text = text.replace(before, f"{before.split(':')[0]}: {new}")
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return load_pipeline(path)


def by_hand(bound: int) -> int:
    """Records of the sample that a watermark with this bound had passed when they came: one by one."""
    table = pq.read_table(ROOT / "tests" / "data" / "flights" / "events.parquet")
    highest: dict[int, int] = {}
    behind = 0
    for partition, value in zip(table["partition"].to_pylist(), table["value"].to_pylist(), strict=True):
        ts = parse_instant(json.loads(value)["sched_dep"])
        watermark = min(highest.values()) - bound - 1 if len(highest) == 3 else None
        behind += watermark is not None and ts <= watermark
        highest[partition] = max(highest.get(partition, ts), ts)
    return behind


@pytest.fixture(scope="module")
def sample(spark, tmp_path_factory):
    """The facts of the sample's first backfill, and what its evidence counted."""
    with staged_run(spark, flights(tmp_path_factory.mktemp("flights"), "facts_of_flights")) as evidence:
        facts = gather(evidence).to_dict()
        late = {row[0]: row[1] for row in evidence.late.groupBy("partition").count().collect()}
        plan = evidence.plan
    return facts, late, plan


def closed(facts: dict, tolerance: int) -> int:
    return next(t["closed"] for t in facts["advisor"]["tolerances"] if t["tolerance"] == tolerance)


@pytest.mark.long
def test_the_advisor_counts_at_the_configured_bound_what_the_engine_dropped(sample) -> None:
    facts, late, _ = sample
    assert facts["advisor"]["exact"]
    assert facts["advisor"]["records"] == 78_035
    assert closed(facts, 30 * MINUTE) == sum(late.values()) == facts["late"]["records"] == 4_660
    assert {p["partition"]: p["late"] for p in facts["late"]["by_partition"]} == late
    assert {p["partition"]: p["records"] for p in facts["late"]["by_partition"]} == {0: 28_267, 1: 26_561, 2: 23_207}
    for group in ("by_hour", "by_partition"):
        assert sum(row["late_in_basis"] for row in facts["late"][group]) == 4_660


@pytest.mark.long
@pytest.mark.parametrize(
    ("changed", "tolerance"), first_of([({"lateness": "1 h 30 min"}, 2 * HOUR), ({"bound": "2 h"}, 2 * HOUR)])
)
def test_another_setting_drops_what_the_advisor_said_it_would(spark, sample, tmp_path, changed, tolerance) -> None:
    with staged_run(spark, flights(tmp_path, "another_setting", **changed)) as evidence:
        assert evidence.late.count() == closed(sample[0], tolerance)


@pytest.mark.long
def test_the_latest_records_are_counted_and_one_ahead_of_the_clock_leads_nobody_astray(sample) -> None:
    plan, week = sample[2], 7 * 24 * HOUR
    assert counted_times(plan, RunKind.BACKFILL) == plan.event_times
    end, last_arrival = plan.event_times.end, plan.processing_time_end
    night = counted_times(plan, RunKind.RECONCILE)
    assert (night.end - night.start, night.end) == (week, min(end, last_arrival + 1))
    ahead = TimeRange(plan.event_times.start, end + 10_000 * week)  # one record, about 190 years ahead
    odd = plan.model_copy(update={"event_times": ahead, "span": ahead})
    assert counted_times(odd, RunKind.RECONCILE) == TimeRange(last_arrival + 1 - week, last_arrival + 1)
    many = odd.model_copy(update={"records": 100 * MAX_COUNTED})
    counted = counted_times(many, RunKind.BACKFILL)
    assert counted.end == last_arrival + 1 and plan.event_times.start < counted.start


@pytest.mark.long
def test_behind_the_watermark_is_told_from_a_closed_window_and_agrees_with_a_count_by_hand(sample) -> None:
    behind = {t["tolerance"]: t["behind"] for t in sample[0]["advisor"]["tolerances"]}
    for bound in (0, 30 * MINUTE, 3 * HOUR):
        assert behind[bound] == by_hand(bound)
    assert all(t["behind"] >= t["closed"] for t in sample[0]["advisor"]["tolerances"])


@pytest.mark.long
def test_the_pictures_are_bounded_and_every_shown_record_is_where_its_kind_belongs(sample) -> None:
    picture = sample[0]["watermark"]
    for view in (picture["overview"], picture["zoom"]):
        assert 0 < len(view["line"]) <= 501
        assert len(view["late"]) <= 1_500 and 100 < len(view["on_time"]) + len(view["behind"]) <= 1_500
        assert view["line"] == sorted(view["line"])
        values = [value for _, value in view["line"]]
        assert values == sorted(values)
    zoom = picture["zoom"]
    assert zoom["one_in"] == 1
    for arrival, end in zoom["closes"]:
        assert zoom["from"] <= arrival < zoom["to"] and end % HOUR == 0
    assert len(picture["overview"]["late"]) == 1_500
    longest = picture["standstills"][0]
    assert longest["to"] - longest["from"] > 21 * HOUR  # the snowstorm of 8 February closed the airports
    assert len(json.dumps(sample[0])) < 400_000


@pytest.mark.long
def test_a_report_of_the_sample_is_small_and_tells_it(sample, tmp_path) -> None:
    run = written(tmp_path, facts=sample[0])
    build_report(run)
    assert len(run.read_bytes(PAGE)) < 1_000_000
    recommended = run.read(REPORT)["advisor"]["recommended"]
    assert [r["setting"]["closed"] <= (1 - r["on_time"]) * 78_035 for r in recommended] == [True] * 3
    assert run.read(REPORT)["advisor"]["now"]["closed"] == 4_660


@pytest.mark.long
def test_changed_windows_have_their_values_before_and_after(spark, tmp_path) -> None:
    defined = flights(tmp_path, "facts_of_changes")
    with staged_run(spark, defined, as_of={0: 27_000, 1: 26_561, 2: 23_207}, publish=True):
        pass
    with staged_run(spark, defined, kind="reconcile", cause="late_arrivals") as evidence:
        facts = gather(evidence).to_dict()
        counts = {r[0]: r[1] for r in evidence.changes.groupBy("rw_change").count().collect()}
        changed = facts["changes"]
        first = changed["top"][0]
        where = (F.unix_millis("window_start") == first["start"]) & (F.col("carrier") == first["key"]["carrier"])
        before, after = evidence.before.where(where).collect()[0], evidence.staged.where(where).collect()[0]
    assert counts.pop("bookkeeping") > 0  # no number of theirs is another one
    assert changed["counts"] == counts
    assert counts["updated"] > 20
    assert len(changed["top"]) == 20
    assert {w["change"] for w in changed["top"]} == {"updated"}
    assert [w["size"] for w in changed["top"]] == sorted((w["size"] for w in changed["top"]), reverse=True)
    assert first["before"]["flights"] == before["flights"] and first["after"]["flights"] == after["flights"]
    assert first["before"]["flights__complete"] < first["after"]["flights__complete"] == after["flights__complete"]
    buckets = changed["strip"]["buckets"]
    assert sum(b.get("updated", 0) for b in buckets) == counts["updated"]
    # A reconciliation looks at its last week only.
    assert facts["advisor"]["event_times"]["to"] - facts["advisor"]["event_times"]["from"] == 7 * 24 * HOUR
    assert facts["advisor"]["records"] < 10_000


@pytest.mark.long
def test_a_run_of_complete_values_has_no_watermark_to_show(spark, tmp_path) -> None:
    defined = flights(tmp_path, "facts_of_complete")
    with staged_run(spark, defined, mode=Mode.COMPLETE) as evidence:
        facts = gather(evidence).to_dict()
    assert (facts["late"], facts["watermark"], facts["advisor"]) == (None, None, None)
    assert facts["changes"]["counts"]["inserted"] == 14_656
    assert facts["changes"]["top"][0]["after"]["flights__complete"] > 0


TICKS = "emission: periodic, interval: 5 s, timer_start: 2020-09-13T12:26:40Z"


def idle_by_hand(lines: list[dict]) -> dict:
    """Ticks each 5 s ask after records since the one before. The second in vain and 20 s more: idle, until one is not.

    The generator speaks at ticks only, so it is a tick that brings a partition back.
    """
    spans = []
    end = max(line["a"] for line in lines)
    for partition in (0, 1):
        arrivals = [line["a"] for line in lines if line["p"] == partition]
        in_vain = since = None
        for tick in range(1_600_000_005_000, end + 1, 5_000):
            if any(tick - 5_000 <= a < tick for a in arrivals):
                if since is not None:
                    spans.append([partition, since, tick])
                in_vain = since = None
            elif in_vain is None:
                in_vain = tick
            elif since is None and tick - in_vain > 20_000:
                since = tick
        if since is not None:
            spans.append([partition, since, end])
    assert len(spans) >= 3
    return {"count": len(spans), "longest": sorted(spans, key=lambda s: (s[2] - s[1], s), reverse=True)}


@pytest.mark.parametrize(
    ("watermark", "window", "lateness"),
    first_of(
        [
            (f"{BOUNDED}, idleness: 20 s, {TICKS}", "type: tumbling, size: 1 min, offset: 7 s", "0"),
            ("generator: bounded_out_of_orderness, bound: 12345 ms", "type: tumbling, size: 1 min", "7 s"),
            (f"{BOUNDED}, {TICKS}", "type: sliding, size: 1 min, slide: 20 s", "15 s"),
            ("generator: lag, lag: 10 s", "type: cumulative, size: 2 min, step: 30 s", "0"),
        ]
    ),
)
def test_what_is_dropped_agrees_for_every_kind_of_watermark_and_window(
    spark, tmp_path, watermark, window, lateness
) -> None:
    """Records that entered no window at all; equal arrivals and silent partitions are among them."""
    start = 1_600_000_020_000
    lines = []
    for i in range(1_500):
        quiet = 60_000 if i > 700 else 0
        arrival = start + (i // 3) * 500 + quiet  # three records share an arrival
        late = (i * 7919) % 90_000 if i % 5 == 4 else (i * 31) % 9_000
        partition = 0 if 300 < i < 500 else i % 2  # one partition is silent for a while
        lines.append({"p": partition, "a": arrival, "k": "ab"[i % 2], "t": arrival - late, "v": i})
    offsets = {0: 0, 1: 0}
    for line in lines:
        line["o"] = offsets[line["p"]]
        offsets[line["p"]] += 1
    write(tmp_path / "data", lines)
    window = f"window: {{{window}}}\nallowed_lateness: {lateness}"
    defined = small_pipeline(tmp_path, "small", watermark=watermark, window=window)
    held = CachedFrames()
    with staged_run(spark, defined) as evidence:
        probe = find_probe(evidence, held)
        classified = classify_records(evidence, probe, None)
        dropped = evidence.late.where("side_output").count()
        idle = evidence.timeline.idle
    held.release()
    assert probe.exact and classified.records == 1_500
    assert classified.closed[probe.tolerances.index(probe.dropped_at)] == dropped > 20
    assert classified.closed == sorted(classified.closed, reverse=True)
    assert sum(p.dropped for p in classified.overview.points) == dropped
    assert idle == (idle_by_hand(lines) if "idleness" in watermark else None)
