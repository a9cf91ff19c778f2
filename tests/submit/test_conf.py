"""Spark settings for the tasks in Airflow."""

from __future__ import annotations

import pytest

from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.settings import more_conf


def test_settings_are_pairs_and_a_refusal_shows_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWINDOW_SPARK_CONF", "spark.a=1, spark.b=x=y,, spark.c = -Xa -Xb ,spark.empty=,")
    assert more_conf() == {"spark.a": "1", "spark.b": "x=y", "spark.c": "-Xa -Xb", "spark.empty": ""}
    monkeypatch.setenv("REWINDOW_SPARK_CONF", "spark.a.password=se,cret")
    with pytest.raises(EnvironmentSetupError, match="part 2 is not a setting") as refused:
        more_conf()
    assert "cret" not in str(refused.value)
