"""Definitions that call the functions of the job in `job/` and `project/`."""

from __future__ import annotations

import json
from pathlib import Path

from spark_jobs.definition import Pipeline, load_pipeline

JAVA = {
    "tidy": "{jar: jobs/job.jar, class: job.Tidy}",
    "twice": "{jar: jobs/job.jar, class: job.Twice}",
    "backwards": "{jar: jobs/job.jar, class: job.Old}",
    "median_of": "{jar: jobs/job.jar, class: job.Median}",
    "way": "{jar: jobs/job.jar, class: job.Path, ordered: true}",
    "latest": "{jar: jobs/job.jar, class: job.Latest, returns: 'STRUCT<sensor: STRING, at: BIGINT, value: DOUBLE>'}",
    "weighted": "{jar: jobs/job.jar, class: job.Weighted}",
    "longest": "{jar: jobs/job.jar, class: job.Longest}",
}
PYTHON = {
    "py_tidy": "{python: jobs.words.tidy, returns: STRING}",
    "py_top": "{python: jobs.words.Top, returns: ARRAY<BIGINT>}",
    "py_way": "{python: jobs.words.path, returns: STRING, aggregate: true, ordered: true}",
}
READING = "named_struct('sensor', k, 'at', t, 'value', CAST(v AS DOUBLE))"
AGGREGATES = {
    "n": "count(*)",
    "med": f"median_of({READING})",
    "way": "way(v)",
    "at_last": f"latest({READING}).at",
    "mean": "weighted(CAST(v AS DOUBLE), v)",
    "word": "longest(k)",
    "double": "sum(twice(v))",
    "top": "py_top(v)",
    "py_way": "py_way(v)",
    "half_of": f"median_of({READING}) / 2 + count(*)",
    "some": f"median_of({READING}) FILTER (WHERE v > 10)",
}


def defined(
    project: Path,
    name: str,
    *,
    functions: dict[str, str] | None = None,
    aggregates: dict[str, str] | None = None,
    keys: str = "{k: tidy(k), q: py_tidy(k)}",
    window: str = "{type: tumbling, size: 1 min}",
    more: str = "",
) -> Pipeline:
    lines = "\n".join(f"  {key}: {value}" for key, value in (functions or {**JAVA, **PYTHON}).items())
    values = "\n".join(f"  {key}: {json.dumps(value)}" for key, value in (aggregates or AGGREGATES).items())
    path = project / "dags" / "pipelines" / f"{name}.yaml"
    path.write_text(f"""
name: {name}
history:
  kind: files
  path: data/*.json
  format: json
  position: {{partition: p, offset: o, arrival: a, arrival_unit: ms}}
value: {{schema: "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"}}
functions:
{lines}
keys: {keys}
event_time: {{expression: t, unit: ms}}
watermark: {{generator: bounded_out_of_orderness, bound: 10 s, partitions: [0, 1]}}
window: {window}
aggregates:
{values}
quarantine: {{threshold: 50 %}}
output: {{namespace: function_tests}}
{more}""")
    return load_pipeline(path)
