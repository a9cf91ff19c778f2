"""A live job's own functions in a definition: their values, their failures, and what is refused."""

# pyright: reportArgumentType=false

from __future__ import annotations

import statistics
from collections import defaultdict

import pytest

from spark_jobs.errors import DefinitionError, RewindowError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.progress import LogProgress
from spark_jobs.sources import check_expressions
from tests.functions.definitions import JAVA, READING, defined
from tests.runs.small_runs import MINUTE, T0, run, write
from tests.runs.small_runs import record as plain_record


def record(i: int, **other) -> dict:
    return plain_record(i, **{"k": f" {'ab'[i % 3 == 0]}{'x' * (i % 4)} ", **other})


def test_the_values_are_those_of_the_functions_called_by_hand(spark, project) -> None:
    records = [record(i) for i in range(120)]
    write(project / "data", records[::2])
    write(project / "data", records[1::2], "part-1.json")
    pipeline = defined(project, "values")
    run(spark, pipeline)
    groups: dict[tuple[int, str], list[dict]] = defaultdict(list)
    for one in records:
        groups[(one["t"] - T0) // MINUTE, one["k"].strip().upper()].append(one)
    found = {
        ((row.window_start.timestamp() * 1000 - T0) // MINUTE, row.k): row
        for row in spark.table(Tables.of(pipeline).windows).collect()
    }
    assert found.keys() == groups.keys()
    for key, group in groups.items():
        in_order = sorted(group, key=lambda one: (one["a"], one["p"], one["o"]))
        values, row = [one["v"] for one in in_order], found[key]
        assert row.q == row.k
        assert row.med__complete == statistics.median(values)
        assert row.way__complete == row.py_way__complete == "".join(f">{v}" for v in values)
        assert row.at_last__complete == max(one["t"] for one in group)
        assert row.mean__complete == pytest.approx(sum(v * v for v in values) / sum(values) if sum(values) else None)
        assert row.word__complete == len(key[1])
        assert row.double__complete == 2 * sum(values)
        assert row.top__complete == sorted(values, reverse=True)[:2]
        assert row.half_of__complete == statistics.median(values) / 2 + len(values)
        large = [v for v in values if v > 10]
        assert row.some__complete == (statistics.median(large) if large else None)
        if row.records_dropped == 0:
            assert (row.med, row.way, row.top) == (row.med__complete, row.way__complete, row.top__complete)


@pytest.mark.parametrize(
    "window", ["{type: sliding, size: 1 min, slide: 20 s}", "{type: session, gap: 15 s}"], ids=["sliding", "session"]
)
def test_an_own_median_is_sparks_in_other_windows_too(spark, project, window) -> None:
    write(project / "data", [record(i) for i in range(90)])
    aggregates = {"own": f"median_of({READING})", "sparks": "percentile(v, 0.5)", "way": "way(v)"}
    pipeline = defined(project, "others", aggregates=aggregates, window=window)
    run(spark, pipeline)
    rows = spark.table(Tables.of(pipeline).windows).collect()
    assert len(rows) > 4
    assert all((row.own, row.own__complete) == (row.sparks, row.sparks__complete) for row in rows)


def test_each_firing_has_its_own_value(spark, project) -> None:
    write(project / "data", [record(i, k="a") for i in range(60)] + [record(60, k="a", t=T0 + 5_000)])
    aggregates = {"n": "count(*)", "own": f"median_of({READING})", "way": "way(v)"}
    more = "panes: all\nallowed_lateness: 10 min\n"
    pipeline = defined(project, "firings", aggregates=aggregates, keys="{k: tidy(k)}", more=more)
    run(spark, pipeline)
    panes = spark.table(Tables.of(pipeline).windows).orderBy("window_start", "pane").collect()
    later = [row for row in panes if row.pane > 0]
    assert later
    for row in panes:
        values = list(map(int, row.way.split(">")[1:]))
        assert len(values) == row.n
        assert row.own == statistics.median(values)


def test_a_record_on_which_a_function_fails_is_quarantined_with_its_words(spark, project) -> None:
    write(project / "data", [record(i, k="#" if i in (3, 8) else "a") for i in range(20)])
    for name, key in (("java_fails", "tidy(k)"), ("python_fails", "py_tidy(k)")):
        pipeline = defined(project, name, keys=f"{{k: {key}}}", aggregates={"n": "count(*)"})
        run(spark, pipeline)
        reasons = [row.reason for row in spark.table(Tables.of(pipeline).quarantine).collect()]
        assert len(reasons) == 2
        assert all("failed with" in reason and "no sign in #" in reason for reason in reasons), reasons
        assert sum(row.n__complete for row in spark.table(Tables.of(pipeline).windows).collect()) == 18


HIVE = {
    "shout": "{jar: jobs/job.jar, class: job.Shout, returns: STRING}",
    "joined": "{jar: jobs/job.jar, class: job.Joined}",
    "spread": "{jar: jobs/job.jar, class: job.Spread, returns: 'STRUCT<range: DOUBLE, values: ARRAY<DOUBLE>>'}",
    "old_sum": "{jar: jobs/job.jar, class: job.OldSum, returns: BIGINT}",
    "old_total": "{jar: jobs/job.jar, class: job.OldSum, returns: DOUBLE}",
}


def test_classes_of_hive_choose_their_method_by_the_types_and_fail_record_by_record(spark, project) -> None:
    records = [record(i, k="#" if i == 7 else "a") for i in range(60)]
    write(project / "data", records)
    aggregates = {
        "spread": "spread(v).range",
        "way": "spread(CAST(v AS DECIMAL(10, 2))).values",
        "whole": "old_sum(v)",
        "double": "old_total(CAST(v AS DOUBLE) / 2)",
        "few": "old_sum(v) FILTER (WHERE v < 5)",
    }
    keys = "{k: 'shout(k, 2)', j: 'joined(k, v % 2)', one: joined(k), n: 'shout(v % 2, 1)'}"
    pipeline = defined(project, "of_hive", functions=HIVE, aggregates=aggregates, keys=keys)
    run(spark, pipeline)
    (failed,) = spark.table(Tables.of(pipeline).quarantine).collect()
    assert "shout() failed with" in failed.reason and "no shouting of #" in failed.reason
    rows = spark.table(Tables.of(pipeline).windows).collect()
    assert sum(row.whole__complete for row in rows) == sum(one["v"] for one in records) - 7
    for row in rows:
        minute = (row.window_start.timestamp() * 1000 - T0) // MINUTE
        group = [r for r in records if (r["t"] - T0) // MINUTE == minute and r["v"] % 2 == int(row.n) and r["k"] != "#"]
        values = [one["v"] for one in sorted(group, key=lambda one: (one["a"], one["p"], one["o"]))]
        assert (row.k, row.j, row.one) == ("AA", f"a/{row.n}", "a")
        assert row.spread__complete == max(values) - min(values)
        assert row.way__complete == values
        assert (row.whole__complete, row.double__complete) == (sum(values), sum(values) / 2)
        small = [v for v in values if v < 5]
        assert row.few__complete == (sum(small) if small else None)


@pytest.mark.parametrize("kind", ["java", "python"])
def test_an_aggregate_that_fails_names_function_key_window_and_record(spark, project, kind) -> None:
    write(project / "data", [record(i, k="a") for i in range(60)])
    code = (
        "{jar: jobs/job.jar, class: job.Fragile}"
        if kind == "java"
        else "{python: jobs.words.Fragile, returns: ARRAY<BIGINT>}"
    )
    call = f"fragile({READING})" if kind == "java" else "fragile(v)"
    pipeline = defined(project, f"fragile_{kind}", functions={"fragile": code}, aggregates={"f": call}, keys="{k: k}")
    with pytest.raises(RewindowError) as failed:
        run(spark, pipeline)
    text = str(failed.value)
    assert "function `fragile`" in text
    assert "too much: 51" in text
    assert "k" in text and "window of the records from" in text


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("{jar: jobs/none.jar, class: job.Median}", "the project has no jar `jobs/none.jar`"),
        ("{jar: jobs/job.jar, class: job.Nobody}", "has no class `job.Nobody`"),
        ("{jar: jobs/job.jar, class: job.Plain}", "is no function that can be called"),
        ("{jar: jobs/job.jar, class: job.Needy}", "has no constructor without arguments"),
        ("{jar: jobs/job.jar, class: job.Latest}", "does not say the type of its result"),
        ("{jar: jobs/job.jar, class: job.Median, returns: NUMBER}", "is no type"),
        ("{python: jobs.nothing.f, returns: STRING}", "has no module `jobs.nothing`"),
        ("{python: jobs.words.nothing, returns: STRING}", "has no function or class `nothing`"),
        ("{python: jobs.words.Half, returns: STRING}", "class `Half` has no method `add`"),
    ],
)
def test_code_that_cannot_be_called_is_refused_at_its_line(spark, project, code, words) -> None:
    (project / "data").mkdir()
    write(project / "data", [record(0)])
    pipeline = defined(project, "refused", functions={"f": code}, aggregates={"n": "count(*)"}, keys="{}")
    with pytest.raises(DefinitionError) as refused:
        check_expressions(spark, pipeline)
    assert words in str(refused.value)
    assert "refused.yaml:" in str(refused.value)
    assert "functions.f" in str(refused.value)


def test_a_name_of_sparks_own_is_refused(spark, project) -> None:
    write(project / "data", [record(0)])
    pipeline = defined(
        project, "taken", functions={"median": JAVA["median_of"]}, aggregates={"n": "count(*)"}, keys="{}"
    )
    with pytest.raises(DefinitionError, match="`median` is a function of Spark SQL"):
        check_expressions(spark, pipeline)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("{jar: /etc/x.jar, class: a.B}", "is no file of the project"),
        ("{jar: ../x.jar, class: a.B}", "is no file of the project"),
        ("{jar: jobs/x.jar}", "does not name the class"),
        ("{jar: jobs/x.jar, python: a.b, class: a.B}", "names no code, or twice"),
        ("{python: a.b}", "Python does not say a type"),
        ("{python: b, returns: STRING}", "names no function of a module"),
    ],
)
def test_a_definition_that_names_no_code_of_the_project_is_refused_where_dags_are_parsed(project, code, words) -> None:
    with pytest.raises(DefinitionError, match=words):
        defined(project, "unnamed", functions={"f": code}, aggregates={"n": "count(*)"}, keys="{}")


def test_changed_code_is_another_definition(project) -> None:
    def made() -> str:
        return defined(project, "hashed", keys="{}").definition_hash

    first = made()
    assert made() == first
    helper = project / "jobs" / "letters.py"
    helper.write_text(helper.read_text().replace("upper()", "lower()"))
    second = made()
    with (project / "jobs" / "job.jar").open("ab") as jar:
        jar.write(b"\0")
    assert len({first, second, made()}) == 3


def test_a_changed_module_and_a_changed_jar_are_what_runs(spark, project) -> None:
    write(project / "data", [record(i, k="a") for i in range(5)])
    options = {"aggregates": {"n": "count(*)"}, "keys": "{q: py_tidy(k)}"}
    pipeline = defined(project, "before", **options)
    run(spark, pipeline)
    assert {row.q for row in spark.table(Tables.of(pipeline).windows).collect()} == {"A"}
    helper = project / "jobs" / "letters.py"
    helper.write_text(helper.read_text().replace("text.upper()", "text.upper() + '!'"))
    pipeline = defined(project, "after", **options)
    run(spark, pipeline)
    assert {row.q for row in spark.table(Tables.of(pipeline).windows).collect()} == {"A!"}


def test_a_plan_says_what_depends_on_the_order_or_on_chance(spark, project) -> None:
    write(project / "data", [record(i, k="a") for i in range(30)])
    words = project / "jobs" / "words.py"
    words.write_text(words.read_text() + "\n\nimport random\n\n\ndef dice(records):\n    return random.random()\n")
    functions = {
        "way": "{jar: jobs/job.jar, class: job.Path}",
        "asked_for": "{jar: jobs/job.jar, class: job.Path, ordered: true}",
        "median_of": JAVA["median_of"],
    }
    aggregates = {"way": "way(v)", "asked_for": "asked_for(v)", "med": f"median_of({READING})"}
    said = make_plan(
        spark, defined(project, "order", functions=functions, aggregates=aggregates, keys="{k: k}")
    ).warnings
    assert [text for text in said if "depends on the order" in text] == [
        "aggregate `way` depends on the order of the records, which is taken from their positions; where the live job "
        "depends on it too, write `ordered: true` for its function"
    ]
    assert not any("called again" in text for text in said)
    functions = {"dice": "{python: jobs.words.dice, returns: DOUBLE, aggregate: true, ordered: true}"}
    pipeline = defined(project, "chance", functions=functions, aggregates={"d": "dice(v)"}, keys="{k: k}")
    assert any("called again" in text for text in make_plan(spark, pipeline).warnings)


def test_nights_end_in_the_tables_of_one_full_run(spark, project) -> None:
    records = [record(i) for i in range(150)]
    aggregates = {"n": "count(*)", "med": f"median_of({READING})", "way": "way(v)", "top": "py_top(v)"}
    nightly = defined(project, "own_nights", aggregates=aggregates)
    incremental = []
    for night in range(3):
        write(project / "data", records[night * 50 : night * 50 + 50], f"part-{night}.json")
        incremental.append(reconcile(spark, nightly, LogProgress()).continued_from is not None)
    assert any(incremental)
    full = defined(project, "own_full", aggregates=aggregates)
    run(spark, full)
    kept = ("run_id", "valid_from", "valid_to", "revision", "cause", "as_of")
    nights, whole = (
        sorted(map(repr, spark.table(Tables.of(one).windows).where("valid_to IS NULL").drop(*kept).collect()))
        for one in (nightly, full)
    )
    assert nights == whole
