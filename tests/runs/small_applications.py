"""Small Kafka Streams applications over files."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.definition import Pipeline

APPLICATIONS = [
    {"window": {"type": "hopping", "size": "2 min", "advance": "30 s"}, "emission": "each_update"},
    {"window": {"type": "tumbling", "size": "1 min"}, "emission": "on_close"},
    {"window": {"type": "tumbling", "size": "1 min"}, "emission": "each_update"},
    {"window": {"type": "hopping", "size": "2 min", "advance": "45 s"}, "emission": "on_close"},
]
EMIT = {"kind": "on_close", "strategy": "emit"}
OF_TASKS = [
    {"window": {"type": "tumbling", "size": "1 min"}, "emission": EMIT},
    {"window": {"type": "session", "gap": "20 s"}, "emission": "each_update"},
    {"window": {"type": "sliding", "time_difference": "30 s"}, "emission": "on_close"},
    {"window": {"type": "hopping", "size": "2 min", "advance": "45 s"}, "emission": {**EMIT, "interval": "30 s"}},
    {"window": {"type": "session", "gap": "20 s"}, "emission": EMIT},
    {"window": {"type": "sliding", "time_difference": "30 s"}, "emission": "each_update"},
    {"window": {"type": "session", "gap": "20 s"}, "emission": "on_close"},
]
"""Applications whose tasks need the order of the log."""


def defined(folder: Path, name: str, application: dict) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": name,
            "engine": "kafka_streams",
            "history": {
                "kind": "files",
                "path": str(folder / "*.json"),
                "format": "json",
                "position": {"partition": "p", "offset": "o", "arrival": "a", "arrival_unit": "ms"},
            },
            "value": {"schema": "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"},
            "keys": {"k": "k"},
            "event_time": {"expression": "t", "unit": "ms"},
            "watermark": {"grace": "10 s"},
            "aggregates": {"n": "count(*)", "total": "sum(v)", "top": "max(v)"},
            "quarantine": {"threshold": "100 %"},
            "output": {"namespace": "nightly_tests"},
            **application,
        }
    )
