"""Another log: the history holds other records than those that an earlier run has read, at the same offsets.

A reconciliation refuses it. So does a run by hand, unless a person says that what is there now takes the place of all
that is published: offsets of two logs say nothing of each other, so no window of one can be kept beside the other's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.errors import HistoryError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.past import FilesSince, ReadBefore, counted_below
from spark_jobs.sources import OpenHistory, PinnedFile, canonical, records_of_input, source_of
from spark_jobs.spark.failures import plain_path

_WAY_OUT = (
    "Write the windows of another log to another table (output.table). Where what is there now is to take the place of "
    "all that is published: `rewindow run --another-log` (in the form: Another log)."
)


def refuse_another_log(
    pipeline: Pipeline,
    opened: OpenHistory,
    before: ReadBefore,
    everything: DataFrame,
    in_files: Callable[[Sequence[PinnedFile]], DataFrame],
    *,
    is_cut: bool = False,
) -> None:
    """Raises HistoryError where the history is another one than the run `before` has read.

    `everything` are its canonical records, `in_files` gives those of some files. `is_cut`: end offsets were asked for,
    so those that were opened do not say where a topic ends.
    """
    owns = zip(pipeline.inputs, opened.inputs, before.of_inputs(len(opened.inputs)), strict=True)
    for number, (one, part, own) in enumerate(owns):
        refuse_another_log(
            one, part, own, records_of_input(everything, number), _finder(everything, one, part), is_cut=is_cut
        )
    if opened.inputs:
        return
    topic, past = opened.topic, before.past
    if topic is not None and before.topic_id not in (None, topic.topic_id):
        raise HistoryError(
            f"the topic was created again after run {before.run_id} (id {before.topic_id}, now {topic.topic_id})",
            opened.description,
            f"Its offsets belong to other records now. Stitch the old ones from an archive, or: {_WAY_OUT}",
        )
    if topic is not None and not is_cut:
        _refuse_a_shorter_log(opened, before)
    if past is None or pipeline.history.is_stitched:
        return
    if past.snapshot is not None and opened.snapshot is not None:
        if past.snapshot.uuid != opened.snapshot.uuid:
            below = counted_below(everything, pipeline, before.as_of)[0]
            _refuse_less(before, below, f"table {opened.snapshot.table} was made anew", opened.description)
    elif past.files is not None and opened.files is not None:
        files = FilesSince.between(past.files, opened.files)
        if files.are_others and (below := counted_below(in_files(files.added), pipeline, before.as_of)[0]):
            what = f"none of the {len(files.gone)} files that run {before.run_id} has read is there"
            _refuse_less(before, below, what, ", ".join(plain_path(file.path) for file in files.added[:3]))


def _finder(
    everything: DataFrame, pipeline: Pipeline, opened: OpenHistory
) -> Callable[[Sequence[PinnedFile]], DataFrame]:
    source = source_of(everything.sparkSession, pipeline)
    return lambda files: canonical(opened, pipeline, source.in_files(opened, files))


def is_another_log(
    spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, *, accepted: bool, is_cut: bool
) -> str:
    """How the history differs from the one that was read for what is published; empty: it is the same log.

    Raises HistoryError unless that is `accepted`.
    """
    tables = Tables.of(pipeline)
    if not all(spark.catalog.tableExists(name) for name in (tables.windows, tables.runs, tables.timeline_state)):
        return ""
    before = ReadBefore.latest(spark, tables, pipeline)
    if before is None:
        return ""
    everything = canonical(opened, pipeline)
    try:
        in_files = _finder(everything, pipeline, opened)
        refuse_another_log(pipeline, opened, before, everything, in_files, is_cut=is_cut)
    except HistoryError as problem:
        if not accepted:
            raise
        return problem.what
    return ""


def _refuse_less(before: ReadBefore, below: Mapping[int, int], what: str, where: str) -> None:
    counts = None if before.past is None else before.past.counts
    if counts is None or all(below.get(p, 0) >= count for p, count in counts.items()):
        return
    raise HistoryError(
        f"the history is another one: {what}, and what is there holds {sum(below.values())} records below the end "
        f"offsets of run {before.run_id}, which has read {sum(counts.values())}",
        where,
        _WAY_OUT,
    )


def _refuse_a_shorter_log(opened: OpenHistory, before: ReadBefore) -> None:
    ends = {} if opened.topic is None else {r.partition: r.end for r in opened.topic.ranges}
    for partition, end in sorted(before.as_of.items()):
        if ends.get(partition, end) < end:
            raise HistoryError(
                f"partition {partition} ends at offset {ends[partition]}, and run {before.run_id} has read it "
                f"up to {end}: the log was truncated, or is another one",
                opened.description,
                _WAY_OUT,
            )
