"""A cutover's offsets, and the replay that proves them."""

from __future__ import annotations

import json

import pytest

from spark_jobs.cutover import planning
from spark_jobs.cutover.formats import FILES, as_files
from spark_jobs.cutover.meeting import planned_at
from spark_jobs.cutover.planning import plan_cutover
from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import DefinitionError, EmptyRangeError
from spark_jobs.operations.looking import answer_of
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.planning.looks import Question
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.small_runs import MINUTE, T0, pipeline, record, write

RECORDS = [record(i) for i in range(600)]
AT = T0 + 5 * MINUTE


def first_offsets(at: int) -> dict[int, int]:
    """By partition the first offset of a record from `at` on, in plain Python."""
    return {p: min(r["o"] for r in RECORDS if r["p"] == p and r["t"] >= at) for p in (0, 1)}


@pytest.fixture
def small(tmp_path):
    def make(name: str, **options: str):
        write(tmp_path / "data", RECORDS)
        return pipeline(tmp_path, name, **options)

    return make


def test_the_new_job_begins_at_the_first_record_that_a_window_needs(spark, small) -> None:
    planned = plan_cutover(spark, small("begins"), AT, NoProgress())
    assert planned.is_exact
    assert planned.topics[""] == first_offsets(AT)
    read = [r for r in RECORDS if r["o"] >= planned.topics[""][r["p"]]]
    assert (planned.read_again, planned.earlier) == (len(read), sum(r["t"] < AT for r in read))
    assert planned.windows == 2 * 5
    assert planned.late > 0
    assert not planned.backfill_waits


def test_airflow_s_form_gets_the_same_answer(spark, small) -> None:
    defined = small("asked")
    question = Question.of({"what": "cutover", "window": format_instant(AT)})
    answer = answer_of(lambda: spark, defined, question, NoProgress())
    assert answer.is_well
    offsets, *texts = answer.tables
    assert {int(row[1] or 0): int(row[2] or 0) for row in offsets.rows} == first_offsets(AT)
    assert [text.title for text in texts] == list(FILES)
    assert planned_at(RunStore.configured().of_pipeline(defined.name), defined) == AT
    with pytest.raises(DefinitionError, match="its start is missing"):
        Question.of({"what": "cutover"})


def test_a_wrong_offset_is_found(spark, small, monkeypatch) -> None:
    right = planning.first_offsets
    monkeypatch.setattr(planning, "first_offsets", lambda *given: {p: o + 40 for p, o in right(*given).items()})
    planned = plan_cutover(spark, small("wrong"), AT, NoProgress())
    assert not planned.is_exact
    assert planned.samples[0].start == format_instant(AT)


def test_a_session_across_the_cutover_moves_it_behind_the_session(spark, tmp_path) -> None:
    times = [0, 10, 20, 95, 100, 105, 300, 310, 500, 700]
    records = [record(i, p=0, o=i, a=T0 + at * 1000, k="a", t=T0 + at * 1000) for i, at in enumerate(times)]
    write(tmp_path / "data", [*records, record(0, p=1, o=0, a=T0 + 900_000, k="b", t=T0 + 900_000)])
    defined = pipeline(tmp_path, "spanning", window="window: {type: session, gap: 30 s}")
    planned = plan_cutover(spark, defined, T0 + 98_000, NoProgress())
    assert not planned.is_exact
    assert planned.exact_from == format_instant(T0 + 135_000)
    assert plan_cutover(spark, defined, T0 + 135_000, NoProgress()).is_exact


def test_a_cutover_that_is_still_to_come_reads_what_comes_next(spark, small) -> None:
    planned = plan_cutover(spark, small("to_come"), T0 + 60 * MINUTE, NoProgress())
    assert planned.topics[""] == {0: 300, 1: 300}
    assert (planned.windows, planned.read_again, planned.backfill_waits) == (0, 0, True)


@pytest.mark.parametrize(
    ("at", "error", "says"),
    [
        (AT + 1, DefinitionError, "no window starts at .* The next one starts at"),
        (T0 - 2 * MINUTE, EmptyRangeError, "nothing is left for a backfill"),
        (T0 - 60 * MINUTE, EmptyRangeError, "the history begins with the window of"),
    ],
)
def test_a_time_that_is_no_cutover_is_refused(spark, small, at, error, says) -> None:
    with pytest.raises(error, match=says):
        plan_cutover(spark, small("refused"), at, NoProgress())


def test_the_texts_say_the_offsets_in_each_engines_words() -> None:
    texts = as_files({"orders": {1: 95, 0: 120}}, "2026-12-01T00:00:00Z")
    assert "'scan.startup.specific-offsets' = 'partition:0,offset:120;partition:1,offset:95'" in texts["flink.sql"]
    assert 'offsets.put(new TopicPartition("orders", 1), 95L);' in texts["FlinkOffsets.java"]
    assert json.loads(texts["spark.json"]) == {"orders": {"0": 120, "1": 95}}
    assert texts["kafka-offsets.csv"] == "orders,0,120\norders,1,95\n"
    assert texts["sink-filter.sql"] == "window_start >= TIMESTAMP '2026-12-01 00:00:00'\n"
