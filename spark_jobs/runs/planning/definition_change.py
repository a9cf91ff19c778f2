"""What a changed definition does to what is published: said by `check`, `plan` and dry runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.errors import RewindowError
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.life.documents import Request, status_of
from spark_jobs.runs.life.start import check_owner
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.planning.last_run import last_run
from spark_jobs.runs.planning.plan_document import Plan

_LENGTHS = ("size", "slide", "step", "gap", "offset")


def sentences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What a run of the definition `now` does to the rows of `before`, both as `Pipeline.to_canonical_json` has them.

    None where the two are the same.
    """
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if not changed:
        return
    yield (
        f"the definition has changed since the last published run ({', '.join(changed)}): the next run is a full one, "
        "and retracts every published window and late record that it does not find again"
    )
    keys = [tuple(one.get("keys") or ()) for one in (before, now)]
    if set(keys[0]) != set(keys[1]):
        was, becomes = (", ".join(names) or "none" for names in keys)
        yield (
            f"the identity of the rows changes (keys: {was}; now: {becomes}): all published rows are retracted, and "
            "all rows of the run are inserted"
        )
    windows = [_window_in_words(one.get("window") or {}) for one in (before, now)]
    if windows[0] != windows[1]:
        yield f"the windows change ({windows[0]}; now: {windows[1]}): those of the earlier definition are retracted"
    gone = sorted(set(before.get("aggregates") or ()) - set(now.get("aggregates") or ()))
    if gone:
        yield f"column {', '.join(gone)} stays in the table, and is null in every row that the run publishes"


def since_last_run(pipeline: Pipeline) -> tuple[str, ...]:
    """What a changed definition changes, by the last run's documents; nothing where it was not published."""
    try:
        last = last_run(pipeline.name)
        folder = None if last is None else RunStore.configured().folder(last.run_id)
        request = None if folder is None else Request.read(folder)
        status = None if folder is None else status_of(folder)
    except RewindowError:
        return ()
    if request is None or status is None or not status.is_published or not request.definition:
        return ()
    return tuple(sentences(request.definition, json.loads(pipeline.to_canonical_json())))


def with_change(spark: SparkSession, pipeline: Pipeline, plan: Plan) -> Plan:
    """The plan, with what it does to what an earlier definition has published among its warnings.

    Raises DefinitionError where the table is another pipeline's.
    """
    tables = Tables.of(pipeline)
    if not spark.catalog.tableExists(tables.runs) or not spark.catalog.tableExists(tables.windows):
        return plan
    latest, last = Ledger(spark, tables).latest_published(F.coalesce("whole", F.lit(False)))
    if latest is not None:
        check_owner(pipeline, tables, latest)
    if last is None or not last["definition"] or last["definition_hash"] == pipeline.definition_hash:
        return plan
    said = tuple(sentences(json.loads(last["definition"]), json.loads(pipeline.to_canonical_json())))
    if not plan.is_whole:
        said += ("windows outside the run's range keep the values of the earlier definition until a full run",)
    else:
        count = PublishedTable(spark, tables.windows).current().count()
        said += (f"{count:,} rows are published now; a dry run (`--dry-run=diff`) counts what becomes of them",)
    return plan.model_copy(update={"warnings": (*plan.warnings, *said)})


def _window_in_words(window: Mapping[str, Any]) -> str:
    said = [str(window.get("type", "none"))]
    for name, value in sorted(window.items(), key=lambda one: (one[0] == "offset", one[0])):
        if value and name != "type":
            said.append(f"{name} {format_duration(value) if name in _LENGTHS and isinstance(value, int) else value}")
    return ", ".join(said)
