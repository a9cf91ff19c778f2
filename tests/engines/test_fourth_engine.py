"""A fourth engine is two folders, two files and one line: a toy goes from its YAML file to its report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from spark_jobs.cli.app import app
from spark_jobs.definition import load_pipeline
from spark_jobs.definition.engines import PACKAGES
from spark_jobs.errors import DefinitionError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.report.build import build_report
from spark_jobs.report.counted import Facts
from spark_jobs.report.facts import gather
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.evaluation import EndPolicy
from spark_jobs.runs.work.progress import NoProgress
from tests.engines.toy.eventtime.arrival.job import counts
from tests.runs.small_nights import log_of, tables_of
from tests.runs.small_runs import write

MINUTE = 60_000
YAML = """
name: {name}
engine: arrival
history:
  kind: files
  path: {folder}/*.json
  format: json
  position: {{partition: p, offset: o, arrival: a, arrival_unit: ms}}
value: {{schema: "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"}}
keys: {{k: k}}
event_time: {{expression: t, unit: ms}}
watermark: {{behind: 10 s}}
window: {{type: tumbling, size: 1 min}}
aggregates: {{n: count(*)}}
output: {{namespace: toy_tests}}
"""
TOY = Path(__file__).with_name("toy")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "arrival", "tests.engines.toy")


def definition(folder: Path, name: str, text: str = YAML) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text.format(name=name, folder=folder / "data"))
    return path


@pytest.mark.usefixtures("toy")
def test_its_definitions_are_checked_in_its_own_words(tmp_path: Path) -> None:
    checked = CliRunner().invoke(app, ["check", str(definition(tmp_path, "toy"))])
    assert checked.exit_code == 0, checked.output
    wrong = YAML.replace("behind: 10 s", "bound: 10 s") + "output_mode: append\n"
    with pytest.raises(DefinitionError) as refused:
        load_pipeline(definition(tmp_path, "wrong", wrong))
    assert "watermark.bound: does not belong to engine `arrival`; the toy calls it `behind`" in str(refused.value)
    assert "output_mode: does not belong to engine `arrival`" in str(refused.value)


def test_without_its_line_nobody_knows_it(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="engine: `arrival` is not known; write one of flink, spark, kafka_strea"):
        load_pipeline(definition(tmp_path, "toy"))


@pytest.mark.usefixtures("toy")
def test_it_is_planned_and_run_and_goes_on_night_after_night_and_is_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = [{**one, "k": one["k"] or "c", "p": 0, "o": number} for number, one in enumerate(log_of(7))]
    policy = EndPolicy(collector=gather)
    nightly = load_pipeline(definition(tmp_path, "toy_nightly"))
    for night, part in enumerate((log[:300], log[300:])):
        write(tmp_path / "data", part, f"part-{night}.json")
        result = reconcile(spark, nightly, NoProgress(), end_policy=policy)
        assert (result.continued_from is None) == (night == 0), result.note
    full = load_pipeline(definition(tmp_path, "toy_full"))
    plan = make_plan(spark, full)
    assert (plan.fidelity, plan.warnings) == ("log_order", ())
    execute(spark, full, plan, NoProgress())
    assert tables_of(spark, nightly) == tables_of(spark, full)

    expected = counts([(r["a"], r["t"], r["k"]) for r in log], MINUTE, 10_000)
    rows = spark.table(Tables.of(full).windows).where("n > 0").collect()
    found = {(row["k"], int(row["window_start"].timestamp() * 1000)): row["n"] for row in rows}
    assert found == dict(expected)

    folder = RunStore.configured().folder(result.run_id)
    facts = Facts.model_validate(folder.read("facts.json"))
    assert facts.late is not None and facts.late.records > 0
    report = build_report(folder)
    assert json.loads(json.dumps(report.to_dict()))["run"]["pipeline"] == "toy_nightly"


def test_it_has_the_files_that_the_page_names_and_no_others() -> None:
    files = {path.relative_to(TOY).as_posix() for path in TOY.rglob("*.py")}
    assert files == {
        "definition/engines/arrival.py",
        "eventtime/arrival/job.py",
        "replay/arrival/rules.py",
        "engines/arrival.py",
    }
    page = Path("docs/contributing.md").read_text(encoding="utf-8")
    for place in ("definition/engines/", "eventtime/", "replay/", "engines/", "PACKAGES"):
        assert place in page.partition("## A fourth engine")[2].partition("\n## ")[0]
