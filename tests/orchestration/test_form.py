from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.definition.output import Policy
from spark_jobs.errors import DefinitionError, RunStateError
from spark_jobs.orchestration.describe import described, escaped
from spark_jobs.orchestration.form import (
    BACKFILL_FIELDS,
    BY_DEFINITION,
    backfill_params,
    maintain_params,
    read_form,
    read_maintain_form,
    read_nightly_form,
    read_reason,
    refuse_late_decision,
    require_reason,
)
from spark_jobs.orchestration.operators import Decide, SparkTask, deciding_person, what_became, why_it_ended
from spark_jobs.orchestration.run_ids import run_id_of
from spark_jobs.orchestration.spark_log import QuietSparkSubmitHook, end_of, readable, without_ivy
from spark_jobs.report.verdict import verdict_of
from spark_jobs.runs.life.documents import AnyOutcome, Outcome, Request, instant_of
from spark_jobs.runs.life.status import RunKind, RunStatus, Stage
from spark_jobs.runs.life.store import RunStore, checked_run_id
from spark_jobs.runs.planning.form_words import in_form_words
from spark_jobs.runs.planning.last_run import last_run, remember
from spark_jobs.runs.planning.requesting import check_range
from spark_jobs.web.summary import run_of
from tests.report import documents

SAMPLE = "dags/pipelines/departures_hourly.yaml"


def test_the_form_as_it_opens_asks_for_everything_that_is_there() -> None:
    params = backfill_params(load_pipeline(SAMPLE))
    assert tuple(params) == BACKFILL_FIELDS
    answers = read_form({name: param.value for name, param in params.items()})
    assert answers.given() == {
        "mode": "both", "chunks": 1, "accept_degraded": False, "beyond_limits": False, "another_log": False,
    }  # fmt: skip
    assert all(param.schema["title"] and param.schema["description_md"] for param in params.values())


def test_the_form_begins_with_range_and_reason_and_names_the_range_of_the_history(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REWINDOW_RUNS", str(tmp_path / "runs"))
    pipeline, store = load_pipeline(SAMPLE), RunStore.configured()
    assert last_run(pipeline.name) is None
    for number, (first, last) in enumerate([(60_000, 7_200_000), (3_600_000, 10_800_000)]):
        folder = store.folder(f"run-{number}")
        Request.of(folder.run_id, pipeline, RunKind.BACKFILL, "a fix", datetime.now(UTC)).write(folder)
        times = {"start": first, "end": last}
        ends = {"partition": 0, "first_offset": 0, "end_offset": 5 + number}
        ends |= {"first_arrival": None, "last_arrival": None, "records": 5 + number}
        folder.write("plan.json", documents.plan(span=times, event_times=times, partitions=[ends]))
        Outcome(run_id=folder.run_id, status=RunStatus.PUBLISHED).write(folder)
        remember(folder)
    known = last_run(pipeline.name)
    assert known is not None
    assert (known.run_id, known.as_of, known.first, known.last) == ("run-1", {0: 6}, 60_000, 10_800_000)
    assert sorted(store.run_ids()) == ["run-0", "run-1"]  # what is known of a pipeline is no run
    params = backfill_params(pipeline, known)
    assert [name for name, param in params.items() if "section" not in param.schema] == ["from", "to", "reason"]
    # Whoever leaves the range as it is gets the whole history, also what has arrived before its known beginning.
    assert (params["from"].value, params["to"].value) == (None, None)
    assert "from `1970-01-01T00:01:00Z` to `1970-01-01T03:00:00Z` (UTC)" in params["from"].schema["description_md"]
    assert "The last run: 0=6." in params["as_of"].schema["description_md"]
    text = described(
        pipeline.model_copy(update={"owner": "team-[x]", "links": {"Run|book": "https://w/x"}}), "It.", known
    )
    assert "| owner | team-\\[x\\] |" in text
    assert "[Run\\|book](https://w/x)" in text
    assert "1970-01-01 01:00 to 1970-01-01 03:00 UTC" in text


def test_what_no_form_has_is_refused_and_so_is_an_empty_reason() -> None:
    with pytest.raises(DefinitionError, match=r"no field `fromm`.*Did you mean `from`"):
        read_form({"fromm": "2013-02-01T00:00:00Z"})
    with pytest.raises(DefinitionError, match=r"no field `chunks`"):
        read_nightly_form({"chunks": 2})
    assert read_nightly_form({"until": None, "dry_run": "diff"}).given() == {"dry_run": "diff"}
    with pytest.raises(DefinitionError, match="Dry run: 'plan'"):
        read_nightly_form({"dry_run": "plan"})
    assert require_reason({"reason": " a fix "}) == "a fix"
    for params in ({}, {"reason": None}, {"reason": "  "}):
        with pytest.raises(DefinitionError, match="Reason: it is empty"):
            require_reason(params)


def test_errors_name_the_fields_of_the_form() -> None:
    error = DefinitionError("--to: it is early", hint="Correct --as-of, or see `rewindow sql --to-json`.")
    assert str(in_form_words(error)) == "To: it is early. Correct As of, or see `rewindow sql --to-json`."


def test_the_log_keeps_all_but_the_everyday_lines_of_ivy() -> None:
    ivy = """\
:: loading settings :: url = jar:file:/x/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
Ivy Default Cache set to: /root/.ivy2.5.2/cache
The jars for the packages stored in: /root/.ivy2.5.2/jars
org.apache.spark#spark-avro_2.13 added as a dependency
:: resolving dependencies :: org.apache.spark#spark-submit-parent-1;1.0
\tconfs: [default]
\tfound org.apache.spark#spark-avro_2.13;4.0.0 in central
:: resolution report :: resolve 325ms :: artifacts dl 9ms
\t:: modules in use:
\torg.xerial#sqlite-jdbc;3.50.3.0 from central in [default]
\t---------------------------------------------------------------------
\t|                  |            modules            ||   artifacts   |
\t|       conf       | number| search|dwnlded|evicted|| number|dwnlded|
\t|      default     |   18  |   0   |   0   |   0   ||   18  |   0   |
:: retrieving :: org.apache.spark#spark-submit-parent-1
\t0 artifacts copied, 18 already retrieved (0kB/12ms)
"""
    ours = ["the gate is closed: 1 critical expectation failed\n", "\t\tmodule not found: a#b;1\n", "| a | b |\n"]
    assert list(without_ivy(iter([*ivy.splitlines(keepends=True), *ours]))) == ours


def test_the_log_says_the_stages_in_words_and_leaves_other_lines_as_they_are() -> None:
    lines = [
        '{"stage": "windows", "detail": "chunk 1 of 4", "event": "stage started", "timestamp": "t", "level": "info"}\n',
        '{"stage": "gate", "detail": "", "event": "stage started", "timestamp": "t", "level": "info"}\n',
        '{"stage": "gate", "detail": "", "seconds": 3.25, "event": "stage ended", "timestamp": "t", "level": "info"}\n',
    ]
    others = ['{"stage": broken\n', '{"stage": "x", "event": "another"}\n', "the end\n"]
    assert list(readable(iter([*lines, *others]))) == [
        "windows: chunk 1 of 4", "gate begins", "gate has taken 3.25 s", *others,
    ]  # fmt: skip


def test_an_application_that_fails_is_quoted_and_its_command_line_is_not() -> None:
    hook = QuietSparkSubmitHook.__new__(QuietSparkSubmitHook)  # without a connection
    problem = RuntimeError("Cannot execute: spark-submit --conf a=b main.py. Error code is: 7.\n\nLast lines: x")
    silent = end_of(hook, problem)
    assert (silent.code, silent.sentence) == (7, "the Spark application ended with code 7 and left no message")
    assert not silent.is_killed
    for code in (-15, -9, 143):  # marked as failed by hand, say
        assert end_of(hook, RuntimeError(f"Cannot execute: x. Error code is: {code}.")).is_killed
    lines = ["WARN a\n", "error: the catalog does not answer (x). Start it.\n", "INFO stopped\n"]
    assert list(hook.listening(iter(lines))) == lines
    assert end_of(hook, problem).sentence == "the catalog does not answer (x). Start it."


def test_the_form_of_maintenance_is_checked_before_spark_starts() -> None:
    given = {name: param.value for name, param in maintain_params(archives=True).items()}
    assert given.keys() - maintain_params(archives=False).keys() == {"what"}

    def read(answers: dict[str, Any], *, archives: bool = True) -> list[str]:
        return read_maintain_form(answers, "p.yaml", archives=archives)

    assert read(given) == ["--maintain", "p.yaml", "--keep-snapshots", "7 d", "--keep-runs", "400 d"]
    assert read(given | {"keep_revisions": "365 d"})[4:6] == ["--keep-revisions", "365 d"]
    assert read(given | {"what": "archive"}) == ["--archive", "p.yaml"]
    with pytest.raises(DefinitionError, match="no field `what`"):
        read(given | {"what": "archive"}, archives=False)
    for wrong, words in (
        ({"keep_snapshots": "long"}, "Keep snapshots: "),
        ({"keep_snapshots": ""}, "Keep snapshots: "),
        ({"keep_runs": "7 moons"}, "Keep runs: "),
        ({"keep": "7 d"}, "no field `keep`"),
        ({"what": "drop"}, "What: "),
        ({"keep_snapshots": "0"}, "Keep snapshots: it is below 1 d"),
        ({"keep_revisions": "23 h"}, "Keep revisions: it is below 1 d"),
        ({"keep_runs": "0 s"}, "Keep runs: it is below 1 d"),
    ):
        with pytest.raises(DefinitionError, match=words):
            read(given | wrong)


def test_times_keep_their_instant_whatever_zone_they_are_written_in() -> None:
    answers = read_form({"from": "2013-02-01T01:00:00+01:00", "to": " 2013-02-02T00:00:00Z ", "publish": "on_approval"})
    assert (answers.start, answers.end) == ("2013-02-01T00:00:00Z", "2013-02-02T00:00:00Z")
    assert answers.publish is Policy.ON_APPROVAL
    assert read_form({"publish": BY_DEFINITION}).publish is None


def test_a_range_that_is_reversed_is_refused_in_the_words_of_the_form() -> None:
    requested = read_form({"from": "2013-02-02T00:00:00Z", "to": "2013-02-02T00:00:00Z"})
    with pytest.raises(DefinitionError, match="Give a To after From") as refused:
        try:
            check_range(load_pipeline(SAMPLE), instant_of(requested.start), instant_of(requested.end))
        except DefinitionError as problem:
            raise in_form_words(problem) from None
    assert "reversed or empty" in str(refused.value)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"from": "yesterday"}, "From: "),
        ({"to": "2013-02-01T00:00:00"}, "To: .*zone"),
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


@pytest.mark.parametrize(
    ("status", "action"),
    [(RunStatus.PUBLISHED, "discard"), (RunStatus.UNCHANGED, "discard"), (RunStatus.REJECTED, "publish"),
     (RunStatus.DISCARDED, "publish")],
)  # fmt: skip
def test_a_decision_that_comes_too_late_is_refused(status: RunStatus, action: str) -> None:
    with pytest.raises(RunStateError, match=f"the run is {status.value}: `{action}` is not possible any more"):
        refuse_late_decision("r", status, action)
    for other in (None, RunStatus.GATE_FAILED, RunStatus.AWAITING_APPROVAL, RunStatus.FAILED):
        refuse_late_decision("r", other, action)


def test_a_run_that_waits_says_why_it_was_refused_and_not_why_it_waits() -> None:
    waiting = Outcome(run_id="a", status=RunStatus.GATE_FAILED, message="the gate is closed", hint="Read the report.")
    assert why_it_ended(waiting) == "the gate is closed. Read the report."
    refused = waiting.model_copy(update={"refusal": "what is staged is gone (a). Start the run again."})
    assert why_it_ended(refused) == "what is staged is gone (a). Start the run again."
    staged = Outcome(run_id="a", status=RunStatus.STAGED, message="the policy is `always`", refusal="it is gone")
    assert why_it_ended(staged) == "it is gone"
    published = Outcome(run_id="a", status=RunStatus.PUBLISHED, changes={"inserted": 2, "bookkeeping": 5})
    assert what_became(published) == "the run is published: 2 windows inserted"
    assert what_became(waiting) == "the run is stopped by its gate: the gate is closed. Read the report"
    assert what_became(None) == "the run goes on"
    assert why_it_ended(None) == why_it_ended(staged.model_copy(update={"refusal": ""})) == ""
    verdict = verdict_of(AnyOutcome.model_validate(refused.to_dict()), {}, [])
    assert any("what is staged is gone (a)" in step.text for step in verdict.next)
    request = Request(run_id="a", pipeline="p", kind=RunKind.BACKFILL)
    assert run_of(request, AnyOutcome.model_validate(refused.to_dict())).message == refused.refusal


def test_a_decision_is_carried_out_once_and_may_be_repeated() -> None:
    refuse_late_decision("r", RunStatus.PUBLISHED, "publish")
    refuse_late_decision("r", RunStatus.DISCARDED, "discard")


@pytest.mark.parametrize("action", ["repeat", "revert"])
def test_only_corrections_of_a_published_run_are_repeated_or_reverted(action: str) -> None:
    for status in (RunStatus.PUBLISHED, RunStatus.UNCHANGED):
        refuse_late_decision("r", status, action)
    for status in (None, RunStatus.GATE_FAILED, RunStatus.AWAITING_APPROVAL, RunStatus.REJECTED, RunStatus.FAILED):
        with pytest.raises(RunStateError, match="it has delivered no corrections"):
            refuse_late_decision("r", status, action)


def test_a_shop_says_how_long_the_form_of_maintenance_keeps_things_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWINDOW_KEEP_AT_LEAST", "30 d")
    form = {"keep_snapshots": "30 d", "keep_runs": "400 d", "keep_revisions": "forever"}
    assert read_maintain_form(form, "p.yaml", archives=False)
    for name in form:
        with pytest.raises(DefinitionError, match=r"it is below 30 d .*REWINDOW_KEEP_AT_LEAST"):
            read_maintain_form(form | {name: "29 d"}, "p.yaml", archives=False)


class OfARun(SimpleNamespace):
    """What a task knows of its DAG run."""

    def __init__(self, person: str | None, number: int = 1) -> None:
        super().__init__(triggering_user_name=person, run_id="r", dag_id="decide__p")
        self.context: Any = {"dag_run": self, "ti": SimpleNamespace(try_number=number)}


def test_only_a_user_decides_and_no_decision_is_repeated_under_a_name() -> None:
    assert deciding_person(OfARun("ann").context) == "ann"
    for nobody in (None, ""):
        with pytest.raises(DefinitionError, match="no user has decided this"):
            deciding_person(OfARun(nobody).context)
    with pytest.raises(DefinitionError, match="a decision is not repeated: ann has made it once"):
        deciding_person(OfARun("ann", 2).context)


@pytest.mark.parametrize("reason", ["-x", "--run=other", "--", "a\0b", "\x1b[2J"])
def test_whatever_a_reason_is_it_stays_a_reason(reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is an argument of the Spark application."""
    given: list[str] = []
    monkeypatch.setenv("REWINDOW_RUNS", str(tmp_path))
    monkeypatch.setattr(SparkTask, "_run_application", lambda _, __, arguments: given.extend(arguments))
    task = Decide(task_id="decide", stage=Stage.PUBLISH, pipeline="p", pipeline_file="p.yaml")
    context = OfARun("ann").context | {"params": {"run": "r", "action": "publish", "reason": reason}}
    task._submit(RunStore.configured().folder("r"), context, Stage.PUBLISH)
    why = next(one for one in given if one.startswith("--why="))
    assert why.removeprefix("--why=") == "".join("\ufffd" if ord(letter) < 32 else letter for letter in reason)
    assert not set(given) & {"-x", "--run=other", "--why"} and "--person=ann" in given
