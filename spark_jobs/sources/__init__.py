"""Histories (files, Hive and Iceberg tables, topics, tables with topics) are opened, checked and read as records.

It may import replay (whose columns the records have), spark, definition and eventtime. Begin with `history.py` (the
kinds of history) and `records/canonical.py` (the canonical records).
"""

from spark_jobs.identities import Evidence, Identity, Sign, without_files
from spark_jobs.pins import (
    Change,
    OffsetRange,
    PartitionRange,
    PinnedFile,
    PinnedSchemas,
    PinnedSnapshot,
    PinnedTopic,
    Pins,
    TableFormat,
)
from spark_jobs.sources.check import check_expressions
from spark_jobs.sources.clocks import (
    Clocks,
    clocks_of,
    end_offsets_before,
    ends_within,
    first_arrivals,
    opened_again,
)
from spark_jobs.sources.empty_offsets import Empty, empty_after, empty_in_both, empty_offsets, fidelity_of, is_empty
from spark_jobs.sources.fidelity import fidelity
from spark_jobs.sources.files.log_files import changed_files, check_pinned, files_there
from spark_jobs.sources.history import (
    empty_history,
    open_history,
    partition_columns,
    source_of,
)
from spark_jobs.sources.identity import Signs, came_late, identity_of
from spark_jobs.sources.inspection import Inspection, inspect_history
from spark_jobs.sources.lake.lake_tables import read_appended, snapshot_size
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.canonical import (
    QUARANTINE_SCHEMA,
    arrived_since,
    came_since,
    canonical,
    counts_latest_arrival,
    cut_at,
    good,
    quarantined,
)
from spark_jobs.sources.records.lookup import changed_keys, lookup_columns, lookup_rows, pin_lookup
from spark_jobs.sources.records.schema_ids import check_schema_ids
from spark_jobs.sources.records.unplaced import can_be_unplaced, is_unplaced, unplaced
from spark_jobs.sources.spool import is_short, is_small, narrowed, spooled
from spark_jobs.sources.union import inputs_of, names_of
from spark_jobs.spark.failures import reading
