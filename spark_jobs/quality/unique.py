"""An expectation of our own: some columns together identify each row. GX's own takes too long on many windows.

`expect_compound_columns_to_be_unique` numbers the rows of each group, so Spark sorts all rows, twice. Here Spark counts
a 64-bit hash of each row; only where a hash occurs twice are the values themselves compared. Where one aggregation by
these columns has made the rows, nothing is counted. Importing this module imports Great Expectations, and registers the
expectation there.
"""

from __future__ import annotations

from typing import Any, ClassVar

from great_expectations.compatibility import pydantic
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine import ExecutionEngine, SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.validator.metric_configuration import MetricConfiguration
from pyspark.sql import functions as F

SAMPLES = 5
_ROWS_A_TASK = 150_000
"""So many hashes fit into a processor's cache while they are counted; with more, each row takes longer."""
_MAX_TASKS = 2_000
_ROW_COUNT = "table.row_count"


class RepeatedRows(TableMetricProvider):
    """Rows with the same values as another row: how many too many, and some of their values."""

    metric_name = "table.repeated_rows"
    value_keys = ("column_list", "known_distinct")

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> dict[str, Any]:
        if metric_value_kwargs.get("known_distinct"):
            return {"surplus": 0, "samples": []}
        frame, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        columns = [F.col(f"`{name}`") for name in metric_value_kwargs["column_list"]]
        hashes = frame.select(F.xxhash64(*columns).alias("rw_hash"))
        tasks = min(metrics[_ROW_COUNT] // _ROWS_A_TASK, _MAX_TASKS)
        if tasks > int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions")):
            hashes = hashes.repartition(tasks, "rw_hash")
        several = hashes.groupBy("rw_hash").agg(F.count("*").alias("rw_rows")).where("rw_rows > 1")
        if not several.agg(F.count("*")).collect()[0][0]:
            return {"surplus": 0, "samples": []}
        groups = frame.groupBy(*columns).agg(F.count("*").alias("rw_rows")).where("rw_rows > 1")
        surplus = groups.agg(F.sum(F.col("rw_rows") - 1)).collect()[0][0]
        samples = groups.orderBy(*columns).limit(SAMPLES).collect()
        return {"surplus": int(surplus or 0), "samples": [row.asDict() for row in samples]}

    @classmethod
    def _get_evaluation_dependencies(
        cls,
        metric: MetricConfiguration,
        configuration: ExpectationConfiguration | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> dict[str, MetricConfiguration]:
        needed = super()._get_evaluation_dependencies(metric, configuration, execution_engine, runtime_configuration)
        return {**needed, _ROW_COUNT: MetricConfiguration(_ROW_COUNT, metric.metric_domain_kwargs)}


class ExpectRowsToBeUniqueByColumns(BatchExpectation):
    """Expect no two rows to have the same values in `column_list`; nulls count as equal. Spark only.

    The gate sets `known_distinct` where one aggregation by these columns has made the rows: they are not read then.
    """

    column_list: list[str] = pydantic.Field(min_items=1)  # pyright: ignore[reportCallIssue, reportArgumentType]
    known_distinct: bool = False

    metric_dependencies: ClassVar[tuple[str, ...]] = ("table.repeated_rows", _ROW_COUNT)
    success_keys: ClassVar[tuple[str, ...]] = ("column_list", "known_distinct")
    args_keys: ClassVar[tuple[str, ...]] = ("column_list",)

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
    ) -> dict[str, Any]:
        found, rows = metrics["table.repeated_rows"], metrics[_ROW_COUNT]
        surplus = found["surplus"]
        return {
            "success": surplus == 0,
            "result": {
                "element_count": rows,
                "unexpected_count": surplus,
                "unexpected_percent": surplus / rows * 100 if rows else 0.0,
                "partial_unexpected_index_list": found["samples"],
            },
        }
