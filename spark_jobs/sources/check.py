"""Check every expression of a definition with Spark's analyzer, over an empty history: no record is read."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, DataType, NullType, NumericType, StringType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.position import Position
from spark_jobs.definition.yaml_tree import FieldPath
from spark_jobs.errors import DefinitionError, Problem, SourceError
from spark_jobs.functions.prepared import aggregates_of
from spark_jobs.replay import aggregates
from spark_jobs.sources.expressions import (
    Refused,
    analyse,
    problem,
    refuse_unequal,
    refuse_ungroupable,
    refuse_unpublishable,
    schema_refused,
)
from spark_jobs.sources.history import empty_history
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.canonical import (
    PENDING,
    has_positions,
    looked_up_in,
    with_event_time,
    with_keys,
    with_positions,
)
from spark_jobs.sources.records.decode import REASON
from spark_jobs.sources.records.payload import column_fields, fields_of, with_payload
from spark_jobs.sources.records.times import instant_refused
from spark_jobs.sources.zone_rules import refuse_unlike_zone

_POSITION_FIELDS = ("partition", "offset", "arrival", "sequence")


def check_expressions(spark: SparkSession, pipeline: Pipeline) -> list[Problem]:
    """What Spark's analyzer refuses in a definition, each with the field's file and line, in the order of the file.

    Only the history's schema is read: from the metastore, a Parquet file's footer or a CSV file's header. Types of JSON
    and CSV fields that the definition does not give (`value.schema`) are inferred from the first file.

    Raises SourceError where there is no such table or file.
    """
    if pipeline.inputs:
        return _of_union(spark, pipeline)
    checked = _Check(pipeline)
    if pipeline.value.ddl is not None:
        try:
            fields_of(spark, pipeline.value)
        except ValueError as error:
            return [problem(pipeline, ("value", "schema"), schema_refused(error))]
    try:
        refuse_unlike_zone(spark, pipeline)
    except SourceError as error:
        checked.refuse(error, ("window", "time_zone"))
    checked.run(empty_history(spark, pipeline))
    return sorted(checked.problems, key=lambda found: (found.file, found.line))


def _of_union(spark: SparkSession, pipeline: Pipeline) -> list[Problem]:
    """The problems of each input by itself; where there are none, of them together."""
    problems = [found for one in pipeline.inputs for found in check_expressions(spark, one)]
    if not problems:
        try:
            empty_history(spark, pipeline)
        except DefinitionError as error:
            problems = list(error.problems)
    return sorted(dict.fromkeys(problems), key=lambda found: (found.file, found.line))


class _Check:
    """Collects problems layer by layer. A refused field is replaced, so that it is reported only once."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.problems: list[Problem] = []

    def run(self, opened: OpenHistory) -> None:
        pipeline, history = self._pipeline, opened.frame
        if has_positions(history):
            payload = history
        else:
            position = self._accepted_position(history)
            if not self._payload_can_be_read(history):
                return
            payload = with_payload(with_positions(history, position, pipeline), pipeline, opened.schemas)
        payload = self._with_columns(payload)
        try:
            payload = looked_up_in(payload, pipeline, opened.lookup)
        except (DefinitionError, SourceError) as error:
            self.refuse(error, ("lookup",))
            return
        records = self._with_event_time(self._with_keys(payload))
        for name in ("before_watermark", "after_watermark"):
            self._condition(records, getattr(pipeline.filter, name), ("filter", name))
        gap = getattr(pipeline.window, "gap_expression", None)
        if gap is not None:
            self._typed(records, gap, ("window", "gap_expression"), NumericType, "a number of milliseconds")
        for number, text in enumerate(pipeline.deduplicate.by if pipeline.deduplicate is not None else ()):
            path = ("deduplicate", "by", number)
            kind = self._type(records, text, path)
            if kind is not None and (unfit := refuse_unequal(kind)) is not None:
                self._add(path, unfit)
        self._aggregates(records)

    def _accepted_position(self, history: DataFrame) -> Position:
        """The position without the expressions that are refused."""
        position = self._pipeline.history.position
        refused: dict[str, None] = {}
        for name in _POSITION_FIELDS:
            if getattr(position, name) is None:
                continue
            alone = position.model_copy(update={other: None for other in _POSITION_FIELDS if other != name})
            try:
                with_positions(history, alone, self._pipeline)
            except (DefinitionError, SourceError) as error:
                self.refuse(error, ("history", "position", name))
                refused[name] = None
        return position.model_copy(update=refused)

    def _payload_can_be_read(self, history: DataFrame) -> bool:
        value = self._pipeline.value
        if value.column is not None:
            kind = self._type(history, f"`{value.column}`", ("value", "column"))
            if kind is None:
                return False
            if not isinstance(kind, (StringType, BinaryType)):
                what = f"column `{value.column}` is {_type_name(kind)}, not text"
                self._add(("value", "column"), Refused(what, "name a STRING or BINARY column"))
                return False
        elif value.ddl is not None:
            for field in column_fields(history.sparkSession, value):
                kind = self._type(history, f"`{field.name}`", ("value", "schema"))
                if kind is not None and kind.simpleString() != field.dataType.simpleString():
                    what = (
                        f"column `{field.name}` is {_type_name(kind)} in the history, {_type_name(field.dataType)} here"
                    )
                    self._add(("value", "schema"), Refused(what, "write the history's own type"))
        return True

    def _with_columns(self, payload: DataFrame) -> DataFrame:
        """The columns of a union's input under the names of the others; without those that are refused."""
        columns = self._pipeline.input_columns
        accepted = {
            name: text for name, text in columns.items() if self._type(payload, text, ("columns", name)) is not None
        }
        return with_keys(payload, accepted, self._pipeline, "columns") if accepted else payload

    def _with_keys(self, payload: DataFrame) -> DataFrame:
        """The key columns; one that is refused is null, so that expressions that use it are still checked."""
        accepted, refused = {}, []
        for name, text in self._pipeline.keys.items():
            kind = self._type(payload, text, ("keys", name))
            if kind is not None and (unfit := refuse_ungroupable(kind) or refuse_unpublishable(kind)) is not None:
                self._add(("keys", name), unfit)
                kind = None
            if kind is None:
                refused.append(name)
            else:
                accepted[name] = text
        keyed = with_keys(payload, accepted, self._pipeline)
        return keyed.withColumns({name: F.lit(None).cast("string") for name in refused}) if refused else keyed

    def _with_event_time(self, keyed: DataFrame) -> DataFrame:
        """The event time, marker and stream; those that are refused are replaced by a constant or left out."""
        pipeline = self._pipeline
        event_time, watermark = pipeline.event_time, pipeline.watermark
        path = ("event_time", "expression")
        kind = self._type(keyed, event_time.expression, path)
        spark, text = keyed.sparkSession, event_time.expression
        refused = instant_refused(spark, text, kind, event_time.unit) if kind is not None else None
        if refused is not None:
            self._add(path, refused)
        if kind is None or refused is not None:
            event_time = event_time.model_copy(update={"expression": "CAST(0 AS BIGINT)", "unit": "ms"})
        marker = watermark.marker if self._condition(keyed, watermark.marker, ("watermark", "marker")) else None
        stream = watermark.stream
        if stream is not None and self._type(keyed, f"CAST({stream} AS STRING)", ("watermark", "stream")) is None:
            stream = None
        return with_event_time(keyed, event_time, pipeline, marker=marker, stream=stream).drop(PENDING)

    def _aggregates(self, records: DataFrame) -> None:
        visible = records.drop(REASON, "rw_raw")
        for name, text in aggregates_of(self._pipeline).items():
            found = [Refused(*one) for one in aggregates.problems(records.sparkSession, visible, text)]
            if not found:
                unfit = refuse_unpublishable(visible.agg(F.expr(text)).schema[0].dataType)
                found = [unfit] if unfit is not None else []
            for refused in found:
                self._add(("aggregates", name), refused)

    def _condition(self, frame: DataFrame, text: str | None, path: FieldPath) -> bool:
        if text is None:
            return False
        return self._typed(frame, text, path, BooleanType, "a condition, such as `distance > 0`")

    def _typed(self, frame: DataFrame, text: str, path: FieldPath, wanted: type[DataType], words: str) -> bool:
        kind = self._type(frame, text, path)
        if kind is None:
            return False
        if not isinstance(kind, (wanted, NullType)):
            self._add(path, Refused(f"is {_type_name(kind)}", f"write {words}"))
            return False
        return True

    def _type(self, frame: DataFrame, text: str, path: FieldPath) -> DataType | None:
        found = analyse(frame, text)
        if isinstance(found, Refused):
            self._add(path, found)
            return None
        return found

    def refuse(self, error: DefinitionError | SourceError, path: FieldPath) -> None:
        """Add an error about the field at `path` to the problems."""
        if isinstance(error, DefinitionError):
            self.problems += error.problems
        else:
            self._add(path, Refused(error.what, error.hint[:1].lower() + error.hint[1:]))

    def _add(self, path: FieldPath, refused: Refused) -> None:
        self.problems.append(problem(self._pipeline, path, refused))


def _type_name(kind: DataType) -> str:
    return kind.simpleString().upper()
