"""The Spark settings that a shop adds for the tasks in Airflow."""

from __future__ import annotations

from spark_jobs.settings import Variable, pairs, settings


def more_conf() -> dict[str, str]:
    """The settings in `REWINDOW_SPARK_CONF`. Raises EnvironmentSetupError where one has no value."""
    return pairs(settings().spark_conf or "", Variable.SPARK_CONF, "a setting")
