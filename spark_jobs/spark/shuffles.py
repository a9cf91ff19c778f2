"""How many tasks a shuffle has, by the rows that may go through it.

Too few tasks hold more groups each than fit the memory of one, and sort them on disk: 80 million groups took 2.3 times
as long in 4 tasks as in 32. Too many cost little, since Spark's adaptive execution joins small ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

ROWS_OF_A_TASK = 2_500_000
"""Groups of this number fit the memory that a task has of 2 GiB a core."""
_PARTITIONS = "spark.sql.shuffle.partitions"
_MOST = 10_000


@contextmanager
def shuffles_for(spark: SparkSession, rows: int) -> Iterator[None]:
    """Give shuffles at least as many partitions as so many rows need; never fewer than the session has set."""
    before = spark.conf.get(_PARTITIONS) or "1"
    wanted = min(-(-rows // ROWS_OF_A_TASK), _MOST)
    if wanted <= int(before):
        yield
        return
    spark.conf.set(_PARTITIONS, str(wanted))
    try:
        yield
    finally:
        spark.conf.set(_PARTITIONS, before)
