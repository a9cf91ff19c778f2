"""Small histories written as a user's job would write them, and pipelines over them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.definition import Pipeline

MakePipeline = Callable[..., Pipeline]

BASE = 1_357_034_400_000
"""2013-01-01T10:00:00Z in epoch ms."""

LOG = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("arrival", pa.timestamp("ms", "UTC")),
        ("key", pa.string()),
        ("value", pa.string()),
    ]
)

Record = tuple[int, int, int, str, str | None]
"""(partition, offset, arrival in ms after BASE, key, value)."""


def payload(milliseconds: int, **fields: Any) -> str:
    """A JSON value whose event time is so long after BASE."""
    moment = datetime.fromtimestamp((BASE + milliseconds) / 1000, UTC)
    return json.dumps({"sched_dep": moment.isoformat().replace("+00:00", "Z"), "distance": 100, **fields})


def records(*positions: tuple[int, int, int]) -> list[Record]:
    """Good records at (partition, offset, arrival); each one's event time is its arrival."""
    return [(partition, offset, arrival, "AA", payload(arrival)) for partition, offset, arrival in positions]


def write_log(path: Path, rows: Iterable[Record], *, row_group_size: int | None = None) -> Path:
    """One Parquet file with the rows in the order given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(zip(*rows, strict=True)) or [[] for _ in LOG]
    columns[2] = [datetime.fromtimestamp((BASE + arrival) / 1000, UTC) for arrival in columns[2]]
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, LOG, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=LOG), path, row_group_size=row_group_size)
    return path


def make_pipeline(path: Path | str | Sequence[str] = "/nowhere", **sections: Any) -> Pipeline:
    """A pipeline over JSON values in Parquet; each section can be replaced or (dicts) amended by name."""
    paths = str(path) if isinstance(path, (Path, str)) else [str(one) for one in path]
    definition: dict[str, Any] = {
        "name": "p",
        "history": {
            "kind": "files",
            "path": paths,
            "format": "parquet",
            "position": {"partition": "partition", "offset": "offset", "arrival": "arrival"},
        },
        "value": {"format": "json", "column": "value", "schema": "sched_dep STRING, distance BIGINT"},
        "keys": {"carrier": "key"},
        "event_time": {"expression": "sched_dep", "unit": "iso"},
        "watermark": {"generator": "bounded_out_of_orderness", "bound": "30 min"},
        "window": {"type": "tumbling", "size": "1 h"},
        "aggregates": {"n": "count(*)"},
    }
    for name, section in sections.items():
        replaces = not isinstance(section, dict) or name in ("keys", "aggregates", "window", "value", "watermark")
        definition[name] = section if replaces else {**definition.get(name, {}), **section}
    return Pipeline.model_validate(definition)


@pytest.fixture
def pipeline() -> MakePipeline:
    """`make_pipeline`, for tests that want it as a fixture."""
    return make_pipeline


def position(**changes: Any) -> dict[str, Any]:
    """A `position` section with some of its fields changed."""
    return {"partition": "partition", "offset": "offset", "arrival": "arrival", **changes}
