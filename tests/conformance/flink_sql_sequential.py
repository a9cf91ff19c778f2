"""Runs a case of Flink SQL through the sequential operator."""

from __future__ import annotations

from typing import Any

from tests.conformance.flink_sql_case import SqlCase, Version
from tests.sequential.flink import LiveJob


def run_sequential(case: SqlCase, version: Version, *, loses: bool = True) -> list[list[Any]]:
    """The rows that the live job gives, in the columns of the format; `loses`: also what Flink itself loses."""
    job = LiveJob(
        case.sql_strategy(version),
        case.windows,
        case.allowed_lateness,
        slices=case.slices(version),
        checkpoints=case.config.get("checkpoints_before", ()),
        gathered=case.gathered(version) if loses else None,
    )
    result = job.run(case.records, until=case.clock_end, flush=case.flush)
    return case.changelog(
        [
            (
                at.records,
                firing.pane,
                [
                    firing.key,
                    firing.window.start,
                    firing.window.end,
                    firing.count,
                    sum(case.rows[i][5] for i in firing.elements),
                    sorted(firing.elements),
                ],
            )
            for at, firing in result.firings
        ]
    )
