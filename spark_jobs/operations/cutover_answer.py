"""The answers about a cutover, as tables of texts."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_jobs.cutover.document import CutoverPlan
from spark_jobs.cutover.formats import as_files
from spark_jobs.cutover.meeting import Meeting, Side, check_meeting, planned_at
from spark_jobs.cutover.planning import plan_cutover
from spark_jobs.cutover.words import refused, said
from spark_jobs.definition import Pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.planning.looks import Answer, Question, Table
from spark_jobs.runs.work.progress import Progress


def plan_answer(spark: SparkSession, pipeline: Pipeline, question: Question, progress: Progress) -> Answer:
    """The plan of a cutover at the question's window; an exact one is kept, for the check afterwards."""
    if question.start is None:
        raise DefinitionError("Window: the first window of the new job is missing", "the form")
    planned = plan_cutover(spark, pipeline, question.start, progress)
    if not planned.is_exact:
        first, *others = refused(planned, pipeline.name)
        return Answer(sentence=f"Not exact: {first}", is_well=False, tables=(Table(notes=tuple(others)),))
    planned.write(RunStore.configured().of_pipeline(pipeline.name))
    texts = tuple(
        Table(title=name, notes=tuple(text.splitlines())) for name, text in as_files(planned.topics, planned.at).items()
    )
    first, *others = said(planned, pipeline.name)
    return Answer(sentence=first, tables=(_offsets(planned, others), *texts))


def _offsets(planned: CutoverPlan, notes: list[str]) -> Table:
    rows = tuple(
        (
            one.topic,
            str(one.partition),
            str(one.offset),
            one.arrival,
            one.kept_until,
            f"{one.read_again:,}",
            f"{one.earlier:,}",
        )
        for one in planned.offsets
    )
    columns = ("Topic", "Partition", "Offset", "Appended", "Kept until", "Read again", "Before the cutover")
    return Table(title="Where the new job begins", notes=tuple(notes), columns=columns, rows=rows)


def meeting_answer(spark: SparkSession, pipeline: Pipeline, question: Question, progress: Progress) -> Answer:
    """Whether both sides of a cutover meet: at the question's window, else at the one that was planned last."""
    at = question.start
    if at is None:
        at = planned_at(RunStore.configured().of_pipeline(pipeline.name), pipeline)
    found = check_meeting(spark, pipeline, at, progress)
    labels = tuple((side.value, f"{found.counts[side]:,}", side.meaning) for side in Side)
    tables = (Table(columns=("Label", "Windows", "Meaning"), rows=labels), *_wrong(found))
    what = "Both sides meet" if found.is_clean else f"Both sides do not meet; {found.differing:,} windows differ"
    return Answer(sentence=f"{what} at {found.at}.", is_well=found.is_clean, tables=tables)


def _wrong(found: Meeting) -> tuple[Table, ...]:
    rows = tuple(
        (one.label.value, one.start, one.end, ", ".join(f"{name} {value}" for name, value in one.key.items()))
        for one in found.samples
    )
    return (Table(title="Some of them", columns=("Label", "Start", "End", "Key"), rows=rows),) if rows else ()
