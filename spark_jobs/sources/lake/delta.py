"""A Delta table as a history: the version that a run reads, and what became of it since an earlier run.

Delta's jar is fetched only where the environment names it (`jvm.DELTA`). All that is asked of a table, its log answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.errors import EnvironmentSetupError, SourceError
from spark_jobs.pins import Change, PinnedSnapshot, TableFormat
from spark_jobs.settings import Variable
from spark_jobs.spark.failures import plain_path, reading, short
from spark_jobs.spark.gateway import (
    JAVA_ERRORS,
    JavaObject,
    active_session,
    elements,
    frame_of,
    hadoop_conf,
    hadoop_path,
    java_session,
    jvm,
    session_state,
)
from spark_jobs.spark.java import java_reason
from spark_jobs.spark.jvm import DELTA, DELTA_EXTENSION

P = ParamSpec("P")
T = TypeVar("T")


def _in_session(function: Callable[Concatenate[SparkSession, P], T]) -> Callable[Concatenate[SparkSession, P], T]:
    """The function, carried out in its session: Delta takes the active one of the JVM's thread, which may have none."""

    @wraps(function)
    def call(spark: SparkSession, *args: P.args, **kwargs: P.kwargs) -> T:
        with active_session(spark):
            return function(spark, *args, **kwargs)

    return call


@dataclass(frozen=True, slots=True)
class _Step:
    """One version's changes of the rows. Files that were only written anew, with the same rows, are `replaced`."""

    operation: str
    added: tuple[JavaObject, ...]
    removed: tuple[str, ...]
    replaced: tuple[str, ...]

    @property
    def change(self) -> Change:
        if not self.removed:
            return Change.APPENDED if self.added else Change.NONE
        if self.operation == "RESTORE":
            return Change.ROLLED_BACK
        return Change.REMOVED if self.operation in ("DELETE", "TRUNCATE") or not self.added else Change.REWRITTEN


@_in_session
def pin_snapshot(spark: SparkSession, table: str, pinned: PinnedSnapshot | None = None) -> PinnedSnapshot:
    """The table's current version, or that of a plan where it is still there."""
    log = _log(spark, table)
    now = _latest(spark, log)
    uuid, version = now.metadata().id(), now.version()
    if version < 0:
        raise SourceError("there is no such Delta table", table, "Name a table of the metastore, or its folder.")
    if pinned is None:
        return PinnedSnapshot(table, uuid, version, TableFormat.DELTA)
    if pinned.uuid != uuid:
        raise SourceError("the table was made anew since the plan was made", table, "Plan again.")
    if pinned.snapshot is None or pinned.snapshot > version:
        raise SourceError(f"version {pinned.snapshot} of the plan is not there", table, "Plan again.")
    if pinned.snapshot < version:
        _require(spark, log, pinned.snapshot, version, table)
    return pinned


@_in_session
def snapshot_size(spark: SparkSession, pinned: PinnedSnapshot) -> tuple[int | None, int | None]:
    """The bytes of a version; the log need not have the number of records."""
    return None, int(_version(spark, _log(spark, pinned.table), pinned.snapshot or 0).sizeInBytes())


@_in_session
def read_snapshot(spark: SparkSession, pinned: PinnedSnapshot) -> DataFrame:
    """The rows of a version, with the columns that the table had then."""
    with reading(pinned.table):
        log = _log(spark, pinned.table)
        version = _version(spark, log, pinned.snapshot or 0)
        if version.protocol().readerFeatureNames().contains("deletionVectors"):
            # Delta does not pin what is written into a table of another format, and refuses to apply the vectors then.
            return _rows_of(spark, log, version, version.allFiles().collectAsList())
        path = log.dataPath().toString()
        return spark.read.format("delta").option("versionAsOf", str(pinned.snapshot)).load(path)


@_in_session
def read_appended(spark: SparkSession, before: PinnedSnapshot, now: PinnedSnapshot) -> DataFrame:
    """The rows of the files that later versions have appended; not those that a deletion has written anew."""
    with reading(now.table):
        log = _log(spark, now.table)
        steps = _steps(spark, log, before, now) or ()
        files = [file for step in steps if step.change is Change.APPENDED for file in step.added]
        return _rows_of(spark, log, _version(spark, log, now.snapshot or 0), files)


@_in_session
def change_between(spark: SparkSession, before: PinnedSnapshot, now: PinnedSnapshot) -> Change:
    """What became of the rows of an earlier version."""
    if before.snapshot is None or now.snapshot is None or now.snapshot < before.snapshot:
        return Change.ROLLED_BACK
    log = _log(spark, now.table)
    steps = _steps(spark, log, before, now)
    if steps is None:
        return Change.UNKNOWN
    found = {step.change for step in steps}
    for worst in (Change.ROLLED_BACK, Change.REWRITTEN, Change.REMOVED):
        if worst in found:
            return worst
    if Change.APPENDED not in found:
        return Change.NONE
    replaced = {path for step in steps for path in step.replaced}
    compacted = [path for step in steps for file in step.added if (path := file.path()) in replaced]
    return Change.UNKNOWN if _first_gone(spark, log, compacted) else Change.APPENDED


@_in_session
def column_ids(spark: SparkSession, table: str) -> dict[str, str]:
    """The id of each column by column mapping; without it the name, which then belongs to one column for good."""
    schema = _latest(spark, _log(spark, table)).metadata().schema()
    found = {}
    for index in range(schema.length()):
        field = schema.apply(index)
        metadata = field.metadata()
        has_id = metadata.contains("delta.columnMapping.id")
        found[field.name()] = str(metadata.getLong("delta.columnMapping.id")) if has_id else field.name()
    return found


@_in_session
def table_partitions(spark: SparkSession, table: str) -> tuple[str, ...]:
    """The columns by which the table is partitioned."""
    return tuple(elements(_latest(spark, _log(spark, table)).metadata().partitionColumns()))


def _require(spark: SparkSession, log: JavaObject, version: int, now: int, table: str) -> None:
    """Raises SourceError where the log of a version, or a file of it, is gone."""
    try:
        _version(spark, log, version)
    except JAVA_ERRORS as error:
        raise SourceError(f"version {version} of the plan has expired", table, "Plan again.") from error
    later = _changes(spark, log, version, now)
    left = [path for step in later or () for path in (*step.removed, *step.replaced)]
    if gone := _first_gone(spark, log, left):
        what = f"version {version} of the plan was vacuumed: {gone} is gone"
        raise SourceError(what, table, "Plan again; keep files longer than runs wait (VACUUM ... RETAIN).")


def _rows_of(spark: SparkSession, log: JavaObject, version: JavaObject, files: Sequence[JavaObject]) -> DataFrame:
    """The rows of some files, with the columns of a version. Deletion vectors are applied."""
    chosen = jvm(spark).PythonUtils.toSeq(files)
    return frame_of(spark, log.createDataFrame(version, chosen, False, jvm(spark).scala.Option.empty()))


def _steps(spark: SparkSession, log: JavaObject, before: PinnedSnapshot, now: PinnedSnapshot) -> list[_Step] | None:
    return _changes(spark, log, before.snapshot or 0, now.snapshot or 0)


def _changes(spark: SparkSession, log: JavaObject, after: int, last: int) -> list[_Step] | None:
    """The changes of the versions `(after, last]`; None where the log does not have all of them any more."""
    found = list(elements(log.getChanges(after + 1, last, False)))
    if [version.productElement(0) for version in found] != list(range(after + 1, last + 1)):
        return None
    return [_step(elements(version.productElement(1))) for version in found]


def _step(actions: Iterator[JavaObject]) -> _Step:
    operation, added, removed, replaced = "", [], [], []
    for action in actions:
        match action.getClass().getSimpleName():
            case "CommitInfo":
                operation = action.operation()
            case "AddFile" if action.dataChange():
                added.append(action)
            case "RemoveFile":
                (removed if action.dataChange() else replaced).append(action.path())
    return _Step(operation, tuple(added), tuple(removed), tuple(replaced))


def _first_gone(spark: SparkSession, log: JavaObject, paths: Sequence[str]) -> str | None:
    """The first of these data files that is not there."""
    root = log.dataPath()
    system = root.getFileSystem(hadoop_conf(spark))
    for path in paths:
        file = hadoop_path(spark, jvm(spark).java.net.URI(path).getPath() if "://" not in path else path)
        whole = file if file.isAbsolute() else jvm(spark).org.apache.hadoop.fs.Path(root, file)
        if not system.exists(whole):
            return plain_path(whole.toString())
    return None


def _log(spark: SparkSession, table: str) -> JavaObject:
    """Delta's own log of a table, as it is now."""
    if DELTA_EXTENSION not in (spark.sparkContext.getConf().get("spark.sql.extensions") or ""):
        hint = f"Set {Variable.PACKAGES}={DELTA} and start again. Running Airflow needs it in its environment too."
        raise EnvironmentSetupError("Spark was started without Delta", table, hint)
    try:
        path = hadoop_path(spark, table if "/" in table else _location(spark, table))
        logs = jvm(spark).org.apache.spark.sql.delta.DeltaLog
        logs.invalidateCache(java_session(spark), path)  # a table that was made anew has another log
        return logs.forTable(java_session(spark), path)
    except JAVA_ERRORS as error:
        what = f"there is no such Delta table: {short(java_reason(error))}"
        raise SourceError(what, table, "Name a table of the metastore, `database.table`, or its folder.") from error


def _location(spark: SparkSession, table: str) -> str:
    state = session_state(spark)
    return state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(table)).location().toString()


def _latest(spark: SparkSession, log: JavaObject) -> JavaObject:
    none = jvm(spark).scala.Option.empty()
    return log.update(False, none, none)


def _version(spark: SparkSession, log: JavaObject, version: int) -> JavaObject:
    none = jvm(spark).scala.Option.empty()
    return log.getSnapshotAt(version, none, none)
