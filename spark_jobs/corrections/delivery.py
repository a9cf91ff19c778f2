"""Deliver corrections: prepare the rows, bring them to the destination, say that it has them.

A delivery is written down before its destination sees it. A process that is killed in between leaves it `prepared`; the
next one delivers the same rows, and a destination takes the rows of one delivery once. So each revision of a window
arrives exactly once.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.corrections.destination import Destination, open_destination
from spark_jobs.corrections.due import CorrectionScope, due, make_ledger, scope_of
from spark_jobs.definition import Pipeline
from spark_jobs.errors import DefinitionError, RunStateError
from spark_jobs.lakehouse.corrections import NUMBER, Delivery, new_name, old_name, pair_names
from spark_jobs.lakehouse.delivery import CorrectionAction, DeliveryKind, DeliveryStatus
from spark_jobs.runs.life.processes import HEARTBEAT, Sign, alive_of, beating, sign_of, this_process
from spark_jobs.spark.cached import CachedFrames

_OF_ROWS = ("value", "action", "existed", "revision", "cause", "run_id")


@dataclass(frozen=True)
class Delivered:
    """What a command or a stage has delivered, by action: `upsert`, `delete`. `deliveries`: their ids.

    `resumed`: deliveries that a process before this one had prepared; `notes`: sentences for people.
    """

    destination: str
    value: str
    rows: Mapping[str, int] = field(default_factory=dict)
    deliveries: tuple[str, ...] = ()
    resumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


Clock = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


def deliver(
    spark: SparkSession, pipeline: Pipeline, *, now: Clock = _now, heartbeat: timedelta = HEARTBEAT
) -> Delivered:
    """Deliver what is due, after what a killed process has left prepared.

    A process of another host that may be gone is watched first, for some times of `heartbeat`.

    Raises DefinitionError, SourceError or CatalogError where the destination cannot take it, RunStateError where
    another process delivers. Then nothing is lost: to deliver again goes on.
    """
    return _Deliverer(scope_of(spark, pipeline), now, heartbeat).corrections()


def repeat(spark: SparkSession, pipeline: Pipeline, *, run_id: str | None = None, now: Clock = _now) -> Delivered:
    """Deliver again what was delivered last of each window: to a destination that has lost it.

    `run_id`: only corrections of this run. Raises as `deliver`, and DefinitionError where there is nothing.
    """
    return _Deliverer(scope_of(spark, pipeline), now).again(DeliveryKind.REPEAT, run_id)


def revert(spark: SparkSession, pipeline: Pipeline, *, run_id: str | None = None, now: Clock = _now) -> Delivered:
    """Bring back what readers had before the last correction of each window. It does not come again by itself.

    `run_id`: only corrections of this run. Raises as `deliver`, and DefinitionError where there is nothing.
    """
    return _Deliverer(scope_of(spark, pipeline), now).again(DeliveryKind.REVERT, run_id)


def pending_counts(spark: SparkSession, pipeline: Pipeline, published: DataFrame | None = None) -> Delivered:
    """What `deliver` would deliver; writes nothing. `published`: the windows that count as published."""
    scope = scope_of(spark, pipeline)
    found = due(scope, published)
    rows = {} if found is None else _by_action(found)
    return Delivered(scope.destination, scope.corrections.value.value, rows)


class _Deliverer:
    """One call of a command or a stage."""

    def __init__(self, scope: CorrectionScope, now: Clock, heartbeat: timedelta = HEARTBEAT) -> None:
        self.scope = scope
        self.now = now
        self.heartbeat = heartbeat

    def corrections(self) -> Delivered:
        scope = self.scope
        if not scope.values or not scope.spark.catalog.tableExists(scope.tables.windows):
            note = "nothing was compared and published yet"
            return Delivered(scope.destination, scope.corrections.value.value, notes=(note,))
        make_ledger(scope)
        destination = open_destination(scope)
        resumed = self._resume(destination)

        def rows(head: int | None) -> DataFrame | None:
            return due(scope, head=head)

        return self._deliver_all(destination, DeliveryKind.CORRECTION, rows, resumed)

    def again(self, kind: DeliveryKind, run_id: str | None) -> Delivered:
        scope = self.scope
        if not scope.ledger.exists():
            raise DefinitionError("nothing was delivered yet", scope.destination, "Deliver first.")
        destination = open_destination(scope)
        resumed = self._resume(destination)
        last = scope.ledger.last_number(scope.destination)

        def rows(head: int | None) -> DataFrame:
            found = scope.ledger.latest(scope.destination, head).where(F.col(NUMBER) <= last)
            if run_id is not None:
                found = found.where(F.col("run_id") == run_id)
            if kind is DeliveryKind.REVERT:
                found = _reverted(found.where(F.col("kind") != DeliveryKind.REVERT.value), scope.values)
            return found

        if rows(scope.ledger.head()).isEmpty():
            of_run = f" of run {run_id}" if run_id else ""
            raise DefinitionError(
                f"there are no corrections{of_run} to {kind.value}",
                scope.destination,
                "`rewindow corrections PIPELINE` lists them.",
            )
        return self._deliver_all(destination, kind, rows, resumed)

    def _deliver_all(
        self,
        destination: Destination,
        kind: DeliveryKind,
        rows: Callable[[int | None], DataFrame | None],
        resumed: tuple[str, ...],
    ) -> Delivered:
        """Deliver `rows`, in as many deliveries as the destination needs.

        `rows` gives what is left to deliver, decided on a snapshot of the table of corrections.
        """
        counts, done, notes = Counter[str](), [], dict.fromkeys(destination.notes)
        while True:
            head = self.scope.ledger.head()
            one = self._deliver(destination, kind, rows(head), head)
            notes |= dict.fromkeys(one.notes)
            done += one.deliveries
            counts += Counter(one.rows)
            if destination.most_rows is None or sum(one.rows.values()) < destination.most_rows:
                value = self.scope.corrections.value.value
                return Delivered(self.scope.destination, value, dict(counts), tuple(done), resumed, tuple(notes))

    def _deliver(
        self, destination: Destination, kind: DeliveryKind, rows: DataFrame | None, head: int | None
    ) -> Delivered:
        """One delivery, of as many of the rows as the destination takes at once, the first windows first."""
        scope = self.scope
        nothing = Delivered(scope.destination, scope.corrections.value.value)
        if rows is None:
            return nothing
        with CachedFrames() as cached:
            names = [f"`{c}`" for c in (*scope.identity, *pair_names(scope.values), *_OF_ROWS)]
            whole = cached.keep(rows.select(*names))
            counts = _by_action(whole)
            if not counts:
                return nothing
            rows, notes = destination.accepted(whole)
            if rows is not whole:
                counts = _by_action(rows)
            if not counts:
                return replace(nothing, notes=notes)
            if destination.most_rows is not None and sum(counts.values()) > destination.most_rows:
                windows = [F.asc_nulls_first(f"`{c}`") for c in ("window_start", *scope.identity)]
                rows = cached.keep(rows.orderBy(*windows).limit(destination.most_rows))
                counts = _by_action(rows)
            delivery = Delivery(
                id=secrets.token_hex(8),
                number=scope.ledger.last_number(scope.destination, head) + 1,
                kind=kind,
                status=DeliveryStatus.PREPARED,
                destination=scope.destination,
                rows=sum(counts.values()),
                since=destination.position(),
                process=this_process(),
                prepared_at=self.now(),
                delivered_at=None,
            )
            scope.ledger.prepare(rows, delivery, head)
        self._finish(destination, delivery, is_resumed=False)
        return replace(nothing, rows=counts, deliveries=(delivery.id,), notes=notes)

    def _resume(self, destination: Destination) -> tuple[str, ...]:
        """Go on with what a process before this one has prepared. Raises RunStateError where that process lives."""
        done = []
        for delivery in self.scope.ledger.deliveries(self.scope.destination):
            if delivery.status is not DeliveryStatus.PREPARED:
                continue
            self._take_over(delivery)
            self._finish(destination, delivery, is_resumed=True)
            done.append(delivery.id)
        return tuple(done)

    def _take_over(self, delivery: Delivery) -> None:
        """Raises RunStateError where another process works on the delivery."""
        ledger, own = self.scope.ledger, this_process()
        worker = ledger.worker(delivery)
        if worker.process == own:
            return
        sign = sign_of(worker.process, worker.at, self.now())
        if sign is Sign.SILENT and alive_of({delivery.id: lambda: ledger.worker(delivery).seen}, self.heartbeat):
            sign = Sign.ALIVE
        if sign is Sign.ALIVE or not ledger.show_life(delivery, own, self.now(), since=worker):
            raise RunStateError(
                "another process delivers corrections now", self.scope.destination, "Try again when it has ended."
            )

    def _finish(self, destination: Destination, delivery: Delivery, *, is_resumed: bool) -> None:
        ledger = self.scope.ledger

        def beat() -> bool:
            ledger.show_life(delivery, this_process(), self.now())
            return True

        with beating(beat, f"heartbeat of delivery {delivery.id}", self.heartbeat):
            destination.take(delivery, ledger.of(delivery.id), is_resumed=is_resumed)
            ledger.finish(delivery, self.now())


def _by_action(rows: DataFrame) -> dict[str, int]:
    return dict(sorted((row[0], row[1]) for row in rows.groupBy("action").count().collect()))


def _reverted(rows: DataFrame, values: tuple[str, ...]) -> DataFrame:
    """The rows that bring back what was there before."""
    existed, had = F.col("existed"), F.col("action") == CorrectionAction.UPSERT.value
    swapped: dict[str, Column] = {}
    for v in values:
        swapped |= {old_name(v): F.col(f"`{new_name(v)}`"), new_name(v): F.col(f"`{old_name(v)}`")}
    action = F.when(existed, CorrectionAction.UPSERT.value).otherwise(CorrectionAction.DELETE.value)
    return rows.withColumns({**swapped, "action": action, "existed": had})
