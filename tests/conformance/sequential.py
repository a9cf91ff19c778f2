"""Runs a case through the sequential operator, for comparison in every detail that the case records."""

from __future__ import annotations

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from tests.conformance.case import Case
from tests.conformance.compare import Outcome, firing_row
from tests.sequential.flink import LiveJob


def run_sequential(case: Case, strategy: WatermarkStrategy) -> Outcome:
    """Run the case through the sequential operator."""
    drops = case.drops_missing_timestamps
    job = LiveJob(
        strategy,
        case.assigner,
        case.allowed_lateness,
        before_watermark=lambda record: not (drops and record.timestamp == MIN_TIMESTAMP),
    )
    result = job.run(case.records, until=case.clock_end, flush=case.flush)
    timed = case.interval > 0

    def watermark(value: int) -> int | None:
        return None if value == MIN_TIMESTAMP else value

    def status(idle: bool) -> str:
        return "IDLE" if idle else "ACTIVE"

    return Outcome(
        firings=[
            firing_row(
                case,
                f.key,
                f.window.start,
                f.window.end,
                f.pane,
                watermark(f.watermark),
                at.records,
                "E" if f.by_element else "W",
                at.clock if timed else None,
                sorted(f.elements),
            )
            for at, f in result.firings
        ],
        late=[[i, case.rows[i][0], case.rows[i][1], watermark(w)] for i, w in result.late],
        error_at=None if result.failure is None else result.failure.at.records,
        error=None
        if result.failure is None
        else {
            "class": result.failure.java_class,
            "message": result.failure.message,
            "at": result.failure.at.records,
        },
        details={
            "watermark_before_rle": [[i, watermark(w)] for i, w in result.watermarks_before],
            "emissions": [[a.records, a.clock, s.watermark] for a, s in result.emissions] if timed else None,
            "status_changes": [[a.records, a.clock, status(s.idle)] for a, s in result.status_changes],
            "partition_idle_changes": [
                [a.records, a.clock, s.partition, status(s.idle)] for a, s in result.partition_status_changes
            ],
            "final_partition_watermarks": [watermark(w) for w in result.partition_watermarks],
            "final_source_watermark": watermark(result.source_watermark),
            "final_watermark": watermark(result.watermark),
        },
    )
