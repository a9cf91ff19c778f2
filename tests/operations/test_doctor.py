"""The doctor: it says in plain words what is there, what is not, and how to fix it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.operations.doctor import Check, Status, run_doctor
from tests.lakehouse.rest_catalog import TwoBranches, rest_catalog


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_all_is_well_where_the_tests_run(spark: SparkSession) -> None:
    checks = run_doctor()
    assert [check for check in checks if check.status is Status.FAIL] == []
    assert {"Python", "Java", "PySpark", "home", "disk space", "jars", "catalog", "Spark"} <= by_name(checks).keys()
    assert by_name(checks)["Spark"].what.startswith("Spark 4.0.5 starts")


def test_every_check_that_is_not_ok_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    checks = run_doctor()
    troubled = [check for check in checks if check.status is not Status.OK]
    assert {"Java", "PySpark", "jars"} <= {check.name for check in troubled}
    assert [check for check in troubled if not check.hint] == []


def test_without_java_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    checks = by_name(run_doctor())
    assert checks["Java"].status is Status.FAIL
    assert "Install a Java 17 runtime" in checks["Java"].hint
    assert "Spark" not in checks


def test_jars_that_are_not_there_yet_are_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    jars = by_name(run_doctor())["jars"]
    assert jars.status is Status.WARN
    assert "iceberg-spark-runtime" in jars.what
    assert "Maven Central" in jars.hint


def test_a_home_that_cannot_be_used_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REWINDOW_HOME", str(tmp_path / "file"))
    checks = by_name(run_doctor())
    assert checks["home"].status is Status.FAIL
    assert "REWINDOW_HOME" in checks["home"].hint
    assert "Spark" not in checks


def test_a_catalog_that_is_configured_wrongly_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWINDOW_CATALOG_CONF", "hive")
    catalog = by_name(run_doctor())["catalog"]
    assert catalog.status is Status.FAIL
    assert "part 1 is not a catalog property" in catalog.what


def test_a_catalog_that_does_not_answer_fails(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWINDOW_CATALOG_CONF", "type=rest,uri=http://127.0.0.1:1")
    checks = by_name(run_doctor())
    assert checks["Spark"].status is Status.OK
    assert checks["catalog answers"].status is Status.FAIL
    assert "http://127.0.0.1:1" in checks["catalog answers"].what


@pytest.mark.parametrize("two_branches", TwoBranches)
def test_a_catalog_that_cannot_commit_two_branches_at_once_is_refused_with_the_reason(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, two_branches: TwoBranches
) -> None:
    with rest_catalog(tmp_path, two_branches) as address:
        monkeypatch.setenv("REWINDOW_CATALOG_CONF", f"type=rest,uri={address}")
        checks = by_name(run_doctor())
    assert checks["catalog answers"].status is Status.OK
    publishes = checks["catalog publishes"]
    if two_branches is TwoBranches.MOVES:
        assert publishes.status is Status.OK
        return
    assert publishes.status is Status.FAIL
    reason = {
        TwoBranches.REFUSES: "cannot move two branches of a table in one commit: ",
        TwoBranches.MOVES_ONE: "does not move two branches of a table in one commit",
    }[two_branches]
    assert f"the catalog {reason}" in publishes.what
    if two_branches is TwoBranches.REFUSES:
        assert "a commit moves one branch of a table here" in publishes.what
    assert publishes.hint.startswith("Readers could see a part of a run. Use another catalog")


def test_a_catalog_that_commits_by_renaming_files_is_a_warning_that_says_why(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REWINDOW_CATALOG_CONF", f"type=hadoop,warehouse={tmp_path}/warehouse")
    checks = by_name(run_doctor())
    assert checks["catalog"].status is Status.WARN
    assert "commits by renaming a file. On an object store that is not atomic" in checks["catalog"].what
    assert checks["catalog"].hint.startswith("Use it on HDFS or on a local disk only")
    assert checks["catalog publishes"].status is Status.OK


def pipeline_on(folder: Path, history: str) -> Pipeline:
    file = folder / "numbers.yaml"
    file.write_text(
        f"name: numbers\nhistory: {history}\n"
        "event_time: {expression: at, unit: ms}\n"
        "watermark: {generator: none}\n"
        "window: {type: tumbling, size: 1 min}\n"
        "aggregates: {n: count(*)}\n"
    )
    return load_pipeline(file)


def test_the_metastore_of_a_pipeline_is_looked_at(tmp_path: Path) -> None:
    pipeline = pipeline_on(tmp_path, "{kind: hive, table: a.b, metastore: 'thrift://127.0.0.1:1'}")
    metastore = by_name(run_doctor(pipeline))["metastore"]
    assert metastore.status is Status.FAIL
    assert "thrift://127.0.0.1:1" in metastore.what


def test_the_history_of_a_pipeline_is_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    history = tmp_path / "history"
    pipeline = pipeline_on(tmp_path, f"{{kind: files, path: '{history}', format: parquet}}")
    missing = by_name(run_doctor(pipeline))["history"]
    assert missing.status is Status.FAIL
    assert str(history) in missing.what

    spark.range(3).selectExpr("id AS at").write.parquet(str(history))
    assert by_name(run_doctor(pipeline))["history"].status is Status.OK
    shutil.rmtree(history)
