"""The Airflow plugin: an entry in the navigation, and a tab on DAG runs and task instances, for the reports of runs.

The package names it as an entry point, so Airflow finds it where Rewindow is installed. The pages are in
`spark_jobs.web`. Airflow's auth manager decides who may see which DAG.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

_TAB = {"name": "Rewindow report", "href": "rewindow/tab?dag_id={DAG_ID}&run_id={RUN_ID}"}


async def serve(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The FastAPI app, imported at the first request: the workers and the scheduler load this file as well."""
    from spark_jobs.web.app import app

    await app(scope, receive, send)


class RewindowReports(AirflowPlugin):
    name = "rewindow_reports"
    fastapi_apps = [{"name": "Rewindow reports", "app": serve, "url_prefix": "/rewindow"}]  # noqa: RUF012
    # Without a leading slash, so that the addresses are right under a base URL with a path.
    external_views = [  # noqa: RUF012
        {
            "name": "Rewindow reports",
            "href": "rewindow/",
            "destination": "nav",
            "category": "browse",
            "url_route": "rewindow",
        },
        {**_TAB, "destination": "dag_run", "url_route": "rewindow-run"},
        {**_TAB, "destination": "task_instance", "url_route": "rewindow-task"},
    ]
