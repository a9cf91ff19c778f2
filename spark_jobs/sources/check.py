"""Every expression of a definition, asked about at Spark's analyzer over an empty history: no data is read."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, DataType, NullType, NumericType, StringType, StructType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.history import FilesHistory
from spark_jobs.definition.kafka import KafkaHistory, StitchedHistory
from spark_jobs.definition.yaml_tree import FieldPath
from spark_jobs.errors import DefinitionError, Problem, SourceError
from spark_jobs.replay import aggregates
from spark_jobs.sources.decode import REASON, parse_schema
from spark_jobs.sources.decode_avro import avro_fields
from spark_jobs.sources.expressions import Refused, analyse, problem, schema_refused
from spark_jobs.sources.files import find_files, read_files
from spark_jobs.sources.hive import read_table
from spark_jobs.sources.kafka import empty_topic
from spark_jobs.sources.records import with_event_time, with_keys, with_payload, with_positions
from spark_jobs.sources.stitched import empty_stitched
from spark_jobs.sources.times import unit_refused


def check_expressions(spark: SparkSession, pipeline: Pipeline) -> list[Problem]:
    """What Spark's analyzer refuses in a definition, each with the field's file and line, in the order of the file.

    Only the history's schema is read: a table's from the metastore, a Parquet file's from its footer, a CSV file's from
    its header. JSON and CSV types that the definition does not give (`value.schema`) are inferred from the first file.

    Raises SourceError if there is no such table or file.
    """
    checked = _Check(pipeline)
    ddl = pipeline.value.ddl
    if ddl is not None:
        try:
            (avro_fields if pipeline.value.format == "avro" else parse_schema)(spark, ddl)
        except ValueError as error:
            return [problem(pipeline, ("value", "schema"), schema_refused(error))]
    checked.run(_empty_history(spark, pipeline))
    return sorted(checked.problems, key=lambda found: (found.file, found.line))


def _empty_history(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    history = pipeline.history
    if isinstance(history, KafkaHistory):
        return empty_topic(spark, history)
    if isinstance(history, StitchedHistory):
        return empty_stitched(spark, pipeline)
    if not isinstance(history, FilesHistory):
        return spark.createDataFrame([], read_table(spark, history).schema)
    schema = None
    if history.format != "parquet" and pipeline.value.format == "columns" and pipeline.value.ddl is not None:
        schema = parse_schema(spark, pipeline.value.ddl)
    try:
        files = find_files(spark, history)[:1]
        found = read_files(spark, history, files, schema, infer_from=1).schema
    except SourceError:
        # The definition says all there is to know: it can be checked where the files are not.
        if schema is None:
            raise
        found = schema.add(REASON, StringType()).add("rw_raw", StringType())
    return spark.createDataFrame([], StructType(found.fields))


class _Check:
    """Collects problems layer by layer; a field that is refused is replaced, so that it is told only once."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.problems: list[Problem] = []

    def run(self, history: DataFrame) -> None:
        pipeline = self._sound_position(history)
        if isinstance(pipeline.history, StitchedHistory):
            payload = history
        elif not self._payload_can_be_read(history):
            return
        else:
            payload = with_payload(with_positions(history, pipeline), pipeline)
        keyed = self._keyed(payload)
        records = self._with_event_time(keyed, pipeline)
        for name in ("before_watermark", "after_watermark"):
            self._condition(records, getattr(pipeline.filter, name), ("filter", name))
        gap = getattr(pipeline.window, "gap_expression", None)
        if gap is not None:
            self._typed(records, gap, ("window", "gap_expression"), NumericType, "a number of milliseconds")
        self._aggregates(records)

    def _sound_position(self, history: DataFrame) -> Pipeline:
        """The pipeline without the position columns that are refused."""
        pipeline, position = self._pipeline, self._pipeline.history.position
        if isinstance(pipeline.history, KafkaHistory | StitchedHistory):
            return pipeline
        update: dict[str, None] = {}
        for name in ("partition", "offset", "arrival", "sequence"):
            if getattr(position, name) is None:
                continue
            alone = position.model_copy(
                update={other: None for other in ("partition", "offset", "arrival", "sequence") if other != name}
            )
            try:
                with_positions(history, _with_position(pipeline, alone))
            except (DefinitionError, SourceError) as error:
                self._told(error, ("history", "position", name))
                update[name] = None
        return _with_position(pipeline, position.model_copy(update=update))

    def _payload_can_be_read(self, history: DataFrame) -> bool:
        value = self._pipeline.value
        if value.column is not None:
            kind = self._type(history, f"`{value.column}`", ("value", "column"))
            if kind is None:
                return False
            if not isinstance(kind, (StringType, BinaryType)):
                what = f"column `{value.column}` is {_shown(kind)}, not text"
                self._add(("value", "column"), Refused(what, "name a STRING or BINARY column"))
                return False
        elif value.ddl is not None:
            for field in parse_schema(history.sparkSession, value.ddl):
                kind = self._type(history, f"`{field.name}`", ("value", "schema"))
                if kind is not None and kind.simpleString() != field.dataType.simpleString():
                    what = f"column `{field.name}` is {_shown(kind)} in the history, {_shown(field.dataType)} here"
                    self._add(("value", "schema"), Refused(what, "write the history's own type"))
        return True

    def _keyed(self, payload: DataFrame) -> DataFrame:
        sound, refused = {}, {}
        for name, text in self._pipeline.keys.items():
            kind = self._type(payload, text, ("keys", name))
            if kind is not None and kind.simpleString().startswith(("map", "variant")):
                what = f"is {_shown(kind)}, and records cannot be grouped by that"
                self._add(("keys", name), Refused(what, "write an expression for one of its fields"))
                kind = None
            (refused if kind is None else sound)[name] = text
        keyed = with_keys(payload, self._pipeline.model_copy(update={"keys": sound}))
        return keyed.withColumns({name: F.lit(None).cast("string") for name in refused}) if refused else keyed

    def _with_event_time(self, keyed: DataFrame, pipeline: Pipeline) -> DataFrame:
        event_time, watermark = pipeline.event_time, pipeline.watermark
        path = ("event_time", "expression")
        kind = self._type(keyed, event_time.expression, path)
        refused = unit_refused(kind, event_time.unit) if kind is not None else None
        if refused is not None:
            self._add(path, refused)
        if kind is None or refused is not None:
            event_time = event_time.model_copy(update={"expression": "CAST(0 AS BIGINT)", "unit": "ms"})
        marker = watermark.marker if self._condition(keyed, watermark.marker, ("watermark", "marker")) else None
        stream = watermark.stream
        if stream is not None and self._type(keyed, f"CAST({stream} AS STRING)", ("watermark", "stream")) is None:
            stream = None
        watermark = watermark.model_copy(update={"marker": marker, "stream": stream})
        sound = pipeline.model_copy(update={"event_time": event_time, "watermark": watermark})
        return with_event_time(keyed, sound).drop("rw_pending")

    def _aggregates(self, records: DataFrame) -> None:
        visible = records.drop(REASON, "rw_raw")
        for name, text in self._pipeline.aggregates.items():
            for what, hint in aggregates.problems(records.sparkSession, visible, text):
                self._add(("aggregates", name), Refused(what, hint))

    def _condition(self, frame: DataFrame, text: str | None, path: FieldPath) -> bool:
        if text is None:
            return False
        return self._typed(frame, text, path, BooleanType, "a condition, such as `distance > 0`")

    def _typed(self, frame: DataFrame, text: str, path: FieldPath, wanted: type[DataType], words: str) -> bool:
        kind = self._type(frame, text, path)
        if kind is None:
            return False
        if not isinstance(kind, (wanted, NullType)):
            self._add(path, Refused(f"is {_shown(kind)}", f"write {words}"))
            return False
        return True

    def _type(self, frame: DataFrame, text: str, path: FieldPath) -> DataType | None:
        found = analyse(frame, text)
        if isinstance(found, Refused):
            self._add(path, found)
            return None
        return found

    def _told(self, error: DefinitionError | SourceError, path: FieldPath) -> None:
        if isinstance(error, DefinitionError):
            self.problems += error.problems
        else:
            self._add(path, Refused(error.what, error.hint[:1].lower() + error.hint[1:]))

    def _add(self, path: FieldPath, refused: Refused) -> None:
        self.problems.append(problem(self._pipeline, path, refused))


def _with_position(pipeline: Pipeline, position: object) -> Pipeline:
    return pipeline.model_copy(update={"history": pipeline.history.model_copy(update={"position": position})})


def _shown(kind: DataType) -> str:
    return kind.simpleString().upper()
