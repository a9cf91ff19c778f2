"""What a person is asked about: the share of changed windows among those that readers had on the same days."""

# pyright: reportOperatorIssue=false, reportOptionalOperand=false

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.definition import load_pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.output import Policy, Publish
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.orchestration.operators import changed_range
from spark_jobs.report.assembled import report_of
from spark_jobs.report.documents import Documents
from spark_jobs.report.page import render
from spark_jobs.runs.life.documents import Changes, status_of
from spark_jobs.runs.life.permission import Action, decide
from spark_jobs.runs.life.restated import Restated
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.small_runs import MINUTE, T0, pipeline, record, write

MINUTES = 120


def counted(inserted: int, updated: int, retracted: int, same: int) -> Changes:
    counts = {"inserted": inserted, "updated": updated, "retracted": retracted}
    restated = Restated(windows=updated + retracted, had=updated + retracted + same)
    windows = inserted + updated + same
    return Changes(counts=counts, windows=windows, windows_recomputed=updated + retracted + same, restated=restated)


few = st.integers(0, 50)


@given(few, few, few, few, st.floats(0, 1), st.sampled_from(("updated", "retracted")))
def test_one_more_changed_window_never_spares_the_question(inserted, updated, retracted, same, most, kind) -> None:
    tolerance = Publish(policy=Policy.WITHIN_TOLERANCE, tolerance=most).tolerance
    more = {"inserted": inserted, "updated": updated, "retracted": retracted, "same": same}
    fewer = decide(Policy.WITHIN_TOLERANCE, tolerance, counted(**more), None)
    worse = decide(Policy.WITHIN_TOLERANCE, tolerance, counted(**more | {kind: more[kind] + 1}), None)
    assert fewer.action is Action.PUBLISH or worse.action is Action.ASK


@pytest.fixture(scope="module")
def nights(spark, tmp_path_factory):
    """A first run of two hours, a night with ten late records of an hour ago, and with one of the first minute too."""
    folder = tmp_path_factory.mktemp("tolerance")
    store = RunStore(str(folder / "runs"))
    pipeline(folder, "tolerant", end="freeze")
    path = folder / "tolerant.yaml"
    path.write_text(path.read_text() + "publish: {policy: within_tolerance, tolerance: {share: 5 %, windows: 10}}\n")
    defined = load_pipeline(path)
    last = 20 * MINUTES
    log = [record(i, k="a", a=T0 + i * 3000, t=T0 + i * 3000) for i in range(last)]
    write(folder / "data", log)
    reconcile(spark, defined, NoProgress(), store=store)

    def late(number: int, minute: int) -> dict:
        return record(last + number, k="a", a=T0 + (last + number) * 3000, t=T0 + minute * MINUTE)

    write(folder / "data", [late(n, 60 + n) for n in range(10)], "part-1.json")
    some = reconcile(spark, defined, NoProgress(), store=store)
    write(folder / "data", [late(10, 0)], "part-2.json")
    more = reconcile(spark, defined, NoProgress(), store=store)
    return defined, store, some, more


@pytest.mark.long
def test_a_late_record_of_long_ago_does_not_make_the_share_small(spark, nights) -> None:
    defined, store, some, more = nights
    published = PublishedTable(spark, Tables.of(defined).windows).current().count()
    assert published > 100
    for result, changed in ((some, 10), (more, 11)):
        assert status_of(store.folder(result.run_id)) is RunStatus.AWAITING_APPROVAL, result.decision
        changes = Changes.read(store.folder(result.run_id))
        assert changes is not None and changes.restated is not None
        assert (changes.restated.windows, changes.restated.had) == (changed, 119), "those of the day, but the open one"
        assert f"{changed} of the 119 windows that readers had on" in result.decision.why


@pytest.mark.long
def test_the_sentences_of_a_night_add_up(nights) -> None:
    _, store, _, more = nights
    folder = store.folder(more.run_id)
    changes, report = Changes.read(folder), report_of(Documents.of(folder))
    shown = report.to_dict()["changes"]
    counts = shown["counts"]
    assert changes is not None
    was_open = counts["was_open"]
    assert changes.windows == counts["inserted"] + counts["updated"] + was_open + shown["unchanged"]
    assert shown["windows_recomputed"] == counts["updated"] + counts["retracted"] + was_open + shown["unchanged"]
    assert shown["match_share"] == shown["unchanged"] / (shown["unchanged"] + counts["updated"] + counts["retracted"])
    page = render(report, None)
    parts = (counts["inserted"], counts["updated"], shown["unchanged"])
    words = "{:,} new, {:,} with other numbers, {:,} with the same numbers".format(*parts)
    assert f"The run computed {changes.windows:,} windows: {words}." in page


@pytest.mark.long
def test_a_night_names_the_range_that_it_touched(nights) -> None:
    """What a consumer of the asset's event reads: not the whole history, and a record of long ago is in it."""
    _, store, some, more = nights
    ranges = [changed_range(store.folder(result.run_id)) for result in (some, more)]
    assert [r["from"] for r in ranges] == [format_instant(T0 + 60 * MINUTE), format_instant(T0)]
    assert [r["to"] for r in ranges] == [format_instant(T0 + 70 * MINUTE)] * 2
