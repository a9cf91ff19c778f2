"""Keys that are equal to a join are one window, whatever their bits or their nulls."""

from __future__ import annotations

import pytest

from spark_jobs.comparison.join_keys import hashed_columns, with_window_hash


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("0.0D", "-0.0D"),
        ("float('0.0')", "float('-0.0')"),
        ("double('NaN')", "-double('NaN')"),
        ("1.50BD", "1.5BD"),
        ("CAST(NULL AS STRING)", "CAST(NULL AS STRING)"),
        ("CAST(NULL AS DOUBLE)", "CAST(NULL AS DOUBLE)"),
        ("TIMESTAMP '2013-01-01 00:00:00Z'", "TIMESTAMP '2013-01-01 01:00:00+01:00'"),
    ],
)
def test_equal_keys_are_one_window(spark, one: str, same: str) -> None:
    rows = spark.sql(
        f"SELECT {one} AS k, 0L AS window_start, 60000L AS window_end, 'one' AS side "
        f"UNION ALL SELECT {same}, 0L, 60000L, 'same'"
    )
    placed = with_window_hash(rows, ("k",))
    left, right = placed.where("side = 'one'"), placed.where("side = 'same'")
    assert left.join(right, hashed_columns(("k",))).count() == 1


@pytest.mark.parametrize(
    "key", ["TIMESTAMP '2013-01-01 00:00:00.00000{}Z'", "TIMESTAMP_NTZ '2013-01-01 00:00:00.00000{}'"]
)
@pytest.mark.parametrize("inside", ["{}", "named_struct('t', {})", "array({})"])
def test_keys_that_are_a_microsecond_apart_are_two_windows(spark, key: str, inside: str) -> None:
    one, other = (inside.format(key.format(n)) for n in (1, 2))
    window = "0L AS window_start, 60000L AS window_end"
    rows = spark.sql(f"SELECT {one} AS k, {window} UNION ALL SELECT {other}, {window}")
    assert with_window_hash(rows, ("k",)).select(*hashed_columns(("k",))).distinct().count() == 2


@pytest.mark.parametrize(("null", "value"), [("CAST(NULL AS STRING)", "''"), ("CAST(NULL AS DOUBLE)", "0D")])
def test_a_null_is_another_window_than_what_stands_for_it(spark, null: str, value: str) -> None:
    rows = spark.sql(
        f"SELECT {null} AS k, 0L AS window_start, 60000L AS window_end UNION ALL SELECT {value}, 0L, 60000L"
    )
    assert with_window_hash(rows, ("k",)).select(*hashed_columns(("k",))).distinct().count() == 2
