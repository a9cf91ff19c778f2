"""Whether the live job has emitted rows that no comparison has seen; asked where no record is new."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_jobs.comparison.emitted import EmittedRows, live_of
from spark_jobs.comparison.emitted_topic import pin_rows
from spark_jobs.comparison.join_keys import key_types
from spark_jobs.comparison.verdicts import VERDICT, Verdict
from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import deployments_of
from spark_jobs.definition.live import TopicEmitted
from spark_jobs.errors import RewindowError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.tables import Tables, starts_within
from spark_jobs.lakehouse.verdicts import LastComparison, VerdictTable, last_comparison


def has_live_news(spark: SparkSession, pipeline: Pipeline, records: StructType, within: TimeRange) -> bool:
    """Whether a comparison may find something new about windows that start in `within`, though no record is new.

    A topic shows it by its end offsets, files and tables by `live.emitted_at`. Without that, windows whose rows were
    missing may have got them. `records` is the schema of the canonical records. True also where nothing was compared
    yet, and where the rows are out of reach: the comparison then says so.
    """
    tables = Tables.of(pipeline)
    for deployed in deployments_of(pipeline):
        span = deployed.clipped(within)
        if span is None:
            continue
        last = last_comparison(spark, tables.comparisons, deployed.name)
        if last is None:
            return True
        try:
            if _has_news(spark, deployed.pipeline, records, span, last, VerdictTable(spark, tables.verdicts, ())):
                return True
        except RewindowError:
            return True
    return False


def _has_news(
    spark: SparkSession,
    pipeline: Pipeline,
    records: StructType,
    within: TimeRange,
    last: LastComparison,
    verdicts: VerdictTable,
) -> bool:
    live = live_of(pipeline)
    if isinstance(live.source, TopicEmitted):
        pinned, _ = pin_rows(spark, live.source, ("live", "source"), is_upsert=live.mode == "upsert")
        seen = last.emitted_offsets or {}
        return any(chosen.end > seen.get(chosen.partition, chosen.start) for chosen in pinned.ranges)
    if live.emitted_at is not None and last.emitted_until is not None:
        rows = EmittedRows(spark, pipeline, key_types(records, tuple(pipeline.keys)))
        later = rows.changed(within, last.emitted_until + 1, None)
        return later is not None and not later.isEmpty()
    current = verdicts.current()
    return (
        current is not None and not current.where((F.col(VERDICT) == Verdict.MISSING) & starts_within(within)).isEmpty()
    )
