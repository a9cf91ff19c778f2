"""Several processes at one table: readers see one run or the next and never a mix; of two rivals one wins."""

# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import CatalogError
from spark_jobs.lakehouse import commits
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.spark.gateway import JavaObject
from tests.processes import start_python
from tests.runs.meeting import PATIENCE, meet
from tests.runs.small_nights import assert_history_is_whole, log_of, pipeline, rows
from tests.runs.small_runs import MINUTE, T0, write

CASE = "tumbling, per event"
STAMP = 1_000_000
"""Added to the totals times the number of the definition: a value shows which run wrote it."""
RECORDS = log_of(5, count=240)
MIDDLE = T0 + 3 * MINUTE
END = T0 + 60 * MINUTE

PUBLISHER = """
    import sys, time
    from pathlib import Path
    from spark_jobs.definition import load_pipeline
    from spark_jobs.errors import RewindowError
    from spark_jobs.runs.planning.plan import make_plan
    from spark_jobs.runs.work.progress import NoProgress
    from spark_jobs.runs.work.backfill import execute
    from spark_jobs.spark.session import spark_session
    from tests.runs.meeting import meet
    folder, start, end, *files = sys.argv[1:]
    spark = spark_session("publisher", master="local[1]", conf={"spark.sql.shuffle.partitions": "1"})
    if folder:
        meet(Path(folder), "child", "parent")
    for file in files:
        defined = load_pipeline(file)
        bounds = {"start": int(start), "end": int(end)} if start else {}
        try:
            print(execute(spark, defined, make_plan(spark, defined, **bounds), NoProgress()).changes)
        except RewindowError as error:
            print("refused:", error)
    spark.stop()
"""

READER = """
    import json, sys, time
    from pathlib import Path
    from pyiceberg.catalog.sql import SqlCatalog
    home, table, stop = sys.argv[1:]
    catalog = SqlCatalog("rewindow", uri=f"sqlite:///{home}/catalog.db", warehouse=f"{home}/warehouse")
    reads, done = [], False
    while not done:
        done = Path(stop).exists()
        loaded = catalog.load_table(table)
        columns = ("k", "window_start", "revision", "run_id", "n", "total")
        states = []
        for name in ("main", "revisions"):
            found = loaded.scan(snapshot_id=loaded.snapshot_by_name(name).snapshot_id).to_arrow().to_pylist()
            states.append([tuple(str(r[c]) for c in columns) for r in found if r["valid_to"] is None])
        main, life = states
        reads.append({
            "runs": sorted({r[3] for r in main}), "stamps": sorted({int(r[5]) // 1_000_000 for r in main}),
            "rows": len(main), "records": sum(int(r[4]) for r in main), "same": sorted(main) == sorted(life),
        })
        time.sleep(0.05)  # leaves the processors to the publisher
    assert "spark_jobs" not in sys.modules and "pyspark" not in sys.modules
    print(json.dumps(reads))
"""


def stamped(tmp_path: Path, name: str, number: int) -> Path:
    """The pipeline's definition number `number`: the same windows, other totals."""
    pipeline(tmp_path, name, CASE)
    text = (tmp_path / f"{name}.yaml").read_text()
    path = tmp_path / f"{name}_{number}.yaml"
    path.write_text(text.replace("total: sum(v)", f"total: sum(v) + {number * STAMP}"))
    return path


def run(spark: SparkSession, path: Path, **bounds: int) -> dict[str, int]:
    defined = load_pipeline(path)
    return execute(spark, defined, make_plan(spark, defined, **bounds), NoProgress()).changes


def state(spark: SparkSession, defined: Pipeline) -> tuple[list, list]:
    """The runs and stamps of the current windows, in one read."""
    found = spark.table(Tables.of(defined).windows).select("run_id", "total").collect()
    return sorted({row[0] for row in found}), sorted({row[1] // STAMP for row in found})


def statuses(spark: SparkSession, defined: Pipeline) -> list[str]:
    return sorted(row["status"] for row in Ledger(spark, Tables.of(defined)).runs().collect())


def assert_nothing_is_left(spark: SparkSession, defined: Pipeline) -> None:
    tables = Tables.of(defined)
    left = spark.sql(f"SHOW TABLES IN rewindow.nightly_tests LIKE '{defined.output.table}__staging*'").collect()
    refs = spark.sql(f"SELECT name FROM {tables.windows}.refs").collect()
    assert not left and sorted(row[0] for row in refs) == ["main", "revisions"]


@pytest.mark.long
def test_readers_see_one_run_or_the_next_and_never_a_mix(spark, tmp_path, rewindow_home) -> None:
    write(tmp_path / "data", RECORDS, "part-0.json")
    paths = [stamped(tmp_path, "watched", number) for number in range(1, 5)]
    first = run(spark, paths[0])
    defined, table = load_pipeline(paths[0]), "nightly_tests.watched"
    stop = tmp_path / "stop"
    reader = start_python(READER, str(rewindow_home), table, str(stop))
    publisher = start_python(PUBLISHER, "", "", "", *map(str, paths[1:]))
    seen = []
    try:
        while publisher.poll() is None:
            seen.append(state(spark, defined))
            time.sleep(0.2)
        output, errors = publisher.communicate()
        assert publisher.returncode == 0, errors
    finally:
        stop.touch()
        publisher.kill()
        out, err = reader.communicate(timeout=PATIENCE)
    assert output.count("updated") == 3, output
    assert reader.returncode == 0, err
    reads = json.loads(out)
    assert {len(runs) for runs, _ in seen} == {1} and {len(stamps) for _, stamps in seen} == {1}
    assert {len(read["runs"]) for read in reads} == {1}, "values of two runs in one read"
    assert {len(read["stamps"]) for read in reads} == {1}
    assert {read["rows"] for read in reads} == {first["inserted"]}
    assert len({read["records"] for read in reads}) == 1, "counts and sums are of one state"
    assert all(read["same"] for read in reads), "main and the branch move together"
    in_turn = [read["stamps"][0] for read in reads]
    assert in_turn == sorted(in_turn) and set(in_turn) == {1, 2, 3, 4}


def test_of_two_processes_that_publish_the_same_windows_one_wins_and_the_other_says_so(
    spark, tmp_path, monkeypatch
) -> None:
    write(tmp_path / "data", RECORDS, "part-0.json")
    paths = [stamped(tmp_path, "contested", number) for number in range(3)]
    run(spark, paths[0])
    other = start_python(PUBLISHER, str(tmp_path), "", "", str(paths[2]))
    said = ""
    with monkeypatch.context() as patch:
        patch.setattr(
            PublishedTable, "publish", PublishedTable.publish
        )  # `meet` replaces it until the end of the context
        meet(tmp_path, "parent", "child")
        try:
            run(spark, paths[1])
        except CatalogError as error:
            said = f"refused: {error}"
    output, errors = other.communicate(timeout=PATIENCE)
    assert other.returncode == 0, errors
    defined = load_pipeline(paths[0])
    refusals = [text for text in (said, output) if "refused" in text]
    assert len(refusals) == 1
    assert "has published windows of the same range meanwhile" in refusals[0]
    assert "run again to compare with what is there now" in refusals[0]
    runs, stamps = state(spark, defined)
    assert len(runs) == 1 and stamps == [2 if said else 1]
    assert statuses(spark, defined) == ["failed", "published", "published"]
    assert_nothing_is_left(spark, defined)
    assert_history_is_whole(spark, defined)
    late = spark.table(Tables.of(defined).late)
    assert late.select("run_id").distinct().collect() == [(runs[0],)]


@pytest.mark.long
def test_processes_that_publish_other_windows_both_succeed_also_where_there_was_no_table(
    spark, tmp_path, monkeypatch
) -> None:
    write(tmp_path / "data", RECORDS, "part-0.json")
    path = stamped(tmp_path, "shared", 0)
    other = start_python(PUBLISHER, str(tmp_path), str(MIDDLE), str(END), str(path))
    with monkeypatch.context() as patch:
        have_moved = commits.have_moved

        def checked_too_early(table: JavaObject, bases: dict[str, int]) -> bool:
            """The other process publishes after this one has seen that nothing has moved, and before it commits."""
            answer = have_moved(table, bases)
            (tmp_path / "parent").touch()
            other.wait(PATIENCE)
            return answer

        patch.setattr(commits, "have_moved", checked_too_early)
        run(spark, path, start=T0 - 60 * MINUTE, end=MIDDLE)
    output, errors = other.communicate(timeout=PATIENCE)
    assert other.returncode == 0 and "inserted" in output, output + errors
    defined = load_pipeline(path)
    whole = stamped(tmp_path, "alone", 0)
    run(spark, whole)
    tables, expected = Tables.of(defined), Tables.of(load_pipeline(whole))
    assert rows(spark.table(tables.windows)) == rows(spark.table(expected.windows))
    assert rows(spark.table(tables.late)) == rows(spark.table(expected.late))
    assert statuses(spark, defined) == ["published", "published"]
    assert_nothing_is_left(spark, defined)
    assert_history_is_whole(spark, defined)


@pytest.mark.long
def test_what_is_published_twice_changes_nothing(spark, tmp_path) -> None:
    write(tmp_path / "data", RECORDS, "part-0.json")
    path = stamped(tmp_path, "twice", 0)
    assert run(spark, path)["inserted"] > 0
    defined = load_pipeline(path)
    facts = PublishedTable(spark, Tables.of(defined).windows)
    before, head = facts.revisions().collect(), facts.head()
    assert run(spark, path) == {}
    assert facts.head() == head and sorted(map(repr, facts.revisions().collect())) == sorted(map(repr, before))


@pytest.mark.long
def test_pyiceberg_reads_both_states_without_our_code(spark, tmp_path, rewindow_home) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    write(tmp_path / "data", RECORDS[:120], "part-0.json")
    paths = [stamped(tmp_path, "plain", number) for number in (0, 1)]
    for path in paths:
        run(spark, path)
    catalog = SqlCatalog("rewindow", uri=f"sqlite:///{rewindow_home}/catalog.db", warehouse=str(rewindow_home))
    loaded = catalog.load_table("nightly_tests.plain")
    facts = PublishedTable(spark, Tables.of(load_pipeline(paths[0])).windows)
    columns = ("k", "revision", "cause", "run_id", "n", "total", "total__complete", "records_dropped", "state")
    for name, frame, revisions in (("main", facts.current(), {2}), ("revisions", facts.revisions(), {1, 2})):
        found = loaded.scan(snapshot_id=loaded.snapshot_by_name(name).snapshot_id).to_arrow().to_pylist()
        actual, expected = (sorted(str([row[c] for c in columns]) for row in side) for side in (found, frame.collect()))
        assert actual == expected
        assert {row["revision"] for row in found} == revisions
