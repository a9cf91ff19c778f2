"""A value that the live job emitted and that the replay's type cannot hold is put right, not taken for a null."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.corrections.due import due, scope_of
from spark_jobs.definition import load_pipeline
from tests.corrections.small_corrections import counts_of, published, write_table

T0 = 1_600_000_020_000
YAML = """
name: unreadable_values
history:
  kind: files
  path: log.json
  format: json
  position: {partition: p, offset: o, arrival: a, arrival_unit: ms}
value: {schema: "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"}
keys: {k: k}
event_time: {expression: t, unit: ms}
watermark: {generator: ascending, emission: per_event}
window: {type: tumbling, size: 1 min}
aggregates: {n: count(*), total: max(v)}
end_of_input: freeze
live:
  source: {kind: table, table: rewindow.corrected.unreadable}
  window: {start: window_start}
corrections: {value: faithful}
output: {namespace: nightly_tests}
"""


def test_emitted_text_that_is_no_number_is_a_mismatch_and_gets_a_correction(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = [("a", 0, None), ("b", 1, None), ("c", 2, 7), ("a", 61, 1), ("a", 125, 1)]
    records = (
        {"p": 0, "o": number, "a": T0 + 1000 * number, "k": key, "t": T0 + 1000 * time, "v": value}
        for number, (key, time, value) in enumerate(log)
    )
    (tmp_path / "log.json").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "p.yaml").write_text(YAML)
    rows = [("a", T0, 1, "abc"), ("b", T0, 1, None), ("c", T0, 1, "7"), ("a", T0 + 60_000, 1, "1")]
    named = [dict(zip(("k", "s", "n", "total"), row, strict=True)) for row in rows]
    write_table(spark, "rewindow.corrected.unreadable", named, total="STRING")
    job = load_pipeline(tmp_path / "p.yaml")
    counts = counts_of(published(spark, job))
    assert (counts["mismatch"], counts["match"]) == (1, 3), counts
    found = due(scope_of(spark, job))
    assert found is not None
    assert [(row["k"], row["total__old"], row["total__new"]) for row in found.collect()] == [("a", None, None)]
