"""What runs Great Expectations: imported when needed, quiet, in memory, all expectations in one call.

GX takes seconds to import and logs a lot. Other modules get plain values from here; `by_day` has the part about days.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from spark_jobs.errors import DefinitionError, Problem, first_line
from spark_jobs.parts import Part, require
from spark_jobs.quality.resolve import Fitted
from spark_jobs.spark.parallel import in_background

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations.expectations.expectation import Expectation as GxExpectation
    from pyspark.sql import DataFrame

    from spark_jobs.quality.by_day import Days

SAMPLES = 5
"""Rows shown of an expectation that fails."""
_COUNTS_ONLY = {"result_format": "BASIC", "partial_unexpected_count": 0}
"""GX then reads the unexpected values with LIMIT 0, which costs no Spark job, and still counts them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """GX's answer to one expectation: its own `result`, its `kwargs` with parameters filled in, and any `error`.

    `days`: the answers for each day, of an expectation that is checked by day; `result` adds up their rows.
    """

    success: bool
    result: dict[str, Any]
    kwargs: dict[str, Any]
    error: str | None
    days: Days | None = None


@cache
def import_ahead() -> Future[None]:
    """Import GX, and what draws the report's charts, in a thread; the same import whenever it is called.

    What the process imports meanwhile must have nothing in common with GX that is not imported yet: of two threads that
    import one package, either may get half of it.
    """

    def import_all() -> None:
        with _silenced(), suppress(Exception):  # whoever uses it gets the error
            import great_expectations

            del great_expectations
        with suppress(ImportError):
            import vl_convert

            del vl_convert

    return in_background(import_all)


@contextmanager
def quiet() -> Iterator[None]:
    """GX, imported, without analytics, log and warnings of it and of its dependencies."""
    import_ahead().result()
    with _silenced():
        yield


@contextmanager
def _silenced() -> Iterator[None]:
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read when GX is imported, and when a context is made
    logger = logging.getLogger("great_expectations")
    level, logger.level = logger.level, logging.CRITICAL
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def built(fitted: Sequence[Fitted]) -> list[GxExpectation]:
    """GX's own expectations, in the same order.

    Raises:
        DefinitionError: it lists every unknown type, and what is wrong with kwargs.
    """
    require(Part.GATE, "the check of expectations")
    with quiet():
        from great_expectations.exceptions import ExpectationNotFoundError
        from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
        from great_expectations.expectations.metadata_types import FailureSeverity

        import spark_jobs.quality.unique  # noqa: F401 - registers our expectation
        from spark_jobs.quality.by_day import can_be_by_day

        expectations = []
        problems: dict[tuple[str, Any, str], Problem] = {}
        for number, one in enumerate(fitted):
            written = one.written
            try:
                configuration = ExpectationConfiguration(
                    type=written.type,
                    kwargs=dict(one.kwargs),
                    severity=FailureSeverity(written.severity.value),
                    meta={"rewindow": number},
                    description=written.description or None,
                )
                expectations.append(configuration.to_domain_obj())
                if written.by and not can_be_by_day(expectations[-1]):
                    what = (
                        f"{written.type} cannot be checked by {written.by}: it needs more than counts of rows, or a sum"
                    )
                    problem = one.suite.problem((*written.place, "meta", "by"), what, "leave `by` out")
                    problems[one.suite.file, written.place, what] = problem
            except ExpectationNotFoundError:
                what, hint = f"{written.type[:80]!r} is no type of expectation", _nearest_type(written.type)
                problem = one.suite.problem((*written.place, "type"), what, hint)
                problems[one.suite.file, written.place, what] = problem
            except (ValueError, TypeError, KeyError) as refusal:
                for place, reason in _refusals(refusal):
                    what = f"{written.type}: {reason}"
                    problem = one.suite.problem((*written.place, "kwargs", *place), what, "see GX's docs of this type")
                    problems[one.suite.file, written.place, what] = problem
    if problems:
        raise DefinitionError.listing(problems.values())
    return expectations


def bases_of(kind: str) -> tuple[str, ...]:
    """The names of the classes that GX's class of an expectation is derived from; none for an unknown type."""
    with quiet():
        from great_expectations.expectations.registry import get_expectation_impl

        try:
            return tuple(base.__name__ for base in get_expectation_impl(kind).__mro__)
        except Exception:  # of GX's own kinds
            return ()


def _nearest_type(name: str) -> str:
    from great_expectations.expectations.registry import list_registered_expectation_implementations

    from spark_jobs.definition.fields import nearest

    near = nearest(name, list_registered_expectation_implementations())
    return f"did you mean `{near}`?" if near else "GX's gallery of expectations lists them"


def _refusals(refusal: Exception) -> list[tuple[tuple[Any, ...], str]]:
    """What is wrong, by place: pydantic's findings, or the first line of another error."""
    errors = getattr(refusal, "errors", None)
    if errors is None:
        return [((), first_line(refusal)[:200])]
    found: dict[Any, str] = {}
    for error in errors():
        place = tuple(step for step in error["loc"][:1] if step != "__root__")
        name = f"{place[0]}: " if place else ""
        reason = "no such kwarg" if error["type"] == "value_error.extra" else error["msg"]
        found.setdefault(place, f"{name}{reason}")
    return list(found.items())


class Batch:
    """One table to check: a Spark or a pandas frame, in a GX context of its own in memory."""

    def __init__(self, name: str, frame: DataFrame | pd.DataFrame, *, identity: Sequence[str]) -> None:
        self._identity = list(identity)
        with quiet():
            import great_expectations as gx

            context = gx.get_context(mode="ephemeral")
            context.enable_analytics(False)
            variables: Any = context.variables
            variables.progress_bars = {"globally": False, "metric_calculations": False}
            sources = context.data_sources
            is_spark = not hasattr(frame, "to_numpy")
            # By default GX would cache the frame and leave it cached.
            source = sources.add_spark(name, persist=False) if is_spark else sources.add_pandas(name)
            asset = source.add_dataframe_asset(name)
            self._batch = asset.add_batch_definition_whole_dataframe(name).get_batch({"dataframe": frame})

    def validate(self, expectations: Sequence[GxExpectation], parameters: Mapping[str, Any]) -> dict[int, Answer]:
        """GX's answers, by the number that `built` gave each expectation; unexpected rows only of those that fail.

        The expectations of all suites go together: GX then computes their counts, sums and extremes in one aggregation.
        """
        found = self._ask(expectations, parameters, _COUNTS_ONLY)
        broken = [e for e in expectations if found[_number(e)].error is not None]
        if len(broken) > 1:  # one that fails takes its whole aggregation with it: each alone shows which one it was
            for one in broken:
                found |= self._ask([one], parameters, _COUNTS_ONLY)
        failed = [
            e
            for e in expectations
            if not (answer := found[_number(e)]).success
            and answer.result.get("unexpected_count")
            and "partial_unexpected_index_list" not in answer.result
        ]
        if failed:
            with_rows = {
                "result_format": "SUMMARY",
                "partial_unexpected_count": SAMPLES,
                "unexpected_index_column_names": self._identity,
            }
            again = self._ask(failed, parameters, with_rows)
            for number, answer in again.items():
                rows = answer.result.get("partial_unexpected_index_list")
                found[number].result["partial_unexpected_index_list"] = rows or []
        return found

    def _ask(
        self, expectations: Sequence[GxExpectation], parameters: Mapping[str, Any], result_format: Mapping[str, Any]
    ) -> dict[int, Answer]:
        from great_expectations.core import ExpectationSuite

        if not expectations:
            return {}
        with quiet():
            suite = ExpectationSuite(name="gate", expectations=[e.copy(deep=True) for e in expectations])
            validated = self._batch.validate(
                suite, result_format=dict(result_format), expectation_parameters=dict(parameters)
            )
        answers: dict[int, Answer] = {}
        for result in validated.results:
            configuration: Any = result.expectation_config
            answers[configuration.meta["rewindow"]] = Answer(
                success=bool(result.success),
                result=dict(result.result or {}),
                kwargs={k: v for k, v in configuration.kwargs.items() if k != "batch_id"},
                error=_error(result.exception_info),
            )
        return answers


def validate_by_day(
    name: str, frame: DataFrame, expectations: Sequence[GxExpectation], *, identity: Sequence[str]
) -> dict[int, Answer]:
    """The answers by day, by the number that `built` gave each expectation; unexpected rows of failed days alone."""
    from spark_jobs.quality.by_day import check_by_day
    from spark_jobs.quality.columns import RW_DAY

    answers: dict[int, Answer] = {}
    with quiet():
        checked = check_by_day(frame, expectations)
    for one, days in zip(expectations, checked, strict=True):
        result = days.together()
        if days.failed and result:
            failed = frame.where(frame[RW_DAY].isin([day.day for day in days.failed]))
            [again] = Batch(name, failed, identity=[RW_DAY, *identity]).validate([one], {}).values()
            result["partial_unexpected_index_list"] = again.result.get("partial_unexpected_index_list")
        kwargs = {k: v for k, v in one.configuration.kwargs.items() if k != "batch_id"}
        answers[_number(one)] = Answer(not days.failed, result, kwargs, days.error, days)
    return answers


def _number(expectation: GxExpectation) -> int:
    meta: Any = expectation.meta
    return meta["rewindow"]


def _error(info: Mapping[str, Any] | None) -> str | None:
    """The first line of the exception; GX gives one exception, or one for each metric that failed."""
    if not info:
        return None
    for one in [info] if "raised_exception" in info else info.values():
        if isinstance(one, Mapping) and one.get("raised_exception"):
            return next(iter(str(one.get("exception_message") or "unknown").splitlines()), "unknown")
    return None
