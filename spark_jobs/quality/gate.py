"""The gate: checks a staged run against its expectations, and decides whether it may be published."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.quality import gx
from spark_jobs.quality.checked import Checked, checked_of, plain
from spark_jobs.quality.columns import RUN_WIDE
from spark_jobs.quality.frames import input_frame, reconciliation_frame, windows_frame
from spark_jobs.quality.live import live_frame
from spark_jobs.quality.resolve import Fitted, LeftOut, SuiteScope, fit
from spark_jobs.quality.suites import Data, Severity, Suites, load_suites
from spark_jobs.runs.staged_run import StagedRun
from spark_jobs.spark.gateway import java_context

if TYPE_CHECKING:
    import pandas as pd


class GateVerdict(StrEnum):
    """passed: every critical and warning expectation is met. warned: a warning is not. failed: a critical one is not.

    An expectation that could not be checked is not met.
    """

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Unchecked:
    """An expectation that does not apply to this run, and why."""

    suite: str
    data: str
    expectation: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class GateResult:
    """The gate's answer. `blocks`: the run is published only with a reason. `seconds`, `spark_jobs`: its cost."""

    verdict: GateVerdict
    suites: tuple[dict[str, str], ...]
    results: tuple[Checked, ...]
    left_out: tuple[Unchecked, ...]
    seconds: float
    spark_jobs: int

    @property
    def blocks(self) -> bool:
        return self.verdict is GateVerdict.FAILED

    def to_dict(self) -> dict[str, Any]:
        """As JSON values: the document `gate.json`."""
        return {
            "verdict": self.verdict.value,
            "blocks": self.blocks,
            "suites": list(self.suites),
            "results": [asdict(result) for result in self.results],
            "left_out": [asdict(one) for one in self.left_out],
            "seconds": self.seconds,
            "spark_jobs": self.spark_jobs,
        }


def check_suites(suites: Suites, pipeline: Pipeline, columns: Sequence[str] | None = None) -> None:
    """Refuse expectations that could not be checked, before a run starts; imports Great Expectations.

    `columns` are those of the staged windows, where they are known.

    Raises:
        DefinitionError: it lists each problem with its file, line and what to write: unknown types, kwargs, columns,
            placeholders, parameters.
    """
    gx.built(fit(suites, SuiteScope(pipeline, columns=None if columns is None else tuple(columns)))[0])


def check(evidence: StagedRun, suites: Suites | None = None) -> GateResult:
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
    return GateResult(
        verdict=verdict_of(results),
        suites=tuple({"name": s.name, "data": data.value, "file": s.file} for s in suites.suites for data in s.data),
        results=results,
        left_out=tuple(_unchecked(left_out)),
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


def verdict_of(results: Sequence[Checked]) -> GateVerdict:
    """Severity decides; an expectation that could not be checked counts as failed."""
    failed = {result.severity for result in results if not result.success}
    if Severity.CRITICAL in failed:
        return GateVerdict.FAILED
    return GateVerdict.WARNED if Severity.WARNING in failed else GateVerdict.PASSED


def _run_wide(data: Data, frame: pd.DataFrame) -> dict[tuple[Data, str], Any]:
    """The figures of the whole run, which each row of the frame repeats."""
    return {(data, str(c)): frame[c].iloc[0] for c in frame.columns if str(c).startswith(RUN_WIDE)}


def _as_one_figure(checked: Checked, run_wide: Mapping[tuple[Data, str], Any]) -> Checked:
    """A result about a figure of the whole run, as one figure and not as a figure for each partition or day."""
    key = (Data(checked.data), checked.column or "")
    if key not in run_wide or checked.error is not None or checked.unexpected_count is None:
        return checked
    observed = plain(run_wide[key])
    return replace(checked, observed=observed, checked=1, unexpected_count=None, unexpected_percent=None, samples=[])


def _unchecked(left_out: Sequence[LeftOut]) -> Iterator[Unchecked]:
    for one in left_out:
        written = one.written
        yield Unchecked(one.suite.name, written.data.value, written.type, written.name, one.reason)


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
