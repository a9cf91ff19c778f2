"""Definitions of the recorded jobs over real flights."""

from __future__ import annotations

import json
from pathlib import Path

from spark_jobs.eventtime.durations import FOREVER

SAMPLE = Path("tests/data/flights").resolve()


def definition(run: str) -> str:
    """The pipeline YAML of one of the recorded Flink jobs, made from its own configuration."""
    config = json.loads((SAMPLE / f"config_{run}.json").read_text())
    watermark, emission, window = config["watermark"], config["emission"], dict(config["window"])
    kind = window.pop("kind")
    lines = [
        f"name: flights_{run}",
        "history:",
        "  kind: files",
        f"  path: {SAMPLE}/events.parquet",
        "  format: parquet",
        "  position: {partition: partition, offset: offset, arrival: arrival}",
        "value: {format: json, column: value, schema: 'sched_dep STRING, distance BIGINT'}",
        "keys: {carrier: key}",
        "event_time: {expression: sched_dep, unit: iso}",
        "watermark:",
        "  generator: bounded_out_of_orderness",
        f"  bound: {watermark['bound_ms']} ms",
        f"  emission: {emission['mode']}",
        f"  partitions: {config['partitions']}",
        "window:",
        f"  type: {kind}",
        *(f"  {name.removesuffix('_ms')}: {value} ms" for name, value in window.items()),
        f"allowed_lateness: {'forever' if config['allowed_lateness_ms'] == FOREVER else config['allowed_lateness_ms']}"
        + ("" if config["allowed_lateness_ms"] in (0, FOREVER) else " ms"),
        "aggregates: {flights: count(*), total: sum(distance), shortest: min(distance), longest: max(distance)}",
        "output: {namespace: flights}",
        "",
    ]
    if emission["interval_ms"]:
        lines.insert(lines.index("window:"), f"  interval: {emission['interval_ms']} ms")
        lines.insert(lines.index("window:"), f"  timer_start: {_instant(config['clock']['start_ms'])}")
    if "idleness_ms" in watermark:
        lines.insert(lines.index("window:"), f"  idleness: {watermark['idleness_ms']} ms")
    return "\n".join(lines)


def _instant(milliseconds: int) -> str:
    from spark_jobs.definition.instants import format_instant

    return format_instant(milliseconds)
