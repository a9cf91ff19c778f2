"""What a history is known by, and what that proves of the records that were read of it before.

Each kind of source has signs of its own that its records are as they were: a topic its id, its first offsets and the
last record that was read; files their size and modification time; a lake table its snapshots, and what these did; a
Hive table its files, columns, partitions and views. Where the signs prove nothing, the history is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.kafka import Topic
from spark_jobs.identities import Evidence, FilesSince, Identity, LastRecord, Sign, other_schemas, worst
from spark_jobs.pins import Change, OffsetRange, PinnedFile, PinnedSnapshot, PinnedTopic
from spark_jobs.sources.files.log_files import how_it_changed
from spark_jobs.sources.history import source_of
from spark_jobs.sources.kafka.topic import read_log
from spark_jobs.sources.lake.behind import table_shape
from spark_jobs.sources.lake.lake_tables import change_between, column_ids
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.spark.failures import plain_path, reading

_TAIL = 64
"""The last record below an end offset is looked for in so many offsets: transactions leave some without a record."""


def identity_of(spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, ends: Mapping[int, int]) -> Identity:
    """What an opened history (no union) is known by. `ends`: the end offsets up to which it is read."""
    topic, source = opened.topic, source_of(spark, pipeline)
    shape, columns = None, {}
    if (table := source.table_of_metastore()) is not None:
        shape, columns = table_shape(spark, table)
    elif opened.snapshot is not None:
        columns = column_ids(spark, opened.snapshot)
    return Identity(
        topic_id=None if topic is None else topic.topic_id,
        starts=None if topic is None else {r.partition: r.start for r in topic.ranges},
        last_records={} if topic is None else _last_records(spark, source.topic(), topic, ends),
        files=opened.files,
        snapshot=opened.snapshot,
        columns=columns,
        shape=shape,
        schemas=None if opened.schemas is None else opened.schemas.digests,
        subject="" if opened.schemas is None else opened.schemas.subject,
    )


def _last_records(
    spark: SparkSession, read: Topic | None, topic: PinnedTopic, ends: Mapping[int, int]
) -> dict[int, LastRecord]:
    spans = ((r, min(r.end, ends.get(r.partition, r.start))) for r in topic.ranges)
    ranges = [OffsetRange(r.partition, max(r.start, end - _TAIL), end) for r, end in spans if end > r.start]
    if read is None or not ranges:
        return {}
    place = F.xxhash64("partition", "offset", F.unix_millis("timestamp"), "key", "value")
    with reading(f"Kafka topic {topic.topic}"):
        rows = (
            read_log(spark, read, ranges, headers=False)
            .groupBy("partition")
            .agg(F.max(F.struct("offset", place.alias("digest"))).alias("last"))
            .collect()
        )
    return {row["partition"]: LastRecord(row["last"]["offset"], row["last"]["digest"]) for row in rows}


Below = Callable[[DataFrame], int]
"""How many rows of a history's frame lie below the end offsets that were read."""


@dataclass(frozen=True)
class Signs:
    """The identity of a history `then` and `now`.

    `appended` gives the rows that a lake table got since, `in_files` those of files; `below` counts those of them that
    lie below the end offsets. `run_id`: the run that read the history then.
    """

    spark: SparkSession
    pipeline: Pipeline
    then: Identity
    now: Identity
    run_id: str
    appended: Callable[[], DataFrame]
    in_files: Callable[[Sequence[PinnedFile]], DataFrame]
    below: Below

    def evidence(self) -> Evidence:
        """What they prove. Reads metadata, and of rows only those that came since."""
        if schemas := other_schemas(self.then, self.now):
            return Evidence(Sign.UNPROVEN, f"{schemas} since run {self.run_id}")
        if self.pipeline.history.is_stitched:
            return worst((self._of_topic(), self._of_past_table()))
        if self.now.topic_id is not None:
            return self._of_topic()
        if self.now.snapshot is not None:
            return self._of_snapshot()
        return worst((self._of_shape(), self._of_files()))

    def _of_topic(self) -> Evidence:
        """A log keeps what it has, but for retention, compaction and a cut that nobody ordered."""
        starts, known = self.now.starts or {}, self.then.starts or {}
        for partition, start in sorted(starts.items()):
            if start < known.get(partition, start) and not self.pipeline.history.is_stitched:
                why = f"partition {partition} begins at offset {start} now, and began at {known[partition]}"
                return Evidence(Sign.UNPROVEN, why)
        for partition, last in sorted(self.then.last_records.items()):
            found = self.now.last_records.get(partition)
            if found is not None and found != last and starts.get(partition, 0) <= last.offset:
                return Evidence(Sign.UNPROVEN, _replaced(partition, last, self.run_id))
        if self.pipeline.history.is_stitched:
            return Evidence(Sign.BY_POSITION)
        topic = self.pipeline.history.topic_alone
        is_shorter = bool(known.keys() - starts.keys()) or any(s > known.get(p, s) for p, s in starts.items())
        if is_shorter or (topic is not None and "compacted" in topic.accept):
            return Evidence(Sign.GONE, f"the topic has lost records since run {self.run_id}")
        return Evidence(Sign.SAME)

    def _of_past_table(self) -> Evidence:
        """Records go from the topic to the table, so that rows below the end offsets come to it."""
        then, now = self.then.snapshot, self.now.snapshot
        if then is None or now is None:
            files = FilesSince.between(self.then, self.now)
            if self.then.many_files is not None and files.gone and files.added:
                why = f"{len(files.added)} files were written since run {self.run_id}, and {files.gone} are gone"
                return Evidence(Sign.UNPROVEN, why)  # one of them may have been written again
            return worst((self._of_shape(), _rewritten(files, self.run_id) or Evidence(Sign.BY_POSITION)))
        if (why := self._other_columns()) or (why := self._unproven(then, now, self._change(then, now))):
            return Evidence(Sign.UNPROVEN, why)
        return Evidence(Sign.BY_POSITION)

    def _of_snapshot(self) -> Evidence:
        then, now = self.then.snapshot, self.now.snapshot
        if then is None or now is None:
            return Evidence(Sign.UNPROVEN, f"run {self.run_id} has read another kind of history")
        change = self._change(then, now)
        if (why := self._unproven(then, now, change)) or (why := self._other_columns()):
            return Evidence(Sign.UNPROVEN, why)
        if change is Change.NONE:
            return Evidence(Sign.SAME)
        if change is Change.FILLED:
            return Evidence(Sign.BY_POSITION)
        if count := self.below(self.appended()):
            return Evidence(Sign.UNPROVEN, came_late(count, self.run_id))
        if change is Change.REMOVED:
            return Evidence(Sign.GONE, _since(now, change, then, self.run_id))
        return Evidence(Sign.SAME)

    def _change(self, then: PinnedSnapshot, now: PinnedSnapshot) -> Change:
        return change_between(self.spark, then, now)

    def _unproven(self, then: PinnedSnapshot, now: PinnedSnapshot, change: Change) -> str:
        """Why a change of the table proves nothing of the rows; empty: it does."""
        if change in (Change.REWRITTEN, Change.ROLLED_BACK, Change.UNKNOWN):
            return _since(now, change, then, self.run_id)
        return f"table {now.table} {change.value} since run {self.run_id}" if change is Change.ANOTHER else ""

    def _other_columns(self) -> str:
        for name, known in self.then.columns.items():
            if self.now.columns.get(name) != known:
                how = "is another one" if name in self.now.columns else "is gone"
                return f"column `{name}` {how} since run {self.run_id}"
        return ""

    def _of_shape(self) -> Evidence:
        then, now = self.then.shape, self.now.shape
        why = self._other_columns() or ("" if then is None or now is None else then.differs_from(now))
        return Evidence(Sign.UNPROVEN, f"{why} since run {self.run_id}") if why else Evidence(Sign.SAME)

    def _of_files(self) -> Evidence:
        """Files that are there as they were hold what they held, so only new ones are looked into."""
        if not self.then.knows_files or not self.now.knows_files:
            return Evidence(Sign.UNPROVEN, "nothing tells whether the rows are those that were read before")
        files = FilesSince.between(self.then, self.now)
        if (found := _rewritten(files, self.run_id)) is not None:
            return found
        if files.added and (count := self.below(self.in_files(files.added))):
            named = f" of {plain_path(files.added[0].path)}" if len(files.added) == 1 else ""
            return Evidence(Sign.UNPROVEN, came_late(count, self.run_id, named))
        if files.gone:
            return Evidence(Sign.GONE, f"{files.gone} files are gone since run {self.run_id}")
        return Evidence(Sign.SAME)


def came_late(count: int, run_id: str, named: str = "") -> str:
    """What is said of records that lie below the end offsets and were not read."""
    return f"{count} records{named} lie below the end offsets of run {run_id}, which has not read them"


def _replaced(partition: int, last: LastRecord, run_id: str) -> str:
    return f"partition {partition} has another record at offset {last.offset} than the one that run {run_id} has read"


def _since(now: PinnedSnapshot, change: Change, then: PinnedSnapshot, run_id: str) -> str:
    return f"table {now.table} {change.value} since run {run_id} (snapshot {then.snapshot})"


def _rewritten(files: FilesSince, run_id: str) -> Evidence | None:
    """The evidence where a file was written again."""
    if not files.changed:
        return None
    then, now = files.changed[0]
    more = f" and {len(files.changed) - 1} more" if len(files.changed) > 1 else ""
    how = how_it_changed(then, now)
    return Evidence(Sign.UNPROVEN, f"{plain_path(now.path)}{more} was written again since run {run_id}: {how}")
