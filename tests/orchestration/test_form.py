from __future__ import annotations

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.orchestration.form import BY_DEFINITION, backfill_params, read_form, read_reason
from spark_jobs.orchestration.run_ids import run_id_of
from spark_jobs.orchestration.summary import escaped
from spark_jobs.runs.store import checked_run_id


def test_the_form_as_it_opens_asks_for_everything_that_is_there() -> None:
    params = backfill_params(load_pipeline("dags/pipelines/departures_hourly.yaml"))
    answers = read_form({name: param.value for name, param in params.items()})
    assert answers == {
        "from": None, "to": None, "as_of": None, "mode": "both", "chunks": 1, "accept_degraded": False,
        "dry_run": "none", "publish": None,
    }  # fmt: skip
    assert all(param.schema["title"] and param.schema["description_md"] for param in params.values())


def test_times_keep_their_instant_whatever_zone_they_are_written_in() -> None:
    answers = read_form({"from": "2013-02-01T01:00:00+01:00", "to": " 2013-02-02T00:00:00Z ", "publish": "on_approval"})
    assert (answers["from"], answers["to"]) == ("2013-02-01T00:00:00Z", "2013-02-02T00:00:00Z")
    assert answers["publish"] == "on_approval"
    assert read_form({"publish": BY_DEFINITION})["publish"] is None


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"from": "yesterday"}, "From: "),
        ({"to": "2013-02-01T00:00:00"}, "To: .*zone"),
        ({"from": "2013-02-02T00:00:00Z", "to": "2013-02-01T00:00:00Z"}, "is not before To"),
        ({"from": "2013-02-01T00:00:00Z", "to": "2013-02-01T00:00:00Z"}, "is not before To"),
        ({"as_of": "0=12;1=3"}, "As of: "),
        ({"as_of": "0=-1"}, "As of: "),
        ({"as_of": "'; DROP TABLE runs"}, "As of: "),
        ({"mode": "fast"}, "Values: "),
        ({"chunks": 0}, "Chunks: "),
        ({"chunks": True}, "Chunks: "),
        ({"chunks": "4"}, "Chunks: "),
        ({"dry_run": "maybe"}, "Dry run: "),
        ({"publish": "yes"}, "Publish: "),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_name_of_its_field(form: dict, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as refused:
        read_form(form)
    assert refused.value.hint


def test_a_reason_is_text_and_no_longer_than_it_may_be() -> None:
    assert read_reason({"reason": " a fix \n"}) == "a fix"
    assert len(read_reason({"reason": "x" * 5000})) == 1000
    assert read_reason({}) == ""


@pytest.mark.parametrize("dag_run", ["manual__2026-01-01T00:00:00+00:00", "../../etc/passwd", "a b/c'd\";", "é" * 300])
def test_every_dag_run_has_a_run_id_that_can_be_a_path_and_a_table(dag_run: str) -> None:
    made = run_id_of("backfill__departures", dag_run)
    assert checked_run_id(made) == made == run_id_of("backfill__departures", dag_run)
    assert "/" not in made
    assert made != run_id_of("reconcile__departures", dag_run)
    assert made != run_id_of("backfill__departures", dag_run + "x")


def test_text_of_people_stays_text_in_the_approval() -> None:
    assert escaped("<b>[x](http://y)\n**") == "\\<b\\>\\[x\\]\\(http://y\\) \\*\\*"
