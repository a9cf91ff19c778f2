# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.demo.kafka_sample import crc32c
from spark_jobs.errors import EnvironmentSetupError
from tests.kafka import Producer, Sent
from tests.processes import start_python

SAMPLE = Path(__file__).parents[1] / "data" / "flights" / "events.parquet"


def test_the_checksums_are_castagnolis() -> None:
    assert crc32c([b"a", b"", b"123456789"]) == [0xC1D04330, 0, 0xE3069283]
    assert crc32c([]) == []


@pytest.mark.long
def test_the_flights_lie_in_the_topic_as_a_live_producer_would_have_left_them(spark, kafka: KafkaBroker) -> None:
    topic = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.servers).option("subscribe", "flights")
    found = topic.load().selectExpr(
        "partition", "offset", "timestamp AS arrival", "timestampType", "CAST(key AS STRING)", "CAST(value AS STRING)"
    )
    columns = "partition, offset, arrival, 1 AS timestampType, key, value"
    events = spark.read.parquet(str(SAMPLE)).selectExpr(*columns.split(", "))
    assert found.count() == events.count() == 78_035
    assert found.exceptAll(events).isEmpty()


@pytest.mark.long
def test_a_new_topic_takes_records_at_once(spark, kafka: KafkaBroker) -> None:
    """A producer that is connected already sends several batches to each partition: none must find it without a leader.

    Where one does, the producer gives up after two minutes.
    """
    producer = Producer(spark, kafka.servers)
    try:
        for number in range(8):
            topic, few, many = f"new_{number}", range(12), range(24)
            kafka.create_topic(topic, len(few))
            producer.send(topic, [Sent("a", partition) for partition in few for _ in range(3)])
            kafka.add_partitions(topic, len(many))
            producer.send(topic, [Sent("b", partition) for partition in many for _ in range(3)])
            assert kafka.end_offsets(topic) == {partition: 6 if partition in few else 3 for partition in many}
    finally:
        producer.close()


@pytest.mark.long
def test_a_broker_never_outlives_its_owner(tmp_path: Path) -> None:
    owner = start_python(
        """
        import sys, time
        from pathlib import Path
        from spark_jobs.demo.kafka_broker import KafkaBroker
        broker = KafkaBroker(Path(sys.argv[1]), heap="256m").start()
        print(broker.pid, flush=True)
        time.sleep(600)
        """,
        str(tmp_path / "kafka"),
    )
    broker = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    for _ in range(300):  # it may take the time that it has to end by itself
        try:
            os.kill(broker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the broker still runs")


@pytest.mark.long
def test_what_keeps_a_broker_from_starting_is_told(tmp_path: Path) -> None:
    (tmp_path / "kafka").write_text("a file")
    with pytest.raises(EnvironmentSetupError, match="the Kafka broker did not start"):
        KafkaBroker(tmp_path / "kafka").start()
