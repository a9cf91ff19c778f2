"""The generated records as a pipeline, for sections that measure whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.eventtime.durations import MINUTE
from tests.bench.data import BOUND, PARTITIONS, Dataset
from tests.bench.workload import AGGREGATES

_DEFINITION = """\
name: {table}
history:
  kind: files
  path: {path}/*.parquet
  format: parquet
  position: {{partition: partition, offset: offset, arrival: arrival, arrival_unit: ms}}
value: {{format: columns}}
keys: {{key: key_{keys}}}
event_time: {{expression: event_time, unit: ms, missing: quarantine}}
watermark:
  generator: bounded_out_of_orderness
  bound: {bound} ms
  emission: per_event
  partitions: {partitions}
window: {{type: tumbling, size: {size} ms}}
allowed_lateness: 0
aggregates:
{aggregates}
end_of_input: flush
output: {{namespace: bench, table: {table}}}
"""


def read_sections(folder: str, partitions: int = PARTITIONS) -> dict[str, Any]:
    """How the generated records in a folder are read: the sections `history`, `event_time` and `watermark`."""
    position = {"partition": "partition", "offset": "offset", "arrival": "arrival", "arrival_unit": "ms"}
    return {
        "history": {"kind": "files", "path": f"{folder}/*.parquet", "format": "parquet", "position": position},
        "event_time": {"expression": "event_time", "unit": "ms", "missing": "quarantine"},
        "watermark": {
            "generator": "bounded_out_of_orderness",
            "bound": BOUND,
            "emission": "per_event",
            "partitions": list(range(partitions)),
        },
    }


def bench_pipeline(data: Dataset, keys: int, folder: Path, table: str) -> Pipeline:
    """The pipeline `table` over the records with so many `keys`, in one-minute windows; its file lies in `folder`."""
    path = folder / f"{table}.yaml"
    path.write_text(
        _DEFINITION.format(
            keys=keys,
            path=data.path,
            table=table,
            bound=BOUND,
            size=MINUTE,
            partitions=list(range(PARTITIONS)),
            aggregates="\n".join(f"  {name}: {text}" for name, text in AGGREGATES.items()),
        )
    )
    return load_pipeline(path)
