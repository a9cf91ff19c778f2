"""Whether the published table can take the columns of a definition. No record is read."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.functions.prepared import aggregates_of
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables, held_as
from spark_jobs.replay.spec import complete_name

_HINT = "give it another name, or write to another `output.table`"


def refuse_other_columns(spark: SparkSession, pipeline: Pipeline, records: DataFrame) -> None:
    """Raise DefinitionError where a column of the published table cannot take what the definition gives.

    `records` are canonical ones; they are not read.
    """
    table = PublishedTable(spark, Tables.of(pipeline).windows)
    if not spark.catalog.tableExists(table.table):
        return
    known = {field.name: field.dataType.simpleString() for field in table.current().schema}
    state = table.state()
    were_keys = set() if state is None else set(state.identity)
    problems = []
    for name, text in aggregates_of(pipeline).items():
        if name in were_keys:
            what = "was a key of windows that are published, and cannot be an aggregate in their table"
            problems.append(pipeline.problem(("aggregates", name), what, _HINT))
            continue
        kind = held_as(records.agg(F.expr(text)).schema[0].dataType)
        other = next((known[c] for c in (name, complete_name(name)) if known.get(c, kind) != kind), None)
        if other is not None:
            problems.append(pipeline.problem(("aggregates", name), _of_another_type(kind, other), _HINT))
    for name in pipeline.keys:
        kind = held_as(records.schema[name].dataType)
        if known.get(name, kind) != kind:
            problems.append(pipeline.problem(("keys", name), _of_another_type(kind, known[name]), _HINT))
    if problems:
        raise DefinitionError.listing(problems)


def _of_another_type(kind: str, in_table: str) -> str:
    return f"is {kind.upper()} here and {in_table.upper()} in the published table"
