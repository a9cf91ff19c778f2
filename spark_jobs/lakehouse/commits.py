"""Commits to Iceberg tables to which other processes write at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, loaded_iceberg_table
from spark_jobs.spark.snapshots import way_back

T = TypeVar("T")
_ATTEMPTS = 8


def retried(action: Callable[[], T]) -> T:
    """Call `action`; again, some times, where another process has committed to the table meanwhile.

    Iceberg tries again too, but changes of branches it makes from the metadata that it had before, which fails each
    time.
    """
    attempts = Retrying(
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(0.05, max=2),
        retry=retry_if_exception(lambda problem: isinstance(problem, JAVA_ERRORS) and is_conflict(problem)),
        reraise=True,
    )
    return attempts(action)


def is_conflict(problem: BaseException) -> bool:
    """Whether a write failed because another process has written to the table meanwhile: it can be tried again."""
    text = str(problem)
    return "CommitFailedException" in text or "ValidationException" in text


def heads_of(table: JavaObject) -> dict[str, int]:
    """The snapshot of each branch and tag of Iceberg's own `table`."""
    return {name: ref.snapshotId() for name, ref in table.refs().items()}


def may_be_in_past(table: JavaObject, head: int | None, snapshot: int) -> bool:
    """Whether `snapshot` is `head` or one of its ancestors, or may be one of those that have expired."""
    return head is not None and way_back(table, snapshot, head).is_past is not False


def have_moved(table: JavaObject, bases: Mapping[str, int]) -> bool:
    """Whether one of the branches is at another snapshot than in `bases`."""
    now = heads_of(table)
    return any(now[branch] != snapshot for branch, snapshot in bases.items())


def fast_forward(
    spark: SparkSession,
    name: str,
    branches: Mapping[str, str],
    bases: Mapping[str, int],
    properties: Callable[[], Mapping[str, str]],
) -> bool:
    """Bring `branches` (the keys) of the table to those that were written for them (the values), and set properties.

    It is one commit, which drops the written branches. False, and nothing is done: another process has moved one of the
    branches, which were at `bases`. A commit whose answer was lost is looked up in the table.
    Raises one of `JAVA_ERRORS`.
    """
    written = {branch: heads_of(loaded_iceberg_table(spark, name))[source] for branch, source in branches.items()}

    def move() -> None:
        change = loaded_iceberg_table(spark, name).newTransaction()
        snapshots = change.manageSnapshots()
        for branch, source in branches.items():
            snapshots = snapshots.fastForwardBranch(branch, source)
        for gone in branches.values():
            snapshots = snapshots.removeBranch(gone)
        snapshots.commit()
        update = change.updateProperties()
        for key, value in properties().items():
            update = update.set(key, value)
        update.commit()
        change.commitTransaction()

    own = {branch: bases[branch] for branch in branches}
    if have_moved(loaded_iceberg_table(spark, name), own):
        return False
    try:
        retried(move)
    except JAVA_ERRORS:
        table = loaded_iceberg_table(spark, name)
        now = heads_of(table)
        if all(may_be_in_past(table, now[branch], snapshot) for branch, snapshot in written.items()):
            return True
        if have_moved(table, own):
            return False
        raise
    return True
