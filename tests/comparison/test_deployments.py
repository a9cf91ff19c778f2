"""A topic that two deployments of the live job have processed: each is judged by what it emitted and its own rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.comparison import chosen, stage
from spark_jobs.comparison.compare import run_compare
from spark_jobs.comparison.live_check import check_live
from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import deployments_of
from spark_jobs.definition.instants import format_instant
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.live_history import emitted_panes, window_verdicts
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.backfill import EndPolicy
from spark_jobs.runs.work.progress import NoProgress
from tests.comparison.small_live import SOURCE, closed_windows, full_comparison, with_live
from tests.runs.small_nights import log_of
from tests.runs.small_runs import MINUTE, T0, write

SWITCH = T0 + 5 * MINUTE // 2
OLD, NEW = "until the upgrade", "since then"
RULES = "watermark: {generator: bounded_out_of_orderness, bound: 1 s, partitions: [0, 1]}, allowed_lateness: 0 s"


def source_of(folder: Path, part: str) -> str:
    return SOURCE.format(path=f"{folder}/emitted/{part}/*.json")


def two_deployments(folder: Path, name: str) -> Pipeline:
    old, new = (source_of(folder, part).replace("\n", "\n  ").rstrip() for part in ("old", "new"))
    switch = format_instant(SWITCH)
    return with_live(
        folder,
        name,
        f"live:\n  - name: {OLD}\n    to: '{switch}'\n    definition: {{{RULES}}}{old}\n"
        f"  - name: {NEW}\n    from: '{switch}'{new}\n",
    )


def emit(spark: SparkSession, defined: Pipeline, folder: Path, emitted: dict, night: int) -> None:
    """What both jobs have emitted since the last time; the first row of each is wrong."""
    (folder / "emitted").mkdir(exist_ok=True)
    for part, deployed in zip(("old", "new"), deployments_of(defined), strict=True):
        rows = []
        for row in sorted(closed_windows(spark, deployed.pipeline), key=lambda row: (row["s"], row["k"] or "")):
            window = (part, row["k"], row["s"])
            is_its = (row["s"] < SWITCH) == (part == "old")
            if is_its and emitted.get(window) != row["pane"]:
                is_first = not any(one[0] == part for one in emitted)
                emitted[window] = row["pane"]
                rows.append(row | {"n": row["n"] + 7 * is_first})
        write(folder / "emitted" / part, rows, f"part-{night}.json")


@pytest.mark.long
def test_each_deployment_is_judged_by_its_own_rules(spark, tmp_path) -> None:
    defined = two_deployments(tmp_path, "deployed")
    write(tmp_path / "data", log_of(5, count=400), "part-0.json")
    emit(spark, defined, tmp_path, {}, 0)
    report = run_compare(spark, defined, NoProgress(), limit=1000)
    assert {(row["live_deployment"], row["verdict"]) for row in report.top if row["verdict"] == "mismatch"} == {
        (OLD, "mismatch"), (NEW, "mismatch")
    }  # fmt: skip
    assert report.counts["mismatch"] == 2 and not {"missing", "extra"} & report.counts.keys()
    assert [(one.name, one.own_rules) for one in report.deployments] == [(OLD, True), (NEW, False)]
    assert sum(one.windows for one in report.deployments) == report.windows
    # By the rules of the definition alone, the earlier deployment's windows would be wrong.
    both = source_of(tmp_path, "*")
    alone = run_compare(spark, with_live(tmp_path, "alone", f"live:{both}"), NoProgress(), limit=10)
    assert alone.counts["mismatch"] > report.counts["mismatch"] and alone.deployments == []
    checks = [check_live(spark, one, NoProgress(), rows=1000) for one in deployments_of(defined)]
    assert [check.rows for check in checks] == [
        sum(len(file.read_text().splitlines()) for file in (tmp_path / "emitted" / part).iterdir())
        for part in ("old", "new")
    ]


@pytest.mark.long
def test_night_after_night_both_deployments_are_judged_as_a_comparison_of_everything_would(
    spark, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(chosen, "COMMIT_DELAY", 0)
    defined, emitted, done = two_deployments(tmp_path, "nights"), {}, 0
    records = log_of(5, count=400)
    for night, cut in enumerate((180, 300, len(records))):
        write(tmp_path / "data", records[done:cut], f"part-{night}.json")
        done = cut
        emit(spark, defined, tmp_path, emitted, night)
        result = reconcile(spark, defined, NoProgress(), end_policy=EndPolicy(compare=stage.compare_run))
        assert (result.continued_from is None) == (night == 0), result.note
        document = Verdicts.read(RunStore.configured().folder(result.run_id))
        assert document is not None and document.problem is None, document and document.problem
        found, _ = full_comparison(spark, defined)
        current = spark.table(Tables.of(defined).verdicts).where("valid_to IS NULL").collect()
        there = {
            (r["k"], r["window_start"].timestamp() * 1000, r["verdict"], r["n__emitted"], r["n__complete"])
            for r in current
            if r["verdict"] != "all_late"
        }
        assert there == found, f"night {night}"
        assert {r["live_deployment"] for r in current if r["window_start"].timestamp() * 1000 < SWITCH} == {OLD}
    wrong = next(r for r in current if r["verdict"] == "mismatch" and r["live_deployment"] == NEW)
    start = int(wrong["window_start"].timestamp() * 1000)
    keys = [("k", "null" if wrong["k"] is None else wrong["k"])]
    assert {pane.deployment for pane in emitted_panes(spark, defined, keys, start)} == {NEW}
    assert {verdict.deployment for verdict in window_verdicts(spark, defined, keys, start)} == {NEW}
