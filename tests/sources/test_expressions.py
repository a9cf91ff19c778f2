"""Expressions are functions of the record alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.replay import aggregates
from spark_jobs.sources.expressions import Refused, analyse
from spark_jobs.spark.expression_tree import is_undated

NO_COLUMN = (
    "user", "USER", "current_user", "session_user", "upper(user)", "k = user", "rw_offset", "rw_reason",
    "CASE WHEN v > 1 THEN k ELSE session_user END", "x.user", "_metadata.file_name",
)  # fmt: skip
OF_THE_SESSION = (
    "version()", "current_user()", "user()", "session_user()", "current_timezone()", "current_catalog()",
    "current_database()", "current_schema()", "concat(k, current_user())",
)  # fmt: skip
ANOTHER_VALUE = (
    "rand()", "rand(5)", "randn()", "uuid()", "shuffle(a)", "now()", "current_date", "current_timestamp", "curdate()",
    "unix_timestamp()", "localtimestamp()", "monotonically_increasing_id()", "spark_partition_id()",
    "input_file_name()", "input_file_block_start()", "CAST('now' AS TIMESTAMP)", "TIMESTAMP 'now'", "DATE 'today'",
    "CAST(' Yesterday ' AS DATE)", "randstr(3)", "uniform(1, 5)",
    "aes_encrypt(d, d)", "to_date('now')", "to_timestamp('yesterday')", "CAST('to' || 'day' AS DATE)",
    "TIMESTAMP '10:00'", "CAST('T10:00Z' AS TIMESTAMP)", "to_timestamp('10:00')",
)  # fmt: skip
QUERIES = ("(SELECT max(id) FROM range(5))", "k IN (SELECT k FROM others)", "EXISTS (SELECT 1)")
STARS = ("struct(*)", "to_json(struct(*))", "hash(*)")
ZONE_NAMES = (
    "to_timestamp(k, 'yyyy-MM-dd HH:mm z')", "try_to_timestamp(k, 'EEE MMM dd HH:mm:ss zzz yyyy')",
    "unix_timestamp(k, 'yyyy-MM-dd HH:mm v')", "to_date(k, 'yyyy-MM-dd z')",
)  # fmt: skip
WINDOWS = ("window(to_timestamp(k), '10 min', '5 min')", "session_window(now(), '5 min')")
SHORT_ZONES = (
    "to_utc_timestamp(to_timestamp(k), 'IST')", "from_utc_timestamp(to_timestamp(k), 'cst')",
    "convert_timezone('BST', 'UTC', to_timestamp_ntz(k))", "make_timestamp(2024, 3, 10, 10, 0, 0, 'PST')",
)  # fmt: skip
OF_THE_RECORD = (
    "to_timestamp(k, 'yyyy-MM-dd HH:mm XXX')", 'to_timestamp(k, "HH:mm\'z\'")', "to_timestamp(k, 'yyyy-MM-dd VV')",
    "k", "`user name`", "x.y", "x.user_id", "a[0]", "transform(a, i -> i + 1)", "aggregate(a, 0, (s, i) -> s + i)",
    "pi() * v", "e()", "nvl(k, 'now')", "CASE WHEN k = 'now' THEN 1 END", "array()", "map()",
    "aes_encrypt(d, d, 'ECB')",
    "from_json(k, 'a INT').a", "date_trunc('hour', to_timestamp(k))", "TIMESTAMP '2024-07-01 00:00:00Z'",
    "to_utc_timestamp(to_timestamp(k), 'Europe/Berlin')", "zeroifnull(v)", "k LIKE 'a%'", "v BETWEEN 1 AND 5",
    "unix_timestamp(k)", "current", "nullif(k, 'x')", "k COLLATE UTF8_LCASE = 'a'", "v BETWEEN 2 AND v + 1",
)  # fmt: skip


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    schema = "k STRING, v BIGINT, a ARRAY<INT>, d BINARY, x STRUCT<y: INT, user_id: INT>, `user name` STRING, "
    yield spark.createDataFrame([], schema + "current STRING, rw_offset BIGINT, rw_reason STRING")


def test_a_name_must_be_a_column_and_a_function_one_of_the_record(frame: DataFrame) -> None:
    for text in NO_COLUMN:
        refused = analyse(frame, text)
        assert isinstance(refused, Refused), text
        assert refused.is_missing, (text, refused)
        assert refused.what.startswith("there is no column `"), (text, refused)
    for texts, what in ((OF_THE_SESSION, "is no function of the record"), (ANOTHER_VALUE, "another value at each run")):
        for text in texts:
            refused = analyse(frame, text)
            assert isinstance(refused, Refused), text
            assert what in refused.what, (text, refused)
    for texts, what in ((QUERIES, "holds a query"), (STARS, "Rewindow's own columns"), (ZONE_NAMES, "zone's name"),
                        (WINDOWS, "windows of its own"), (SHORT_ZONES, "is not clear")):  # fmt: skip
        for text in texts:
            refused = analyse(frame, text)
            assert isinstance(refused, Refused), text
            assert what in refused.what, (text, refused)
    for text in OF_THE_RECORD:
        assert not isinstance(analyse(frame, text), Refused), text


def test_a_function_of_arrays_may_use_no_more(frame: DataFrame) -> None:
    """The clock, the session and zones that are not clear are seen within its lambda functions, too."""
    for text in (*ANOTHER_VALUE, *OF_THE_SESSION, *QUERIES, *ZONE_NAMES, *SHORT_ZONES):
        assert isinstance(analyse(frame, f"transform(a, i -> {text})"), Refused), text
    for text in ("date_add(current_date(), i)", "to_date('now') > to_date(k)", "datediff(curdate(), to_date(k))"):
        assert isinstance(analyse(frame, f"exists(a, i -> {text} IS NULL)"), Refused), text
    assert not isinstance(analyse(frame, "transform(array(k), i -> to_date(i))"), Refused)


def test_an_instant_that_is_read_without_a_year_is_none(spark: SparkSession) -> None:
    for text in ("to_timestamp(k, 'HH:mm')", "unix_timestamp(k, 'MM-dd HH:mm')", "try_to_timestamp(k, \"HH:mm'y'\")"):
        assert is_undated(spark, text), text
    for text in (
        "to_timestamp(k, 'yyyy-MM-dd HH:mm')",
        "to_timestamp(k)",
        "unix_timestamp(d, 'yyyy-MM-dd') + unix_timestamp(k, 'HH:mm')",
        "v",
    ):
        assert not is_undated(spark, text), text


def test_an_aggregate_uses_the_record_and_its_position_alone(frame: DataFrame) -> None:
    for text in (
        "user",
        "rw_reason",
        "current_user()",
        "now()",
        "rand()",
        "struct(*)",
        "(SELECT max(id) FROM range(5))",
    ):
        assert list(aggregates.problems(frame.sparkSession, frame, f"max({text})")), text
    for text in ("count(*)", "sum(v) / count(*)", "max_by(k, struct(v, rw_offset))", "sort_array(collect_list(k))"):
        assert aggregates.foreign(frame, text) is None, text
