"""The table of corrections: a delivery's life, whatever files its rows lie in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from spark_jobs.lakehouse.corrections import CorrectionTable, Delivery
from spark_jobs.lakehouse.delivery import DeliveryKind, DeliveryStatus
from spark_jobs.operations.maintain import tidy

NOW = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
HERE = "table rewindow.corrections_tests.emitted"
"""Longer than what Iceberg keeps of a text in its bounds of a file."""
ROW = "'x' k, timestamp_millis(0) window_start, timestamp_millis(60000) window_end, 1L n"


def deliver(spark: SparkSession, ledger: CorrectionTable, id_: str, number: int) -> None:
    prepared = DeliveryStatus.PREPARED
    delivery = Delivery(id_, number, DeliveryKind.CORRECTION, prepared, HERE, 1, None, "p", NOW, None)
    facts = "'upsert' action, 'faithful' value, false existed, 1 revision, 'late' cause, 'r' run_id"
    rows = spark.sql(f"SELECT {ROW}, CAST(NULL AS BIGINT) n__old, 1L n__new, {facts}").drop("n")
    ledger.prepare(rows, delivery, ledger.head())
    ledger.finish(delivery, NOW + timedelta(seconds=number))


def test_a_delivery_ends_after_compaction_has_put_others_into_one_file(spark: SparkSession) -> None:
    ledger = CorrectionTable(spark, "rewindow.corrections_tests.hours__corrections", ("k",))
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.corrections_tests")
    ledger.prepare_table(spark.sql(f"SELECT {ROW}").schema, ["n"])
    for number, id_ in enumerate(("a", "c"), start=1):
        deliver(spark, ledger, id_, number)
    assert tidy(spark, ledger.table, "", NOW, timedelta(days=1), lambda: None).compacted
    for number, id_ in enumerate(("b", "a0", "d"), start=3):
        deliver(spark, ledger, id_, number)
    found = [(one.id, one.status, one.delivered_at.astimezone(UTC)) for one in ledger.deliveries(HERE)]
    ids = ("a", "c", "b", "a0", "d")
    assert found == [(id_, DeliveryStatus.DELIVERED, NOW + timedelta(seconds=n)) for n, id_ in enumerate(ids, start=1)]
