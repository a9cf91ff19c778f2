"""What was asked for, by whom and why: the document that a run begins with. No Spark here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from spark_jobs.definition import Pipeline
from spark_jobs.spark.catalog import CATALOG


def request_record(
    run_id: str,
    pipeline: Pipeline,
    kind: str,
    reason: str,
    at: datetime,
    asked: Mapping[str, Any] | None = None,
    requested_by: str = "",
) -> dict[str, Any]:
    """What `request.json` says. `kind`: backfill or reconcile; `asked`: the fields of the form that were filled."""
    return {
        "run_id": run_id,
        "pipeline": pipeline.name,
        "file": pipeline.file,
        "kind": kind,
        "asked": dict(asked or {}),
        "reason": reason,
        "requested_by": requested_by,
        "requested_at": at.isoformat(),
        "definition": json.loads(pipeline.to_canonical_json()),
        "definition_hash": pipeline.definition_hash,
        "output_table": f"{CATALOG}.{pipeline.output.namespace}.{pipeline.output.table}",
    }
