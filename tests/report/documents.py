"""Documents of runs as the stages write them, with known numbers, for tests of the page that need no Spark."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from spark_jobs.report.counted import Facts
from spark_jobs.runs.life.documents import Approval, Changes, Gate, Outcome, Request
from spark_jobs.runs.life.store import RunFolder, RunStore
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.planning.plan_document import Plan

HOUR, MINUTE = 3_600_000, 60_000
T0 = 1_360_281_600_000  # 2013-02-08T00:00:00Z

RESULT: dict[str, Any] = {
    "suite": "windows", "data": "windows", "expectation": "expect_column_values_to_be_between",
    "description": "Between 1 and 60 flights a window", "severity": "critical", "success": True, "column": "flights",
    "observed": None, "threshold": {"min_value": 1, "max_value": 60}, "checked": 14_656, "unexpected_count": 0,
    "unexpected_percent": 0.0, "samples": [], "error": None,
}  # fmt: skip


def request(**changed: Any) -> dict[str, Any]:
    return {
        "run_id": "night-1", "pipeline": "departures_hourly", "kind": "reconcile",
        "requested": {"from": None, "to": None, "as_of": None, "mode": "both", "chunks": 4, "dry_run": None},
        "reason": "region west arrived four hours late", "requested_by": "ada",
        "requested_at": "2013-04-01T05:00:00+00:00",
        "definition": {"name": "departures_hourly", "watermark": {"bound": 1_800_000}, "window": {"offset": None}},
        "output_table": "rewindow.demo.departures_hourly",
    } | changed  # fmt: skip


def plan(**changed: Any) -> dict[str, Any]:
    return {
        "pipeline": "departures_hourly", "definition_hash": "0123456789abcdef" * 4, "source": "files data/*.parquet",
        "partition_columns": [], "mode": "both", "span": {"start": T0, "end": T0 + 48 * HOUR}, "is_whole": True,
        "chunks": [{"start": T0, "end": T0 + 24 * HOUR}, {"start": T0 + 24 * HOUR, "end": T0 + 48 * HOUR}],
        "event_times": {"start": T0, "end": T0 + 48 * HOUR},
        "partitions": [
            {
                "partition": p, "first_offset": 0, "end_offset": 1000 * (p + 1), "first_arrival": T0 + 1234,
                "last_arrival": T0 + 48 * HOUR, "records": 1000 * (p + 1),
            }
            for p in range(3)
        ],
        "processing_time_end": T0 + 48 * HOUR,
        "pinned": [{"path": "file:/data/events.parquet", "size": 123_456, "modified": T0}],
        "topic": None, "cuts": False, "records": 6000, "quarantined": 3, "missing_event_times": 0, "window_ends": 48,
        "fidelity": "log_order", "fidelity_reasons": [], "watermark": "timeline by inversion, set by set",
        "warnings": ["3 of 6000 records go to quarantine"], "version": "0.3.0", "history_records": 6000,
        "reading": {"identities": [{}], "partitions": {}, "empty": None, "placed_by": ""},
    } | changed  # fmt: skip


def changes(**changed: Any) -> dict[str, Any]:
    return {
        "counts": {"inserted": 2, "updated": 37, "retracted": 1}, "causes": {"late_arrivals": 39, "retraction": 1},
        "windows": 768, "windows_recomputed": 767, "windows_open": 0, "windows_all_late": 4, "pairs_on_time": 5800,
        "pairs_late": 0, "pairs_dropped": 197, "records_late": 197, "unchanged": 728,
    } | changed  # fmt: skip


def gate(results: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    if results is None:
        results = [
            RESULT,
            RESULT | {
                "severity": "warning", "success": False, "description": "At most 1 % of a window's records are late",
                "column": "records_dropped", "observed": {"share": 0.034}, "threshold": {"max_value": 0.01},
                "unexpected_count": 12, "unexpected_percent": 1.5625,
                "samples": [{"carrier": "UA", "window_start": "2013-02-08T18:00:00Z", "records_dropped": 9}],
            },
        ]  # fmt: skip
    blocks = any(not r["success"] and r["severity"] == "critical" for r in results)
    warned = any(not r["success"] for r in results)
    return {
        "verdict": "failed" if blocks else "warned" if warned else "passed", "blocks": blocks,
        "suites": [{"name": "windows", "data": "windows", "file": "expectations/windows.json"}], "results": results,
        "left_out": [{
            "suite": "windows", "data": "windows", "expectation": "expect_column_values_to_not_be_null", "name": "keys",
            "reason": "this run has no column carrier",
        }],
        "seconds": 3.2, "spark_jobs": 14,
    }  # fmt: skip


def outcome(status: str, **changed: Any) -> dict[str, Any]:
    return {
        "run_id": "night-1",
        "status": status, "message": "", "hint": "", "note": "", "counts": {"windows": 768}, "changes": {"updated": 37},
        "timings": {"timeline": 1.25, "windows": 4.5},
        "applications": [{"stage": "replay", "application_id": "local-1700000000000", "seconds": 12.5}],
        "tables": {"windows": "rewindow.demo.departures_hourly", "late": "rewindow.demo.departures_hourly__late"},
        "started_at": "2013-04-01T05:00:01+00:00", "finished_at": "2013-04-01T05:02:03+00:00",
        "fidelity": "log_order", "fidelity_reasons": [], "version": "0.3.0",
    } | changed  # fmt: skip


def top_window(**changed: Any) -> dict[str, Any]:
    before = {"flights": 40, "flights__complete": 44, "distance": 51_000, "distance__complete": 56_500}
    after = {
        "flights": 46, "flights__complete": 49, "distance": 59_250, "distance__complete": 63_000,
        "records_on_time": 46, "records_late": 0, "records_dropped": 3, "state": "closed",
    }  # fmt: skip
    return {
        "change": "updated", "cause": "late_arrivals", "size": 1.0, "revision": 2, "start": T0 + 18 * HOUR,
        "end": T0 + 19 * HOUR, "key": {"carrier": "UA"}, "pane": {}, "after": after, "before": before,
    } | changed  # fmt: skip


def facts(**changed: Any) -> dict[str, Any]:
    """A day and more of records, drawn with a fixed seed."""
    chance = random.Random(7)
    line = [[T0 + i * 6 * MINUTE, T0 + i * 6 * MINUTE - 30 * MINUTE - chance.randrange(9) * MINUTE] for i in range(480)]
    for i in range(1, len(line)):
        line[i][1] = max(line[i][1], line[i - 1][1])
    on_time = [[t := T0 + chance.randrange(48 * HOUR), t - chance.randrange(-20, 25) * MINUTE] for _ in range(900)]
    behind = [[t := T0 + chance.randrange(48 * HOUR), t - chance.randrange(45, 70) * MINUTE] for _ in range(60)]
    late = [[t := T0 + chance.randrange(48 * HOUR), t - chance.randrange(100, 400) * MINUTE] for _ in range(197)]
    view = {
        "from": T0, "to": T0 + 48 * HOUR, "line": line, "lag": [],
        "closes": [[T0 + i * HOUR + 35 * MINUTE, T0 + i * HOUR] for i in range(1, 47)],
        "on_time": on_time, "behind": behind, "late": late, "one_in": 6,
    }  # fmt: skip
    bins = [0, 3, 9, 12, 20, 31, 44, 40, 20, 10, 5, 2, 1, 0, 0, 0, 0, 0, 0]
    edges = [0, 1_000, 10_000, 30_000, *(m * MINUTE for m in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440))]
    edges += [2880 * MINUTE, 7 * 1440 * MINUTE, 28 * 1440 * MINUTE]
    quantiles = {
        "missed_by": {"p50": 12 * MINUTE, "p90": 40 * MINUTE, "p99": 100 * MINUTE, "max": 170 * MINUTE},
        "delay": {"p50": 70 * MINUTE, "p90": 110 * MINUTE, "p99": 200 * MINUTE, "max": 400 * MINUTE},
    }
    shares = {0: (1200, 700), 10: (800, 450), 30: (420, 197), 60: (160, 58), 120: (40, 12), 240: (5, 0), 480: (0, 0)}
    return {
        "format": "rewindow-facts/1",
        "changes": {
            "counts": {"inserted": 2, "updated": 37, "retracted": 1}, "causes": {"late_arrivals": 39, "retraction": 1},
            "strip": {
                "width": HOUR,
                "buckets": [
                    {"start": T0 + h * HOUR, "updated": 1 + h % 5, "inserted": int(h in (3, 4))} for h in range(14)
                ],
            },
            "keys": ["carrier"], "aggregates": ["flights", "distance"],
            "top": [
                top_window(),
                top_window(
                    change="retracted", cause="retraction", start=T0, end=T0 + HOUR,
                    after=dict.fromkeys(top_window()["after"]),
                ),
                top_window(change="inserted", cause="backfill", start=T0 + 3 * HOUR, end=T0 + 4 * HOUR, before=None),
            ],
        },
        "late": {
            "records": 197, "basis": 6000, "edges": edges, "quantiles": quantiles, "bins": bins, "partitions": 3,
            "by_partition": [
                {
                    "partition": p, "records": 1000 * (p + 1), "late": n, "late_in_basis": n, "bins": bins,
                    "quantiles": quantiles,
                }
                for p, n in enumerate((97, 60, 40))
            ],
            "latest": [
                {"partition": 0, "number": 7, "arrival": T0 + 5 * HOUR, "event_time": T0, "missed_by": 4 * HOUR},
                {"partition": 1, "number": 9, "arrival": T0 + 3 * HOUR, "event_time": T0, "missed_by": None},
            ],
            "by_hour": [{"hour": h, "records": 250, "late": h, "late_in_basis": h, "bins": bins} for h in range(24)],
        },
        "watermark": {
            "resolution": MINUTE, "overview": view, "zoom": None,
            "idle": {"count": 2, "longest": [[1, T0 + HOUR, T0 + 3 * HOUR], [0, T0 + 5 * HOUR, T0 + 6 * HOUR]]},
            "standstills": [{"from": T0 + HOUR, "to": T0 + 3 * HOUR + 17_250, "watermark": T0 - 1}],
        },
        "advisor": {
            "parameter": "bound", "generator": "bounded_out_of_orderness", "configured": 30 * MINUTE, "lateness": 0,
            "resolution": MINUTE, "exact": True, "sessions": False, "records": 6000,
            "event_times": {"from": T0, "to": T0 + 48 * HOUR},
            "tolerances": [
                {"tolerance": m * MINUTE, "behind": behind, "closed": closed, "wait": (m + 9) * MINUTE}
                for m, (behind, closed) in shares.items()
            ],
        },
    } | changed  # fmt: skip


def verdicts(**changed: Any) -> dict[str, Any]:
    def stretch(number: int, **counts: int) -> dict[str, Any]:
        lag = {"windows": 300, "mean": 400.0, "largest": 1500 * number + 300}
        return {"start": T0 + 24 * number * HOUR, "counts": counts, "lag": lag}

    window = {"carrier": "UA", "window_start": "2013-02-08T10:00:00Z", "window_end": "2013-02-08T11:00:00Z"}
    values = {"flights__emitted": 9, "flights": 12, "flights__complete": 14}
    other = {"carrier": None, "window_start": "2013-02-09T03:00:00Z", "window_end": "2013-02-09T04:00:00Z"}
    kept = {"basis": "log", "differs": ["flights"], "records_undecided": 0}
    return {
        "attempt": "1", "emitted": "table live.departures", "fidelity": "log_order", "whole_range": False,
        "windows": 750, "counts": {"match": 700, "late_arrivals": 45, "mismatch": 3, "missing": 2, "not_closed": 8},
        "labels": {"mismatch": {"unexplained": 2, "equals_complete": 1}}, "windows_in_doubt": 12, "late_records": 60,
        "fits": [{"fit": "one_cut", "window_ends": 4, "fewest_keys": 2, "median_keys": 7.0, "keys_left_out": 0}],
        "keys": ["carrier"], "values": ["flights"], "lag": {"windows": 600, "mean": 400.0, "largest": 1800},
        "width": 24 * HOUR,
        "stretches": [stretch(0, match=400, mismatch=3, late_arrivals=20), stretch(1, match=300, missing=2)],
        "days": [stretch(0, match=400, mismatch=3, late_arrivals=20), stretch(1, match=300, missing=2)],
        "top": [
            window | values | kept | {"verdict": "mismatch", "label": "unexplained"},
            other | values | kept | {"verdict": "missing", "label": None, "flights__emitted": None},
        ],
        "notes": ["8 windows were still open"], "next_step": "Look at the windows above.",
        "tables": {"verdicts": "rewindow.demo.departures_hourly__verdicts"},
        "deployments": [
            {"name": "until the upgrade", "from": None, "to": "2013-01-20T00:00:00.000Z", "emitted": "table live.old",
             "own_rules": True, "windows": 450, "verdicts": {"match": 447, "mismatch": 3}},
            {"name": "since then", "from": "2013-01-20T00:00:00.000Z", "to": None, "emitted": "table live.departures",
             "own_rules": False, "windows": 300, "verdicts": {"match": 298, "missing": 2}},
        ],
    } | changed  # fmt: skip


def written(folder: Path, run_id: str = "night-1", **documents: Any) -> RunFolder:
    """A run's folder with a whole, published run, but for the documents that are given (None: not there)."""
    whole = {
        Request.FILE: request(run_id=run_id), Plan.FILE: plan(), Changes.FILE: changes(), Gate.FILE: gate(),
        Facts.FILE: facts(), Outcome.FILE: outcome("published"), Approval.FILE: None, Verdicts.FILE: verdicts(),
        "chunk-0001.json": {"chunk": 1, "start": T0, "end": T0 + 24 * HOUR, "counts": {}, "seconds": 2.25},
        "chunk-0002.json": {"chunk": 2, "start": T0 + 24 * HOUR, "end": T0 + 48 * HOUR, "counts": {}, "seconds": 2.5},
    }  # fmt: skip
    given = {f"{name}.json": content for name, content in documents.items()}
    run = RunStore(str(folder)).folder(run_id)
    for name, content in (whole | given).items():
        if content is not None:
            run.write(name, content)
    return run
