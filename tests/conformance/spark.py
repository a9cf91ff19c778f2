"""Runs a case through the Spark engine: every firing with pane, contents and position, late records, failures."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.eventtime.windows import AlignedWindows
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import EVENT_TIME, NEVER, PANE, Position, admitted, record_position
from spark_jobs.replay.engine import FIRED_COLUMNS, History, Replay
from spark_jobs.replay.flink.rules import FLINK
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec
from tests.conformance.case import Case
from tests.conformance.compare import CHECKSUM_MODULUS, Outcome

_X = "((rw_partition + 1L) * 1000003L + rw_offset) % 2147483647L"
_AGGREGATES = {
    "count": "count(*)",
    "sum": "sum(value)",
    "min": "min(value)",
    "max": "max(value)",
    "checksum": f"sum(({_X}) * ({_X}) % {CHECKSUM_MODULUS}L) % {CHECKSUM_MODULUS}L",
    "members": "sort_array(collect_list(struct(rw_sequence, rw_partition, rw_offset)))",
}

_LATE = ("rw_sequence", "rw_partition", "rw_offset")


def case_records(spark: SparkSession, case: Case) -> DataFrame:
    """The case's records as canonical records; its list order is the sequence."""
    rows = [
        (
            r.partition,
            r.offset,
            r.arrival,
            i,
            None if r.timestamp == MIN_TIMESTAMP else r.timestamp,
            r.marker,
            r.stream,
            r.key,
            case.rows[i][5],
        )
        for i, r in enumerate(case.records)
        if not (case.drops_missing_timestamps and r.timestamp == MIN_TIMESTAMP)
    ]
    value = "DOUBLE" if case.config.get("value_type") == "double" else "BIGINT"
    return spark.createDataFrame(
        rows,
        "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_sequence BIGINT, rw_event_time BIGINT, "
        f"rw_marker BOOLEAN, rw_stream STRING, key STRING, value {value}",
    )


def case_history(case: Case, records: DataFrame) -> History:
    """The history of a case: its event times, and how far its timer runs."""
    times = [r.timestamp for r in case.records if r.timestamp != MIN_TIMESTAMP]
    last_arrival = case.rows[-1][2] if case.rows else 0
    until = last_arrival if case.clock_end is None else max(last_arrival, case.clock_end)
    return History(records, TimeRange(min(times, default=0), max(times, default=0) + 1), until)


def case_spec(case: Case, strategy: WatermarkStrategy, *, mode: Mode, panes: Panes) -> ReplaySpec:
    """The replay of a case, with the aggregates of the format."""
    return ReplaySpec(
        rules=FLINK,
        strategy=strategy,
        windows=case.assigner,
        allowed_lateness=case.allowed_lateness,
        keys=("key",),
        aggregates=_AGGREGATES,
        mode=mode,
        panes=panes,
        flush=case.flush,
    )


def all_windows(case: Case, history: History) -> TimeRange:
    """A range that holds every window of the case."""
    windows = case.assigner
    reach = windows.longest + windows.end_step if isinstance(windows, AlignedWindows) else windows.gap
    return TimeRange(history.event_times.start - reach, history.event_times.end + reach)


def run_spark(spark: SparkSession, case: Case, strategy: WatermarkStrategy) -> Outcome:
    """Run the case through the Spark engine: all panes, with the position of every firing."""
    history = case_history(case, case_records(spark, case))
    spec = case_spec(case, strategy, mode=Mode.FAITHFUL, panes=Panes.ALL)
    span = all_windows(case, history)
    with Replay(history, spec, exact_positions=True) as replay:
        handed = ""
        if replay.merges:
            sessions = replay.sessions(span)
            windows, late_frame, failure = sessions.windows, sessions.late, sessions.failure
            if sessions.handed_over:
                handed = f"{sessions.handed_over} sessions by the sequential operator"
        else:
            failure = _missing_event_time(replay)
            windows, late_frame = replay.windows(span), replay.late(span)
        fired = windows.where(f"{PANE} IS NOT NULL").select("key", START, END, PANE, *_AGGREGATES, *FIRED_COLUMNS)
        firings = [_firing(case, row) for row in fired.collect()]
        late = late_frame.where("side_output").select(*_LATE).collect()
        note = ", ".join(filter(None, [replay.timeline.note, handed]))
    late_rows = sorted([row[0], row[1], row[2]] for row in late)
    failed_at = None if failure is None else failure[1] + 1
    if failed_at is not None:  # what came after the failure did not happen, nor did the end of input
        firings = [f for f in firings if f["at"] < failed_at and not f["at_end"]]
        late_rows = [row for row in late_rows if row[0] < failed_at - 1]
    firings.sort(key=lambda f: (f["at"], f["end"]))
    return Outcome(firings, late_rows, failed_at, note=note)


def _missing_event_time(replay: Replay) -> Position | None:
    """The first record without an event time, which fails the live job (golden rule 29)."""
    missing = replay.history.records.where(F.col(EVENT_TIME).isNull())
    missing = admitted(missing, replay.spec.after_watermark)
    first = missing.agg(F.min(record_position(missing).as_struct())).collect()[0][0]
    return None if first is None else Position(*first)


def _firing(case: Case, row: Any) -> dict[str, Any]:
    position = Position(*(row[c] for c in FIRED_COLUMNS))
    at_end = position[0] == NEVER
    return {
        "key": row["key"],
        "start": row[START],
        "end": row[END],
        "pane": row[PANE],
        "at": rank(case, position),
        **{name: row[name] for name in ("count", "sum", "min", "max", "checksum")},
        "elements": [x for m in row["members"] for x in (m["rw_partition"], m["rw_offset"])],
        "at_end": at_end,
    }


def rank(case: Case, position: Position) -> int:
    """How many records had been consumed at a position: the global rank, needed here only."""
    arrival, major, _ = position
    if arrival == NEVER:
        return len(case.rows)
    if major < 0:  # a tick: before every record of its millisecond
        return bisect_left([row[2] for row in case.rows], arrival)
    return major + 1
