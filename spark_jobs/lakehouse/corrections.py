"""The table `<table>__corrections`: what was delivered to the readers of the live job's output.

One row for each window in each delivery. Columns: the keys; `window_start`, `window_end`; for each aggregate
`<a>__old` and `<a>__new`, and

| column | meaning |
| --- | --- |
| `delivery`, `number` | the delivery's id; its place among those to the same destination, from 1 |
| `kind`, `status`, `action` | see `spark_jobs.lakehouse.delivery` |
| `destination` | where it goes, as `table live.departures` |
| `value` | faithful or complete |
| `revision`, `cause`, `run_id` | the published revision that is delivered, and the run that published it |
| `existed` | whether readers had a row of the window before |
| `since` | the offsets of a topic's partitions before the delivery |
| `process` | the process that delivers |
| `prepared_at`, `delivered_at` | when it was written down; when the destination had it |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_jobs.errors import CatalogError, RunStateError
from spark_jobs.lakehouse.commits import is_conflict
from spark_jobs.lakehouse.delivery import DeliveryEvent, DeliveryKind, DeliveryStatus, next_delivery_status
from spark_jobs.lakehouse.published_state import set_properties
from spark_jobs.lakehouse.tables import AS_OF, FEW_FILES, aligned, ensure_table, guarded, literal
from spark_jobs.spark.gateway import loaded_iceberg_table
from spark_jobs.spark.snapshots import rows_at

WORKER = "rewindow.delivering"
"""The property of the table that says which process delivers, and when it said so last: no row changes for that."""
_OWN = FEW_FILES | {"write.update.mode": "copy-on-write"}
"""An update writes a file anew: in one whose rows are marked as deleted `prepare` would find a prepared delivery."""
DELIVERY, NUMBER, KIND, STATUS, DESTINATION = "delivery", "number", "kind", "status", "destination"
EXISTED = "existed"
CORRECTION_FACTS = t.StructType(
    [
        t.StructField("delivery", t.StringType()),
        t.StructField("number", t.LongType()),
        t.StructField("kind", t.StringType()),
        t.StructField("status", t.StringType()),
        t.StructField("destination", t.StringType()),
        t.StructField("value", t.StringType()),
        t.StructField("action", t.StringType()),
        t.StructField("existed", t.BooleanType()),
        t.StructField("revision", t.IntegerType()),
        t.StructField("cause", t.StringType()),
        t.StructField("run_id", t.StringType()),
        t.StructField("since", AS_OF),
        t.StructField("process", t.StringType()),
        t.StructField("prepared_at", t.TimestampType()),
        t.StructField("delivered_at", t.TimestampType()),
    ]
)
"""The columns of a correction beside the window and its values."""


def old_name(aggregate: str) -> str:
    """The column of the value that readers had before."""
    return f"{aggregate}__old"


def new_name(aggregate: str) -> str:
    """The column of the value that is delivered."""
    return f"{aggregate}__new"


def pair_names(values: Iterable[str]) -> list[str]:
    """The columns of the values before and after, by value."""
    return [name(value) for value in values for name in (old_name, new_name)]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery: its id, its number among those to `destination`, how it stands, and how many rows it has.

    `since`: the offsets of a topic's partitions before it; `process`: who delivers it.
    """

    id: str
    number: int
    kind: DeliveryKind
    status: DeliveryStatus
    destination: str
    rows: int
    since: Mapping[int, int] | None
    process: str | None
    prepared_at: datetime
    delivered_at: datetime | None


@dataclass(frozen=True, slots=True)
class Worker:
    """Who delivers, and its last sign of life, by its own clock. `seen`: what changes with each of its signs."""

    process: str | None
    at: datetime
    seen: tuple[str | None, int | None]


class CorrectionTable:
    """The corrections of one pipeline. `keys`: the pipeline's."""

    def __init__(self, spark: SparkSession, table: str, keys: Sequence[str]) -> None:
        self._spark = spark
        self.table = table
        self.identity = (*keys, "window_start", "window_end")

    def exists(self) -> bool:
        return self._spark.catalog.tableExists(self.table)

    def prepare_table(self, windows: t.StructType, values: Sequence[str]) -> None:
        """Make the table with the keys and values of the published windows, or add the columns that it lacks."""
        kinds = {field.name: field.dataType for field in windows}
        fields = [t.StructField(name, kinds[name]) for name in self.identity]
        for value in values:
            fields += [t.StructField(old_name(value), kinds[value]), t.StructField(new_name(value), kinds[value])]
        whole = t.StructType([*fields, *CORRECTION_FACTS])
        guarded("cannot make", self.table, lambda: ensure_table(self._spark, self.table, whole, _OWN))

    def head(self) -> int | None:
        """The table's snapshot now; None: it has none."""
        snapshot = loaded_iceberg_table(self._spark, self.table).currentSnapshot()
        return None if snapshot is None else snapshot.snapshotId()

    def rows(self, head: int | None = None) -> DataFrame:
        """All rows, at the snapshot `head` (None: now)."""
        if head is None:
            return self._spark.table(self.table)
        return rows_at(self._spark, self.table, head)

    def latest(self, destination: str, head: int | None = None) -> DataFrame:
        """The row of each window's last finished delivery to `destination`."""
        done = self.rows(head).where((F.col(DESTINATION) == destination) & (F.col(STATUS) == DeliveryStatus.DELIVERED))
        last = Window.partitionBy(*(f"`{c}`" for c in self.identity)).orderBy(F.desc(NUMBER))
        return done.withColumn("rw_place", F.row_number().over(last)).where("rw_place = 1").drop("rw_place")

    def deliveries(self, destination: str | None = None) -> list[Delivery]:
        """The deliveries, the first one first."""
        rows = self.rows()
        if destination is not None:
            rows = rows.where(F.col(DESTINATION) == destination)
        names = (DELIVERY, NUMBER, KIND, STATUS, DESTINATION, "process", "prepared_at", "delivered_at")
        found = rows.groupBy(*names).agg(F.count("*").alias("rows"), F.first("since").alias("since"))
        return [
            Delivery(
                r["delivery"],
                r["number"],
                DeliveryKind(r["kind"]),
                DeliveryStatus(r["status"]),
                r["destination"],
                r["rows"],
                r["since"],
                r["process"],
                r["prepared_at"],
                r["delivered_at"],
            )
            for r in sorted(found.collect(), key=lambda r: (r["prepared_at"].timestamp(), r[NUMBER]))
        ]

    def last_number(self, destination: str, head: int | None = None) -> int:
        """The number of the last delivery to `destination`, at the snapshot `head` (None: now); 0: there is none."""
        number = self.rows(head).where(F.col(DESTINATION) == destination).agg(F.max(NUMBER)).collect()[0][0]
        return number or 0

    def of(self, delivery: str) -> DataFrame:
        """The rows of a delivery."""
        return self.rows().where(F.col(DELIVERY) == delivery)

    def prepare(self, rows: DataFrame, delivery: Delivery, head: int | None) -> None:
        """Write a delivery down, unless another process has prepared one to the same destination since `head`.

        `rows`: the columns of the table without those that the delivery says, which are the same for all rows. Raises
        RunStateError where another process was faster.
        """
        destination = delivery.destination
        facts: dict[str, Any] = {
            DELIVERY: delivery.id,
            NUMBER: delivery.number,
            KIND: delivery.kind.value,
            STATUS: next_delivery_status(delivery.id, None, DeliveryEvent.PREPARE).value,
            DESTINATION: destination,
            "since": delivery.since,
            "process": delivery.process,
            "prepared_at": delivery.prepared_at,
        }
        whole = rows.withColumns({name: _literal(value) for name, value in facts.items()})
        pending = (F.col(DESTINATION) == destination) & (F.col(STATUS) == DeliveryStatus.PREPARED.value)

        def write() -> None:
            writer = aligned(self._spark, self.table, whole).writeTo(self.table)
            if head is not None:
                writer = writer.option("isolation-level", "serializable")
                writer = writer.option("validate-from-snapshot-id", str(head))
            writer.overwrite(pending)

        try:
            guarded("cannot write", self.table, write)
        except CatalogError as problem:
            if not isinstance(problem.__cause__, Exception) or not is_conflict(problem.__cause__):
                raise
            hint = "Try again when it has ended."
            raise RunStateError("another process has begun to deliver meanwhile", destination, hint) from problem

    def worker(self, delivery: Delivery) -> Worker:
        """Who works on a prepared delivery: the process that prepared it, or the one that has taken it over since."""
        table = loaded_iceberg_table(self._spark, self.table)
        text, snapshot = table.properties().get(WORKER), table.currentSnapshot()
        seen = (text, None if snapshot is None else snapshot.snapshotId())
        said = {} if text is None else json.loads(text)
        if said.get(DELIVERY) != delivery.id:
            return Worker(delivery.process, delivery.prepared_at, seen)
        return Worker(said["process"], datetime.fromisoformat(said["at"]), seen)

    def show_life(self, delivery: Delivery, process: str, at: datetime, since: Worker | None = None) -> bool:
        """Write a sign of life of the process that delivers.

        False, and none is written: another process has taken the delivery over; or the table has changed since the
        sign `since`, by which this process takes it over.
        """
        table = loaded_iceberg_table(self._spark, self.table)
        known = self.worker(delivery)
        if known.seen != since.seen if since is not None else known.process not in (process, delivery.process):
            return False
        said = {DELIVERY: delivery.id, "process": process, "at": at.astimezone(UTC).isoformat()}
        return set_properties(self._spark, table, {WORKER: json.dumps(said)})

    def finish(self, delivery: Delivery, at: datetime) -> None:
        """Say that the destination has all rows of a delivery.

        By row: a condition on whole files fails where `maintain` has put other deliveries, of smaller and larger ids,
        into one file.
        """
        status = next_delivery_status(delivery.id, delivery.status, DeliveryEvent.FINISH)
        statement = (
            f"UPDATE {self.table} SET {STATUS} = {literal(status.value)}, "
            f"delivered_at = timestamp_micros({round(at.timestamp() * 1_000_000)}) "
            f"WHERE {DELIVERY} = {literal(delivery.id)}"
        )
        guarded("cannot write", self.table, lambda: self._spark.sql(statement))


def is_delivering(spark: SparkSession, table: str) -> bool:
    """Whether a delivery is prepared: its rows must keep files of their own, since `prepare` replaces whole files."""
    if not spark.catalog.tableExists(table):
        return False
    return not spark.table(table).where(F.col(STATUS) == DeliveryStatus.PREPARED.value).isEmpty()


def _literal(value: Any) -> Column:
    match value:
        case datetime():
            return F.lit(value.astimezone(UTC)).cast("timestamp")
        case Mapping():
            cells = [F.lit(cell) for pair in value.items() for cell in pair]
            return F.create_map(*cells).cast(AS_OF)
        case None:
            return F.lit(None)
        case _:
            return F.lit(value)
