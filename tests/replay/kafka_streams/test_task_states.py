"""Tasks that go on from an earlier run give what they give when they read their partition from the start."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence

import pytest

from spark_jobs.replay.kafka_streams.task_states import TaskState
from spark_jobs.replay.kafka_streams.tasks import Kind, Resumed, TaskRead, TaskRow, run_task
from tests.conformance.kstreams_case import StreamsCase
from tests.conformance.kstreams_spark import case_restarts
from tests.eventtime.kafka_streams.histories import random_case
from tests.sampling import IN_FULL


def reads_of(case: StreamsCase) -> dict[int, list[TaskRead]]:
    reads: dict[int, list[TaskRead]] = {}
    for r in case.records:
        key = None if r.key is None else r.key.encode()
        read = TaskRead(r.partition, r.offset, r.append, key, r.timestamp, r.value is not None)
        reads.setdefault(r.partition, []).append(read)
    return reads


class Run:
    """What the tasks have given up to the ends, by offset; `before`: the run that this one goes on from."""

    def __init__(self, case: StreamsCase, reads: Mapping[int, Sequence[TaskRead]], ends: Mapping[int, int]) -> None:
        self.case, self.restarts, self.ends = case, case_restarts(case), ends
        self.reads = {p: [r for r in of if r.offset < ends[p]] for p, of in reads.items()}
        self.read = 0

    def alone(self) -> Run:
        return self._run(None)

    def after(self, before: Run) -> Run:
        end = min(state.undecided_from for state in before.states.values())
        resumed = Resumed({p: state.point(end, self.case.topology) for p, state in before.states.items()}, end)
        self._run(resumed)
        self.states = before.states | self.states
        decided = {(row.partition, row.key, row.start, row.end): row for row in before.finals if row.end < end}
        self.finals += decided.values()
        self.late = before.late + [row for row in self.late if row.offset >= before.ends[row.partition]]
        return self

    def _run(self, resumed: Resumed | None) -> Run:
        rows: list[TaskRow] = []
        for partition, of in self.reads.items():
            own = [r for r in of if resumed is None or r.offset >= resumed.points[partition].offset]
            self.read += len(own)
            if own:
                topology = self.case.topology
                rows += run_task(iter(own), topology, self.restarts, finals=True, states=True, resumed=resumed)
        states = {row.partition: json.loads(row.reason or "") for row in rows if row.kind is Kind.STATE}
        self.states = {partition: TaskState.from_json(state) for partition, state in states.items()}
        self.finals = [row for row in rows if row.kind is Kind.FINAL]
        self.late = [row for row in rows if row.kind is Kind.LATE]
        return self

    def told(self) -> tuple[list, list]:
        finals = ((*r[1:3], *r[4:8], r.arrival, r.reason, r.rows, tuple(sorted(r.members or ()))) for r in self.finals)
        late = ((r.partition, r.offset, r.start, r.end, r.close_time, r.stream_time, r.entered) for r in self.late)
        return sorted(finals, key=str), sorted(late, key=str)


@pytest.mark.parametrize("part", range(4))
def test_tasks_that_go_on_twice_give_what_one_run_gives(part: int) -> None:
    went_on = saved = 0
    for seed in range(part, 4000 if IN_FULL else 400, 4):
        case, draw = random_case(seed, most=random.Random(seed).choice((60, 400))), random.Random(f"cuts {seed}")
        reads = reads_of(case)
        cuts = {p: sorted([*(draw.randrange(1, 1 + len(of)) for _ in range(2)), len(of)]) for p, of in reads.items()}
        ends = [{p: reads[p][cuts[p][n] - 1].offset + 1 for p in reads} for n in range(3)]
        before = Run(case, reads, ends[0]).alone()
        for number in (1, 2):
            if not all(state.is_past_restarts for state in before.states.values()):
                before = Run(case, reads, ends[number]).alone()
                continue
            whole = Run(case, reads, ends[number]).alone()
            before = Run(case, reads, ends[number]).after(before)
            assert before.told() == whole.told(), (seed, number, case.config)
            known = {(r.partition, r.offset, r.start, r.end): r.missed_by for r in whole.late}
            for row in before.late:
                if row.missed_by is not None:
                    assert row.missed_by == known[row.partition, row.offset, row.start, row.end]
            went_on += 1
            saved += before.read < whole.read
    assert went_on > 100 and saved > 10, "the cases are as they were meant"
