"""The DAGs, as Airflow's own parser reads them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.definition.alias_bomb import BOMB

ROOT = Path(__file__).parents[2]
KINDS = ("backfill", "reconcile", "decide", "look", "maintain")
PARSE = """
import json, resource, sys, time
# As where the extra is not installed.
sys.modules.update({"openlineage": None, "airflow.providers.openlineage.extractors": None})
import airflow.sdk
from airflow.dag_processing.dagbag import DagBag
began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
bag = DagBag(sys.argv[1])
seconds = time.process_time() - began
kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
dags = {
    dag.dag_id: {
        "tasks": {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks},
        "teardowns": [t.task_id for t in dag.teardowns],
        "catchup": dag.catchup, "runs": dag.max_active_runs,
        "form": sorted(dag.params), "paused": dag.is_paused_upon_creation,
        "choices": {name: param.schema.get("enum") for name, param in dag.params.items() if param.schema.get("enum")},
    }
    for dag in bag.dags.values()
}
heavy = [name for name in ("pyspark", "great_expectations", "pandas") if name in sys.modules]
print("RESULT" + json.dumps({"dags": dags, "errors": bag.import_errors, "seconds": seconds,
                             "kilobytes": kilobytes, "heavy": heavy}))
"""


def parse(folder: Path, home: Path) -> dict:
    """The folder as a DAG processor sees it, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PARSE), str(folder)],
        capture_output=True, text=True, timeout=300, cwd=home,
        env={
            **os.environ, "PYTHONPATH": f"{ROOT}:{home}", "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        },
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[0].removeprefix("RESULT"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of `dags/`, without the pipelines."""
    shutil.copytree(ROOT / "dags", tmp_path / "dags", ignore=shutil.ignore_patterns("__pycache__", "*.yaml"))
    return tmp_path / "dags"


def definition(name: str) -> str:
    text = (ROOT / "dags/pipelines/departures_hourly.yaml").read_text()
    return text.replace("name: departures_hourly", f"name: {name}").replace(
        "table: departures_hourly", f"table: {name}"
    )


def test_each_pipeline_has_its_five_dags(folder: Path, tmp_path: Path) -> None:
    """Beside a DAG that follows a published table, as docs/airflow.md has it."""
    for file in (ROOT / "dags/pipelines").glob("*.yaml"):
        shutil.copy(file, folder / "pipelines")
    (follower,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/airflow.md").read_text(), re.DOTALL | re.MULTILINE)
    (folder / "refresh.py").write_text(follower)
    parsed = parse(folder, tmp_path)
    assert parsed["errors"] == {}
    pipelines = sorted(file.stem for file in (ROOT / "dags/pipelines").glob("*.yaml"))
    dags = [f"{kind}__{p}" for p in pipelines for kind in KINDS]
    assert sorted(parsed["dags"]) == sorted([*dags, "refresh_dashboards"])
    backfill = parsed["dags"]["backfill__departures_hourly"]
    assert backfill["tasks"]["plan"] == ["replay", "report", "timeline"]
    assert backfill["tasks"]["replay"] == ["compare", "report"]
    assert backfill["tasks"]["compare"] == ["report", "verify"]
    assert "compare" not in parsed["dags"]["backfill__departures_hasty"]["tasks"]  # it has no section `live:`
    assert backfill["tasks"]["verify"] == ["approve", "publish", "report"]
    assert backfill["tasks"]["approve"] == ["publish", "report"]
    assert backfill["tasks"]["publish"] == ["report"]
    assert backfill["teardowns"] == ["report"]  # so that it does not hide a run's failure
    fields = "from to as_of mode chunks accept_degraded beyond_limits another_log dry_run publish reason"
    assert backfill["form"] == sorted(fields.split())
    nightly = parsed["dags"]["reconcile__departures_hourly"]
    assert nightly["tasks"]["reconcile"] == ["approve", "compare", "publish", "report"]
    assert not nightly["catchup"]
    assert nightly["runs"] == 1
    decide = parsed["dags"]["decide__departures_hourly"]
    assert decide["form"] == ["action", "reason", "run"] and decide["paused"] is False
    assert decide["choices"]["action"] == ["publish", "discard"], "it delivers no corrections"
    assert parsed["dags"]["decide__departures_live"]["choices"]["action"] == ["publish", "discard", "repeat", "revert"]
    look = parsed["dags"]["look__departures_live"]
    assert look["form"] == ["keys", "run", "sets", "what", "window"] and look["paused"] is False
    assert look["choices"]["what"] == [
        "window", "late", "quarantined", "corrections", "live", "cutover", "cutover_check", "doctor", "what_if",
    ]  # fmt: skip
    hasty = parsed["dags"]["look__departures_hasty"]["choices"]["what"]
    assert hasty == ["window", "late", "quarantined", "cutover", "doctor", "what_if"], "it has no section `live:`"
    maintain = parsed["dags"]["maintain__departures_hourly"]
    assert maintain["form"] == ["keep_revisions", "keep_runs", "keep_snapshots"] and not maintain["catchup"]
    assert parsed["dags"]["maintain__departures_streaming"]["choices"]["what"] == ["clean up", "archive"]
    assert parsed["heavy"] == []


def test_a_broken_pipeline_is_one_import_error_and_takes_no_other_dag_with_it(folder: Path, tmp_path: Path) -> None:
    corrections = "\ncorrections: {to: {kind: files, path: corrections}}\n"
    (folder / "pipelines/good.yaml").write_text(definition("good") + corrections)
    (folder / "pipelines/broken.yaml").write_text(definition("broken").replace("bound: 30 min", "bound: 30 mins ago"))
    (folder / "pipelines/twice.yaml").write_text(definition("good"))
    (folder / "pipelines/intruder.yaml").write_text(
        definition("intruder").replace("namespace: demo", "namespace: demo\n  table: GOOD")
    )
    parsed = parse(folder, tmp_path)
    assert sorted(parsed["dags"]) == sorted(f"{kind}__good" for kind in KINDS)
    assert parsed["dags"]["reconcile__good"]["tasks"]["publish"] == ["correct", "report"]
    assert [Path(file).name for file in parsed["errors"]] == ["rewindow_refused.py"]
    message = next(iter(parsed["errors"].values()))
    line = 1 + [text.strip().startswith("bound:") for text in definition("broken").splitlines()].index(True)
    assert f"broken.yaml:{line}: watermark.bound" in message
    line = 1 + definition("good").splitlines().index("name: good")
    assert f"twice.yaml:{line}: name: `good` is taken by" in message
    assert "is taken by" in message.partition("output.table: `demo.")[2], "two pipelines would fight over one table"


@pytest.mark.long
def test_fifty_pipelines_are_read_in_less_than_a_second_of_work(folder: Path, tmp_path: Path) -> None:
    for number in range(50):
        (folder / f"pipelines/p{number:02}.yaml").write_text(definition(f"p{number:02}"))
    parsed = parse(folder, tmp_path)
    assert len(parsed["dags"]) == 250
    print(f"{parsed['seconds']:.2f} s")
    assert parsed["heavy"] == []


HOSTILE = {
    "digits": (("bound: 30 min", "bound: " + "9" * 5_000), "bound:", "watermark.bound: a number of 5000 characters"),
    "deep": (("carrier: key", "carrier: " + "[" * 1_000 + "]" * 1_000), "carrier:", "nested more than 40 deep"),
    "long_name": (("name: long_name", "name: " + "n" * 300), "name: ", "name: a name of 300 characters"),
    "no_minute": (("name: no_minute", "name: no_minute\nschedule: 99 99 99 99 99"), "schedule:", "schedule: "),
    "no_cron": (("name: no_cron", "name: no_cron\nschedule: a b c d e"), "schedule:", "schedule: "),
    "no_day": (("name: no_day", "name: no_day\nschedule: 0 0 30 2 *"), "schedule:", "schedule: "),
    "no_asset": (("namespace: demo", "namespace: " + "n" * 3_000), "namespace:", "a namespace of 3000 characters"),
    "bomb": (("name: bomb", BOMB.replace("name: p", "name: bomb")), "a0:", "stands for more than 10000 values"),
}  # fmt: skip
"""By name: what is replaced in a good definition, how the line begins that is named, and what is said of it."""


def test_no_yaml_takes_the_dags_of_other_pipelines_away(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "exiting.py").write_text("import sys\nsys.exit('no')\n")
    lines = {}
    for name, ((old, new), start, _) in HOSTILE.items():
        assert old in definition(name)
        text = definition(name).replace(old, new)
        (folder / f"pipelines/{name}.yaml").write_text(text)
        lines[name] = 1 + [line.strip().startswith(start) for line in text.splitlines()].index(True)
    good = ("a_good", "exits", "z_good")  # before and behind the others; the class of one is imported where it runs
    for name in good:
        (folder / f"pipelines/{name}.yaml").write_text(definition(name))
    file = folder / "pipelines/exits.yaml"
    custom = re.sub(r"bounded_out_of_orderness.*\n", "custom\n  class: exiting:Generator\n", file.read_text())
    file.write_text(re.sub(r"(?m)^  bound: .*\n", "", custom))

    parsed = parse(folder, tmp_path)

    assert sorted(parsed["dags"]) == [f"{kind}__{name}" for kind in sorted(KINDS) for name in good]
    assert [Path(file).name for file in parsed["errors"]] == ["rewindow_refused.py"]
    (message,) = parsed["errors"].values()
    for name, (_, _, what) in HOSTILE.items():
        found = [line for line in message.splitlines() if f"{name}.yaml:" in line]
        assert len(found) == 1, (name, message)
        assert f"{name}.yaml:{lines[name]}: " in found[0]
        assert what in found[0]
    assert parsed["seconds"] < 10
    assert parsed["kilobytes"] < 150_000
