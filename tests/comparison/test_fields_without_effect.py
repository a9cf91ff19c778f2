"""Fields of `live:` that do nothing beside some windows stay readable, and are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.cli.output import notes_of
from spark_jobs.comparison.compare import run_compare
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.replay.defined_windows import fields_without_effect
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.small_runs import definition_text, record, write

EMITTED = 'schema: "k STRING, s BIGINT, n BIGINT, total BIGINT"'

LIVE = """
live:
  source: {kind: files, path: emitted, format: parquet}
  window: {start: s}
  late_output: {source: {kind: files, path: late, format: parquet}}
"""


def defined(folder: Path, window: str, live: str) -> Pipeline:
    path = folder / "p.yaml"
    path.write_text(definition_text("p", folder / "data", window=f"window: {window}") + live)
    return load_pipeline(path)


@pytest.mark.parametrize(
    ("window", "is_said"),
    [
        ("{type: tumbling, size: 1 min}", False),
        ("{type: tumbling, size: 1 d, time_zone: Europe/Vienna}", False),
        ("{type: sliding, size: 2 min, slide: 30 s}", True),
        ("{type: cumulative, size: 3 min, step: 1 min}", True),
        ("{type: session, gap: 1 min}", True),
    ],
)
def test_a_late_output_beside_windows_that_share_records_is_told(tmp_path: Path, window: str, is_said: bool) -> None:
    said = fields_without_effect(defined(tmp_path, window, LIVE))
    assert [text.split(":")[0] for text in said] == ["live.late_output has no effect"] * is_said
    assert fields_without_effect(defined(tmp_path, window, "")) == ()
    several = LIVE.replace("\n  ", "\n    ").replace("live:\n    source", "live:\n  - name: blue\n    source")
    assert len(fields_without_effect(defined(tmp_path, window, several))) == is_said


def test_a_late_output_beside_offsets_on_each_row_is_told(tmp_path: Path) -> None:
    tumbling = "{type: tumbling, size: 1 min}"
    (said,) = fields_without_effect(defined(tmp_path, tumbling, LIVE + "  last_offsets: offsets\n"))
    assert said.startswith("live.late_output has no effect beside live.last_offsets")
    without = LIVE[: LIVE.index("  late_output")] + "  last_offsets: offsets\n"
    assert fields_without_effect(defined(tmp_path, tumbling, without)) == ()


def test_the_check_the_plan_and_the_comparison_tell_it(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "data", [record(i) for i in range(200)])
    (tmp_path / "emitted.json").write_text('{"k": "a", "s": 1600000020000, "n": 1, "total": 1}\n')
    live = LIVE.replace("path: emitted, format: parquet", f"path: {tmp_path}/emitted.json, format: json, {EMITTED}")
    live = live.replace("{start: s}", "{start: s, unit: ms}")
    pipeline = defined(tmp_path, "{type: sliding, size: 2 min, slide: 30 s}", live)
    told = fields_without_effect(pipeline)
    (note,) = notes_of(pipeline)
    assert (note.field, f"{note.what}: {note.hint}") == ("live", told[0])
    assert set(told) <= set(make_plan(spark, pipeline).warnings)
    assert set(told) <= set(run_compare(spark, pipeline, NoProgress(), limit=10).notes)
