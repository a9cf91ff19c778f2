"""The account of runs over topics, and over tables that a topic goes on from: a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night import nightly
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work import computing
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.kafka import Sent, produce
from tests.runs.small_runs import T0
from tests.sampling import first_of, in_turn, one_of
from tests.services.kafka_broker import AdministeredBroker

Fault = Callable[[DataFrame], DataFrame]


class OfTopic:
    """A topic of two partitions, a pipeline over it, and the accounts of its runs."""

    def __init__(self, spark: SparkSession, kafka: AdministeredBroker, folder: Path, name: str) -> None:
        self.spark, self.kafka, self.name = spark, kafka, name
        self.store = RunStore(str(folder / "runs"))
        kafka.create_topic(name, 2, {"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
        self.send(0, 100)

    def send(self, first: int, end: int) -> None:
        values = (json.dumps({"k": "ab"[i % 2], "t": T0 + i * 1000, "v": i}) for i in range(first, end))
        sent = [Sent(v, i % 2, timestamp=T0 + i * 1000) for i, v in zip(range(first, end), values, strict=True)]
        produce(self.spark, self.kafka.servers, self.name, sent)

    @property
    def topic(self) -> dict[str, str]:
        return {"servers": self.kafka.servers, "topic": self.name, "timestamps": "producer_time"}

    def pipeline(self, history: dict[str, Any] | None = None, **sections: Any) -> Pipeline:
        return Pipeline.model_validate(
            {
                "name": self.name,
                "history": history or {"kind": "kafka", **self.topic},
                "value": {"format": "json", "schema": "k STRING, t BIGINT, v BIGINT"},
                "keys": {"k": "k"},
                "event_time": {"expression": "t", "unit": "ms"},
                "watermark": {"generator": "bounded_out_of_orderness", "bound": "10 s"},
                "window": {"type": "tumbling", "size": "1 min"},
                "aggregates": {"n": "count(*)", "total": "sum(v)"},
                "output": {"namespace": "account_tests"},
                **sections,
            }
        )

    def stitched(self, below: int, above: int = 0) -> Pipeline:
        """The table has the offsets below `below`; those from `below - above` on are in the topic, too."""
        table = f"rewindow.account_past.{self.name}"
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.account_past")
        options = {"kafka.bootstrap.servers": self.kafka.servers, "subscribe": self.name}
        rows = self.spark.read.format("kafka").options(**options).load()
        rows = rows.select("partition", "offset", "timestamp", "key", "value").where(F.col("offset") < below)
        if self.spark.catalog.tableExists(table):
            last = self.spark.table(table).agg(F.max("offset")).collect()[0][0]
            rows.where(F.col("offset") > last).coalesce(1).writeTo(table).append()
        else:
            rows.coalesce(1).writeTo(table).using("iceberg").create()
        for partition in (0, 1):
            self.kafka.delete_records(self.name, partition, below - above)
        past = {"table": table}
        return self.pipeline({"kind": "stitched", "past": past, "recent": self.topic})

    def full(self, defined: Pipeline) -> Account:
        return self._of(execute(self.spark, defined, make_plan(self.spark, defined), NoProgress(), store=self.store))

    def night(self, defined: Pipeline, until: int | None = None) -> Account:
        done = reconcile(self.spark, defined, NoProgress(), store=self.store, until=until)
        assert done.continued_from is not None, done.note
        return self._of(done)

    def _of(self, result) -> Account:
        found = Account.read(self.store.folder(result.run_id))
        assert found is not None
        return found


def without_one(records: DataFrame) -> DataFrame:
    return records.where(~((F.col("rw_offset") == 55) & (F.col("rw_partition") == 0)))


def with_one_twice(records: DataFrame) -> DataFrame:
    return records.unionByName(records.where((F.col("rw_offset") == 55) & (F.col("rw_partition") == 0)))


FAULTS = pytest.mark.parametrize("fault", first_of(in_turn([without_one, with_one_twice])))


def balances(account: Account) -> bool:
    said = account.source is not None and not account.unknown
    return said and (account.unaccounted_records, account.unaccounted_pairs) == (0, 0)


@one_of(3, 0)
def test_a_night_over_a_topic_counts_the_offsets_that_came(spark, kafka, tmp_path) -> None:
    logged = OfTopic(spark, kafka, tmp_path, "account_night")
    defined = logged.pipeline()
    whole = logged.full(defined)
    assert whole.source == whole.good == 100 and balances(whole)
    logged.send(100, 140)
    night = logged.night(defined, until=T0 + 120_000)
    assert (night.source, night.left_unread, night.good) == (40, 20, 20) and balances(night)
    rest = logged.night(defined)
    assert (rest.source, rest.left_unread, rest.good) == (20, 0, 20) and balances(rest)


def test_what_a_filter_leaves_out_of_a_topic_is_counted(spark, kafka, tmp_path) -> None:
    logged = OfTopic(spark, kafka, tmp_path, "account_filtered")
    defined = logged.pipeline(filter={"before_watermark": "v % 10 <> 3"})
    whole = logged.full(defined)
    assert (whole.source, whole.filtered_before, whole.good) == (100, 10, 90) and balances(whole)
    logged.send(100, 140)
    night = logged.night(defined)
    assert (night.source, night.filtered_before, night.good) == (40, 4, 36) and balances(night)


@one_of(3, 1)
@FAULTS
def test_a_new_record_of_a_topic_that_is_lost_or_doubled_is_missed(
    spark, kafka, tmp_path, monkeypatch, fault: Fault
) -> None:
    logged = OfTopic(spark, kafka, tmp_path, f"account_{fault.__name__}")
    defined = logged.pipeline()
    logged.full(defined)
    logged.send(100, 140)
    arrived = nightly.arrived_since
    monkeypatch.setattr(nightly, "arrived_since", lambda records, ends: fault(arrived(records, ends)))
    found = logged.night(defined)
    assert not found.unknown and found.unaccounted_records == 1


@one_of(3, 2)
def test_a_stitched_history_counts_its_table_and_the_offsets_of_its_topic(spark, kafka, tmp_path) -> None:
    logged = OfTopic(spark, kafka, tmp_path, "account_stitched")
    defined = logged.stitched(below=30, above=10)
    whole = logged.full(defined)
    assert whole.source == whole.good == 100 and balances(whole)
    logged.send(100, 140)
    night = logged.night(defined, until=T0 + 130_000)
    assert (night.source, night.left_unread, night.good) == (40, 10, 30) and balances(night)
    assert balances(logged.night(logged.stitched(below=60, above=10)))


@one_of(3, 0)
@FAULTS
def test_a_record_of_a_stitched_history_that_is_lost_or_doubled_is_missed(
    spark, kafka, tmp_path, monkeypatch, fault: Fault
) -> None:
    logged = OfTopic(spark, kafka, tmp_path, f"account_stitched_{fault.__name__}")
    logged.send(100, 120)
    defined = logged.stitched(below=58)
    read = computing.read_planned
    monkeypatch.setattr(computing, "read_planned", lambda *args: fault(read(*args)))
    found = logged.full(defined)
    assert not found.unknown and found.unaccounted_records == 1
