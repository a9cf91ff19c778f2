"""Which run of Rewindow belongs to a run of a DAG. Nothing of Airflow or Spark is imported here."""

from __future__ import annotations

import hashlib
import re

KINDS = ("backfill", "reconcile")


def run_id_of(dag_id: str, dag_run_id: str) -> str:
    """The run id of a DAG run, `<pipeline>-<kind>-<DAG run>`: the same for all its tasks and all their tries."""
    plain = re.sub(r"[^A-Za-z0-9_.:+-]", "-", dag_run_id).replace("..", "-")
    if plain != dag_run_id or len(plain) > 120:
        plain = f"{plain[:100]}-{hashlib.sha256(dag_run_id.encode()).hexdigest()[:12]}"
    kind, separator, pipeline = dag_id.partition("__")
    return f"{pipeline}-{kind}-{plain}" if separator else f"{dag_id}-{plain}"


def dag_id_of(kind: str, pipeline: str) -> str:
    return f"{kind}__{pipeline}"


def pipeline_of(dag_id: str) -> str | None:
    """The pipeline of one of Rewindow's DAGs; None for any other DAG."""
    kind, separator, pipeline = dag_id.partition("__")
    return pipeline if separator and pipeline and kind in KINDS else None
