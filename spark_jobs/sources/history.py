"""The histories that a pipeline can replay, one class for each kind, each a `Source`.

Beside the definition, only this module distinguishes the kinds, and `orchestration.lineage`, which names a history
without opening it. `open_history` is where most callers begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, StringType, StructType
from rich.filesize import decimal

from spark_jobs.definition import Pipeline
from spark_jobs.definition.history import FilesHistory, HiveHistory, TableHistory
from spark_jobs.definition.kafka import KafkaHistory, StitchedHistory, Topic
from spark_jobs.definition.position import Position
from spark_jobs.definition.union import UnionHistory, of_input
from spark_jobs.errors import DefinitionError, SourceError
from spark_jobs.functions.prepared import prepare
from spark_jobs.pins import Change, PinnedFile, PinnedSchemas, PinnedSnapshot, Pins, TableFormat
from spark_jobs.sources.erased import erasures_of
from spark_jobs.sources.expressions import expression_type, refuse_schema
from spark_jobs.sources.files.log_files import (
    check_pinned,
    check_same_schema,
    file_partitions,
    find_files,
    own_columns,
    read_files,
)
from spark_jobs.sources.files.query_files import ROWS, files_read, numbered, with_file_positions
from spark_jobs.sources.kafka.topic import empty_topic, pin_topic, read_topic
from spark_jobs.sources.lake.behind import confirm_behind, files_behind, records_in, records_outside
from spark_jobs.sources.lake.hive import read_table, table_partitions
from spark_jobs.sources.lake.lake_tables import (
    change_between,
    pin_snapshot,
    read_appended,
    read_snapshot,
)
from spark_jobs.sources.lake.lake_tables import table_partitions as lake_partitions
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.canonical import canonical
from spark_jobs.sources.records.decode import RAW, REASON
from spark_jobs.sources.records.lookup import pin_lookup
from spark_jobs.sources.records.payload import column_fields, encoded_fields
from spark_jobs.sources.records.schemas import pin_schemas
from spark_jobs.sources.stitched import empty_stitched, open_stitched, past_positions
from spark_jobs.sources.union import joined, names_of
from spark_jobs.sources.zone_rules import refuse_unlike_zone
from spark_jobs.spark.expression_tree import names_in
from spark_jobs.spark.failures import plain_path

_MAX_UNKNOWN_PARTITIONS = 16
"""The most unknown partition numbers between known ones that a filter lists one by one."""


@dataclass(frozen=True)
class Source:
    """One pipeline's history. Each method raises SourceError where it cannot be found or reached."""

    spark: SparkSession
    pipeline: Pipeline

    def open(self, pins: Pins, as_of: Mapping[int, int] | None = None) -> OpenHistory:
        """Open it, see `open_history`. No record is read."""
        raise NotImplementedError

    def empty(self, schemas: PinnedSchemas | None) -> OpenHistory:
        """The columns of `open` without any record."""
        raise NotImplementedError

    def partition_columns(self) -> tuple[str, ...]:
        """The columns by which it is partitioned; a filter on them prunes the read."""
        return ()

    def table_of_metastore(self) -> DataFrame | None:
        """The table of a metastore that it reads, or a view; None: it reads none."""
        return None

    def topic(self) -> Topic | None:
        """The topic that it reads; None: it reads none."""
        return None

    def since(
        self, opened: OpenHistory, ends: Mapping[int, int], whole: Sequence[PinnedSnapshot | None] = (None,)
    ) -> DataFrame:
        """The frame of `opened` without many of the records below these end offsets.

        A source leaves out what it can skip cheaply; `records.arrived_since` leaves out the rest. All records at or
        above their partition's end offset, and all of partitions that `ends` lacks, are in the frame.

        Args:
            ends: The end offsets by partition up to which the history was read before.
            whole: The snapshot of a lake table of which each record was read before, of a union one for each input;
                None: records of it were left out, or nobody knows.
        """
        return opened.frame

    def in_files(self, opened: OpenHistory, files: Sequence[PinnedFile]) -> DataFrame:
        """The frame of `opened`, of these of its files alone; all of it where records cannot be told by their file."""
        return opened.frame

    def before_topic(self, opened: OpenHistory) -> DataFrame | None:
        """The positions of the rows that a table has before its topic goes on; None: there is no such table."""
        return None


def source_of(spark: SparkSession, pipeline: Pipeline) -> Source:
    """The source for the pipeline's kind of history."""
    match pipeline.history:
        case FilesHistory() as history:
            return FilesSource(spark, pipeline, history)
        case HiveHistory() as history:
            return HiveSource(spark, pipeline, history)
        case TableHistory() as history:
            return LakeSource(spark, pipeline, history)
        case KafkaHistory() as history:
            return KafkaSource(spark, pipeline, history)
        case StitchedHistory() as history:
            return StitchedSource(spark, pipeline, history)
        case UnionHistory():
            return UnionSource(spark, pipeline)


def open_history(
    spark: SparkSession,
    pipeline: Pipeline,
    pins: Pins | None = None,
    *,
    as_of: Mapping[int, int] | None = None,
    arrivals_before: int | None = None,
) -> OpenHistory:
    """Open the pipeline's history. Reads file footers and the metadata of topics, but no record.

    Args:
        pins: What a plan has pinned; None: nothing.
        as_of: End offsets by partition. They are used for a topic only: other histories are cut by `cut_at`.
        arrivals_before: From this instant on (epoch ms) arrivals are ahead of the clock, see `sources.clocks`;
            None: the end offsets are known.

    Raises:
        SourceError: No file matches, a Parquet file is truncated, schemas differ, a pinned file is gone or was written
            again, a table, column or topic is missing, or a metastore, broker or schema registry does not answer.
        HistoryError: Records of a topic would be missing.
    """
    refuse_unlike_zone(spark, pipeline)
    prepare(spark, pipeline)
    pins = pins or Pins()
    if pipeline.inputs:
        return UnionSource(spark, pipeline).open(pins, as_of, arrivals_before)
    pins = replace(pins, schemas=pins.schemas or schemas_now(spark, pipeline))
    opened = replace(source_of(spark, pipeline).open(pins, as_of), schemas=pins.schemas)
    opened = replace(opened, lookup=pin_lookup(spark, pipeline, pins.lookup))
    erasures = erasures_of(spark, pipeline)
    return replace(opened, arrivals_before=arrivals_before, clocks=pins.clocks, erasures=erasures)


def empty_history(spark: SparkSession, pipeline: Pipeline) -> OpenHistory:
    """The pipeline's history without any record. Raises as `open_history` does."""
    prepare(spark, pipeline)
    empty = source_of(spark, pipeline).empty(schemas_now(spark, pipeline))
    return replace(empty, lookup=pin_lookup(spark, pipeline))


def schemas_now(spark: SparkSession, pipeline: Pipeline) -> PinnedSchemas | None:
    """The schemas that the pipeline's registry has now; None where it names none. Raises SourceError."""
    with named_by(pipeline, "value", "registry"):
        return pin_schemas(spark, pipeline.value)


def partition_columns(spark: SparkSession, pipeline: Pipeline) -> tuple[str, ...]:
    """The columns by which the history is partitioned; a filter on them prunes the read."""
    return source_of(spark, pipeline).partition_columns()


def stitched_history(pipeline: Pipeline) -> StitchedHistory:
    """The pipeline's history where it is stitched. Raises DefinitionError where it is of another kind."""
    if isinstance(pipeline.history, StitchedHistory):
        return pipeline.history
    raise DefinitionError(
        "there is no table to archive into",
        pipeline.source_of(("history",)) or pipeline.name,
        "Write `kind: stitched` with an Iceberg table under `past` and the topic under `recent`.",
    )


@dataclass(frozen=True)
class FilesSource(Source):
    """Parquet, ORC, Avro, JSON or CSV files."""

    history: FilesHistory

    def open(self, pins: Pins, as_of: Mapping[int, int] | None = None) -> OpenHistory:
        files = self._files(pins.pinned)
        numbers = None
        if (log := files_read(self.spark, self.pipeline)) is not None:
            numbers = numbered(log, files)
            files = tuple(file for file in files if file in numbers)
        frame = self._frame(files, numbers)
        opened = OpenHistory(frame, files, _describe_files(self.history, files))
        _check_columns(opened, self.pipeline)
        return opened

    def _frame(self, files: Sequence[PinnedFile], numbers: Mapping[PinnedFile, int] | None) -> DataFrame:
        columns = own_columns(self.spark, self.history, files)
        if columns is not None:
            _refuse_unreadable(self.spark, self.pipeline, files[0], columns.unreadable)
        frame = read_files(
            self.spark, self.history, files, self._schema(), columns=columns, reader=self.pipeline.reader
        )
        return frame if numbers is None else with_file_positions(frame, numbers)

    def empty(self, schemas: PinnedSchemas | None) -> OpenHistory:
        """Columns come from the first file, or from `value.schema` where no file is there."""
        schema = self._schema()
        try:
            files = self._found()[:1]
            found = read_files(
                self.spark, self.history, files, schema, infer_from=1, reader=self.pipeline.reader
            ).schema
        except SourceError:
            if schema is None or not self.history.has_lines:
                raise
            found = schema.add(REASON, StringType()).add(RAW, StringType())
        return _empty(self.spark.createDataFrame([], StructType(found.fields)), schemas)

    def partition_columns(self) -> tuple[str, ...]:
        return file_partitions(self.spark, self.history)

    def since(
        self, opened: OpenHistory, ends: Mapping[int, int], whole: Sequence[PinnedSnapshot | None] = (None,)
    ) -> DataFrame:
        """The rows at or above the end offsets; of files that a query reads itself, the files that it listed later."""
        if (log := files_read(self.spark, self.pipeline)) is None:
            return _without_old_records(opened.frame, self.history.position, ends)
        if self.history.has_lines and self._schema() is None:
            return opened.frame  # of some files alone other types would be found
        numbers = numbered(log[: len(opened.pinned)], opened.pinned)  # the query may have listed more since
        later = {file: number for file, number in numbers.items() if number * ROWS >= ends.get(0, 0)}
        if not later:
            return opened.frame.limit(0)
        return self._frame(tuple(later), later)

    def in_files(self, opened: OpenHistory, files: Sequence[PinnedFile]) -> DataFrame:
        chosen = records_in(opened.frame, files)
        return opened.frame if chosen is None else chosen

    def _files(self, pinned: Sequence[PinnedFile] | None) -> tuple[PinnedFile, ...]:
        if pinned:
            check_pinned(self.spark, pinned)
            return tuple(sorted(pinned, key=lambda file: file.path))
        files = self._found()
        check_same_schema(self.spark, self.history, files)
        return files

    def _found(self) -> tuple[PinnedFile, ...]:
        with named_by(self.pipeline, "history", "path"):
            return find_files(self.spark, self.history)

    def _schema(self) -> StructType | None:
        """The schema of the files' columns, if the definition gives it: `value.schema`, for the format `columns`."""
        value = self.pipeline.value
        if value.format != "columns" or value.ddl is None:
            return None
        try:
            return encoded_fields(self.spark, value)
        except ValueError as error:
            raise refuse_schema(self.pipeline, error) from error


@dataclass(frozen=True)
class HiveSource(Source):
    """A Hive table or view."""

    history: HiveHistory

    def open(self, pins: Pins, as_of: Mapping[int, int] | None = None) -> OpenHistory:
        frame = self._table()
        now = files_behind(self.spark, frame, self.history.table)
        added = confirm_behind(self.history.table, pins.behind, now) if pins.behind and now is not None else ()
        chosen = tuple(pins.behind) if pins.behind and now is not None else now
        frame = records_outside(frame, added)
        opened = OpenHistory(frame, (), f"Hive table {self.history.table}", behind=chosen)
        _check_columns(opened, self.pipeline)
        return opened

    def empty(self, schemas: PinnedSchemas | None) -> OpenHistory:
        return _empty(self.spark.createDataFrame([], self._table().schema), schemas)

    def partition_columns(self) -> tuple[str, ...]:
        return table_partitions(self.spark, self.history.table)

    def since(
        self, opened: OpenHistory, ends: Mapping[int, int], whole: Sequence[PinnedSnapshot | None] = (None,)
    ) -> DataFrame:
        return _without_old_records(opened.frame, self.history.position, ends)

    def in_files(self, opened: OpenHistory, files: Sequence[PinnedFile]) -> DataFrame:
        chosen = records_in(opened.frame, files)
        return opened.frame if chosen is None else chosen

    def _table(self) -> DataFrame:
        with named_by(self.pipeline, "history", "table"):
            return read_table(self.spark, self.history.table, self.history.metastore)

    def table_of_metastore(self) -> DataFrame | None:
        return self._table()


@dataclass(frozen=True)
class LakeSource(Source):
    """An Iceberg table in a catalog of the Spark session, or a Delta table."""

    history: TableHistory

    def open(self, pins: Pins, as_of: Mapping[int, int] | None = None) -> OpenHistory:
        with named_by(self.pipeline, "history", "table"):
            chosen = pin_snapshot(self.spark, self.history.table, self._format, pins.snapshot)
        opened = OpenHistory(read_snapshot(self.spark, chosen), (), chosen.description, snapshot=chosen)
        _check_columns(opened, self.pipeline)
        return opened

    def empty(self, schemas: PinnedSchemas | None) -> OpenHistory:
        return _empty(self.spark.createDataFrame([], self.open(Pins()).frame.schema), schemas)

    def partition_columns(self) -> tuple[str, ...]:
        return lake_partitions(self.spark, self.history.table, self._format)

    @property
    def _format(self) -> TableFormat:
        return TableFormat(self.history.format or TableFormat.ICEBERG)

    def since(
        self, opened: OpenHistory, ends: Mapping[int, int], whole: Sequence[PinnedSnapshot | None] = (None,)
    ) -> DataFrame:
        """What was appended to a snapshot of which all was read; else the offsets' statistics skip files."""
        before, now = whole[0], opened.snapshot
        if before is None or now is None or self.history.position.going_back == "running_maximum":
            return _without_old_records(opened.frame, self.history.position, ends)
        match change_between(self.spark, before, now):
            case Change.NONE:
                return opened.frame.limit(0)
            case Change.APPENDED:
                return read_appended(self.spark, before, now)
            case _:
                return _without_old_records(opened.frame, self.history.position, ends)


@dataclass(frozen=True)
class KafkaSource(Source):
    """A Kafka topic alone."""

    history: KafkaHistory

    def open(self, pins: Pins, as_of: Mapping[int, int] | None = None) -> OpenHistory:
        registered = self.pipeline.watermark.partitions
        with named_by(self.pipeline, "history", "topic"):
            chosen = pin_topic(self.spark, self.history, pinned=pins.topic, registered=registered, as_of=as_of)
        frame = read_topic(self.spark, self.history, chosen, headers=_uses_headers(self.pipeline))
        return OpenHistory(frame, (), _describe_topic(self.history), chosen, has_unique_offsets=True)

    def empty(self, schemas: PinnedSchemas | None) -> OpenHistory:
        return _empty(empty_topic(self.spark, self.history), schemas)

    def topic(self) -> Topic | None:
        return self.history

    def since(
        self, opened: OpenHistory, ends: Mapping[int, int], whole: Sequence[PinnedSnapshot | None] = (None,)
    ) -> DataFrame:
        """Read from the end offsets on: a broker seeks, it does not filter. The running maximum needs the whole log."""
        topic = opened.topic
        if topic is None or self.history.going_back == "running_maximum":
            return opened.frame
        ranges = tuple(replace(r, start=max(r.start, min(ends.get(r.partition, r.start), r.end))) for r in topic.ranges)
        return self.open(Pins(topic=replace(topic, ranges=ranges))).frame


@dataclass(frozen=True)
class StitchedSource(Source):
    """A Hive, Iceberg or Delta table for the older part of a log, and a Kafka topic for the rest.

    `since` gives all records: the topic's part cannot be read anew without moving the cut between the parts.
    """

    history: StitchedHistory

    def open(self, pins: Pins, as_of: Mapping[int, int] | None = None) -> OpenHistory:
        past, headers = self.history.past, _uses_headers(self.pipeline)
        now = chosen = None
        with named_by(self.pipeline, "history"):
            if past.lake_format:
                chosen = pin_snapshot(self.spark, past.table, TableFormat(past.lake_format), pins.snapshot)
            frame, offsets = open_stitched(
                self.spark,
                self.history,
                self.pipeline,
                headers=headers,
                pinned=pins.topic,
                snapshot=chosen,
                schemas=pins.schemas,
                as_of=as_of,
            )
            if chosen is None:
                now = files_behind(self.spark, read_table(self.spark, past.table, past.metastore), past.table)
                if pins.behind and now is not None:
                    confirm_behind(past.table, pins.behind, now)
        table = f"Hive table {past.table}" if chosen is None else chosen.description
        parts = f"{table}, then {_describe_topic(self.history.recent)}"
        return OpenHistory(frame, (), parts, offsets, behind=now, snapshot=chosen)

    def table_of_metastore(self) -> DataFrame | None:
        past = self.history.past
        return None if past.lake_format else read_table(self.spark, past.table, past.metastore)

    def topic(self) -> Topic | None:
        return self.history.recent

    def before_topic(self, opened: OpenHistory) -> DataFrame | None:
        return past_positions(self.spark, self.history, self.pipeline, opened)

    def empty(self, schemas: PinnedSchemas | None) -> OpenHistory:
        with named_by(self.pipeline, "history"):
            return _empty(empty_stitched(self.spark, self.history, self.pipeline, schemas), schemas)

    def partition_columns(self) -> tuple[str, ...]:
        past = self.history.past
        if past.lake_format:
            return lake_partitions(self.spark, past.table, TableFormat(past.lake_format))
        return table_partitions(self.spark, past.table)


@dataclass(frozen=True)
class UnionSource(Source):
    """Several histories as one stream. Its frames have canonical records, see `spark_jobs.sources.union`."""

    def open(
        self, pins: Pins, as_of: Mapping[int, int] | None = None, arrivals_before: int | None = None
    ) -> OpenHistory:
        opened = [
            open_history(
                self.spark,
                one,
                pins.inputs[number] if pins.inputs else None,
                as_of=None if as_of is None else of_input(as_of, number),
                arrivals_before=arrivals_before,
            )
            for number, one in enumerate(self.pipeline.inputs)
        ]
        return self._together(opened, arrivals_before)

    def empty(self, schemas: PinnedSchemas | None) -> OpenHistory:
        return self._together([empty_history(self.spark, one) for one in self.pipeline.inputs], None)

    def since(
        self, opened: OpenHistory, ends: Mapping[int, int], whole: Sequence[PinnedSnapshot | None] = (None,)
    ) -> DataFrame:
        frames = []
        for number, (one, part) in enumerate(zip(self.pipeline.inputs, opened.inputs, strict=True)):
            own = whole[number : number + 1] or (None,)
            later = source_of(self.spark, one).since(part, of_input(ends, number), own)
            frames.append(canonical(part, one, later))
        return joined(self.pipeline, frames)

    def _together(self, opened: Sequence[OpenHistory], arrivals_before: int | None) -> OpenHistory:
        records = [canonical(part, one) for one, part in zip(self.pipeline.inputs, opened, strict=True)]
        names = names_of(self.pipeline)
        said = "; ".join(f"{name}: {part.description}" for name, part in zip(names, opened, strict=True))
        return OpenHistory(
            joined(self.pipeline, records), (), said, arrivals_before=arrivals_before, inputs=tuple(opened)
        )


@contextmanager
def named_by(pipeline: Pipeline, *field: str | int) -> Iterator[None]:
    """Add to a SourceError the file and line of the definition that names the source."""
    try:
        yield
    except SourceError as error:
        place = pipeline.source_of(field)
        where = ", ".join(part for part in (error.where, place) if part)
        raise SourceError(error.what, where, error.hint) from error


def _empty(frame: DataFrame, schemas: PinnedSchemas | None) -> OpenHistory:
    return OpenHistory(frame, (), "", schemas=schemas)


def _without_old_records(frame: DataFrame, position: Position, as_of: Mapping[int, int]) -> DataFrame:
    """Filter on the history's own columns, so that Parquet and ORC skip files and row groups by their statistics.

    The filter is one offset for all partitions. It is left out where it would be wrong or useless: the running maximum
    of arrivals needs the whole log, and expressions of other types than integers have no statistics to compare.
    """
    if position.going_back == "running_maximum" or not as_of:
        return frame
    if position.partition is None or position.offset is None:
        return frame
    partition, offset = F.expr(position.partition), F.expr(position.offset)
    if not all(isinstance(field.dataType, IntegralType) for field in frame.select(partition, offset).schema):
        return frame
    first, last = min(as_of), max(as_of)
    if last - first + 1 - len(as_of) > _MAX_UNKNOWN_PARTITIONS:
        return frame
    # Comparisons one by one: Parquet's statistics cannot be used for NOT IN.
    is_unknown = (partition < F.lit(first)) | (partition > F.lit(last))
    for number in sorted(set(range(first, last)) - as_of.keys()):
        is_unknown = is_unknown | (partition == F.lit(number))
    return frame.where(is_unknown | (offset >= F.lit(min(as_of.values()))))


def _uses_headers(pipeline: Pipeline) -> bool:
    """Whether any expression of the definition names `headers`: reading them costs time."""
    text = pipeline.model_dump_json(
        exclude={"history", "description"}, warnings=False
    )  # of an input: its own watermark
    return "headers" in text or any("headers" in column for column in pipeline.input_columns.values())


def _refuse_unreadable(
    spark: SparkSession, pipeline: Pipeline, file: PinnedFile, unreadable: Mapping[str, str]
) -> None:
    """Raises SourceError where an expression of the definition names a column that Spark cannot read."""
    if not unreadable:
        return
    position, window = pipeline.history.position, pipeline.window
    texts = [getattr(position, name) for name in ("partition", "offset", "arrival", "sequence")]
    texts += [*pipeline.keys.values(), *pipeline.aggregates.values(), pipeline.event_time.expression]
    texts += [pipeline.filter.before_watermark, pipeline.filter.after_watermark]
    texts += [pipeline.watermark.marker, pipeline.watermark.stream, getattr(window, "gap_expression", None)]
    texts += pipeline.deduplicate.by if pipeline.deduplicate is not None else ()
    texts += pipeline.lookup.on.values() if pipeline.lookup is not None else ()
    texts.append(pipeline.value.column and f"`{pipeline.value.column}`")
    known = {name.lower(): name for name in unreadable}
    for text in (text for text in texts if text is not None):
        name = next((known[name.lower()] for name in names_in(spark, text) if name.lower() in known), None)
        if name is not None:
            raise SourceError(
                f"column `{name}` cannot be read: {unreadable[name]}",
                plain_path(file.path),
                "Write it with another type or name, or leave it out of the definition.",
            )


def _check_columns(opened: OpenHistory, pipeline: Pipeline) -> None:
    """Raises SourceError where a column that the definition names is missing or has another type."""
    for name in ("partition", "offset", "arrival", "sequence"):
        if (text := getattr(pipeline.history.position, name)) is not None:
            expression_type(opened.frame, text, pipeline, ("history", "position", name))
    value = pipeline.value
    if value.column is not None:
        expression_type(opened.frame, f"`{value.column}`", pipeline, ("value", "column"))
    elif value.ddl is not None:
        _check_types(opened, pipeline)


def _check_types(opened: OpenHistory, pipeline: Pipeline) -> None:
    try:
        schema = column_fields(opened.frame.sparkSession, pipeline.value)
    except ValueError as error:
        raise refuse_schema(pipeline, error) from error
    known = {field.name.lower(): field.dataType for field in opened.frame.schema}
    for field in schema:
        found = known.get(field.name.lower())
        if found is None:  # to tell which column it may be
            found = expression_type(opened.frame, f"`{field.name}`", pipeline, ("value", "schema"))
        if found.simpleString() != field.dataType.simpleString():
            raise SourceError(
                f"column `{field.name}` is {found.simpleString().upper()}, and the definition says "
                f"{field.dataType.simpleString().upper()}",
                pipeline.source_of(("value", "schema")) or opened.description,
                "Correct value.schema, or convert the column where an expression uses it.",
            )


def _describe_topic(topic: Topic) -> str:
    return f"Kafka topic {topic.topic} at {topic.servers}"


def _describe_files(history: FilesHistory, files: Sequence[PinnedFile]) -> str:
    size = decimal(sum(file.size for file in files))
    paths = ", ".join(plain_path(path) for path in history.path)
    return f"{paths} ({len(files)} file{'s' if len(files) != 1 else ''}, {size})"
