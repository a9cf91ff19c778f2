"""Answers to questions about a pipeline, from tables that runs have published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.corrections.stage import again, correct_run
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import DefinitionError, EmptyRangeError
from spark_jobs.operations.looking import answer_of
from spark_jobs.runs.life.start import Asked
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.looks import Answer, Look, Looks, Question
from spark_jobs.runs.work.corrected import DeliveredCorrections
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.submit.application import answer_question
from tests.corrections.small_corrections import (
    COMPARING,
    defined,
    emitted_rows,
    later_records,
    published,
    with_faults,
    write_table,
)
from tests.runs.small_runs import write

TABLE = "rewindow.nightly_tests.looked_emitted"
SECTIONS = f"""
live:
  source: {{kind: table, table: {TABLE}}}
  window: {{start: window_start}}
corrections: {{value: complete}}
"""
Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def looked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Pipeline, str, str]:
    """A pipeline with two published runs, late and unusable records, and corrections of the first; the runs' ids."""
    folder = tmp_path_factory.mktemp("looked")
    path = Path(defined(folder, "looked", SECTIONS).file or "")
    path.write_text(path.read_text().replace("{threshold: 1 %}", "{threshold: 10 %}"))
    job = load_pipeline(path)
    write_table(spark, TABLE, with_faults(emitted_rows(spark, job)))
    first = published(spark, job).run_id
    correct_run(spark, job, RunStore.configured().folder(first))
    later_records(folder)
    unusable = {"p": 0, "o": 900, "a": 1_600_000_900_000, "k": "a", "t": "soon", "v": 1}
    write(folder / "data", [unusable], "part-2.json")
    second = reconcile(spark, job, NoProgress(), asked=Asked("more has come"), end_policy=COMPARING).run_id
    return job, first, second


@pytest.fixture(scope="module")
def ask(spark: SparkSession, looked: tuple[Pipeline, str, str]) -> Ask:
    def answer(**fields: str) -> Answer:
        return answer_of(lambda: spark, looked[0], Question.of(fields), NoProgress())

    return answer


@pytest.mark.long
def test_late_and_unusable_records_are_listed_by_run_window_and_key(ask: Ask, looked) -> None:
    _, first, second = looked
    (every,) = ask(what="late").tables
    (of_first,) = ask(what="late", run=first).tables
    (of_second,) = ask(what="late", run=second).tables
    assert len(every.rows) == len(of_first.rows) + len(of_second.rows)
    at = every.columns.index
    row = next(row for row in every.rows if row[at("window_start")] is not None and row[at("k")] == "a")
    start = f"{row[at('window_start')]}Z".replace(" ", "T")
    (of_window,) = ask(what="late", window=start, keys="k=a").tables
    assert row in of_window.rows and {r[at("k")] for r in of_window.rows} == {"a"}
    for odd in ("k=a' OR '1'='1", "k=`", 'k=" OR 1=1 --'):
        assert ask(what="late", keys=odd).tables == (), "what a person writes is a value and nothing else"
    unusable = ask(what="quarantined", run=second)
    counted, listed = unusable.tables
    assert unusable.sentence.startswith("1 record that cannot be used") and counted.rows[0][0] == "1"
    assert dict(zip(listed.columns, listed.rows[0], strict=True))["offset"] == "900"
    assert ask(what="quarantined", run="another-run").tables == ()


@pytest.mark.long
def test_the_revisions_of_a_window_say_what_each_run_changed(ask: Ask, looked) -> None:
    _, first, second = looked
    (delivered, *_) = ask(what="corrections").tables
    at = delivered.columns.index
    start = f"{delivered.rows[0][at('window_start')]}Z".replace(" ", "T")
    found = ask(what="window", window=start)
    assert {table.run for table in found.tables} <= {first, second}
    assert found.tables[0].title.startswith("Window 2020-09-13 ") and "revision 1, " in found.tables[0].title
    later = [table for table in found.tables if "Difference" in table.columns]
    assert all(table.run == second and "Reason: more has come" in table.notes for table in later)
    with pytest.raises(EmptyRangeError, match="no run has published a window"):
        ask(what="window", window="1999-01-01T00:00:00Z")
    with pytest.raises(DefinitionError, match="Keys: 'kk' is not a key"):
        ask(what="window", window=start, keys="kk=a")


@pytest.mark.long
def test_corrections_are_listed_repeated_and_reverted(ask: Ask, looked, spark: SparkSession) -> None:
    job, first, _ = looked
    (delivered, *_) = ask(what="corrections", run=first).tables
    folder = RunStore.configured().folder(first)
    for revert in (False, True):
        noted = again(spark, job, folder, revert=revert, by="ada: it was wrong")
        assert noted == DeliveredCorrections.read(folder) and noted.notes[-1].endswith("by ada: it was wrong")
    assert any("brought back" in note for note in noted.notes) and any("once more" in note for note in noted.notes)
    (after, *_) = ask(what="corrections", run=first).tables
    kinds = {row[after.columns.index("kind")] for row in after.rows}
    assert kinds == {"correction", "repeat", "revert"} and len(after.rows) > len(delivered.rows)


@pytest.mark.long
def test_the_live_check_and_doctor_say_what_fits_and_what_to_mend(ask: Ask, looked, spark: SparkSession) -> None:
    live = ask(what="live")
    results = [row[1] for table in live.tables for row in table.rows]
    assert set(results) <= {"ok", "fix"} and live.is_well == ("fix" not in results) and len(results) > 2
    doctor = ask(what="doctor")
    assert doctor.is_well and "Spark" in {row[0] for row in doctor.tables[0].rows}
    without = load_pipeline(_without_live(looked[0]))
    for what in ("live", "corrections"):
        with pytest.raises(DefinitionError):
            answer_of(lambda: spark, without, Question.of({"what": what}), NoProgress())


def _without_live(job: Pipeline) -> Path:
    file = Path(job.file or "").with_name("without.yaml")
    file.write_text(Path(job.file or "").read_text().replace(SECTIONS, "").replace("name: looked", "name: without"))
    return file


@pytest.mark.long
def test_the_application_writes_the_answer_or_why_there_is_none_into_the_question_s_document(
    looked, spark: SparkSession
) -> None:
    job, _, second = looked
    looks, said = Looks(RunStore.configured(), job.name), []
    name = "look-20261101000000-0123456789abcdef.json"

    def asked(**fields: str) -> tuple[int, Look]:
        question = Question.of(fields)
        looks.write(name, Look(question=question, dag_run_id="r", asked_at="2026-11-01T00:00:00+00:00"))
        code = answer_question(str(job.file), name, lambda *_: spark, said.append)
        read = looks.read(name)
        assert read is not None
        return code, read

    code, answered = asked(what="quarantined", run=second)
    assert code == 0 and answered.answer is not None and answered.answered_at and json.dumps(answered.to_dict())
    code, refused = asked(what="window", window="1999-01-01T00:00:00Z", keys="k=a")
    assert code == 6 and refused.answer is None and "no run has published a window" in refused.problem
    assert "--" not in refused.hint and "Window" in refused.hint and said
