"""A definition that changes: a full run leaves what one into an empty table leaves, and nothing of the old one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.spec import Panes
from spark_jobs.report.changed import changed_windows
from spark_jobs.report.counted import Facts
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.definition_change import since_last_run, with_change
from spark_jobs.runs.planning.last_run import remember
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.small_nights import rows
from tests.runs.small_runs import MINUTE, definition_text, record, write
from tests.sampling import IN_FULL, in_turn, sample

TEN = "window: {type: tumbling, size: 10 min}"
ONE = "window: {type: tumbling, size: 1 min}"
WINDOWS = {
    "smaller windows": (TEN, ONE),
    "sliding to tumbling": ("window: {type: sliding, size: 10 min, slide: 1 min}", ONE),
    "another offset": (
        "window: {type: tumbling, size: 10 min, offset: 3 min}",
        "window: {type: tumbling, size: 10 min, offset: 5 min}",
    ),
    "tumbling to sessions": (TEN, "window: {type: session, gap: 2 min}"),
    "sessions to tumbling": ("window: {type: session, gap: 2 min}", ONE),
}
TEXTS = {
    "a narrower filter": ("keys:", "filter: {before_watermark: v > 150}\nkeys:"),
    "a filter that takes the last records away": (
        "keys:",
        "filter: {before_watermark: v < 200 or (v > 320 and p = 0)}\nkeys:",
    ),
    "a filter that takes a partition away": ("keys:", "filter: {before_watermark: p = 0}\nkeys:"),
    "event time moved by an hour": ("{expression: t,", "{expression: t + 3600000,"),
    "a key removed": ("keys: {k: k}", "keys: {}"),
    "a key renamed": ("keys: {k: k}", "keys: {kk: k}"),
    "a key added": ("keys: {k: k}", "keys: {k: k, odd: v % 2}"),
    "a key of another meaning": ("keys: {k: k}", "keys: {k: upper(k)}"),
    "an aggregate renamed": ("total: sum(v)", "sum_v: sum(v)"),
}
BOTH = "smaller windows and a key renamed"


def defined(tmp_path: Path, name: str, table: str, text: str) -> Pipeline:
    path = tmp_path / f"{name}.yaml"
    path.write_text(text.replace("{namespace: run_tests}", f"{{namespace: changed_tests, table: {table}}}"))
    return load_pipeline(path)


def columns_of(spark: SparkSession, pipeline: Pipeline, table: str, only: list[str] | None) -> list[str]:
    frame = spark.table(getattr(Tables.of(pipeline), table))
    return rows(frame if only is None else frame.select(*only))


def assert_as_in_an_empty_table(spark: SparkSession, tmp_path: Path, changed: Pipeline, fresh: Pipeline) -> None:
    execute(spark, fresh, make_plan(spark, fresh), NoProgress())
    for table in ("windows", "late"):
        names = sorted(set(spark.table(getattr(Tables.of(fresh), table)).columns))
        found, expected = (columns_of(spark, one, table, names) for one in (changed, fresh))
        assert found == expected, table
    extra = set(spark.table(Tables.of(changed).windows).columns) - set(spark.table(Tables.of(fresh).windows).columns)
    for column in extra:  # what the definition does not know any more is empty
        assert spark.table(Tables.of(changed).windows).where(f"`{column}` IS NOT NULL").isEmpty()
    facts = PublishedTable(spark, Tables.of(changed).windows)
    live = facts.revisions().where("valid_to IS NULL AND cause <> 'retraction'")
    assert rows(live) == rows(facts.current()), "the history of revisions ends in what readers see"


def texts_of(case: str) -> tuple[str, str]:
    def text(window: str = ONE) -> str:
        return definition_text("NAME", "FOLDER", window=window)

    if case == BOTH:
        return text(TEN), text().replace(*TEXTS["a key renamed"])
    if case in WINDOWS:
        old, new = WINDOWS[case]
        return text(old), text(new)
    before, after = TEXTS[case]
    return text(), text().replace(before, after)


FILTERED = [case for case in TEXTS if case.startswith("a filter")]
CASES = sample([BOTH, *in_turn(FILTERED)[:1]], [BOTH, *WINDOWS, *TEXTS])


@pytest.mark.parametrize("case", CASES)
def test_a_full_run_of_a_changed_definition_leaves_nothing_of_the_one_before(spark, tmp_path, case) -> None:
    data = tmp_path / "data"
    write(data, [record(i) for i in range(300)])
    name = case.replace(" ", "_")
    first, second = (text.replace("FOLDER", str(data)).replace("NAME", name) for text in texts_of(case))
    old = defined(tmp_path, name, name, first)
    execute(spark, old, make_plan(spark, old), NoProgress())
    new = defined(tmp_path, name, name, second)
    shown: list[dict] = []

    def collector(evidence) -> Facts:
        shown.append(changed_windows(evidence))
        return Facts()

    result = execute(spark, new, make_plan(spark, new), NoProgress(), end_policy=EndPolicy(collector=collector))
    assert shown[0]["counts"] == {change: n for change, n in result.changes.items() if change != "bookkeeping"}
    fresh = defined(tmp_path, f"{name}_fresh", f"{name}_fresh", second.replace(f"name: {name}", f"name: {name}_fresh"))
    assert_as_in_an_empty_table(spark, tmp_path, new, fresh)
    if case in ("a key renamed", "a key removed", BOTH):
        assert result.changes["inserted"] == result.counts.windows
        assert set(result.changes) == {"inserted", "retracted"}
    again = execute(spark, new, make_plan(spark, new), NoProgress())
    assert not again.changes, "what comes out the same changes nothing"
    write(data, [record(i) for i in range(300, 400)], "part-1.json")
    night = reconcile(spark, new, NoProgress())
    assert night.continued_from == again.run_id or "sessions" in night.note, night.note
    execute(spark, fresh, make_plan(spark, fresh), NoProgress())
    assert_as_in_an_empty_table(spark, tmp_path, new, fresh)
    if case in FILTERED:
        assert not make_plan(spark, new).reading.has_gone
    if not IN_FULL:
        return
    back = defined(tmp_path, name, name, first)
    reconcile(spark, back, NoProgress())
    fresh = defined(tmp_path, f"{name}_back", f"{name}_back", first.replace(f"name: {name}", f"name: {name}_back"))
    assert_as_in_an_empty_table(spark, tmp_path, back, fresh)


LATE = "window: {type: tumbling, size: 1 min}\nallowed_lateness: 10 min"


@pytest.mark.long
@pytest.mark.parametrize("start", sample([None], [None, "a range"]))
def test_all_panes_once_by_hand_do_not_stop_the_nights(spark, tmp_path, start) -> None:
    data = tmp_path / "data"
    write(data, [record(i) for i in range(300)])
    name = "panes_of_a_range" if start else "panes_of_all"
    text = definition_text(name, data, window=LATE)
    nightly = defined(tmp_path, name, name, text)
    reconcile(spark, nightly, NoProgress())
    plan = make_plan(spark, nightly)
    if start:
        plan = make_plan(spark, nightly, start=plan.span.start, end=plan.span.start + 4 * MINUTE)
    panes = execute(spark, nightly, plan, NoProgress(), panes=Panes.ALL)
    assert panes.changes.get("inserted") or start, "there are windows with more than one pane"
    for number in range(1, sample(2, 3)):
        late = [record(i, t=record(0)["t"] + 30_000 * (i % 9)) for i in range(200 + 100 * number, 260 + 100 * number)]
        write(data, late, f"part-{number}.json")
        reconcile(spark, nightly, NoProgress())
    execute(spark, nightly, make_plan(spark, nightly), NoProgress())
    fresh = defined(tmp_path, f"{name}_fresh", f"{name}_fresh", text.replace(f"name: {name}", f"name: {name}_fresh"))
    assert_as_in_an_empty_table(spark, tmp_path, nightly, fresh)


def test_what_a_changed_definition_does_is_said_before_anything_happens(spark, tmp_path) -> None:
    data = tmp_path / "data"
    write(data, [record(i) for i in range(120)])
    text = definition_text("said", data, window=TEN)
    first = defined(tmp_path, "said", "said", text)
    done = execute(spark, first, make_plan(spark, first), NoProgress())
    remember(RunStore.configured().folder(done.run_id))
    plan = make_plan(spark, first)
    assert with_change(spark, first, plan) == plan
    assert since_last_run(first) == ()
    changed = (
        text.replace("keys: {k: k}", "keys: {kk: k}").replace("10 min", "1 min").replace("total: sum(v)", "s: sum(v)")
    )
    second = defined(tmp_path, "said", "said", changed)
    new = make_plan(spark, second)
    said = "\n".join(with_change(spark, second, new).warnings)
    for part in (
        "the definition has changed since the last published run (aggregates, keys, window)",
        "the identity of the rows changes (keys: k; now: kk): all published rows are retracted",
        "the windows change (tumbling, size 10 min; now: tumbling, size 1 min)",
        "column total stays in the table, and is null",
        f"{done.counts.windows:,} rows are published now",
    ):
        assert part in said, said
    assert "\n".join(since_last_run(second)) in said
    start = new.span.start
    part = with_change(spark, second, make_plan(spark, second, start=start, end=start + MINUTE))
    assert "windows outside the run's range keep the values of the earlier definition" in part.warnings[-1]


def test_a_column_of_another_type_is_refused_before_the_history_is_read(spark, tmp_path) -> None:
    data = tmp_path / "data"
    write(data, [record(i) for i in range(120)])
    text = definition_text("types", data, aggregates="n: count(*), total: sum(v), top: max(CAST(v AS SMALLINT))")
    text = text.replace("keys: {k: k}", "keys: {k: k, third: CAST(v % 3 AS TINYINT)}")
    first = defined(tmp_path, "types", "types", text)
    for changes in sample(
        [{"inserted": 10}], [{"inserted": 10}, {}]
    ):  # types shorter than INT, which no Iceberg table has, are no other ones
        assert execute(spark, first, make_plan(spark, first), NoProgress()).changes == changes
    (data / "damaged.json").write_text("\x00 no record, and nobody reads it")
    for change, what in {
        ("total: sum(v)", "total: avg(v)"): "aggregates.total: is DOUBLE here and BIGINT in the published table",
        ("keys: {k: k,", "keys: {k: v,"): "keys.k: is BIGINT here and STRING in the published table",
        ("keys: {k: k,", "keys: {third: '1'}\n#"): "aggregates.k: was a key of windows that are published",
    }.items():
        changed = text.replace(*change)
        if "#" in change[1]:
            changed = changed.replace("total: sum(v)", "k: max(k)")
        with pytest.raises(DefinitionError, match=what):
            make_plan(spark, defined(tmp_path, "types", "types", changed))
