"""Names of Airflow that have moved between the versions 3.1 and 3.3."""

from __future__ import annotations

try:
    from airflow.sdk import CronDataIntervalTimetable
    from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
except ImportError:  # before 3.2
    from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException
    from airflow.timetables.interval import CronDataIntervalTimetable

try:
    from airflow.sdk.exceptions import TaskAwaitingInput, TaskDeferred
except ImportError:  # before 3.3
    from airflow.exceptions import TaskDeferred

    TaskAwaitingInput = TaskDeferred

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowSkipException",
    "CronDataIntervalTimetable",
    "TaskAwaitingInput",
    "TaskDeferred",
]
