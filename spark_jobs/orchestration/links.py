"""Links on the tasks of a run: its report, the published table, Spark's own page."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink

from spark_jobs.orchestration.run_ids import run_id_of
from spark_jobs.runs.life.documents import Application, Request
from spark_jobs.runs.life.store import RunStore
from spark_jobs.settings import settings


def report_path(run_id: str) -> str:
    """Where the Airflow server shows a run's report; below the path of `[api] base_url`, if it has one."""
    return _page("runs", run_id)


def answer_path(pipeline: str, dag_run_id: str) -> str:
    """Where the Airflow server shows the answer to a question: that of a run of the DAG `look__<pipeline>`."""
    return _page("looks", pipeline, dag_run_id)


def _page(*parts: str) -> str:
    from airflow.configuration import conf

    below = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    return "/".join([f"{below}/rewindow", *(quote(part, safe="") for part in parts)])


class _Link(BaseOperatorLink):
    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return self.of(run_id_of(ti_key.dag_id, ti_key.run_id))

    def of(self, run_id: str) -> str:
        raise NotImplementedError


class ReportLink(_Link):
    name = "Report"  # pyright: ignore[reportAssignmentType]

    def of(self, run_id: str) -> str:
        return report_path(run_id)


class TableLink(_Link):
    name = "Published table"  # pyright: ignore[reportAssignmentType]

    def of(self, run_id: str) -> str:
        request = Request.read(RunStore.configured().folder(run_id))
        template = settings().table_link
        table = request.output_table if request else ""
        return template.replace("{table}", quote(table)) if template else f"{report_path(run_id)}#plan"


class SparkLink(_Link):
    name = "Spark UI"  # pyright: ignore[reportAssignmentType]

    def of(self, run_id: str) -> str:
        found = Application.all_of(RunStore.configured().folder(run_id))
        history = (settings().spark_history or "").rstrip("/")
        if found and history:
            return f"{history}/history/{quote(found[-1].application_id)}"
        return next((a.ui for a in reversed(found) if a.ui), "")


class AnswerLink(BaseOperatorLink):
    name = "Answer"  # pyright: ignore[reportAssignmentType]

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return answer_path(ti_key.dag_id.partition("__")[2], ti_key.run_id)


LINKS = (ReportLink(), TableLink(), SparkLink())
