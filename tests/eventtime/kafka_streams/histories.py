"""Random histories of a Kafka Streams application: times near the boundaries, jumps, late records, restarts."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.conformance.kstreams_case import StreamsCase

NOW = 1_700_000_000_000


def random_case(seed: int, *, restarts: bool = True, most: int = 60) -> StreamsCase:
    """A case without `expected`, of at most so many records."""
    rng = Random(seed)
    unit = rng.choice([1, 1, 10, 20_000])
    window, least = _window(rng, unit)
    grace = rng.choice([0, 0, rng.randint(0, 8) * unit])
    emission = rng.choice(["each_update", "suppress_until_window_closes", "emit_on_window_close"])
    partitions = rng.randint(1, 3)
    config: dict[str, Any] = {"partitions": partitions, "window": window, "grace_ms": grace, "emission": emission}
    config["emit_interval_ms"] = rng.choice([0, 0, 5, 1000])
    if rng.random() < 0.3:
        config["retention_ms"] = least + grace + rng.choice([0, 1, rng.randint(0, 5) * unit, 100 * unit])
    records = _records(rng, unit, partitions, most)
    document: dict[str, Any] = {"config": config, "records": records}
    if restarts and rng.random() < 0.4:
        befores = sorted(rng.randrange(len(records) + 1) for _ in range(rng.randint(1, 3)))
        document["restarts"] = [
            {"before": before, "state": rng.choice(["local", "local", "restored", "lost"])}
            | ({"partitions": [rng.randrange(partitions)]} if rng.random() < 0.5 else {})
            for before in befores
        ]
    return StreamsCase(__file__, document)  # type: ignore[arg-type]


def _window(rng: Random, unit: int) -> tuple[dict[str, Any], int]:
    """A window, and the least retention beside the grace."""
    match rng.choice(["tumbling", "hopping", "sliding", "session"]):
        case "tumbling":
            size = rng.randint(1, 8) * unit
            return {"kind": "tumbling", "size": size}, size
        case "hopping":
            size = rng.randint(1, 9) * unit
            advance = rng.choice([rng.randint(-(-size // 9), size), max(1, size // 2), max(1, size // 3)])
            return {"kind": "hopping", "size": size, "advance": advance}, size
        case "sliding":
            difference = rng.randint(1, 6) * unit
            return {"kind": "sliding", "time_difference": difference}, 2 * difference
        case _:
            gap = rng.randint(1, 6) * unit
            return {"kind": "session", "gap": gap}, gap


def _records(rng: Random, unit: int, partitions: int, most: int) -> list[list[Any]]:
    """Of each key its own partition, as `groupByKey` needs it."""
    time, clock = rng.choice([0, 0, rng.randint(0, 50) * unit, NOW]), NOW
    keys = ["a", "b", "ab", "é", ""][: rng.randint(1, 5)]
    offsets = [0] * partitions
    records: list[list[Any]] = []
    for _ in range(rng.randint(2, most)):
        time += rng.choice([0, 0, 1, rng.randint(0, 3) * unit, unit, rng.randint(0, 2) * unit])
        time += rng.randint(5, 60) * unit if rng.random() < 0.05 else 0
        late = rng.choice([0, 0, 0, 1, rng.randint(0, 12) * unit, rng.randint(0, 25) * unit + rng.randint(-1, 1)])
        timestamp = time - late
        if timestamp < 0:
            timestamp = -1 if rng.random() < 0.1 else 0
        clock += rng.choice([0, 1, 3, 300])
        key = rng.choice(keys) if rng.random() > 0.03 else None
        value = rng.randint(-5, 99) if rng.random() > 0.04 else None
        partition = 0 if key is None else keys.index(key) % partitions
        records.append([partition, offsets[partition], clock, key, timestamp, value])
        offsets[partition] += rng.choice([1, 1, 2])
    return records
