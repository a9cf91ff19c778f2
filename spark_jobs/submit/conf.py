"""The Spark settings that a shop adds for the tasks in Airflow."""

from __future__ import annotations

from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.settings import Variable, settings


def more_conf() -> dict[str, str]:
    """The settings in `REWINDOW_SPARK_CONF`. Raises EnvironmentSetupError where one has no value."""
    text = settings().spark_conf or ""
    pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
    if any("=" not in piece for piece in pieces):
        raise EnvironmentSetupError(
            f"{text!r} is not a list of settings", Variable.SPARK_CONF, "Write name=value with commas."
        )
    return dict(piece.split("=", 1) for piece in pieces)
