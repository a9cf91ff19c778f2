"""Whether the records of an Avro history were written by one schema, where the definition does not say which."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.errors import HistoryError
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.canonical import canonical
from spark_jobs.sources.records.decode_avro import SCHEMA_ID
from spark_jobs.spark.failures import reading


def check_schema_ids(pipeline: Pipeline, opened: OpenHistory, records: DataFrame | None = None) -> None:
    """Check that all records have one schema id, where `value.schema_id` does not say which one to read.

    `records` are the canonical ones that a run reads; they are compared with the first one of the history too. None:
    all records of the history. Raises HistoryError where there are several ids: the schema is that of one of them.
    """
    for one, part in zip(pipeline.inputs, opened.inputs, strict=True):
        check_schema_ids(one, part)
    value = pipeline.value
    if value.framing != "confluent" or value.schema_id is not None or opened.schemas is not None:
        return
    everything = canonical(opened, pipeline)
    chosen = everything if records is None else records
    if SCHEMA_ID not in chosen.columns:
        return
    with reading(opened.description):
        ids = set(chosen.agg(F.min(SCHEMA_ID), F.max(SCHEMA_ID)).collect()[0])
        ids |= {row[0] for row in everything.where(F.col(SCHEMA_ID).isNotNull()).select(SCHEMA_ID).head(1)}
    found = sorted(ids - {None})
    if len(found) > 1:
        raise HistoryError(
            f"the records have the schema ids {' and '.join(map(str, found))}, and the definition has one schema",
            pipeline.source_of(("value",)) or opened.description,
            "Write `schema_id` under `value`, the id that the registry gives to the schema: records of other ids go to "
            "quarantine.",
        )
