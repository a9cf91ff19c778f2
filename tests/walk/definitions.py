"""The definition of a walk's pipeline: a shape over a history."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.instants import format_instant
from tests.runs.small_runs import T0
from tests.walk.plan import Kind, Shape, Walk
from tests.walk.truth import TICK

NAMESPACE = "walks"
COLUMNS = "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT, i BIGINT"

_WINDOWS = {
    Shape.SLIDING: "{type: sliding, size: 2 min, slide: 1 min}\nallowed_lateness: 30 s",
    Shape.SESSION: "{type: session, gap: 20 s}",
}
_MORE = {
    Shape.DEDUPLICATE: "deduplicate: {by: i, kind: processing_time}\n",
    Shape.COMPLETE: "mode: complete\n",
}

_YAML = """
name: {name}
history: {history}
{reads}
{job}
window: {window}
aggregates: {{n: count(*), total: sum(v){added}}}
quarantine: {{threshold: 100 %}}
output: {{namespace: walks}}
{more}"""


_READS = """value: {value}
keys: {{g: {key}}}
event_time: {{expression: t, unit: ms}}"""
_INPUT = """    - name: {name}
      history: {history}
      value: {{schema: "{columns}"}}
      keys: {{g: k}}
      event_time: {{expression: t, unit: ms}}
      watermark: {{generator: bounded_out_of_orderness, bound: 10 s, partitions: [0]{timer}}}
"""
OF_UNION = "end_of_input: flush"
_FLINK = """watermark: {{generator: bounded_out_of_orderness, bound: 10 s, partitions: [0, 1]{timer}}}
end_of_input: flush"""
_TIMER = f", emission: periodic, interval: {TICK // 1000} s, timer_start: '{format_instant(T0)}'"


def definition(
    walk: Walk,
    name: str,
    history: str,
    folder: Path,
    *,
    regions: str,
    value: str | None = None,
    job: str | None = None,
    redefined: int = 0,
) -> Pipeline:
    """The pipeline `name`; `history` and `value` are its sections in YAML, `job` says how its live job runs.

    `regions` is the table that keys are looked up in. `redefined`: how many aggregates were added.
    """
    key = "region" if walk.shape is Shape.LOOKUP else "k"
    read = _READS.format(value=value or f'{{schema: "{COLUMNS}"}}', key=key)
    lookup = f"lookup: {{table: {regions}, on: k, as_of: run}}\n" if walk.shape is Shape.LOOKUP else ""
    text = _YAML.format(
        name=name,
        history=history,
        job=job or _FLINK.format(timer=timer_of(walk)),
        reads="" if walk.kind is Kind.UNION else read,
        added="".join(f", most_{n}: max(v)" for n in range(redefined)),
        window=_WINDOWS.get(walk.shape, "{type: tumbling, size: 1 min}"),
        more=lookup + _MORE.get(walk.shape, ""),
    )
    return load_pipeline(folder / f"{name}.yaml", text=text)


def timer_of(walk: Walk) -> str:
    """What a watermark says of its timer."""
    return _TIMER if walk.periodic else ""


def union_of(walk: Walk, histories: Mapping[str, str]) -> str:
    """The section `history` of a union of these inputs, by name."""
    inputs = (
        _INPUT.format(name=name, history=one, columns=COLUMNS, timer=timer_of(walk)) for name, one in histories.items()
    )
    return "\n  kind: union\n  of:\n" + "".join(inputs)


def position(walk: Walk) -> str:
    """Where records of files and tables have their positions."""
    more = ", going_back: running_maximum" if walk.running_maximum else ""
    return f"position: {{partition: p, offset: o, arrival: a, arrival_unit: ms{more}}}"
