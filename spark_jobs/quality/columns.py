"""The columns of the three kinds of data that expectations check. Shares lie in [0, 1]; times are epoch ms."""

from __future__ import annotations

from spark_jobs.definition import Pipeline

RUN_WIDE = "run_"
"""Columns that begin with this say the same in each row: they are figures of the whole run."""

INPUT_COLUMNS = {
    "partition": "of the log; one row each",
    "records": "records that the run read; a reconciliation's are those that came since the run before",
    "history_records": "records up to the end offsets, with those that earlier runs read",
    "first_offset": "the first offset",
    "end_offset": "the end offset, exclusive",
    "offset_gaps": "offsets in between without a record",
    "offset_gap_share": "the same, of all offsets in between",
    "first_arrival_ms": "the first arrival; null where the log has none",
    "last_arrival_ms": "the last arrival; null where the log has none",
    "run_records": "records that the run read, of all partitions",
    "run_quarantined": "of them, those that cannot be used",
    "run_quarantined_share": "the same, of all records",
    "run_missing_event_times": "usable records without event time",
    "run_missing_share": "the same, of all records",
    "run_first_event_ms": "the earliest event time",
    "run_last_event_ms": "the latest event time",
    "run_ahead_ms": "how far the latest event time lies behind the last arrival in the future; null without arrivals",
    "run_behind_ms": "how far the earliest event time lies before the first arrival; null without arrivals",
}
"""One row for each partition, from the plan; no scan of the history. Columns `run_...` are the same in each row."""

RW_DAY = "rw_day"

WINDOW_EXTRAS = {
    "rw_length_ms": "length of the window",
    "rw_length_off_ms": "by how much the length differs from what the definition allows; grid only",
    "rw_off_grid_ms": "how far the start lies behind a point of the definition's grid; grid only",
    "rw_start_ms": "the window's start",
    RW_DAY: "the UTC day of the window's start, DATE",
    "rw_records": "records on time, late and dropped; null for a session that is open or was emitted in other pieces",
    "rw_contradiction": "the first rule that counts, pane and state break, in words; null: none",
}
"""The gate's own columns, beside those of the staged windows (docs/tables.md); one row for each window or pane."""

COUNTS = ("records_on_time", "records_late", "records_dropped")

RECONCILIATION_COLUMNS = {
    "day": "UTC day of the windows' start, as 2013-02-08; one row each",
    "windows": "windows staged",
    "records": "their records, on time, late and dropped",
    "inserted": "windows that readers do not see yet",
    "updated": "windows that get another value",
    "retracted": "windows that go",
    "unexplained": "updated windows without a cause, or `source_repair`: same definition and records, other values",
    "before": "windows that readers see, of those that the run stands for",
    "changed_share": "updated and retracted, of those; null where there are none",
    "records_after": "records of the whole published table on that day, once this run is published",
    "is_whole_day": "whether the day lies wholly between the first and last event time, and in the run's range",
    "volume_ratio": "records_after / its median over the up to 14 whole days before; null with fewer than 3 of them",
    "run_windows": "windows staged, all days",
    "run_before": "windows that readers see, all days",
    "run_changed_share": "updated and retracted, of those; null where there are none",
    "run_retracted_share": "retracted, of those; null where there are none",
    "run_unexplained_share": "unexplained, of those; null where there are none",
    "run_late_share": "pairs of record and window that were late, but allowed, of all; null without records",
    "run_dropped_share": "pairs that were dropped, of all; null without records",
    "run_records_gone": "records that the run before had read, and that are gone; null where nobody counted them",
    "run_records_lost": "records that windows of a reconciliation lose against what is published; null: another run",
    "run_windows_left": "published windows that a run over the whole history neither computes nor retracts; below 0: "
    "readers see fewer than the revisions say; null: another run",
    "run_foreign_commits": "commits of other programs that change published rows, since the last publication; null: "
    "the table was not there",
    "run_files_changed": "files of the plan that are gone or were written again while the run read them; null: "
    "a topic, or a table whose files Spark does not know",
    "run_unaccounted_records": "records of which the run's account does not say what became of them, or says it twice; "
    "null: nobody can say",
    "run_unaccounted_pairs": "pairs of record and window that the windows count too few or too many; null: nobody can "
    "say",
}
"""One row for each day, from a few aggregations. Columns `run_...` are the same in each row."""


def window_columns(pipeline: Pipeline) -> tuple[str, ...]:
    """The columns of the staged windows of a run with faithful and complete values, and the gate's own."""
    aggregates = [column for name in pipeline.aggregates for column in (name, f"{name}__complete")]
    return (
        *pipeline.keys,
        "window_start",
        "window_end",
        *aggregates,
        *COUNTS,
        "pane",
        "state",
        "closed_at",
        *WINDOW_EXTRAS,
    )
