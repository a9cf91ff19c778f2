"""The hashes of definitions that are out there, frozen: another hash makes each of them another definition.

After a change that is meant to give a definition another hash: `python -m tests.definition.test_frozen_hashes`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from spark_jobs.definition import load_pipeline
from tests.definition.texts import BASE, FLINK, SPARK, TUMBLING, loaded

ROOT = Path(__file__).parents[2]
FROZEN = Path(__file__).with_name("hashes.json")
FOLDERS = ("dags/pipelines", "tests/data/cases/dags/pipelines")

GENERATORS = (
    "generator: bounded_out_of_orderness, bound: 10 s, emission: per_event",
    "generator: lag, lag: 5 s",
    "generator: average_of_last, last: 5, lag: 5 s, emission: per_event",
    "generator: time_lag, lag: 5 s",
    "generator: punctuated, marker: ts > 0, lag: 1 s",
    "generator: advance_after_wait, bound: 1 s, wait: 1 min, interval: 0",
    "generator: interleaved, bound: 1 s, stream: CAST(ts % 2 AS STRING), streams: ['0', '1']",
    "generator: none",
    "generator: custom, class: of_nobody:Follow",
)
WINDOWS = (
    "{type: sliding, size: 1 h, slide: 10 min}",
    "{type: cumulative, size: 1 h, step: 10 min}",
    "{type: session, gap: 5 min}",
    "{type: tumbling, size: 1 day, time_zone: Europe/Berlin}",
)
STREAMS = BASE + "engine: kafka_streams\nwatermark: {grace: 10 s}\n" + TUMBLING
UNION = (
    """
name: both
history:
  kind: union
  of:
    - {name: a, history: {kind: kafka, servers: "k:9092", topic: a}, keys: {k: key}, WATERMARK,
       value: {format: json, schema: "ts BIGINT"}, event_time: {expression: ts, unit: ms}}
    - {name: b, history: {kind: kafka, servers: "k:9092", topic: b}, keys: {k: key}, WATERMARK,
       value: {format: json, schema: "ts BIGINT"}, event_time: {expression: ts, unit: ms}}
aggregates: {n: count(*)}
"""
    + TUMBLING
)
OF_SPARK = (
    "{type: sliding, size: 1 h, slide: 10 min}",
    "{type: session, gap: 1 month 2 days, time_zone: Europe/Berlin}",
    "{type: session, gap: 1 day}",
)
OF_STREAMS = (
    "window: {type: hopping, size: 1 h, advance: 10 min}",
    "window: {type: sliding, time_difference: 5 min}",
    "window: {type: session, gap: 5 min}",
    "window: {type: tumbling, size: 1 h}\nemission: each_update",
    "window: {type: tumbling, size: 1 h}\nemission: on_close",
    "window: {type: tumbling, size: 1 h}\nemission: {kind: on_close, strategy: emit, interval: 2 s}",
)
MORE = {
    "flink": FLINK,
    "spark": SPARK + TUMBLING,
    "spark with gaps": SPARK.replace("/c}", "/c, gaps: approximate, trigger: 10 s}") + TUMBLING,
    "spark, complete": SPARK + TUMBLING + "output_mode: complete\n",
    "kafka_streams": STREAMS,
    "lateness and panes": FLINK + "allowed_lateness: 1 min\npanes: all\n",
    "filter and quarantine": FLINK + "filter: {before_watermark: ts > 0}\nquarantine: {threshold: 0.1}\n",
    "deduplicate": FLINK + "deduplicate: {by: ts}\n",
    "union of flink": UNION.replace("WATERMARK", "watermark: {generator: ascending}"),
    "union of spark": UNION.replace("WATERMARK", "watermark: {delay: 1 min, source: '0'}").replace("'0'", "'1'", 1)
    + "engine: spark\nwatermark: {checkpoint: /c}\n",
    "spark, duplicates": SPARK + TUMBLING + "deduplicate: {by: ts}\n",
    "spark, all duplicates": SPARK + TUMBLING + "deduplicate: {by: ts, kind: drop_duplicates, event_time: true}\n",
    "flink, duplicates": FLINK + "deduplicate: {by: ts, kind: processing_time, within: 1 h}\n",
    "spark, panes": SPARK + TUMBLING + "panes: all\noutput_mode: update\nmode: faithful\n",
    "kafka_streams, restarts": STREAMS.replace(
        "grace: 10 s", "grace: 10 s, retention: 2 d, restarts: [{at: '2026-03-01T02:00:00Z', state: lost}]"
    ),
    "frozen": FLINK + "end_of_input: freeze\nallowed_lateness: forever\n",
    **{f"spark: {window}": f"{SPARK}window: {window}\n" for window in OF_SPARK},
    **{f"kafka_streams: {own}": STREAMS.replace(TUMBLING, own + "\n") for own in OF_STREAMS},
    **{window: BASE + f"watermark: {{generator: ascending}}\nwindow: {window}\n" for window in WINDOWS},
    **{generator: BASE + f"watermark: {{{generator}}}\n" + TUMBLING for generator in GENERATORS},
}


def hashes() -> Iterator[tuple[str, str]]:
    """The name and the hash of each definition."""
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).glob("*.yaml")):
            yield f"{folder}/{file.name}", load_pipeline(file).definition_hash
    with tempfile.TemporaryDirectory() as folder:
        for name, text in MORE.items():
            yield name, loaded(Path(folder), text).definition_hash


def test_no_definition_has_become_another_one() -> None:
    frozen = json.loads(FROZEN.read_text())
    found = dict(hashes())
    assert {name: found.get(name) for name in frozen} == frozen
    assert found.keys() == frozen.keys(), "a definition is new: freeze its hash"


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(dict(hashes()), indent=1, sort_keys=True) + "\n")
