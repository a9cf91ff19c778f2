"""The stage `correct` of a run: after it is published, readers of the live job's output get what changed."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.corrections.delivery import deliver, pending_counts, repeat
from spark_jobs.corrections.delivery import revert as bring_back
from spark_jobs.corrections.due import current_revisions, scope_of
from spark_jobs.definition import Pipeline
from spark_jobs.errors import RewindowError
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.life.documents import StagedRange, status_of
from spark_jobs.runs.life.store import RunFolder
from spark_jobs.runs.work.corrected import DeliveredCorrections
from spark_jobs.spark.failures import short
from spark_jobs.spark.java import java_reason
from spark_jobs.spark.joins import matching


def correct_run(spark: SparkSession, pipeline: Pipeline, folder: RunFolder) -> DeliveredCorrections:
    """Deliver what is due, and write `corrections.json`. What goes wrong is its `problem`: the run stays published."""
    before = DeliveredCorrections.read(folder)
    scope = scope_of(spark, pipeline)
    known = {
        "destination": scope.destination,
        "value": scope.corrections.value.value,
        "planned": before.planned if before else {},
        "table": scope.tables.corrections,
    }
    try:
        done = deliver(spark, pipeline)
        earlier = before.delivered if before and before.is_delivered else {}
        counts = {name: earlier.get(name, 0) + done.rows.get(name, 0) for name in {*earlier, *done.rows}}
        found = DeliveredCorrections(
            **known, delivered=counts, is_delivered=True, deliveries=(*done.resumed, *done.deliveries), notes=done.notes
        )
    except RewindowError as problem:
        found = DeliveredCorrections(**known, problem=str(problem), exit_code=problem.exit_code)
    except (PySparkException, Py4JError) as problem:
        found = DeliveredCorrections(**known, problem=short(java_reason(problem)), exit_code=1)
    found.write(folder)
    return found


def bring_corrections(spark: SparkSession, pipeline: Pipeline, folder: RunFolder) -> DeliveredCorrections | None:
    """Deliver what is due after a run that is published; of one that waits, say what would be. None: neither."""
    status = status_of(folder)
    if status is None:
        return None
    if status.is_published:
        return correct_run(spark, pipeline, folder)
    return announce(spark, pipeline, folder) if status.waits else None


def again(spark: SparkSession, pipeline: Pipeline, folder: RunFolder, *, revert: bool, by: str) -> DeliveredCorrections:
    """Deliver the corrections of a run once more, or bring back what readers had before; `corrections.json` notes it.

    `by`: who says so, and why. Raises as `deliver`, and DefinitionError where the run has delivered nothing.
    """
    scope, before = scope_of(spark, pipeline), DeliveredCorrections.read(folder)
    done = (bring_back if revert else repeat)(spark, pipeline, run_id=folder.run_id)
    counts = ", ".join(f"{count:,} {action}" for action, count in done.rows.items())
    what = "what readers had before was brought back" if revert else "delivered once more"
    known = before or DeliveredCorrections(
        destination=scope.destination, value=scope.corrections.value.value, table=scope.tables.corrections
    )
    found = known.model_copy(update={"notes": (*known.notes, *done.notes, f"{what} ({counts}), by {by}")})
    found.write(folder)
    return found


def announce(spark: SparkSession, pipeline: Pipeline, folder: RunFolder) -> DeliveredCorrections | None:
    """Say in `corrections.json` what would be delivered if the run, which waits, were published."""
    staged = StagedRange.read(folder)
    if staged is None:
        return None
    tables = Tables.of(pipeline)
    scope = scope_of(spark, pipeline)
    counted = pending_counts(spark, pipeline, _as_if_published(spark, pipeline, folder.run_id, staged))
    found = DeliveredCorrections(
        destination=scope.destination,
        value=scope.corrections.value.value,
        planned=dict(counted.rows),
        table=tables.corrections,
    )
    found.write(folder)
    return found


def _as_if_published(spark: SparkSession, pipeline: Pipeline, run_id: str, staged: StagedRange) -> DataFrame | None:
    """The windows as the run would publish them: those that it has staged, and the published others."""
    tables = Tables.of(pipeline)
    new = Staging(spark, tables.staging(run_id, staged.attempt), lambda: None).rows()
    facts = {"revision": F.lit(2**31 - 1), "cause": F.lit(None).cast("string"), "run_id": F.lit(run_id)}
    new = new.withColumns(facts)
    scope = scope_of(spark, pipeline)
    if not spark.catalog.tableExists(tables.windows):
        return new
    old = current_revisions(scope)
    return matching(old, new, scope.identity, "left_anti").unionByName(new, allowMissingColumns=True)
