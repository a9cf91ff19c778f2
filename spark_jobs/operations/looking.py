"""The answers to what a person asks in Airflow: tables of texts, from the pipeline's tables, the live job, the machine.

What a person wrote reaches Spark as literals only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import refuse_without_live
from spark_jobs.comparison.live_check import check_live
from spark_jobs.corrections.due import CorrectionScope, due, scope_of, sections_of
from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import deployments_of
from spark_jobs.definition.union import partition_in_words
from spark_jobs.formatting import difference, length, plain, plural, shown
from spark_jobs.lakehouse.corrections import pair_names
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.cutover_answer import meeting_answer, plan_answer
from spark_jobs.operations.doctor import Status, run_doctor
from spark_jobs.operations.query import Rows, in_utc
from spark_jobs.operations.window_history import of_keys, window_history, with_previous
from spark_jobs.runs.planning.looks import Answer, Question, Subject, Table
from spark_jobs.runs.work.progress import Progress
from spark_jobs.runs.work.quarantine import reasons_of
from spark_jobs.sources import names_of
from spark_jobs.whatif.definitions import OF_FORMS, variants_of
from spark_jobs.whatif.measure import measure
from spark_jobs.whatif.words import COLUMNS, in_words, sample_in_words

SHOWN = 200
"""The most rows of a table."""
_SAMPLE = 1000
"""So many emitted rows the live check looks at."""

Spark = Callable[[], SparkSession]
"""Starts Spark: doctor first checks what needs none."""


def answer_of(spark: Spark, pipeline: Pipeline, question: Question, progress: Progress) -> Answer:
    """The answer to a question. Raises RewindowError where there is none, as for a window that nobody has published."""
    question.refuse_other_keys(tuple(pipeline.keys))
    match question.what:
        case Subject.WINDOW:
            return _revisions(spark(), pipeline, question)
        case Subject.LATE:
            return _late(spark(), pipeline, question)
        case Subject.QUARANTINED:
            return _quarantined(spark(), pipeline, question)
        case Subject.CORRECTIONS:
            return _corrections(spark(), pipeline, question)
        case Subject.LIVE:
            return _live(spark(), pipeline, progress)
        case Subject.CUTOVER:
            return plan_answer(spark(), pipeline, question, progress)
        case Subject.MEETING:
            return meeting_answer(spark(), pipeline, question, progress)
        case Subject.DOCTOR:
            return _doctor(spark, pipeline)
        case Subject.WHAT_IF:
            return _what_if(spark(), pipeline, question, progress)


def _revisions(spark: SparkSession, pipeline: Pipeline, question: Question) -> Answer:
    revisions = window_history(spark, pipeline, question.keys, question.start or 0)
    keys, tables, windows = list(pipeline.keys), [], set()
    for revision, before in with_previous(revisions, keys):
        named = [f"{name} {shown(revision.values.get(name))}" for name in keys]
        window = ", ".join([f"{shown(revision.window_start)} to {shown(revision.window_end)}", *named])
        until = f"until {shown(revision.valid_to)}" if revision.valid_to else "valid now"
        values = {name: value for name, value in revision.values.items() if name not in keys}
        changed = revision.changed(before)
        same = ", ".join(f"{name} {shown(value)}" for name, value in values.items() if name not in changed)
        notes = [f"From {shown(revision.valid_from)}, {until}."]
        notes += [f"Reason: {revision.reason}"] if revision.reason else []
        if before is None:
            columns, rows = ("Column", "Value"), [(name, shown(value)) for name, value in values.items()]
        else:
            columns = ("Column", "Before", "Now", "Difference")
            rows = [
                (name, shown(pair.before), shown(pair.after), difference(pair.before, pair.after))
                for name, pair in changed.items()
            ]
            notes += [f"The same: {same}"] if same else []
            notes += [] if rows else ["No number changed: only when the window closed."]
        title = f"Revision {revision.revision}, {revision.cause}"
        title = title if window in windows else f"Window {window}: {title[:1].lower()}{title[1:]}"
        windows.add(window)
        tables.append(
            Table(title=title, run=revision.run_id, notes=tuple(notes), columns=columns, rows=tuple(map(tuple, rows)))
        )
    said = f"{plural(len(windows), 'window')} with {plural(len(tables), 'revision')}, the oldest first"
    return Answer(sentence=f"{said}. Times are UTC.", tables=tuple(tables))


def _late(spark: SparkSession, pipeline: Pipeline, question: Question) -> Answer:
    rows = _published(spark, Tables.of(pipeline).late)
    if rows is None:
        return Answer(sentence="No run of this pipeline has published late records.")
    rows = of_keys(_of_run(rows, question), question.keys)
    if question.start is not None:
        rows = rows.where(F.col("window_start") == F.timestamp_millis(F.lit(question.start)))
    names = [name for name in rows.columns if name not in ("range_start", "run_id")]
    rows = rows.select(*(f"`{name}`" for name in names), "run_id").orderBy(
        F.desc_nulls_last("missed_by"), "partition", "offset"
    )
    table, has_more = _table_of(rows, {"missed_by": length, "partition": _partition_of(pipeline)})
    what = f"More than {SHOWN} late records" if has_more else plural(len(table.rows), "late record")
    return Answer(
        sentence=f"{what}, those first that missed their window by the most. `window_start` and `window_end` are "
        "those of the last window that the record missed. Times are UTC."
        if table.rows
        else "There are none.",
        tables=(table,) if table.rows else (),
    )


def _quarantined(spark: SparkSession, pipeline: Pipeline, question: Question) -> Answer:
    found = _published(spark, Tables.of(pipeline).quarantine)
    rows = None if found is None else _of_run(found, question)
    reasons = () if rows is None else reasons_of(rows)
    if rows is None or not reasons:
        return Answer(sentence="There are none: every record could be used.")
    counted = Table(
        title="By reason",
        columns=("Records", "Reason"),
        rows=tuple((f"{one.records:,}", one.reason) for one in reasons),
    )
    listed = rows.withColumn("record", F.coalesce("raw", F.hex("raw_bytes"))).drop("raw", "raw_bytes")
    names = ("partition", "offset", "arrival", "reason", "record", "run_id")
    texts = {"partition": _partition_of(pipeline)}
    table, _ = _table_of(listed.select(*names).orderBy("partition", "offset"), texts)
    total = sum(one.records for one in reasons)
    more = f" The first {SHOWN} are listed." if total > SHOWN else ""
    return Answer(
        sentence=f"{plural(total, 'record')} that cannot be used.{more} Times are UTC.",
        is_well=False,
        tables=(counted, table.model_copy(update={"title": "The records"})),
    )


def _corrections(spark: SparkSession, pipeline: Pipeline, question: Question) -> Answer:
    sections_of(pipeline)
    delivered, due = delivered_rows(spark, pipeline, SHOWN, question.run), due_rows(spark, pipeline, SHOWN)
    tables = [_of_rows(delivered, "Delivered, the last first")] if delivered.rows else []
    tables += [_of_rows(due, "Due: the next run that is published delivers them")] if due.rows else []
    of_run = " of this run" if question.run else ""
    said = f"Delivered{of_run}: {_counted(delivered)}. Due now: {_counted(due)}. Times are UTC."
    return Answer(sentence=said, tables=tuple(tables))


def _live(spark: SparkSession, pipeline: Pipeline, progress: Progress) -> Answer:
    refuse_without_live(pipeline)
    tables, fits = [], True
    for one in deployments_of(pipeline):
        found = check_live(spark, one, progress, rows=_SAMPLE)
        fits = fits and found.fits
        rows = [
            (finding.subject.value, "fix" if finding.is_problem else "ok", finding.what, finding.hint or None)
            for finding in found.findings
        ]
        of = f"{one.name}: " if one.name else ""
        tables.append(
            Table(
                title=f"{of}{found.rows:,} rows of {found.emitted}",
                columns=("About", "Result", "What was found", "What to write"),
                rows=tuple(rows),
            )
        )
    said = "The section `live:` fits." if fits else "Correct the section `live:`, and look again."
    return Answer(sentence=said, is_well=fits, tables=tuple(tables))


def _doctor(spark: Spark, pipeline: Pipeline) -> Answer:
    checks = run_doctor(pipeline, spark)
    failed = [check for check in checks if check.status is Status.FAIL]
    rows = tuple((check.name, check.status.value, check.what, check.hint or None) for check in checks)
    names = ", ".join(check.name for check in failed)
    said = f"A run will not work: {names}." if failed else "A run has all that it needs where this task ran."
    columns = ("Check", "Result", "What was found", "What to do")
    return Answer(sentence=said, is_well=not failed, tables=(Table(columns=columns, rows=rows),))


def _what_if(spark: SparkSession, pipeline: Pipeline, question: Question, progress: Progress) -> Answer:
    found = measure(spark, variants_of(pipeline, question.sets, only=OF_FORMS), progress)
    table = Table(columns=COLUMNS, rows=tuple(in_words(one) for one in found.definitions))
    samples = [
        Table(
            title=f"{one.name}: windows that differ",
            columns=("Window", "Key", "Column", "Published", "Here"),
            rows=tuple(sample_in_words(sample) for sample in one.against.samples),
        )
        for one in found.definitions
        if one.against is not None and one.against.samples
    ]
    read = f"{found.definitions[0].records:,} records"
    said = f"{len(found.definitions)} definitions over the same {read}. Nothing was published."
    return Answer(sentence=f"{said} Times are UTC.", tables=(table, *samples))


def _published(spark: SparkSession, table: str) -> DataFrame | None:
    return spark.table(table) if spark.catalog.tableExists(table) else None


def _partition_of(pipeline: Pipeline) -> Callable[[int], str]:
    """How a partition is written: in a union with its input."""
    names = names_of(pipeline)
    return lambda partition: partition_in_words(partition, names)


def _of_run(rows: DataFrame, question: Question) -> DataFrame:
    return rows if question.run is None else rows.where(F.col("run_id") == F.lit(question.run))


def _table_of(rows: DataFrame, texts: Mapping[str, Callable[[Any], str]]) -> tuple[Table, bool]:
    """The first rows, and whether there are more. `texts`: how the values of a column are written."""
    found = rows.limit(SHOWN + 1).collect()
    kinds = {field.name: field.dataType for field in rows.schema}

    def cell(name: str, value: Any) -> str | None:
        if value is None:
            return None
        return texts[name](value) if name in texts else plain(shown(in_utc(value, kinds[name])))

    cells = tuple(
        tuple(cell(name, value) for name, value in zip(rows.columns, row, strict=True)) for row in found[:SHOWN]
    )
    return Table(columns=tuple(rows.columns), rows=cells), len(found) > SHOWN


def _of_rows(found: Rows, title: str) -> Table:
    cells = tuple(tuple(None if v is None else plain(shown(v)) for v in row) for row in found.rows)
    return Table(title=title, columns=found.columns, rows=cells)


def _counted(found: Rows) -> str:
    return f"{'more than ' if found.has_more else ''}{len(found.rows):,}"


def delivered_rows(spark: SparkSession, pipeline: Pipeline, limit: int, run_id: str | None = None) -> Rows:
    """The corrections of a pipeline, the last delivered first, and what is prepared before them. Times are in UTC.

    `run_id`: only those of the revisions that this run has published.
    """
    scope = scope_of(spark, pipeline)
    names = ["delivered_at", "status", "kind", "destination", *_columns(scope), "delivery"]
    if not scope.ledger.exists():
        return Rows(tuple(names), (), False)
    rows = scope.ledger.rows()
    if run_id is not None:
        rows = rows.where(F.col("run_id") == run_id)
    places = (F.asc_nulls_first(f"`{c}`") for c in ("window_start", "window_end", *scope.keys))
    return _rows(rows.orderBy(F.desc_nulls_first("delivered_at"), F.desc("number"), *places), names, limit)


def due_rows(spark: SparkSession, pipeline: Pipeline, limit: int) -> Rows:
    """What `deliver` would deliver now. Times are in UTC."""
    scope = scope_of(spark, pipeline)
    names, found = _columns(scope), due(scope)
    if found is None:
        return Rows(tuple(names), (), False)
    return _rows(found.rows.orderBy("window_start", *(f"`{k}`" for k in scope.keys)), names, limit)


def _columns(scope: CorrectionScope) -> list[str]:
    return [*scope.identity, "action", *pair_names(scope.values), "value", "revision", "cause", "run_id"]


def _rows(frame: DataFrame, names: list[str], limit: int) -> Rows:
    chosen = frame.select(*(f"`{c}`" for c in names if c in frame.columns))
    found = chosen.limit(limit + 1).collect()
    kinds = [field.dataType for field in chosen.schema]
    rows = tuple(tuple(in_utc(v, kind) for v, kind in zip(row, kinds, strict=True)) for row in found[:limit])
    return Rows(tuple(chosen.columns), rows, len(found) > limit)
