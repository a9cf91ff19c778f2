"""Suites are read without Great Expectations or Spark; what is wrong with them is said with its place and a hint."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.quality.gate import check_suites
from spark_jobs.quality.resolve import SuiteScope, fit
from spark_jobs.quality.suites import Data, load_suites
from tests.quality.conftest import EXPECTATIONS, FLIGHTS, ROOT
from tests.quality.small_suites import BETWEEN, between, own


def test_the_reviewed_suites_of_the_samples_can_be_checked() -> None:
    for file in sorted(FLIGHTS.parent.glob("*.yaml")):
        pipeline = load_pipeline(file)
        suites = load_suites(pipeline)
        check_suites(suites, pipeline)
        common = [data for data in Data if data.is_required or pipeline.live is not None]
        assert [s.name for s in suites.suites][: len(common)] == common
        assert suites.folder == str(EXPECTATIONS)


def test_the_suite_of_the_page_can_be_checked(suites_folder) -> None:
    pipeline = load_pipeline(FLIGHTS)
    found = []
    for text in re.findall(r"^```json\n(.*?)^```", (ROOT / "docs/gate.md").read_text(), re.DOTALL | re.MULTILINE):
        suites_folder("departures_hourly.json", text)
        suites = load_suites(pipeline)
        check_suites(suites, pipeline)
        found += [(one.name, one.by) for one in suites.suites[-1].expectations]
    assert found == [("longest-plausible", None), ("flights-each-day", "day")]


def test_reading_suites_imports_neither_great_expectations_nor_spark() -> None:
    program = (
        "import sys; from spark_jobs.quality.suites import load_suites; from spark_jobs.definition import *;"
        "from spark_jobs.quality.resolve import *; p = load_pipeline(sys.argv[1]); fit(load_suites(p), SuiteScope(p));"
        "print([m for m in ('great_expectations', 'pyspark', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(FLIGHTS)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_placeholders_become_the_pipelines_columns() -> None:
    pipeline = load_pipeline(FLIGHTS)
    fitted, _ = fit(load_suites(pipeline), SuiteScope(pipeline))
    kwargs = {one.written.name: one.kwargs for one in fitted}
    assert kwargs["windows-unique"]["column_list"] == ["carrier", "window_start", "window_end"]
    assert kwargs["keys-not-null"]["column"] == "carrier"


def test_an_expectation_of_each_aggregate_and_its_twin(suites_folder) -> None:
    pair = {"column_A": "$complete", "column_B": "$aggregate", "or_equal": True}
    suites_folder("departures_hourly.json", own(between(type="expect_column_pair_values_to_be_equal", kwargs=pair)))
    pipeline = load_pipeline(FLIGHTS)
    fitted, _ = fit(load_suites(pipeline), SuiteScope(pipeline))
    pairs = [(f.kwargs["column_A"], f.kwargs["column_B"]) for f in fitted if f.suite.name == "own"]
    assert pairs == [(f"{a}__complete", a) for a in ("flights", "distance", "shortest", "longest")]


def test_a_pipeline_can_leave_a_common_expectation_out(suites_folder) -> None:
    suites_folder("departures_hourly.json", own(leave_out=["windows/keys-not-null"]))
    pipeline = load_pipeline(FLIGHTS)
    _, left_out = fit(load_suites(pipeline), SuiteScope(pipeline))
    assert [(one.written.name, one.reason) for one in left_out] == [
        ("keys-not-null", "the pipeline's suite leaves it out")
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "own.json:1: not JSON: Expecting property name"),
        ("[]", "not an expectation suite; write"),
        ('{"expectations": []}', "name: the suite has no name"),
        (own(between(severity="fatal")), "expectations[0].severity: 'fatal' is none of these; write one of critical"),
        (own(between(meta={"data": "wndows"})), "expectations[0].meta.data: 'wndows' is none of these"),
        (own(between(meta={"when": "grit"})), "expectations[0].meta.when: 'grit' is none of these; write one of grid"),
        (own(between(meta={"dtaa": "windows"})), "expectations[0].meta.dtaa: is not known here; did you mean `data`?"),
        (own(between(kwarg={})), "expectations[0].kwarg: is not known here; did you mean `kwargs`?"),
        (own({"kwargs": {}}), "expectations[0]: not an expectation"),
        (own(between(kwargs=[])), "expectations[0].kwargs: not an object"),
        (own(between(kwargs={"result_format": "COMPLETE"})), "kwargs.result_format: is decided by the gate"),
        (own(between(meta={"name": "x"}), between(meta={"name": "x"})), "[1].meta.name: `windows/x` is there twice"),
        (own(leave_out=["windows/keys-not-nul"]), "did you mean `windows/keys-not-null`?"),
        (own(leave_out="all"), "meta.leave_out: not a list of names"),
        (json.dumps({"name": "own", "expectations": [between()]}), "expectations[0].meta.data: is missing"),
        (own(between(meta={"by": "week"})), "expectations[0].meta.by: 'week' is none of these; write one of day"),
        (
            own(between(meta={"by": "day", "data": "reconciliation"})),
            "meta.by: the data `reconciliation` has a row for each day, so that a result names the day as it is; leave",
        ),
    ],
)
def test_a_broken_suite_is_refused(suites_folder, text, message) -> None:
    suites_folder("departures_hourly.json", text)
    with pytest.raises(DefinitionError) as refusal:
        load_suites(load_pipeline(FLIGHTS))
    assert message.replace("own.json", "departures_hourly.json") in str(refusal.value)


def conditional(condition: str, parser: str = "spark") -> dict:
    """An expectation for the rows for which a condition holds."""
    return between(kwargs={"column": "flights", "min_value": 0, "row_condition": condition, "condition_parser": parser})


def unexpected_rows(query: str) -> dict:
    """An expectation that a query gives no row."""
    return between(type="unexpected_rows_expectation", kwargs={"unexpected_rows_query": query})


def test_a_condition_on_columns_that_are_there_is_accepted(suites_folder) -> None:
    conditions = ["flights > 0 AND carrier IS NOT NULL", "upper(`carrier`) = 'AA x'", "CAST(flights AS INT) > 5"]
    queries = [
        "SELECT * FROM {batch} WHERE flights < 0 AND carrier <> 'a name' -- no flight",
        "SELECT b.carrier, count(*) AS n FROM {batch} AS b WHERE b.flights > 1 GROUP BY b.carrier HAVING n > 3",
        "select distinct carrier c, CAST(flights AS DOUBLE) / 2 half from {batch} where `flights` BETWEEN 1 AND 2e3",
        "SELECT *, row_number() OVER (PARTITION BY carrier ORDER BY window_start DESC) AS r FROM {batch}",
        "WITH x AS (SELECT flights AS f FROM {batch}) SELECT f FROM x",
        "SELECT a.carrier FROM {batch} AS a LEFT JOIN {batch} b ON a.carrier = b.carrier AND a.flights > b.flights",
        "SELECT s.n FROM (SELECT carrier, count(*) n FROM {batch} GROUP BY carrier) s JOIN {batch} USING (carrier)",
        "SELECT * FROM {batch} WHERE flights > (SELECT max(t.a) FROM (SELECT flights FROM {batch}) AS t(a))",
        "SELECT * FROM {batch} WHERE aggregate(sequence(1, flights), 0, (sum, x) -> sum + x) < 0",
        "SELECT CASE WHEN flights > 0 THEN carrier END label FROM {batch} UNION ALL SELECT carrier FROM {batch}",
        "SELECT * FROM {batch} JOIN lake.other.t ON t.its_own = carrier",
        "SELECT * FROM {batch} f, lake.other.t WHERE its_own > 0",
        "SELECT flights::varchar(3), mask(carrier, upperChar => 'x') FROM {batch} WINDOW w AS (ORDER BY carrier)",
        "SELECT ) ( FROM {batch} AS (",
    ]
    expectations = [*(conditional(text, "spark") for text in conditions), *map(unexpected_rows, queries)]
    suites_folder("departures_hourly.json", own(*expectations))
    pipeline = load_pipeline(FLIGHTS)
    check_suites(load_suites(pipeline), pipeline)


@pytest.mark.parametrize(
    ("expectation", "message"),
    [
        (between(type="expect_column_values_to_be_betwen"), "did you mean `expect_column_values_to_be_between`?"),
        (
            between(kwargs={"column": "flights", "minimum": 0}),
            "kwargs.minimum: " + BETWEEN + ": minimum: no such kwarg",
        ),
        (between(kwargs={"column": "flights"}), BETWEEN + ": min_value and max_value cannot both be None"),
        (
            between(kwargs={"column": "flight", "min_value": 0}),
            "'flight' is no column of the windows; did you mean `fl",
        ),
        (
            between(type="expect_column_median_to_be_between", meta={"by": "day"}),
            "meta.by: expect_column_median_to_be_between cannot be checked by day: it needs more than counts of rows, "
            "or a sum; leave `by` out",
        ),
        (
            between(kwargs={"column": "$keyz", "min_value": 0}),
            "'$keyz' is no placeholder for a column; write one of $key",
        ),
        (between(kwargs={"column": "flights", "min_value": {"$PARAMETER": "now"}}), "'now' is no parameter; the gate"),
        (conditional("recordz > 5"), "'recordz' is no column of the windows"),
        (
            conditional('col("carier") == "AA"', "great_expectations"),
            "'carier' is no column of the windows; did you mean",
        ),
        (unexpected_rows("SELECT * FROM {batch} WHERE flihgts < 0"), "'flihgts' is no column of the windows; did you"),
        (unexpected_rows("SELECT b.carier AS c FROM {batch} b WHERE c > 1"), "'carier' is no column of the windows"),
        (
            unexpected_rows("SELECT * FROM {batch} a JOIN {batch} b ON a.carrier = b.carier"),
            "'carier' is no column of the windows; did you mean `carrier`?",
        ),
        (
            unexpected_rows("SELECT * FROM {batch} WHERE flights > (SELECT avg(flihgts) FROM {batch})"),
            "'flihgts' is no column of the windows",
        ),
        (
            unexpected_rows("WITH x AS (SELECT flights AS f FROM {batch}) SELECT f FROM x WHERE x.g > 1"),
            "'g' is no column of the windows",
        ),
        (unexpected_rows("SELECT * FROM {batch} WHERE exists(array(1), x -> x > limt)"), "'limt' is no column"),
        (between(meta={"data": "input"}), "'flights' is no column of the input; the columns are partition, records"),
        (between(type="expect_rows_to_be_unique_by_columns", kwargs={"column_list": []}), "column_list"),
        (between(kwargs={"column": "flights", "min_value": 0, "mostly": "half"}), "kwargs.mostly"),
    ],
)
def test_what_cannot_be_checked_is_refused_before_a_run(suites_folder, expectation, message) -> None:
    suites_folder("departures_hourly.json", own(between(), expectation))
    pipeline = load_pipeline(FLIGHTS)
    with pytest.raises(DefinitionError) as refusal:
        check_suites(load_suites(pipeline), pipeline)
    assert message in str(refusal.value)
    assert "expectations[1]" in str(refusal.value)
    assert "expectations[0]" not in str(refusal.value)


def test_a_problem_names_its_line(suites_folder) -> None:
    folder = suites_folder("departures_hourly.json", own(between(), between(severity="fatal")))
    with pytest.raises(DefinitionError) as refusal:
        load_suites(load_pipeline(FLIGHTS))
    [problem] = refusal.value.problems
    lines = (folder / "departures_hourly.json").read_text().splitlines()
    assert "fatal" in lines[problem.line - 1]


def test_a_folder_without_the_common_suites_is_refused(suites_folder) -> None:
    folder = suites_folder("departures_hourly.json", own())
    (folder / "input.json").unlink()
    with pytest.raises(DefinitionError, match=r"input\.json:1: there is no such file"):
        load_suites(load_pipeline(FLIGHTS))
    with pytest.raises(DefinitionError, match="there is no folder of expectations"):
        load_suites(load_pipeline(FLIGHTS), folder / "nowhere")
