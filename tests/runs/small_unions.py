"""Small unions of two inputs over files."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.instants import format_instant
from tests.runs.small_runs import T0

YAML = """
name: {name}
history:
  kind: union
  of:
    - name: orders
      history:
        kind: files
        path: {folder}/orders/*.json
        format: json
        position: {{partition: p, offset: o, arrival: a, arrival_unit: ms}}
      value: {{schema: "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"}}
      keys: {{k: k}}
      event_time: {{expression: t, unit: ms, missing: quarantine}}
      watermark: {{{orders}, partitions: 2}}
    - name: returns
      history:
        kind: files
        path: {folder}/returns/*.json
        format: json
        position: {{partition: p, offset: o, arrival: a, arrival_unit: ms}}
      value: {{schema: "p INT, o BIGINT, a BIGINT, shop STRING, happened BIGINT, refund BIGINT"}}
      columns: {{v: "-refund"}}
      keys: {{k: shop}}
      event_time: {{expression: happened, unit: ms}}
      watermark: {{{returns}}}
      filter: {{before_watermark: refund >= 0}}
window: {window}
allowed_lateness: 20 s
aggregates: {{n: count(*), total: sum(v)}}
quarantine: {{threshold: 5 %}}
output: {{namespace: union_tests}}
"""


TIMER = "interval: 1 s, timer_start: '2020-09-13T12:26:00Z'"


JOBS = {
    "delays": ("generator: bounded_out_of_orderness, bound: 10 s", "generator: ascending"),
    "idleness": (
        f"generator: bounded_out_of_orderness, bound: 10 s, idleness: 20 s, {TIMER}",
        f"generator: bounded_out_of_orderness, bound: 5 s, emission: periodic, {TIMER}",
    ),
    **{
        f"discovered {after} s": (
            "generator: bounded_out_of_orderness, bound: 10 s, "
            f"discovered: {{1: '{format_instant(T0 + after * 1000)}'}}",
            "generator: ascending",
        )
        for after in (100, 200)
    },
    "alike": ("generator: lag, lag: 7 s", "generator: lag, lag: 7 s"),
}


def pipeline(
    folder: Path,
    name: str,
    job: str = "delays",
    window: str = "{type: tumbling, size: 1 min}",
    **changed: tuple[str, str],
) -> Pipeline:
    orders, returns = JOBS[job]
    text = YAML.format(name=name, folder=folder, orders=orders, returns=returns, window=window)
    for before, after in changed.values():
        assert before in text
        text = text.replace(before, after)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return load_pipeline(path)
