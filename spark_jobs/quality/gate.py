"""The gate: checks a staged run against its expectations, and decides whether it may be published."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.quality import gx
from spark_jobs.quality.columns import RUN_WIDE
from spark_jobs.quality.frames import input_frame, reconciliation_frame, windows_frame
from spark_jobs.quality.live import live_frame
from spark_jobs.quality.resolve import Fitted, SuiteScope, fit
from spark_jobs.quality.suites import Data, Severity, Suites, load_suites
from spark_jobs.runs.life.documents import DayResult, ExpectationResult, Gate, GateVerdict, UncheckedExpectation
from spark_jobs.runs.work.staged_run import StagedRun
from spark_jobs.spark.gateway import java_context

if TYPE_CHECKING:
    import pandas as pd

    from spark_jobs.quality.by_day import Day


SAMPLES = 5
"""Rows shown of an expectation that fails."""
FAILED_DAYS = 100
"""Days named of an expectation that is checked by day."""
LENGTH = 200
"""Longer values are cut."""


def checked_of(one: Fitted, answer: gx.Answer) -> ExpectationResult:
    """The result of an expectation from the answer of Great Expectations.

    `observed`: the value that GX computed, or the number of unexpected rows; of a column `run_...`, which is one
    figure, its value. Rows are counted for expectations about rows; nulls are not checked.
    """
    written, result = one.written, answer.result
    count = result.get("unexpected_count")
    observed = result.get("observed_value", count)
    elements, missing = result.get("element_count"), result.get("missing_count") or 0
    columns = ("column", "column_A", "column_B", "column_list")
    kwargs = answer.kwargs or one.kwargs
    return ExpectationResult(
        suite=one.suite.name,
        data=written.data.value,
        expectation=written.type,
        name=written.name,
        description=written.description or _described(one),
        severity=written.severity.value,
        success=answer.success and answer.error is None,
        column=one.column,
        columns={k: plain(v) for k, v in kwargs.items() if k in columns},
        observed=plain(observed),
        threshold={k: plain(v) for k, v in kwargs.items() if k not in columns},
        checked=None if elements is None else int(elements) - int(missing),
        unexpected_count=None if count is None else int(count),
        unexpected_percent=_rounded(result.get("unexpected_percent")),
        samples=tuple(plain(row) for row in (result.get("partial_unexpected_index_list") or [])[:SAMPLES]),
        error=None if answer.error is None else _cut(answer.error),
        days=None if answer.days is None else len(answer.days.days),
        days_failed=0 if answer.days is None else len(answer.days.failed),
        failed_days=() if answer.days is None else tuple(_day(day) for day in answer.days.failed[:FAILED_DAYS]),
    )


def _day(day: Day) -> DayResult:
    count, elements = day.result.get("unexpected_count"), day.result.get("element_count")
    return DayResult(
        day=str(day.day),
        observed=plain(day.result.get("observed_value", count)),
        checked=None if elements is None else int(elements) - int(day.result.get("missing_count") or 0),
        unexpected_count=None if count is None else int(count),
        unexpected_percent=_rounded(day.result.get("unexpected_percent")),
    )


def _described(one: Fitted) -> str:
    kwargs = ", ".join(f"{name}: {value}" for name, value in one.kwargs.items())
    return f"{one.written.type.removeprefix('expect_').replace('_', ' ')} ({kwargs})"


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 4)


def plain(value: Any) -> Any:
    """A JSON value, texts cut at `LENGTH`: instants as ISO text, infinities and NaN as null, all else as text."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return _cut(value)
        case datetime():
            aware = value if value.tzinfo else value.astimezone()
            return format_instant(round(aware.timestamp() * 1000))
        case date() | Decimal():
            return str(value)
        case Mapping():
            return {_cut(str(k)): plain(v) for k, v in list(value.items())[:50]}
        case list() | tuple() | set() | frozenset():
            return [plain(v) for v in list(value)[:50]]
        case _ if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
            return plain(value.item())
        case _:
            return _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 1]}…"


def check_suites(suites: Suites, pipeline: Pipeline, columns: Sequence[str] | None = None) -> None:
    """Refuse expectations that could not be checked, before a run starts; imports Great Expectations.

    `columns` are those of the staged windows, where they are known.

    Raises:
        DefinitionError: it lists each problem with its file, line and what to write: unknown types, kwargs, columns,
            placeholders, parameters.
    """
    gx.built(fit(suites, SuiteScope(pipeline, columns=None if columns is None else tuple(columns)))[0])


def check(evidence: StagedRun, suites: Suites | None = None) -> Gate:
    """Check a staged run against the expectations; nothing is written, nothing stays cached.

    An expectation that cannot be computed has an error of its own.

    Raises:
        DefinitionError: a suite is broken.
    """
    began = time.monotonic()
    suites = suites or load_suites(evidence.pipeline)
    with _counted_jobs(evidence.spark) as jobs:
        windows = windows_frame(evidence)
        scope = SuiteScope(
            evidence.pipeline, evidence.kind, evidence.identity, tuple(windows.columns), evidence.verdicts is not None
        )
        fitted, left_out = fit(suites, scope)
        if evidence.is_distinct:
            fitted = [_known_distinct(one, evidence.identity) for one in fitted]
        parameters = parameters_of(evidence)
        fitted = [_with_values(one, parameters) if one.written.by else one for one in fitted]
        expectations = gx.built(fitted)
        found: dict[int, gx.Answer] = {}
        run_wide: dict[tuple[Data, str], Any] = {}
        for data in Data:
            numbers = [n for n, one in enumerate(fitted) if one.written.data is data]
            if not numbers:
                continue
            match data:
                case Data.INPUT:
                    frame = input_frame(evidence.plan)
                    run_wide |= _run_wide(data, frame)
                    batch = gx.Batch(data, frame, identity=["partition"])
                case Data.WINDOWS:
                    by_day = [expectations[n] for n in numbers if fitted[n].written.by]
                    if by_day:
                        found |= gx.validate_by_day(data, windows, by_day, identity=evidence.identity)
                    numbers = [n for n in numbers if not fitted[n].written.by]
                    batch = gx.Batch(data, windows, identity=evidence.identity)
                case Data.RECONCILIATION:
                    frame = reconciliation_frame(evidence)
                    run_wide |= _run_wide(data, frame)
                    batch = gx.Batch(data, frame, identity=["day"])
                case Data.LIVE if evidence.verdicts is not None:
                    frame = live_frame(evidence.verdicts)
                    run_wide |= _run_wide(data, frame)
                    batch = gx.Batch(data, frame, identity=["day"])
                case _:
                    continue
            found |= batch.validate([expectations[n] for n in numbers], parameters)
    results = tuple(_as_one_figure(checked_of(one, found[n]), run_wide) for n, one in enumerate(fitted))
    verdict = verdict_of(results)
    return Gate(
        verdict=verdict,
        blocks=verdict is GateVerdict.FAILED,
        suites=tuple({"name": s.name, "data": data.value, "file": s.file} for s in suites.suites for data in s.data),
        results=results,
        left_out=tuple(
            UncheckedExpectation(
                suite=one.suite.name,
                data=one.written.data.value,
                expectation=one.written.type,
                name=one.written.name,
                reason=one.reason,
            )
            for one in left_out
        ),
        seconds=round(time.monotonic() - began, 3),
        spark_jobs=jobs(),
    )


def _known_distinct(one: Fitted, identity: Sequence[str]) -> Fitted:
    """The expectation, with the answer of the aggregation that made the staged windows where it is about these."""
    is_known = (
        one.written.type == "expect_rows_to_be_unique_by_columns"
        and one.written.data is Data.WINDOWS
        and set(identity) <= set(one.kwargs.get("column_list", ()))
    )
    return replace(one, kwargs={**one.kwargs, "known_distinct": True}) if is_known else one


def _with_values(one: Fitted, parameters: Mapping[str, int]) -> Fitted:
    """The expectation with values in the place of the suite's parameters."""
    given = {
        name: parameters[value["$PARAMETER"]] if isinstance(value, dict) and "$PARAMETER" in value else value
        for name, value in one.kwargs.items()
    }
    return replace(one, kwargs=given)


def parameters_of(evidence: StagedRun) -> dict[str, int]:
    """The values of `spark_jobs.quality.resolve.PARAMETERS`."""
    plan = evidence.plan
    return {
        "range_start_ms": plan.span.start,
        "range_end_ms": plan.span.end,
        "last_arrival_ms": plan.processing_time_end,
        "allowed_lateness_ms": evidence.spec.allowed_lateness,
    }


def verdict_of(results: Sequence[ExpectationResult]) -> GateVerdict:
    """Severity decides; an expectation that could not be checked counts as failed."""
    failed = {result.severity for result in results if not result.success}
    if Severity.CRITICAL in failed:
        return GateVerdict.FAILED
    return GateVerdict.WARNED if Severity.WARNING in failed else GateVerdict.PASSED


def _run_wide(data: Data, frame: pd.DataFrame) -> dict[tuple[Data, str], Any]:
    """The figures of the whole run, which each row of the frame repeats."""
    return {(data, str(c)): frame[c].iloc[0] for c in frame.columns if str(c).startswith(RUN_WIDE)}


def _as_one_figure(checked: ExpectationResult, run_wide: Mapping[tuple[Data, str], Any]) -> ExpectationResult:
    """A result about a figure of the whole run, as one figure and not as a figure for each partition or day."""
    key = (Data(checked.data), checked.column or "")
    if key not in run_wide or checked.error is not None or checked.unexpected_count is None:
        return checked
    one = {"checked": 1, "unexpected_count": None, "unexpected_percent": None, "samples": ()}
    return checked.model_copy(update={**one, "observed": plain(run_wide[key])})


@contextmanager
def _counted_jobs(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """Gives a function that, after the block, says how many Spark jobs ran in it. A tag marks them, broadcasts too."""
    context = spark.sparkContext
    tag = f"rewindow-gate-{secrets.token_hex(6)}"
    counted = 0
    context.addJobTag(tag)
    try:
        yield lambda: counted
    finally:
        context.removeJobTag(tag)
        counted = len(java_context(spark).statusTracker().getJobIdsForTag(tag))
