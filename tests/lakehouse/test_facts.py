"""Branches of the published table, while others commit to it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from spark_jobs.lakehouse.facts import Facts


def test_branches_are_changed_also_while_others_change_theirs(spark: SparkSession) -> None:
    """Iceberg alone gives up with `Table metadata refresh is required` about once in ten times."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.facts_tests")
    table = "rewindow.facts_tests.busy"
    spark.sql(f"CREATE TABLE {table} (n BIGINT) USING iceberg")
    spark.range(3).selectExpr("id AS n").writeTo(table).append()
    facts = Facts(spark, table)
    head = facts.head()

    def change(name: str) -> int:
        for number in range(15):
            facts._alter(f"CREATE OR REPLACE BRANCH {name} AS OF VERSION {head}")
            if number % 5 == 4:
                spark.range(1).selectExpr("id AS n").writeTo(f"{table}.branch_{name}").append()
        return number

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(change, ("a", "b", "c"))) == [14] * 3
    assert facts.head() == head and set(facts._refs()) == {"main", "a", "b", "c"}
