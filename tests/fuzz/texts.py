"""What people write and programs leave: definitions, forms, suites, documents of runs, checkpoints."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from ruamel.yaml import YAML

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.eventtime.spark.batches import batches_of
from spark_jobs.orchestration.form import (
    look_params,
    read_form,
    read_maintain_form,
    read_nightly_form,
    refuse_unknown,
    require_reason,
)
from spark_jobs.quality.gx import built
from spark_jobs.quality.resolve import SuiteScope, fit
from spark_jobs.quality.suites import load_suites
from spark_jobs.report.counted import Facts
from spark_jobs.runs.life.documents import (
    AnyOutcome,
    Application,
    Approval,
    Changes,
    Document,
    Gate,
    Outcome,
    Quarantine,
    Request,
    StagedRange,
    TimelineDocument,
)
from spark_jobs.runs.life.store import RunFolder, RunStore
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.planning.last_run import LastRun
from spark_jobs.runs.planning.looks import Look, Question
from spark_jobs.runs.planning.plan import check_plan, plan_from_json
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.planning.requesting import check_range
from spark_jobs.sources.checkpoint import parsed_checkpoint
from tests.fuzz import mutations
from tests.fuzz.limits import Fault
from tests.fuzz.schema_documents import definitions
from tests.fuzz.search import Kind
from tests.report import documents as written

ROOT = Path(__file__).parents[2]
PIPELINES = tuple(sorted((ROOT / "dags" / "pipelines").glob("*.yaml")))


@cache
def scratch() -> Path:
    """A folder for files that are read once; it is removed at the end of the process."""
    folder = tempfile.TemporaryDirectory(prefix="rewindow-fuzz-")
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


@cache
def pipelines() -> tuple[Pipeline, ...]:
    """The definitions of the project."""
    return tuple(load_pipeline(file) for file in PIPELINES)


# Definitions


def _texts() -> st.SearchStrategy[bytes]:
    files = [file.read_bytes() for file in PIPELINES]
    trees = [YAML(typ="safe").load(text) for text in files]
    documents = st.one_of(mutations.changed(trees), mutations.changed(definitions(), most=2))
    return st.one_of(mutations.as_json(documents), mutations.damaged(st.sampled_from(files)))


def read_definition(data: bytes) -> None:
    """Load a definition, and all that is made of it without Spark."""
    file = scratch() / "p.yaml"
    file.write_bytes(data)
    pipeline = load_pipeline(file, {})
    if not pipeline.definition_hash or not isinstance(json.loads(pipeline.to_canonical_json()), dict):
        raise Fault("a definition without a hash")


# Forms


FORMS: Mapping[str, dict[str, Any]] = {
    "backfill": {
        "from": "2013-01-01T00:00:00Z", "to": "2013-02-01T00:00:00+01:00", "reason": "a repair", "as_of": "0=12,1=9",
        "mode": "both", "chunks": 2, "accept_degraded": False, "beyond_limits": True, "another_log": False,
        "dry_run": "diff", "publish": "as the definition says",
    },
    "nightly": {"until": "2013-01-01T00:00:00Z", "reason": "", "publish": "always", "dry_run": "none"},
    "maintain": {"what": "clean up", "keep_snapshots": "7 d", "keep_revisions": "365 d", "keep_runs": "forever"},
    "look": {"what": "window", "window": "2013-01-01T00:00:00Z", "keys": "carrier=UA", "run": "night-1"},
}  # fmt: skip


def read_one_form(form: tuple[str, Any]) -> None:
    """Read the values of a form as the first task of its DAG does."""
    name, params = form
    if not isinstance(params, dict):
        return
    pipeline = pipelines()[0]
    match name:
        case "backfill":
            requested = read_form(params)
            options = requested.plan_options(pipeline)
            check_range(pipeline, options["start"], options["end"])
            require_reason(params)
        case "nightly":
            read_nightly_form(params).given()
        case "maintain":
            read_maintain_form(params, "p.yaml", archives=True)
        case _:
            refuse_unknown(params, look_params(pipeline))
            question = Question.of(params)
            question.refuse_other_keys(tuple(pipeline.keys))
            question.in_words()


# Suites


def _suites() -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((ROOT / "expectations").glob("*.json"))]


def _own_suite() -> bytes:
    return (ROOT / "expectations" / "departures_hourly.json").read_bytes()


def read_suite(data: bytes) -> None:
    """Load a suite as the one that belongs to a pipeline."""
    folder = scratch() / "expectations"
    if not folder.exists():
        folder.mkdir()
        for name in ("input", "windows", "reconciliation", "live"):
            (folder / f"{name}.json").write_bytes((ROOT / "expectations" / f"{name}.json").read_bytes())
    pipeline = next(one for one in pipelines() if one.name == "departures_hourly")
    (folder / f"{pipeline.name}.json").write_bytes(data)
    fitted, _ = fit(load_suites(pipeline, folder), SuiteScope(pipeline))
    built([one for one in fitted if one.suite.file == str(folder / f"{pipeline.name}.json")])


# Documents of runs


_DOCUMENTS: Mapping[type[Document], Any] = {
    Plan: written.plan(), Changes: written.changes(), Gate: written.gate(), Facts: written.facts(),
    Outcome: written.outcome("published"), AnyOutcome: written.outcome("published"), Request: written.request(),
    Verdicts: written.verdicts(), Approval: {"decision": "approved", "by": "ada", "at": "2013-01-01T00:00:00Z"},
    Application: {"stage": "replay", "application_id": "local-1", "seconds": 1.5},
    Quarantine: {"reasons": [{"reason": "not valid JSON", "records": 3, "partition": 0, "offset": 7}]},
    StagedRange: {"base": 1, "table_id": "t", "reach": [0, 3_600_000], "replaces": False, "since": {"0": 4}},
    TimelineDocument: {"flushes": True, "state": {}, "watermark_below": 0, "steps": False},
    LastRun: {"run_id": "night-1", "status": "published", "first": 0, "last": 5, "as_of": {"0": 7}},
    Look: {"dag_run_id": "d", "asked_at": "2013-01-01T00:00:00Z", "question": {"what": "window", "keys": [["a", "b"]]}},
}  # fmt: skip
_NAMES = {model.__name__: model for model in _DOCUMENTS}


def _documents() -> st.SearchStrategy[tuple[str, bytes]]:
    small = {name: _shortened(_DOCUMENTS[model]) for name, model in _NAMES.items()}
    return st.sampled_from(sorted(small)).flatmap(
        lambda name: st.tuples(st.just(name), mutations.as_json(mutations.changed([small[name]])))
    )


def _shortened(node: Any) -> Any:
    """The document with at most two entries in each list: a change of any of them is as good."""
    if isinstance(node, dict):
        return {name: _shortened(value) for name, value in node.items()}
    return [_shortened(value) for value in node[:2]] if isinstance(node, list) else node


def read_document(given: tuple[str, bytes]) -> None:
    """Read a document of a run's folder, and a plan as a person's file too."""
    name, data = given
    run, model = _run_folder(), _NAMES[name]
    run.write_bytes("outcome.json", data)
    document = model.read_as(run, "outcome.json")
    assert document is not None
    document.to_dict()
    if isinstance(document, Outcome):
        document.sentence()
    if isinstance(document, Plan):
        document.of_inputs()
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return
        check_plan(plan_from_json(text), pipelines()[0])


@cache
def _run_folder() -> RunFolder:
    return RunStore(str(scratch() / "runs")).folder("fuzz")


# Checkpoints


_METADATA = '{"batchWatermarkMs":5,"batchTimestampMs":9,"conf":{"spark.sql.streaming.multipleWatermarkPolicy":"min"}}'
CHECKPOINT: Mapping[str, bytes] = {
    "metadata": b'{"id":"d3f1"}',
    "offsets/0": f'v1\n{_METADATA}\n{{"t":{{"0":4,"1":7}}}}\n{{"logOffset":0}}\n-'.encode(),
    "offsets/1": f'v2\n{_METADATA}\n1:{{"logOffset":1}}\n0:{{"t":{{"0":9,"1":8}}}}'.encode(),
    "commits/0": b'v1\n{"nextBatchWatermarkMs":7}',
    "commits/1": b'v3\n{"nextBatchWatermarkMs":9,"stateUniqueIds":{}}',
    "sources/0/0": b'\x00v1\n{"t":{"0":0,"1":2}}',
    "sources/1/0": b'v1\n{"path":"file:///a/b%20c","timestamp":5,"batchId":0}',
    "sources/1/1": b'v1\n{"path":"file:///a/d","timestamp":6,"batchId":1}',
    "sources/1/9.compact": b'v1\n{"path":"file:///a/b%20c","timestamp":5,"batchId":0}',
}
_NAMES_OF_FILES = (
    *CHECKPOINT,
    f"offsets/{10**30}",
    f"commits/{2**63}",
    f"sources/0/{10**30}",
    "offsets/2",
    "sources/x/0",
)
_NUMBERS = st.sampled_from(
    [str(number) for number in (-1, 0, 2**31, 2**63, 10**30, "1e400", "1.5", "null", '"7"', "NaN")]
)


@st.composite
def _checkpoints(draw: st.DrawFn) -> dict[str, bytes]:
    files = dict(CHECKPOINT)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(_NAMES_OF_FILES))
        text = files.get(name, draw(st.sampled_from(list(CHECKPOINT.values()))))
        is_damaged = draw(st.booleans())
        files[name] = draw(mutations.damaged(st.just(text))) if is_damaged else _with_value(draw, text)
    return files


def _with_value(draw: st.DrawFn, text: bytes) -> bytes:
    """The file with another value in the place of one of its numbers or texts."""
    lines = text.split(b"\n")
    index = draw(st.integers(0, len(lines) - 1))
    head, colon, rest = lines[index].partition(b":") if lines[index][:1] != b"{" else (b"", b"", lines[index])
    try:
        document = json.loads(rest)
    except ValueError:
        return text
    if draw(st.booleans()):
        numbers = [place for place in mutations.places(document) if isinstance(mutations.at(document, place), int)]
        if numbers:
            number = json.loads(draw(_NUMBERS))
            document = mutations.replaced(document, draw(st.sampled_from(numbers)), lambda _: number)
    else:
        document = draw(mutations.changed([document], most=1))
    lines[index] = head + colon + json.dumps(document).encode()
    return b"\n".join(lines)


def read_checkpoint_files(files: Mapping[str, bytes]) -> None:
    """Read the files of a checkpoint as a run does, and the batches of its query."""
    texts = {name: data.decode("utf-8", "replace") for name, data in files.items()}
    checkpoint = parsed_checkpoint(texts.items(), "/c")
    assert all(checkpoint.offsets[batch].batch == batch for batch in checkpoint.offsets)
    assert all(checkpoint.commits[batch].batch == batch for batch in checkpoint.commits)
    batches_of(checkpoint.then(checkpoint))


def _shown_files(files: Mapping[str, bytes]) -> str:
    changed = {name: mutations.shown_bytes(data) for name, data in files.items() if CHECKPOINT.get(name) != data}
    return f"a checkpoint in which {changed}"


def _shown_form(form: tuple[str, Any]) -> str:
    name, params = form
    if not isinstance(params, dict):
        return repr(form)
    return f"the form {name} with { ({key: one for key, one in params.items() if FORMS[name].get(key) != one})!r:.900}"


def text_kinds() -> list[Kind]:
    """The kinds that need no Spark and no service."""
    forms = st.sampled_from(sorted(FORMS)).flatmap(
        lambda name: st.tuples(st.just(name), mutations.changed([FORMS[name]]))
    )
    suites = mutations.as_json(mutations.changed(_suites()))
    return [
        Kind("definitions", _texts(), read_definition, shown=mutations.shown_bytes, prepare=pipelines),
        Kind("forms", forms, read_one_form, shown=_shown_form, prepare=pipelines),
        Kind("suites", suites, read_suite, shown=mutations.shown_bytes, prepare=lambda: read_suite(_own_suite())),
        Kind("documents", _documents(), read_document, shown=lambda one: f"{one[0]} {mutations.shown_bytes(one[1])}"),
        Kind("checkpoints", _checkpoints(), read_checkpoint_files, shown=_shown_files),
    ]
