"""The compare stage: night after night the table of verdicts is what a comparison of everything would find."""

# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.comparison import chosen, stage
from spark_jobs.comparison.stage import has_live_news
from spark_jobs.definition import Pipeline
from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.report.facts import gather
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.progress import NoProgress
from tests.comparison.small_live import SOURCE, closed_windows, full_comparison, with_live
from tests.kafka import Sent, produce
from tests.runs.small_nights import log_of
from tests.runs.small_runs import write
from tests.sampling import IN_FULL, first_of

COMPARING = EndPolicy(compare=stage.compare_run)
TOPIC = """live:
  source:
    kind: kafka
    servers: {servers}
    topic: {topic}
    value: {{format: json, schema: "k STRING, s BIGINT, n BIGINT, total BIGINT, pane INT, at BIGINT"}}
  window: {{start: s, unit: ms}}
  pane: pane
  emitted_at: at
  emitted_at_unit: ms
"""


def live_pipeline(folder: Path, name: str) -> Pipeline:
    return with_live(folder, name, "live:" + SOURCE.format(path=f"{folder}/emitted/*.json"))


def current_verdicts(spark: SparkSession, defined: Pipeline) -> set[tuple]:
    rows = spark.table(Tables.of(defined).verdicts).where("valid_to IS NULL").collect()
    return {
        (r["k"], r["window_start"].timestamp() * 1000, r["verdict"], r["n__emitted"], r["n__complete"]) for r in rows
    }


@pytest.mark.parametrize("place", first_of(["topic", "files"]))
def test_after_each_night_the_verdicts_are_those_of_a_comparison_of_everything(
    spark, tmp_path, monkeypatch, request, place: str
) -> None:
    monkeypatch.setattr(chosen, "COMMIT_DELAY", 0)
    if place == "files":
        defined = live_pipeline(tmp_path, "judged")
        (tmp_path / "emitted").mkdir()
    else:
        kafka: KafkaBroker = request.getfixturevalue("kafka")
        kafka.create_topic("judged_rows", 1)
        defined = with_live(tmp_path, "judged_topic", TOPIC.format(servers=kafka.servers, topic="judged_rows"))

    def emit(rows: list[dict], night: str) -> None:
        if place == "files":
            write(tmp_path / "emitted", rows, f"part-{night}.json")
        else:
            produce(spark, kafka.servers, "judged_rows", [Sent(json.dumps(row)) for row in rows])

    records, draw = log_of(5, count=260), random.Random(5)
    emitted: dict[tuple, int] = {}
    held: list[dict] = []
    done, newest = 0, 0
    for night, cut in enumerate((180, len(records))):
        write(tmp_path / "data", records[done:cut], f"part-{night}.json")
        done = cut
        come, held = held, []
        for row in closed_windows(spark, defined):
            window = (row["k"], row["s"])
            if emitted.get(window) == row["pane"]:
                continue
            emitted[window] = row["pane"]
            fate = draw.random()
            if fate < 0.05:
                continue  # lost
            if fate < 0.1:
                row["n"] += 3
            (held if fate > 0.9 else come).append(row)
        emit(come, str(night))
        newest = max(newest, *(row["at"] for row in come))
        result = reconcile(spark, defined, NoProgress(), end_policy=COMPARING)
        assert (result.continued_from is None) == (night == 0), result.note
        document = Verdicts.read(RunStore.configured().folder(result.run_id))
        assert document is not None and document.problem is None and document.whole_range is (night == 0)
        if place == "topic":  # what the nights have read outlives the topic's retention
            end = spark.table(Tables.of(defined).emitted).count()
            kafka.delete_records("judged_rows", 0, before=end)
        if night == 0 and not IN_FULL:  # it has compared everything itself
            continue
        found, counts = full_comparison(spark, defined)
        there = {row for row in current_verdicts(spark, defined) if row[2] != "all_late"}
        assert there == found, f"night {night}"
        if night == 0:
            assert document.counts == counts
        else:
            assert document.windows < sum(counts.values())
    verdicts = spark.table(Tables.of(defined).verdicts)
    lives = verdicts.groupBy("k", "window_start").agg({"*": "count"}).where("`count(1)` > 1")
    assert not lives.isEmpty(), "a window's verdict has changed, and its life is kept"
    assert verdicts.where("valid_to <= valid_from").isEmpty()
    days = spark.table(Tables.of(defined).comparisons)
    assert {row[0] for row in days.select("run_id").distinct().collect()} == {
        row[0] for row in verdicts.select("run_id").distinct().collect()
    }
    # A night without new records judges what the live job has emitted since, once.
    row = max(held, key=lambda row: row["s"])
    missing = (row["k"], row["s"], "missing")
    assert missing in {verdict[:3] for verdict in current_verdicts(spark, defined)}
    emit([row | {"at": newest + 1}], "later")
    judging = replace(COMPARING, live_news=has_live_news, collector=gather)
    idle = reconcile(spark, defined, NoProgress(), end_policy=judging)
    assert idle.note.endswith("was compared") and not idle.changes
    assert missing not in {verdict[:3] for verdict in current_verdicts(spark, defined)}
    again = reconcile(spark, defined, NoProgress(), end_policy=judging)
    assert again.note == f"nothing has arrived since run {idle.run_id}"


@pytest.mark.long
def test_a_run_that_is_repeated_writes_its_verdicts_once_and_a_dry_run_none(spark, tmp_path) -> None:
    defined = live_pipeline(tmp_path, "repeated")
    write(tmp_path / "data", log_of(6, count=120), "part-0.json")
    wrong, _, *rest = sorted(closed_windows(spark, defined), key=lambda row: (row["s"], row["k"] or ""))
    write(tmp_path / "emitted", [wrong | {"n": wrong["n"] + 100}, *rest], "part-0.json")
    tables, plan = Tables.of(defined), make_plan(spark, defined)
    dry = execute(
        spark, defined, plan, NoProgress(), end_policy=EndPolicy(ends_as=RunStatus.DRY_RUN, compare=stage.compare_run)
    )
    document = Verdicts.read(RunStore.configured().folder(dry.run_id))
    assert document is not None and document.counts["mismatch"] == 1 and document.counts["missing"] == 1
    assert document.tables == {} and not spark.catalog.tableExists(tables.verdicts)
    for _ in range(2):
        execute(spark, defined, plan, NoProgress(), end_policy=COMPARING)
        assert len(current_verdicts(spark, defined)) == spark.table(tables.verdicts).count()
    assert spark.table(tables.verdicts).where("last_seen > first_seen AND verdict = 'mismatch'").count() == 1
    assert document.top[0]["n__emitted"] == document.top[0]["n"] + 100
    # What the live job has emitted is published with the cause `live`; what it has not, as a backfill.
    fired = spark.table(tables.windows).where("pane IS NOT NULL").select("k", F.unix_millis("window_start"), "cause")
    causes = {(key, start): cause for key, start, cause in fired.collect()}
    otherwise = {verdict[:2] for verdict in current_verdicts(spark, defined) if verdict[2] in ("mismatch", "missing")}
    assert {window for window, cause in causes.items() if cause != "live"} == otherwise
    assert set(causes.values()) == {"live", "backfill"}
    # What cannot be read is said, and the run goes on.
    for file in (tmp_path / "emitted").iterdir():
        file.unlink()
    result = execute(spark, defined, plan, NoProgress(), end_policy=COMPARING)
    failed = Verdicts.read(RunStore.configured().folder(result.run_id))
    assert failed is not None and failed.problem is not None and failed.windows == 0 and failed.tables == {}
    assert json.loads(RunStore.configured().folder(result.run_id).read_bytes("outcome.json") or b"{}")["status"] in (
        "published",
        "unchanged",
    )
