"""What Airflow, a notifier, OpenLineage and a terminal are told of a run whose documents hold hostile texts."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attr
import pytest
from airflow.sdk import BaseNotifier
from openlineage.client.facet_v2 import symlinks_dataset
from typer.testing import CliRunner

from spark_jobs.cli.app import app
from spark_jobs.formatting import LONGEST_TOLD
from spark_jobs.orchestration import lineage, notify
from spark_jobs.orchestration.describe import approval_body
from spark_jobs.orchestration.run_ids import run_id_of
from spark_jobs.runs.life.documents import AnyOutcome, Outcome, Request
from spark_jobs.runs.life.store import RunFolder
from spark_jobs.settings import Variable
from tests.report.hostile import EVIL, HOSTILE, OBEYED, hostile_run

TOLD: list[dict[str, Any]] = []


class Recorder(BaseNotifier):
    """Keeps what notifiers' templates see."""

    template_fields = ()

    def notify(self, context: Any) -> None:
        TOLD.append(context["rewindow"])


@dataclass(frozen=True)
class DagRun:
    dag_id: str = "backfill__departures_hourly"
    run_id: str = "manual-1"


@pytest.fixture(params=["markup", "megabyte"])
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv(Variable.RUNS, str(tmp_path))
    monkeypatch.setenv(Variable.NOTIFIERS, json.dumps([{"class": f"{__name__}.Recorder"}]))
    name = run_id_of(DagRun.dag_id, DagRun.run_id)
    return hostile_run(tmp_path, HOSTILE[request.param], run_id=name, without=(AnyOutcome,))[0]


def _notified(run: RunFolder) -> Iterator[str]:
    TOLD.clear()
    for event in notify.EVENTS:
        notify.notify(event, {"dag_run": DagRun(), "exception": ValueError(EVIL)})  # pyright: ignore[reportArgumentType]
    assert len(TOLD) == len(notify.EVENTS)
    assert any("onerror" in facts["message"] for facts in TOLD), "the texts of documents are told"
    for facts in TOLD:
        yield from (*facts["periods"], *(str(fact) for fact in facts.values()))


def _logged(run: RunFolder) -> Iterator[str]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    notify.log.addHandler(handler)
    outcome = Outcome.read(run)
    assert outcome is not None
    try:
        notify.say_why({"exception": ValueError(outcome.message)})
    finally:
        notify.log.removeHandler(handler)
    assert "onerror" in lines[0]
    yield from lines


def _approved(run: RunFolder) -> Iterator[str]:
    body = approval_body(run)
    assert "onerror" in body and "<" not in body.replace("\\<", "")
    yield from body.splitlines()


def _lineage(run: RunFolder) -> Iterator[str]:
    request = Request.read(run)
    assert request is not None
    facet = attr.asdict(lineage._facet(run, request))
    assert "onerror" in facet["reason"]
    yield facet["reason"]
    for catalog in ("type=hadoop,warehouse=/lake/w", "type=rest,uri=https://catalog"):
        with patch.dict(os.environ, {Variable.CATALOG_CONF: catalog}):
            dataset = lineage.iceberg(f"demo.{request.reason}")
        facet = (dataset.facets or {}).get("symlinks")
        links = (facet.identifiers or []) if isinstance(facet, symlinks_dataset.SymlinksDatasetFacet) else []
        assert any("onerror" in name for name in (dataset.name, *(one.name for one in links)))
        yield from (dataset.namespace, dataset.name, *(text for one in links for text in (one.namespace, one.name)))


def _on_terminal(run: RunFolder) -> Iterator[str]:
    shown = CliRunner().invoke(app, ["runs"], catch_exceptions=False).stdout
    assert "onerror" in shown
    assert len(shown) < 4 * LONGEST_TOLD
    yield from shown.splitlines()


@pytest.mark.parametrize("told", [_notified, _logged, _approved, _lineage, _on_terminal])
def test_what_is_told_of_a_run_is_visible_text_on_a_line_and_cut(
    run: RunFolder, told: Callable[[RunFolder], Iterator[str]]
) -> None:
    for text in told(run):
        assert not OBEYED & set(text)
        assert "\n" not in text and "\r" not in text
        assert len(text) < 3 * LONGEST_TOLD
