"""Runs a Structured Streaming case through the sequential model."""

from __future__ import annotations

from typing import Any

from spark_jobs.eventtime.spark.aggregation import Row
from tests.conformance.microbatch_case import MicroBatchCase
from tests.conformance.microbatch_compare import MicroBatchOutcome, Run, row_of
from tests.sequential.spark import BatchResult, ReadRecord, RunningQuery, running_batches


def run_sequential(case: MicroBatchCase) -> MicroBatchOutcome:
    """Run every batch of the log in turn; a batch that ran more than once, from the same state each time."""
    running: RunningQuery[int] = RunningQuery(case.query)
    reads = dict(case.by_batch())
    starts: dict[int, set[int]] = {}
    for run in case.expected["batches"]:
        starts.setdefault(run["batch"], set()).add(run["start"])
    rows: dict[Run, list[list[Any]]] = {}
    dropped: list[list[Any]] = []
    ignored: list[int] = []
    for batch in running_batches(case.batches):
        read = [i for i in reads.get(batch.number, []) if case.records[i].passes]
        ignored += [i for i in reads.get(batch.number, []) if not case.records[i].passes]
        records = [_read_record(case, i) for i in read]
        last = case.start_of(batch.number)
        for start in starts.get(batch.number, set()) - {last}:
            again = running.copy().run(batch, records, case.settings(start))
            rows[batch.number, start] = _rows(case, again)
        result = running.run(batch, records, case.settings(last))
        rows[batch.number, last] = _rows(case, result)
        ignored += result.ignored
        dropped += [
            [pair.element, *((None, None) if pair.window is None else (pair.window.start, pair.window.end))]
            for pair in result.dropped
        ]
    return MicroBatchOutcome(
        rows=rows,
        held=[_row(case, row) for row in running.held()],
        dropped=dropped,
        ignored=ignored,
        unread=[i for i, batch in enumerate(case.batch_of_record) if batch is None],
    )


def _read_record(case: MicroBatchCase, i: int) -> ReadRecord[int]:
    record = case.records[i]
    return ReadRecord(
        record.key,
        record.timestamp,
        i,
        end=record.session_end,
        task=(record.input, record.partition),
        id=record.id,
    )


def _rows(case: MicroBatchCase, result: BatchResult[int]) -> list[list[Any]]:
    return [_row(case, row) for row in result.rows]


def _row(case: MicroBatchCase, row: Row[int]) -> list[Any]:
    return row_of(case, row.key, row.window.start, row.window.end, row.elements)
