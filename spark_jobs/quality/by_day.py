"""Expectations whose rows are checked day by day. Importing this module imports Great Expectations.

Great Expectations computes an expectation from metrics. Those that Spark can aggregate are aggregated here by day, all
expectations together: a year costs as many queries as a day. Great Expectations' own code then judges each day's
metrics, so a day's result is the one that it gives for the rows of that day alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from great_expectations.execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import Expectation as GxExpectation
from great_expectations.expectations.registry import get_metric_provider
from great_expectations.util import convert_to_json_serializable
from great_expectations.validator.metric_configuration import MetricConfiguration
from great_expectations.validator.metrics_calculator import MetricsCalculator
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.errors import first_line
from spark_jobs.quality.columns import RW_DAY

_FORMAT = {"result_format": "BASIC", "partial_unexpected_count": 0}
_BATCH = "by_day"
_AGGREGATED, _ROWS = ".aggregate_fn", ".unexpected_values"
_OF_SCHEMA = ("table.columns", "table.column_types")
_OF_OTHER_ROWS = ".z_score."
"""Metrics whose condition needs an aggregate over all rows first."""


@dataclass(frozen=True, slots=True)
class Day:
    """One day's answer: GX's `success` and `result` for the rows of this day."""

    day: date
    success: bool
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Days:
    """The answers of all days that have rows, in order. `error`: why they could not be computed."""

    days: tuple[Day, ...] = ()
    error: str | None = None

    @property
    def failed(self) -> tuple[Day, ...]:
        return tuple(day for day in self.days if not day.success)

    def together(self) -> dict[str, Any]:
        """GX's counts of rows, added up over all days; empty for an expectation about a figure."""
        counted = [day.result for day in self.days if "unexpected_count" in day.result]
        names = ("element_count", "missing_count", "unexpected_count")
        total = {name: sum(one.get(name) or 0 for one in counted) for name in names}
        rows = total["element_count"] - total["missing_count"]
        return (
            total | {"unexpected_percent": 100 * total["unexpected_count"] / rows if rows else 0.0} if counted else {}
        )


def can_be_by_day(expectation: GxExpectation) -> bool:
    """Whether one aggregation by day gives all that the expectation needs."""
    engine = SparkDFExecutionEngine.__new__(SparkDFExecutionEngine)  # only its class is looked at; it needs no Spark
    return all(_is_aggregated(metric.metric_name, engine) for metric in _needed(expectation, None))


def check_by_day(frame: DataFrame, expectations: Sequence[GxExpectation]) -> list[Days]:
    """The answers to each expectation, by the days of the column `rw_day`; rows without a day are left out.

    A day without a row that an expectation is about (its `row_condition`) has no answer.
    """
    known = frame.where(F.col(RW_DAY).isNotNull())
    engine = _EngineByDay(batch_data_dict={_BATCH: known}, spark=frame.sparkSession, persist=False)
    needed = [_needed(one, engine) for one in expectations]
    metrics = [metric for several in needed for metric in several]
    _, aborted = MetricsCalculator(engine).compute_metrics(metrics, _runtime())
    errors = {metric: _reason(info) for metric, info in aborted.items()}
    broken = [next((errors[m.id] for m in several if m.id in errors), None) for several in needed]
    found: list[list[Day]] = [[] for _ in expectations]
    sound = [n for n, error in enumerate(broken) if error is None]
    metrics = [metric for n in sound for metric in needed[n]]
    for day in engine.days:
        engine.day = day
        values, _ = MetricsCalculator(engine).compute_metrics(metrics, _runtime())
        for n in sound:
            if engine.has_rows(day, needed[n]):
                answer = expectations[n].metrics_validate(values, _runtime(), engine)
                found[n].append(Day(day, bool(answer.success), dict(answer.result or {})))
    return [Days(tuple(days), error) for days, error in zip(found, broken, strict=True)]


def _runtime() -> dict[str, Any]:
    return {"result_format": dict(_FORMAT)}


def _needed(expectation: GxExpectation, engine: SparkDFExecutionEngine | None) -> list[MetricConfiguration]:
    return list(expectation.get_validation_dependencies(engine, _runtime()).get_metric_configurations())


def _is_aggregated(name: str, engine: SparkDFExecutionEngine) -> bool:
    if name.endswith(_ROWS) or _OF_OTHER_ROWS in name:
        return _OF_OTHER_ROWS not in name
    try:
        get_metric_provider(f"{name}{_AGGREGATED}", engine)
    except Exception:  # of GX's own kinds
        return False
    return True


def _reason(info: Mapping[str, Any]) -> str:
    found = info.get("exception_info")
    message = getattr(found, "exception_message", None) or (found or {}).get("exception_message")
    return first_line(Exception(message or "unknown"))


class _EngineByDay(SparkDFExecutionEngine):
    """GX's engine on Spark, whose aggregates are those of `day`.

    The first look, with no `day`, computes them for all days. Unexpected rows are not looked up.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.day: date | None = None
        self._by_day: dict[Any, dict[date, Any]] = {}
        self._same: dict[Any, Any] = {}

    @property
    def days(self) -> list[date]:
        return sorted({day for values in self._by_day.values() for day in values})

    def has_rows(self, day: date, needed: Iterable[MetricConfiguration]) -> bool:
        """Whether the expectation that needs these metrics is about any row of this day."""
        domains = {metric.metric_domain_kwargs_id for metric in needed}
        return any(day in values for metric, values in self._by_day.items() if metric[1] in domains)

    def resolve_metrics(
        self,
        metrics_to_resolve: Iterable[MetricConfiguration],
        metrics: dict[Any, Any] | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        others: list[MetricConfiguration] = []
        for metric in metrics_to_resolve:
            if metric.metric_name.endswith(_ROWS):
                found[metric.id] = []
            elif metric.id in self._by_day:
                found[metric.id] = None if self.day is None else self._by_day[metric.id].get(self.day)
            elif metric.id in self._same:
                found[metric.id] = self._same[metric.id]
            else:
                others.append(metric)
        computed = super().resolve_metrics(others, metrics, runtime_configuration)
        self._same |= {m.id: computed[m.id] for m in others if _is_same(m, computed.get(m.id))}
        return found | computed

    def resolve_metric_bundle(self, metric_fn_bundle: Iterable[Any]) -> dict[Any, Any]:
        domains: dict[Any, list[Any]] = {}
        bundle = list(metric_fn_bundle)
        for one in bundle:
            domains.setdefault(str(dict(one.compute_domain_kwargs or {})), []).append(one)
        for several in domains.values():
            rows = self.get_domain_records(dict(several[0].compute_domain_kwargs or {}))
            columns = [one.metric_fn.alias(f"rw_{n}") for n, one in enumerate(several)]
            aggregated = rows.groupBy(RW_DAY).agg(*columns).collect()
            for n, one in enumerate(several):
                values = {row[0]: convert_to_json_serializable(row[n + 1]) for row in aggregated}
                self._by_day[one.metric_configuration.id] = values
        return dict.fromkeys((one.metric_configuration.id for one in bundle), None)


def _is_same(metric: MetricConfiguration, value: Any) -> bool:
    """Whether a metric is the same for all days: the schema, and conditions, each a tuple with a Spark column."""
    return metric.metric_name in _OF_SCHEMA or isinstance(value, tuple)
