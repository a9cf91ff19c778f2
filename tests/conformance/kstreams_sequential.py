"""Runs a case of Kafka Streams through the sequential model, for comparison in every detail that the case records."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from spark_jobs.eventtime.kafka_streams.task import Row, Task
from tests.conformance.kstreams_case import StreamsCase, StreamsOutcome


def run_sequential(case: StreamsCase) -> StreamsOutcome:
    """Run the case record by record, one task for each partition."""
    outcome = StreamsOutcome()
    tasks = {p: Task[int](case.topology, restorable=bool(case.restarts)) for p in case.partitions}
    restarts = defaultdict(list)
    for restart in case.restarts:
        restarts[restart.before].append(restart)

    def row(number: int, partition: int, given: Row[int]) -> list[Any]:
        held = None if given.aggregate is None else given.aggregate.contents.elements()
        times = (given.window.start, given.window.end, given.timestamp)
        return case.row(number, partition, given.key.decode(), times, held)

    for number, record in enumerate(case.records):
        for restart in restarts[number]:
            for partition in restart.partitions:
                tasks[partition].restart(restart.state)
        processed = tasks[record.partition].process(
            None if record.key is None else record.key.encode(),
            record.timestamp,
            number,
            has_value=record.value is not None,
            clock=record.append,
        )
        outcome.rows.extend(row(number, record.partition, given) for given in processed.rows)
        outcome.skipped.extend(
            [number, late.window.start, late.window.end, late.close_time, late.stream_time] for late in processed.late
        )
        if processed.ignored is not None:
            outcome.ignored.append([number, str(processed.ignored)])
    for partition, task in tasks.items():
        outcome.waiting.extend(row(len(case.records), partition, given) for given in task.waiting())
    return outcome
