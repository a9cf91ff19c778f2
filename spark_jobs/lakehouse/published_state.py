"""What the last publication left in the table of windows, kept in a property of the table.

It moves in the commit that publishes. A rollback, a deletion or another column by somebody else does not change it: so
a run can tell whether the table is as Rewindow left it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from pyspark.sql import SparkSession

from spark_jobs.definition.instants import format_instant
from spark_jobs.lakehouse.commits import is_conflict
from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, jvm
from spark_jobs.spark.snapshots import snapshots_back, way_back

PROPERTY = "rewindow.published"
RUN_ID = "rewindow.run-id"
"""A property in the summary of the snapshot that published a run."""
_REWRITE = "replace"
"""What Iceberg calls a snapshot that has the same rows in other files."""


@dataclass(frozen=True, slots=True)
class PublishedState:
    """The table as the last publication left it.

    `head`: the snapshot of `main`, `sequence` its sequence number. `identity`: the columns that tell, or ever told, one
    window from another. `fields`: the ids of the columns that were written.
    """

    head: int
    sequence: int
    identity: tuple[str, ...]
    fields: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def published_state(table: JavaObject) -> PublishedState | None:
    """The state of Iceberg's own `table`; None where no run has published it."""
    text = table.properties().get(PROPERTY)
    if text is None:
        return None
    said = json.loads(text)
    return PublishedState(said["head"], said["sequence"], tuple(said["identity"]), said["fields"])


def state_at(
    table: JavaObject, head: int, identity: Iterable[str], columns: Iterable[str], *, is_everything: bool
) -> PublishedState:
    """The state when a run has written `columns` to `table`, and has brought `main` to `head`.

    `is_everything`: the run stands for all rows, so that columns of earlier runs do not matter any more.
    """
    before = published_state(table)
    known = () if before is None else before.identity
    written = {*columns, *(() if before is None or is_everything else before.fields)}
    fields = {f.name(): f.fieldId() for f in table.schema().columns() if f.name() in written}
    return PublishedState(
        head, table.snapshot(head).sequenceNumber(), tuple(dict.fromkeys((*identity, *known))), fields
    )


def set_properties(spark: SparkSession, table: JavaObject, properties: Mapping[str, str]) -> bool:
    """Set properties of Iceberg's own `table`; False: another process has changed it since it was loaded."""
    operations = table.operations()
    loaded = operations.current()
    changed = jvm(spark).org.apache.iceberg.TableMetadata.buildFrom(loaded).setProperties(dict(properties)).build()
    try:
        operations.commit(loaded, changed)
    except JAVA_ERRORS as problem:
        if is_conflict(problem):
            return False
        raise
    return True


def foreign_change(table: JavaObject) -> str | None:
    """What somebody else has done to the table since the last publication, in a few words; None: nothing.

    Rewrites of files, new columns and expired snapshots are no change.
    """
    state = published_state(table)
    if state is None:
        return None
    changed = foreign_commits(table, state.head, state.sequence)
    return changed if changed is not None else _changed_columns(table, state)


def foreign_commits(table: JavaObject, known: int, sequence: int | None = None) -> str | None:
    """What somebody else has done to `main` since its snapshot `known`, in a few words; None: nothing.

    `sequence`: the sequence number of that snapshot, where it may have expired.
    """
    way = way_back(table, known, sequence=sequence)
    if way.is_past is False:
        return _gone_back(table.currentSnapshot(), known)
    found = next((_words_of(snapshot) for snapshot in way.later if not _is_ours(snapshot)), None)
    if way.is_past or found is not None:
        return found
    return f"snapshots before {way.later[-1].snapshotId()} have expired, so that nobody knows what they did"


def _gone_back(now: JavaObject | None, known: int) -> str:
    at = "no snapshot" if now is None else f"snapshot {now.snapshotId()} of {format_instant(now.timestampMillis())}"
    return f"it is at {at}, and the published snapshot {known} is not in its past: it was rolled back, or made anew"


def since_last_run(table: JavaObject, head: int | None = None) -> tuple[JavaObject | None, list[JavaObject]]:
    """The last snapshot of a run in the past of `head` (default: the current one), and those of others after it.

    Latest first; rewrites of files are left out. None: no run is in the past that has not expired.
    """
    others: list[JavaObject] = []
    for snapshot in snapshots_back(table, head):
        if snapshot.summary().get(RUN_ID) is not None:
            return snapshot, others
        if not _is_ours(snapshot) and not _is_first(snapshot):
            others.append(snapshot)
    return None, others


def rows_of(snapshot: JavaObject) -> int | None:
    """The rows of a snapshot by its own summary; None where that does not say it."""
    summary = snapshot.summary()
    if any(summary.get(f"total-{kind}-deletes") not in (None, "0") for kind in ("position", "equality")):
        return None
    total = summary.get("total-records")
    return None if total is None else int(total)


def _changed_columns(table: JavaObject, state: PublishedState) -> str | None:
    now = {f.name(): f.fieldId() for f in table.schema().columns()}
    changed = sorted(name for name, known in state.fields.items() if now.get(name) != known)
    if not changed:
        return None
    names = ", ".join(f"`{name}`" for name in changed)
    return f"column {names} was dropped or renamed"


def _is_ours(snapshot: JavaObject) -> bool:
    return snapshot.summary().get(RUN_ID) is not None or snapshot.operation() == _REWRITE


def _is_first(snapshot: JavaObject) -> bool:
    """Whether it is the empty snapshot that a table begins with."""
    return snapshot.parentId() is None and rows_of(snapshot) in (None, 0)


def _words_of(snapshot: JavaObject) -> str:
    summary = snapshot.summary()
    by = summary.get("app-name") or summary.get("spark.app.id") or summary.get("engine-name") or "another program"
    at = format_instant(snapshot.timestampMillis())
    return f"snapshot {snapshot.snapshotId()} ({snapshot.operation()}, {at}, by {by}) is not of a run"
