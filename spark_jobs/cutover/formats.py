"""The offsets of a cutover as the live engines take them. No Spark in this module."""

from __future__ import annotations

import json
from collections.abc import Mapping

Offsets = Mapping[str, Mapping[int, int]]
"""The first offset that is read, by topic and partition."""

NO_TOPIC = "TOPIC"
"""Stands for the topic's name where the history is a copy of it, which does not say it."""

FILES = ("flink.sql", "FlinkOffsets.java", "spark.json", "kafka-offsets.csv", "sink-filter.sql")
"""The files that `as_files` gives."""


def as_files(offsets: Offsets, at: str) -> dict[str, str]:
    """All texts, by the name of a file for each."""
    texts = (flink_sql(offsets), datastream(offsets), spark_json(offsets), reset_csv(offsets), sink_filter(at))
    return {name: f"{text}\n" for name, text in zip(FILES, texts, strict=True)}


def flink_sql(offsets: Offsets) -> str:
    """The options of a table of Flink's Kafka connector (`scan.startup.mode`), one statement for each topic."""
    return "\n".join(
        f"-- the table that reads the topic {topic or NO_TOPIC}\nALTER TABLE `{topic or NO_TOPIC}` SET (\n"
        "  'scan.startup.mode' = 'specific-offsets',\n"
        f"  'scan.startup.specific-offsets' = '{_pairs(one)}'\n);"
        for topic, one in offsets.items()
    )


def _pairs(one: Mapping[int, int]) -> str:
    return ";".join(f"partition:{partition},offset:{offset}" for partition, offset in sorted(one.items()))


def datastream(offsets: Offsets) -> str:
    """Java for `KafkaSource`: `setStartingOffsets` with the offset of each partition."""
    lines = [
        f'offsets.put(new TopicPartition("{topic or NO_TOPIC}", {partition}), {offset}L);'
        for topic, one in offsets.items()
        for partition, offset in sorted(one.items())
    ]
    return "\n".join(
        ("Map<TopicPartition, Long> offsets = new HashMap<>();", *lines,
         "sourceBuilder.setStartingOffsets(OffsetsInitializer.offsets(offsets));")
    )  # fmt: skip


def spark_json(offsets: Offsets) -> str:
    """The option `startingOffsets` of Spark's Kafka source."""
    named = {
        topic or NO_TOPIC: {str(partition): offset for partition, offset in sorted(one.items())}
        for topic, one in offsets.items()
    }
    return json.dumps(named)


def reset_csv(offsets: Offsets) -> str:
    """The file of `kafka-consumer-groups --reset-offsets --from-file`: topic, partition, offset in each line."""
    return "\n".join(
        f"{topic or NO_TOPIC},{partition},{offset}"
        for topic, one in offsets.items()
        for partition, offset in sorted(one.items())
    )


def sink_filter(at: str) -> str:
    """The condition on the new job's windows, for a session whose time zone is UTC. `at`: ISO-8601, in UTC."""
    return f"window_start >= TIMESTAMP '{at.removesuffix('Z').replace('T', ' ')}'"
