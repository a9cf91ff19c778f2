"""The notifiers that `REWINDOW_NOTIFIERS` configures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from airflow.sdk import BaseNotifier

from spark_jobs.orchestration.notify import EVENTS, configured

PAGE = Path(__file__).parents[2] / "docs/airflow.md"
SLACK = "airflow.providers.slack.notifications.slack.SlackNotifier"


class Said(BaseNotifier):
    """Takes the arguments of the page's notifier, whose provider is not among the tests' packages."""

    template_fields = ("text",)

    def __init__(self, slack_conn_id: str, text: str) -> None:
        super().__init__()
        self.slack_conn_id, self.text = slack_conn_id, text


def test_the_notifiers_of_the_page_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert SLACK in text
    monkeypatch.setenv("REWINDOW_NOTIFIERS", text.replace(SLACK, f"{__name__}.Said"))
    wanted = json.loads(text)[0]["on"]
    assert set(wanted) < set(EVENTS)
    for event in EVENTS:
        found = [notifier.text for notifier in configured(event) if isinstance(notifier, Said)]
        assert found == (["{{ rewindow.pipeline }}: {{ rewindow.message }}"] if event in wanted else [])
