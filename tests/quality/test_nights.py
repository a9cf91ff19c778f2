"""The gate over real nights: what is recomputed is held to the reviewed suites before it is published."""

# pyright: reportOptionalSubscript=false

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from spark_jobs.errors import CatalogError, DefinitionError
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.run_ends import end_policy_of
from spark_jobs.quality.configured import gate_of
from spark_jobs.runs.life.documents import Gate, Outcome, Requested, status_of
from spark_jobs.runs.life.permission import Action
from spark_jobs.runs.life.reopening import publish_staged
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.small_nights import CASES, log_of, pipeline, tables_of
from tests.runs.small_runs import write

CASE = next(iter(CASES))


def at_most(count: int) -> str:
    """A suite of one's own: no window holds more records."""
    expectation = {
        "type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": count},
        "severity": "critical", "description": "Few records a window", "meta": {"name": "few"},
    }  # fmt: skip
    return json.dumps({"name": "gated_nights", "meta": {"data": "windows"}, "expectations": [expectation]})


@pytest.mark.long
def test_nights_are_held_to_the_suites_and_a_closed_gate_keeps_one_back(
    spark: SparkSession, tmp_path, suites_folder
) -> None:
    records = [record | {"k": record["k"] or "c"} for record in log_of(31, count=300)]
    defined = pipeline(tmp_path, "gated_nights", CASE)

    def night(batch: list[dict]) -> RunResult:
        write(tmp_path / "data", batch, f"part-{batch[0]['v']:06}.json")
        return reconcile(spark, defined, NoProgress(), end_policy=EndPolicy(gate=gate_of(defined)))

    def folder(run: RunResult):
        return RunStore.configured().folder(run.run_id)

    suites_folder("gated_nights.json", at_most(1000))
    for batch in (records[:120], records[120:180]):
        passed = night(batch)
        gate = folder(passed).read(Gate.FILE)
        assert (gate["blocks"], status_of(folder(passed))) == (False, RunStatus.PUBLISHED), gate
        assert {suite["data"] for suite in gate["suites"]} == {"input", "windows", "reconciliation"}
        assert all(result["error"] is None for result in gate["results"])
    before = tables_of(spark, defined)

    suites_folder("gated_nights.json", at_most(0))
    closed = night(records[180:240])
    assert closed.decision is not None and closed.decision.action is not Action.PUBLISH
    assert status_of(folder(closed)) is RunStatus.GATE_FAILED
    assert "rewindow publish" in folder(closed).read(Outcome.FILE)["hint"]
    assert tables_of(spark, defined) == before

    # The night after it takes both nights' records; then there is nothing left that the closed one could publish.
    suites_folder("gated_nights.json", at_most(1000))
    assert status_of(folder(night(records[240:]))) is RunStatus.PUBLISHED
    with pytest.raises(CatalogError, match="has published windows of the same range meanwhile"):
        publish_staged(lambda _: spark, closed.run_id, NoProgress(), "too late")
    full = pipeline(tmp_path, "gated_nights_full", CASE)
    execute(spark, full, make_plan(spark, full), NoProgress())
    assert tables_of(spark, defined) == tables_of(spark, full)


@pytest.mark.long
def test_what_a_closed_gate_kept_back_can_be_published_with_a_reason(spark, tmp_path, suites_folder) -> None:
    records = [record | {"k": record["k"] or "c"} for record in log_of(32, count=160)]
    defined = pipeline(tmp_path, "kept_back", CASE)
    write(tmp_path / "data", records[:100], "part-0.json")
    reconcile(spark, defined, NoProgress())
    write(tmp_path / "data", records[100:], "part-1.json")
    suites_folder("kept_back.json", at_most(0).replace("gated_nights", "kept_back"))
    closed = reconcile(spark, defined, NoProgress(), end_policy=EndPolicy(gate=gate_of(defined)))
    publish_staged(lambda _: spark, closed.run_id, NoProgress(), "seen, and right")
    row = spark.table(closed.tables.runs).where(f"run_id = '{closed.run_id}'").select("status", "reason").head()
    assert tuple(row) == ("published", "seen, and right")
    full = pipeline(tmp_path, "kept_back_full", CASE)
    execute(spark, full, make_plan(spark, full), NoProgress())
    assert tables_of(spark, defined) == tables_of(spark, full)


def test_a_suite_that_great_expectations_refuses_ends_a_run_before_it_begins(
    spark: SparkSession, tmp_path, suites_folder
) -> None:
    defined = pipeline(tmp_path, "unknown_type", CASE)
    unknown = at_most(1).replace("gated_nights", "unknown_type").replace("_to_be_between", "_to_be_plausible")
    suites_folder("unknown_type.json", unknown)
    write(tmp_path / "data", log_of(31, count=20), "part-0.json")
    ends = end_policy_of(defined, Requested())
    with pytest.raises(DefinitionError, match="'expect_column_values_to_be_plausible' is no type of expectation"):
        reconcile(spark, defined, NoProgress(), end_policy=ends)
    assert Ledger(spark, Tables.of(defined)).runs().isEmpty()
