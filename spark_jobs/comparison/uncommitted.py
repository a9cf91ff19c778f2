"""Sessions of which a row may be out that nobody knows of (`LiveEngine.in_doubt`)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import Emitted
from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.replay.assign import END, START


def touched_sessions(uncommitted: DataFrame, windows: DataFrame, emitted: Emitted, keys: tuple[str, ...]) -> DataFrame:
    """The sessions of either side that overlap or touch a record of `uncommitted`: keys, bounds (epoch ms), distinct.

    Such a session is another one, if the batch's rows are out.
    """
    columns = [*(f"`{key}`" for key in keys), START, END]
    sessions = windows.select(*columns).unionByName(emitted.rows.select(*columns)).distinct()
    by_key = [name for name in join_columns(keys) if name not in (START, END)]
    alone = with_join_keys(uncommitted, keys).select(
        *by_key, F.col(START).alias("rw_first"), F.col(END).alias("rw_last")
    )
    touches = (F.col(START) <= F.col("rw_last")) & (F.col(END) >= F.col("rw_first"))
    joined = with_join_keys(sessions, keys).join(alone, by_key).where(touches)
    return joined.select(*columns).distinct()
