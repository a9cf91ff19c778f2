"""The account of a run balances; a record that is taken out or doubled on the way shows in it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.replay import engine
from spark_jobs.replay.engine import Replay
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.accounts import check_account
from tests.runs.small_runs import T0, pipeline, record, write
from tests.runs.streaming_nights import WrittenQuery, batches_of, records_of
from tests.runs.streaming_nights import defined as query_defined
from tests.sampling import first_of, in_turn

RECORDS = [record(i, k="ab"[i % 2], t=T0 + i * 1000) for i in range(240)]


class Accounts:
    """A pipeline over JSON files, and the accounts of its runs."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, **options: str) -> None:
        self.spark, self.folder, self.name = spark, folder, name
        self.store = RunStore(str(folder / "runs"))
        write(folder / "data", RECORDS[:200], "a.json")
        pipeline(folder, name, **options)

    def defined(self, more: str = "", changed: tuple[str, str] = ("", "")) -> Pipeline:
        self.path.write_text(self.path.read_text().replace(*changed) + more)
        return load_pipeline(self.path)

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}.yaml"

    def full(self, defined: Pipeline) -> Account:
        return self._of(execute(self.spark, defined, make_plan(self.spark, defined), NoProgress(), store=self.store))

    def night(self, defined: Pipeline) -> Account:
        return self._of(reconcile(self.spark, defined, NoProgress(), store=self.store))

    def _of(self, result) -> Account:
        found = Account.read(self.store.folder(result.run_id))
        assert found is not None
        return found


def test_each_record_and_each_pair_of_a_run_and_of_the_nights_after_it_is_accounted_for(spark, tmp_path) -> None:
    accounts = Accounts(spark, tmp_path, "accounted")
    defined = accounts.defined("filter: {before_watermark: v <> 3, after_watermark: v <> 4}\n")
    write(tmp_path / "data", [{"p": None, "o": 1, "a": T0, "k": "a", "t": T0, "v": 1}], "unplaced.json")
    first = accounts.full(defined)
    assert first.source == 201 and first.unplaced == 1 and first.filtered_before and first.filtered_after
    assert (first.unaccounted_records, first.unaccounted_pairs) == (0, 0)
    assert first.pairs == first.entered == first.good - first.filtered_after
    write(tmp_path / "data", RECORDS[200:], "b.json")
    night = accounts.night(defined)
    assert night.good and night.pairs == night.pairs_of_windows == night.entered
    assert (night.unaccounted_records, night.unaccounted_pairs) == (0, 0)


def test_windows_that_overlap_and_windows_with_gaps_are_counted(spark, tmp_path) -> None:
    accounts = Accounts(spark, tmp_path, "overlapping")
    window = "window: {type: sliding, size: %s, slide: 1 min}"
    with_gaps = "window: {type: sliding, size: 1 min, slide: 2 min, gaps_between: true}"
    tumbling = next(line for line in (tmp_path / "overlapping.yaml").read_text().splitlines() if "tumbling" in line)
    wide = accounts.full(accounts.defined(changed=(tumbling, window % "3 min")))
    assert wide.pairs == 3 * wide.entered == wide.pairs_of_windows
    gaps = accounts.full(accounts.defined(changed=(window % "3 min", with_gaps)))
    assert gaps.without_window and gaps.pairs == gaps.entered == gaps.pairs_of_windows
    assert gaps.unaccounted_records == 0


SESSION = "window: {type: session, gap: 20 s}"
SESSIONS = {
    "plain": SESSION,
    "lateness": f"{SESSION}\nallowed_lateness: 15 s",
    "all panes": f"{SESSION}\nallowed_lateness: 15 s\npanes: all",
    "faithful": f"{SESSION}\nmode: faithful",
    "complete": f"{SESSION}\nmode: complete",
    "duplicates": f"{SESSION}\ndeduplicate: {{by: v % 190, kind: processing_time}}",
}


@pytest.mark.parametrize("deduplicate", [{"by": ["v"]}, {"by": ["v"], "kind": "drop_duplicates"}])
def test_records_of_a_query_without_an_event_time_are_accounted_for(spark, tmp_path, deduplicate) -> None:
    """They hold their ids where the query drops duplicates, so they are read."""
    draw = random.Random("no event time")
    records = [one | ({"t": None} if n % 20 == 7 else {}) for n, one in enumerate(records_of(draw, 60))]
    query = WrittenQuery(tmp_path, records, batches_of(draw, records, 10_000))
    name = f"no_event_time_{len(deduplicate)}"
    defined = query_defined(query, name, "tumbling", "append", "last", deduplicate=deduplicate)
    for cut in (len(query.batches) // 2, len(query.batches)):
        query.go_on(cut, pending=False, ahead=5)
        check_account(reconcile(spark, defined, NoProgress()))


@pytest.mark.parametrize("name", first_of(in_turn(SESSIONS)))
def test_sessions_count_each_record_once(spark, tmp_path, name: str) -> None:
    accounts = Accounts(spark, tmp_path, f"sessions_{name.replace(' ', '_')}", window=SESSIONS[name])
    behind = [record(i, k="ab"[i % 2], t=T0 + i * 1000 - 90_000 * (i % 40 == 39)) for i in range(240)]
    with_pauses = [
        r | {"a": r["a"] + 30_000 * (i // 40), "t": r["t"] + 30_000 * (i // 40)} for i, r in enumerate(behind)
    ]
    write(tmp_path / "data", with_pauses, "a.json")
    found = accounts.full(accounts.defined())
    assert found.pairs == found.entered > 0 and found.unknown == ()
    assert (found.unaccounted_records, found.unaccounted_pairs) == (0, 0), found


@pytest.mark.parametrize("mode", first_of(in_turn(("both", "faithful"))))
def test_sessions_that_are_open_count_no_records(spark, tmp_path, mode: str) -> None:
    """In the faithful values alone they have no row."""
    accounts = Accounts(spark, tmp_path, f"sessions_open_{mode}", window=SESSION, end="freeze")
    defined = accounts.defined(f"mode: {mode}\n")
    found = accounts.full(defined)
    assert found.unaccounted_pairs is None and "not out yet" in found.unknown[0]
    write(tmp_path / "data", RECORDS[200:], "b.json")
    found = accounts.night(defined)
    assert found.unaccounted_pairs is None and "not out yet" in found.unknown[0]


def test_records_that_kafka_streams_ignores_lie_in_no_window(spark, tmp_path) -> None:
    accounts = Accounts(spark, tmp_path, "streams_account")
    text = accounts.path.read_text().replace("end_of_input: flush\n", "")
    watermark = next(line for line in text.splitlines() if line.startswith("watermark:"))
    accounts.path.write_text(text.replace(watermark, "engine: kafka_streams\nwatermark: {grace: 10 s}"))
    defined = accounts.defined()
    without_key = [record(i, k=None if i % 20 == 7 else "a", t=T0 + i * 1000) for i in range(240)]
    write(tmp_path / "data", without_key[:200], "a.json")
    whole = accounts.full(defined)
    assert whole.without_window == 10 and (whole.unaccounted_records, whole.unaccounted_pairs) == (0, 0)
    write(tmp_path / "data", without_key[200:], "b.json")
    night = accounts.night(defined)
    assert night.without_window == 2 and (night.unaccounted_records, night.unaccounted_pairs) == (0, 0)


def without_one(records: DataFrame) -> DataFrame:
    return records.where(F.col("rw_offset") != 17)


def with_one_twice(records: DataFrame) -> DataFrame:
    return records.unionByName(records.where((F.col("rw_offset") == 17) & (F.col("rw_partition") == 0)))


@pytest.mark.parametrize("fault", first_of(in_turn([without_one, with_one_twice])))
def test_a_record_that_is_lost_or_doubled_on_the_way_to_its_window_is_missed(
    spark, tmp_path, monkeypatch, fault: Callable[[DataFrame], DataFrame]
) -> None:
    accounts = Accounts(spark, tmp_path, fault.__name__)
    whole = Replay._records_of

    monkeypatch.setattr(Replay, "_records_of", lambda self, span, band: fault(whole(self, span, band)))
    found = accounts.full(accounts.defined())
    assert found.unaccounted_pairs and found.unaccounted_records == 0


def test_a_record_that_the_source_has_and_nobody_reads_is_missed(spark, tmp_path, monkeypatch) -> None:
    accounts = Accounts(spark, tmp_path, "unread")
    read = "spark_jobs.runs.work.computing.read_planned"
    from spark_jobs.runs.planning.plan import read_planned

    monkeypatch.setattr(read, lambda *args: without_one(read_planned(*args)))
    found = accounts.full(accounts.defined())
    assert found.unaccounted_records and (found.source, found.good) == (200, 198)


def test_what_came_below_the_end_of_a_night_counts_as_unread(spark, tmp_path) -> None:
    accounts = Accounts(spark, tmp_path, "until")
    defined = accounts.defined()
    accounts.full(defined)
    write(tmp_path / "data", RECORDS[200:], "b.json")
    until = record(220)["a"]
    result = reconcile(spark, defined, NoProgress(), store=accounts.store, until=until)
    found = Account.read(accounts.store.folder(result.run_id))
    assert found is not None and found.left_unread == 20 and found.unaccounted_records == 0


@pytest.mark.parametrize("fault", first_of(in_turn([without_one, with_one_twice])))
def test_a_record_that_is_lost_or_doubled_on_the_way_to_its_session_is_missed(
    spark, tmp_path, monkeypatch, fault: Callable[[DataFrame], DataFrame]
) -> None:
    accounts = Accounts(spark, tmp_path, f"session_{fault.__name__}", window=SESSION)
    whole = engine.replay_sessions
    monkeypatch.setattr(
        engine, "replay_sessions", lambda records, *more, **named: whole(fault(records), *more, **named)
    )
    found = accounts.full(accounts.defined())
    assert found.unaccounted_pairs and found.unaccounted_records == 0
