"""What other rows of the lookup's table change of the records that were read before.

Where their event times, quarantine and filters are as they were, only the windows that they were in, or are in now, can
have changed. Else the watermark may have moved, and everything is looked up anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.errors import SourceError
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.pins import PinnedSnapshot
from spark_jobs.replay.columns import OFFSET, PARTITION
from spark_jobs.runs.night.affected import PreviousRun
from spark_jobs.sources import OpenHistory, canonical, changed_keys, cut_at, lookup_rows, narrowed
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.texts import as_text

LOOKUP = "lookup"
"""Where the saved state of a run has the snapshot that its records were looked up in."""
_MANY_KEYS = 1_000
"""Of a table where more have changed, and a quarter of its rows, the records with all keys are looked up."""
_DECIDED, _GOT = "rw_decided", "rw_got"


def kept_lookup(pinned: PinnedSnapshot | None) -> dict[str, object]:
    """The snapshot as a saved state has it."""
    return {} if pinned is None else {LOOKUP: asdict(pinned)}


@dataclass(frozen=True, slots=True)
class Anew:
    """All records are looked up anew, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Changed:
    """The canonical records that were read before and get other rows now: as they were `then`, and as they are `now`.

    Event times, quarantine and filters are what they were, so that the timeline stays.
    """

    then: DataFrame
    now: DataFrame


def looked_up_again(
    spark: SparkSession, pipeline: Pipeline, before: PreviousRun, opened: OpenHistory, cache: CachedFrames
) -> Anew | Changed | None:
    """What the lookup's table of now changes of records that the run `before` has read; None: nothing.

    A table that was compacted, or has got other rows and lost them again, has the same rows. Rows that are new, or are
    valid from a later time on, change nothing for records that were read before.
    """
    known, now = before.state.get(LOOKUP), opened.lookup
    if now is None:
        return None
    if known is None:
        return Anew(f"run {before.run_id} kept no snapshot of the lookup's table")
    last, _ = Ledger(spark, Tables.of(pipeline)).latest_published()
    if last is None or last["run_id"] != before.run_id:
        return Anew("a run over a part of the range, published since, may have seen other rows of the lookup's table")
    then = PinnedSnapshot(**known)
    if then == now:
        return None
    try:
        rows_then, rows_now = lookup_rows(spark, then), lookup_rows(spark, now)
    except SourceError as gone:
        return Anew(f"the records are looked up anew: {gone.what}")
    anew = Anew(f"the records are looked up anew: rows of {now.table} have changed")
    if rows_then.schema != rows_now.schema:
        return anew
    keys = cache.keep(changed_keys(pipeline, rows_then, rows_now))
    count = keys.count()
    if not count:
        return None
    if count > _MANY_KEYS and count > rows_now.count() // 4:
        return anew
    states = [replace(opened, lookup=one) for one in (then, now)]
    return _compared([_looked_up_by(keys, pipeline, one, before, cache) for one in states], anew, cache)


def _looked_up_by(
    keys: DataFrame, pipeline: Pipeline, opened: OpenHistory, before: PreviousRun, cache: CachedFrames
) -> DataFrame:
    """The records that were read before and have one of these keys, with digests of what they are and got."""
    records = narrowed(cut_at(canonical(opened, pipeline, looked_up_by=keys), before.as_of), pipeline)
    accepts = pipeline.filter.after_watermark
    accepted = F.lit(True) if accepts is None else F.coalesce(F.expr(accepts), F.lit(False))
    own = [name for name in records.columns if name.startswith("rw_")]
    got = as_text(*(f"`{n}`" for n in records.drop(*own).columns))
    return cache.keep(records.withColumns({_DECIDED: F.xxhash64(*own, accepted), _GOT: F.xxhash64(got)}))


def _compared(frames: Sequence[DataFrame], anew: Anew, cache: CachedFrames) -> Anew | Changed | None:
    """The records that got other rows; `anew` where some move the watermark, or count, by one row alone."""
    digest = F.struct(F.count("*"), F.bit_xor(_DECIDED), F.sum(F.col(_DECIDED).cast("decimal(38,0)")))
    then, now = (frame.agg(digest).collect()[0] for frame in frames)
    if then != now:
        return anew
    one, other = frames
    changed = [cache.keep(_with_other_rows(*pair)) for pair in ((one, other), (other, one))]
    return None if changed[1].isEmpty() else Changed(*changed)


def _with_other_rows(records: DataFrame, others: DataFrame) -> DataFrame:
    columns = {name: f"rw_other_{number}" for number, name in enumerate((PARTITION, OFFSET, _GOT))}
    beside = others.select(*(F.col(name).alias(other) for name, other in columns.items()))
    place = [F.col(name) == F.col(columns[name]) for name in (PARTITION, OFFSET)]
    differs = F.col(_GOT) != F.col(columns[_GOT])
    return records.join(beside, [*place, differs], "left_semi").drop(_DECIDED, _GOT)
