"""The state of a DAG run, which its last task decides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.orchestration.airflow_names import AirflowFailException
from spark_jobs.orchestration.ending import Report
from spark_jobs.orchestration.run_ids import run_id_of
from spark_jobs.runs.work.corrected import DeliveredCorrections
from spark_jobs.settings import Variable
from tests.report.documents import outcome, written


@dataclass(frozen=True)
class DagRun:
    dag_id: str = "reconcile__departures_hourly"
    run_id: str = "manual-1"


def test_a_published_run_is_red_until_its_corrections_have_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(Variable.RUNS, str(tmp_path))
    name = run_id_of(DagRun.dag_id, DagRun.run_id)
    run = written(tmp_path, name, outcome=outcome("published", run_id=name))
    context: Any = {"dag_run": DagRun()}
    report = Report(task_id="report", pipeline="departures_hourly")
    DeliveredCorrections(destination="topic hours", problem="the table is locked.", exit_code=7).write(run)
    with pytest.raises(AirflowFailException, match=r"published.*topic hours were not delivered: the table is locked; "):
        report.execute(context)
    DeliveredCorrections(destination="topic hours", is_delivered=True).write(run)
    assert report.execute(context) == name
