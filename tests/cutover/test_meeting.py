"""Whether both sides of a cutover meet: the published windows before it, and what the new job emitted from it on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.cutover.meeting import Meeting, check_meeting
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.small_runs import MINUTE, T0, definition_text, record, run, write

RECORDS = [record(i) for i in range(600)]
AT = T0 + 5 * MINUTE
LIVE = """
live:
  source:
    {{kind: files, path: {folder}/rows/*.json, format: json, schema: "k STRING, s BIGINT, n BIGINT, total BIGINT"}}
  window: {{start: s, unit: ms}}
"""


@pytest.fixture(scope="module")
def handed_over(spark, tmp_path_factory) -> tuple[Pipeline, list[dict]]:
    """A backfill up to the cutover, and the rows of the job that goes on: what the replay has from there."""
    folder = tmp_path_factory.mktemp("handed_over")
    write(folder / "data", RECORDS)
    write(folder / "rows", [{"k": "x", "s": T0 - 60 * MINUTE, "n": 1, "total": 1}])
    file = folder / "handed_over.yaml"
    file.write_text(definition_text("handed_over", folder / "data") + LIVE.format(folder=folder))
    defined = load_pipeline(file)
    whole = run(spark, defined.model_copy(update={"output": defined.output.model_copy(update={"table": "whole"})}))
    rows = spark.table(whole.tables.windows).where("pane IS NOT NULL").collect()
    emitted = [
        {"k": row["k"], "s": int(row["window_start"].timestamp() * 1000), "n": row["n"], "total": row["total"]}
        for row in rows
    ]
    run(spark, defined, end=AT)
    return defined, [row for row in emitted if row["s"] >= AT]


def met(spark: SparkSession, defined: Pipeline, rows: list[dict]) -> Meeting:
    assert defined.file is not None
    (Path(defined.file).parent / "rows" / "part-0.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return check_meeting(spark, defined, AT, NoProgress())


def test_a_clean_cutover_has_each_window_once(spark, handed_over) -> None:
    defined, rows = handed_over
    found = met(spark, defined, rows)
    assert found.is_clean, found
    assert (found.counts["after"], found.counts["gap"], found.counts["overlap"]) == (len(rows), 0, 0)
    assert found.counts["before"] > 0


def test_a_gap_an_overlap_and_another_value_are_found(spark, handed_over) -> None:
    defined, rows = handed_over
    early = {**rows[0], "s": AT - MINUTE}
    wrong = {**rows[1], "total": rows[1]["total"] + 1}
    found = met(spark, defined, [early, wrong, *rows[2:]])
    assert not found.is_clean
    assert (found.counts["gap"], found.counts["overlap"], found.differing) == (1, 1, 1)
    labels = {(one.label.value, one.start[:19], one.key["k"]) for one in found.samples}
    assert ("gap", format_instant(rows[0]["s"])[:19], rows[0]["k"]) in {
        (label, start.replace(" ", "T"), key) for label, start, key in labels
    }
    assert ("overlap", format_instant(AT - MINUTE)[:19], rows[0]["k"]) in labels
