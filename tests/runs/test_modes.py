"""Which values runs and nights compute: the definition says it, also for a history without the order of the log."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from spark_jobs.cli.output import columns_to_query, print_plan
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.mode import Mode
from spark_jobs.errors import DefinitionError, HistoryError
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.report.build import build_report
from spark_jobs.report.facts import gather
from spark_jobs.runs.life.documents import Request
from spark_jobs.runs.life.store import PAGE, RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.progress import LogProgress
from spark_jobs.runs.work.stages import chunk_stages, stages_of
from tests.runs.small_nights import CASES, assert_history_is_whole, log_of, pipeline, rows, tables_of
from tests.runs.small_runs import write
from tests.sampling import IN_FULL, first_of

ORDER = "position: {partition: p, offset: o, arrival: a, arrival_unit: ms}"
COLLECTING = EndPolicy(collector=gather)


def in_mode(tmp_path: Path, name: str, case: str, mode: Mode, *, has_order: bool = True) -> Pipeline:
    """The pipeline with the mode in its definition; without order its records have no position."""
    file = Path(pipeline(tmp_path, name, case).file)
    text = file.read_text() + f"mode: {mode}\n"
    file.write_text(text if has_order else text.replace(ORDER, "position: {}"))
    return load_pipeline(file)


@pytest.mark.long
def test_a_history_without_order_has_runs_nights_and_reports_of_complete_values(spark, tmp_path, capsys) -> None:
    case, records = next(iter(CASES)), log_of(3)
    nightly = in_mode(tmp_path, "unordered_nights", case, Mode.COMPLETE, has_order=False)
    results = []
    for night, part in enumerate((records[:300], records[300:], [])):
        if part:
            write(tmp_path / "data", part, f"part-{night}.json")
        results.append(reconcile(spark, nightly, LogProgress(), end_policy=COLLECTING))
    assert [bool(result.changes) for result in results] == [True, True, False]
    for result in results:
        asked = Request.read(RunStore.configured().folder(result.run_id))
        assert asked is not None and not asked.reason, "nobody gave a reason"
    full = in_mode(tmp_path, "unordered_full", case, Mode.COMPLETE, has_order=False)
    plan = make_plan(spark, full)
    capsys.readouterr()
    print_plan(plan, stages_of(full, chunk_stages(plan.chunks)))
    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    times = [row["t"] for row in records]
    first, last = format_instant(min(times)), format_instant(max(times))
    assert f"from {first} to {last}" in printed
    assert "complete_only" in printed and not re.search("watermark|timer|first arrival", printed)
    execute(spark, full, plan, LogProgress())
    windows = Tables.of(nightly).windows
    assert rows(spark.table(windows)) == rows(spark.table(Tables.of(full).windows))
    assert_history_is_whole(spark, nightly)
    causes = {row[0] for row in spark.table(windows).where("revision > 1").select("cause").collect()}
    assert causes == {"late_arrivals"}
    assert spark.sql(f"SELECT {columns_to_query(nightly)} FROM {windows}").columns[-1] == "top__complete"
    assert {row["mode"] for row in Ledger(spark, Tables.of(nightly)).runs().collect()} == {"complete"}

    folder = RunStore.configured().folder(results[1].run_id)
    build_report(folder)
    if IN_FULL:
        assert_values_stay_where_files_are_gone(spark, tmp_path, nightly, records)
    page = html.unescape((folder.read_bytes(PAGE) or b"").decode())
    assert "Faithful values" not in page
    assert "n__complete" in page and not re.search(r"<bdi>(n|total|top)</bdi>", page)
    assert "watermark.partitions is not set" not in page and "timeline by" not in page


def assert_values_stay_where_files_are_gone(spark, tmp_path: Path, nightly: Pipeline, records: list[dict]) -> None:
    """As retention removes them: no window loses what was published, and one that gets records keeps its value."""
    table, data = Tables.of(nightly).windows, tmp_path / "data"
    values = ("k", "window_start", "n__complete", "total__complete")
    before = {tuple(row) for row in spark.table(table).select(*values).collect()}
    file = (data / "part-0.json").rename(tmp_path / "removed.json")
    write(data, [records[0] | {"v": 7}], "late.json")
    result = reconcile(spark, nightly, LogProgress())
    assert "keep their values (state `history_gone`)" in result.note and "retracted" not in result.changes
    assert {tuple(row) for row in spark.table(table).select(*values).collect()} == before
    states = spark.table(table).groupBy("state").count().collect()
    assert {row[0] for row in states} == {None, "history_gone"}
    file.rename(data / "part-0.json")
    assert reconcile(spark, nightly, LogProgress()).changes["updated"]
    full = in_mode(tmp_path, "unordered_again", next(iter(CASES)), Mode.COMPLETE, has_order=False)
    execute(spark, full, make_plan(spark, full), LogProgress())
    assert rows(spark.table(table)) == rows(spark.table(Tables.of(full).windows))


@pytest.mark.long
def test_sessions_of_a_history_without_order_have_nights_too(spark, tmp_path) -> None:
    def sessions(name: str) -> Pipeline:
        file = Path(in_mode(tmp_path, name, next(iter(CASES)), Mode.COMPLETE, has_order=False).file)
        file.write_text(file.read_text().replace(CASES[next(iter(CASES))][0], "{type: session, gap: 20 s}"))
        return load_pipeline(file)

    records, nightly, full = log_of(4, 120), sessions("unordered_sessions"), sessions("unordered_sessions_full")
    for night, part in enumerate((records[0::2], records[1::2])):
        write(tmp_path / "data", part, f"part-{night}.json")
        reconcile(spark, nightly, LogProgress())
    execute(spark, full, make_plan(spark, full), LogProgress())
    found = rows(spark.table(Tables.of(nightly).windows))
    assert found and found == rows(spark.table(Tables.of(full).windows))


def test_a_night_of_complete_values_cannot_end_at_an_instant_without_arrivals(spark, tmp_path) -> None:
    write(tmp_path / "data", log_of(3)[:50], "part-0.json")
    defined = in_mode(tmp_path, "unordered_until", next(iter(CASES)), Mode.COMPLETE, has_order=False)
    with pytest.raises(DefinitionError, match="the history has no arrival"):
        reconcile(spark, defined, LogProgress(), until=1)
    without = Path(defined.file)
    without.write_text(without.read_text().replace("mode: complete", "mode: both"))
    with pytest.raises(HistoryError) as refused:
        reconcile(spark, load_pipeline(without), LogProgress())
    assert "`mode: complete`" in refused.value.hint and "--mode" not in str(refused.value)


@pytest.mark.parametrize("case", first_of(list(CASES)[:2], 0))
def test_nights_of_faithful_values_end_in_the_tables_of_a_full_run(spark, tmp_path, case) -> None:
    records, number = log_of(5), list(CASES).index(case)
    nightly = in_mode(tmp_path, f"faithful_nights_{number}", case, Mode.FAITHFUL)
    for night, part in enumerate((records[:350], records[350:])):
        write(tmp_path / "data", part, f"part-{night}.json")
        result = reconcile(spark, nightly, LogProgress())
        assert (result.continued_from is None) == (night == 0), result.note
    full = in_mode(tmp_path, f"faithful_full_{number}", case, Mode.FAITHFUL)
    execute(spark, full, make_plan(spark, full), LogProgress())
    assert tables_of(spark, nightly) == tables_of(spark, full)
    assert "n__complete" not in spark.table(Tables.of(nightly).windows).columns
