"""Histories: files, Hive tables and Kafka topics, opened, checked and made into canonical records."""

from spark_jobs.sources.check import check_expressions
from spark_jobs.sources.fidelity import Fidelity, fidelity
from spark_jobs.sources.files import PinnedFile
from spark_jobs.sources.history import OpenHistory, open_history, partition_columns, reachable
from spark_jobs.sources.inspection import Inspection, PartitionRange, inspect_history
from spark_jobs.sources.kafka_offsets import OffsetRange, PinnedTopic
from spark_jobs.sources.records import QUARANTINE_SCHEMA, arrived_since, canonical, cut_at, good, quarantined
from spark_jobs.sources.spool import spooled
from spark_jobs.spark.failures import reading

__all__ = [
    "QUARANTINE_SCHEMA",
    "Fidelity",
    "Inspection",
    "OffsetRange",
    "OpenHistory",
    "PartitionRange",
    "PinnedFile",
    "PinnedTopic",
    "arrived_since",
    "canonical",
    "check_expressions",
    "cut_at",
    "fidelity",
    "good",
    "inspect_history",
    "open_history",
    "partition_columns",
    "quarantined",
    "reachable",
    "reading",
    "spooled",
]
