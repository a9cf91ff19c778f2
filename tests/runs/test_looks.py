"""Questions about a pipeline and their answers, as documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark_jobs.errors import CatalogError, DefinitionError, HistoryError
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.planning.form_words import in_form_words
from spark_jobs.runs.planning.looks import KEPT, Answer, Look, Looks, Question, Subject, Table


def test_a_question_keeps_what_its_subject_uses_and_times_are_in_utc() -> None:
    filled = {"window": "2013-02-01T11:00:00+01:00", "keys": " origin = EWR\n\nday=null ", "run": "r-1"}
    window = Question.of(filled | {"what": "window"})
    assert window == Question(
        what=Subject.WINDOW, window="2013-02-01T10:00:00Z", keys=(("origin", "EWR"), ("day", "null"))
    )
    assert window.in_words() == "The revisions of a window: window 2013-02-01T10:00:00Z, origin EWR, day null"
    assert Question.of(filled | {"what": "quarantined"}) == Question(what=Subject.QUARANTINED, run="r-1")
    assert Question.of(filled | {"what": "doctor"}) == Question(what=Subject.DOCTOR)
    assert Question.of({"what": "late", "keys": "k=a=b"}).keys == (("k", "a=b"),)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"what": "drop table"}, "What: 'drop table'"),
        ({}, "What: ''"),
        ({"what": "window"}, "Window: its start is missing"),
        ({"what": "window", "window": "2013-02-01 10:00"}, "Window: `2013-02-01 10:00` has no zone"),
        ({"what": "late", "window": "'; DROP TABLE x; --"}, "Window: "),
        ({"what": "late", "keys": "EWR"}, "Keys: 'EWR'"),
        ({"what": "late", "keys": f"k={'x' * 201}"}, "Keys: "),
        ({"what": "late", "keys": "\n".join(["k=1"] * 21)}, "Keys: 21 lines"),
        ({"what": "corrections", "run": "../../etc/passwd"}, "is not a run id"),
        ({"what": "corrections", "run": "r' OR '1'='1"}, "is not a run id"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_by_the_name_of_its_field(fields: dict, says: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        Question.of(fields)
    assert says in refused.value.what


def test_only_keys_of_the_pipeline_are_asked_for() -> None:
    question = Question.of({"what": "late", "keys": "orign=EWR"})
    with pytest.raises(DefinitionError, match="Keys: 'orign' is not a key"):
        question.refuse_other_keys(("origin",))


def test_an_answer_is_found_by_its_dag_run_and_only_the_newest_are_kept(tmp_path: Path) -> None:
    looks, first = Looks(RunStore(str(tmp_path)), "orders"), datetime(2026, 11, 1, tzinfo=UTC)
    ids = [f"manual__{number}" for number in range(KEPT + 2)]
    for number, dag_run_id in enumerate(ids):
        look = Look(question=Question(what=Subject.DOCTOR), dag_run_id=dag_run_id, asked_at=first.isoformat())
        name = looks.name_of(dag_run_id, first + timedelta(minutes=number))
        looks.write(name, look)
        assert looks.name_of(dag_run_id, first + timedelta(days=1)) == name, "a task that is cleared answers again"
    assert looks.found(ids[0]) is None and len(looks.names()) == KEPT
    name = looks.found(ids[-1])
    assert name == looks.names()[0]
    read = looks.read(name or "")
    assert read is not None and read.dag_run_id == ids[-1] and not read.has_ended
    answered = read.model_copy(update={"answer": Answer(sentence="all is well", tables=(Table(rows=((None, "1"),)),))})
    looks.write(name or "", answered)
    again = looks.read(name or "")
    assert again is not None and again.answer == answered.answer and again.has_ended
    with pytest.raises(DefinitionError, match="not the name of an answer"):
        looks.read("../last.json")


def test_errors_name_what_there_is_in_airflow() -> None:
    told = in_form_words(CatalogError("it does not answer", "here", "Check the catalog with `rewindow doctor`."))
    assert told.hint == "Check the catalog with the DAG `look__<pipeline>`, which looks at `doctor`."
    told = in_form_words(
        HistoryError("12 of 20", "x", "See the reasons with `rewindow plan orders --quarantined`, fix it.")
    )
    assert told.hint == "See the reasons in the report (The plan, and how it went), fix it."
