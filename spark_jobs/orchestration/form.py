"""The form of a backfill in the Airflow UI, and how it is read.

The server checks types and choices, but accepts any text as a date and time: `read_form` checks everything again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import Param

from spark_jobs.definition import Pipeline
from spark_jobs.definition.fields import nearest
from spark_jobs.definition.output import Policy
from spark_jobs.errors import DefinitionError, RunStateError
from spark_jobs.formatting import visible
from spark_jobs.operations.periods import KEEP_RUNS, retention, retention_or_forever
from spark_jobs.orchestration.describe import POLICIES, as_of_text, history_range
from spark_jobs.runs.life.documents import DryRun, Requested
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.planning.form_words import FIELDS, in_form_words
from spark_jobs.runs.planning.last_run import LastRun
from spark_jobs.runs.planning.looks import Subject
from spark_jobs.runs.planning.requesting import requested_of
from spark_jobs.settings import Variable, settings

BY_DEFINITION = "as the definition says"
PUBLISH, DISCARD, REPEAT, REVERT = "publish", "discard", "repeat", "revert"
DECISIONS = (PUBLISH, DISCARD)
"""Actions on a run that waits."""
CORRECTING = (REPEAT, REVERT)
"""Actions on a run that is published, where its pipeline delivers corrections."""
CLEAN_UP, ARCHIVE = "clean up", "archive"
"""What `maintain__<pipeline>` does."""
BACKFILL_FIELDS = (
    "from", "to", "reason", "as_of", "mode", "chunks", "accept_degraded", "beyond_limits", "another_log", "dry_run",
    "publish",
)  # fmt: skip
NIGHTLY_FIELDS = ("until", "reason", "publish", "dry_run")
MAX_CHUNKS = 1000
MAX_REASON = 1000

_HOW, _OUTCOME = "How", "What becomes of it"
_ZONE = "The picker writes the zone that this page is set to (bottom left). "
_MODES = {
    "both": "both, side by side",
    "faithful": "faithful: what the live job's rules give",
    "complete": "complete: as if nothing had been late",
}
_DRY_RUNS = {
    "none": "no dry run",
    "plan": "plan: say what would be done",
    "diff": "diff: replay, and say what would change",
}


def backfill_params(pipeline: Pipeline, last: LastRun | None = None) -> dict[str, Param]:
    """The fields of the form: what has to be filled comes first, outside the sections, which are closed at first.

    `last`: the pipeline's last run, whose range the form names.
    """
    return {
        "from": _instant_param(
            "from",
            f"The first window start to replay. {history_range(last)}{_ZONE}Empty: from the beginning of the history.",
        ),
        "to": _instant_param(
            "to",
            f"Windows that start before this instant are replayed. {history_range(last)}{_ZONE}"
            "Empty: to the end of the history.",
        ),
        "reason": _open_reason("**Needed**: why this is done. Kept with the run and with every value that it changes."),
        "as_of": _param(
            "as_of",
            # No code: Airflow draws it so high that it covers the line above it.
            "Cut the history at these end offsets (exclusive): partition=offset pairs with commas, as 0=1200,1=950. Or "
            "where the live job has read to: the folder of its checkpoint or savepoint, or its consumer group. "
            + (f"The last run: {as_of_text(last)}. " if last is not None and last.as_of else "")
            + "Empty: all that is there now.",
        ),
        "mode": _param(
            "mode",
            "Which values are computed. Both come from one aggregation.",
            pipeline.mode.value,
            enum=list(_MODES),
            values_display=_MODES,
        ),
        "chunks": _param(
            "chunks",
            "Slices of the range, each a task that can be repeated alone. Never changes a result; each costs the start "
            "of a Spark application.",
            1,
            minimum=1,
            maximum=MAX_CHUNKS,
        ),
        "accept_degraded": _param(
            "accept_degraded",
            "Go on where the history does not hold the broker's order, or has gaps. The run records it.",
            False,
        ),
        "beyond_limits": _param(
            "beyond_limits", "Allow this run to read more, or to take longer, than the definition's `limits`.", False
        ),
        "another_log": _param(
            "another_log",
            "Allow a history that is another log than the one that was read before (a topic that was made anew, other "
            "files). What this log gives then replaces **all** that is published.",
            False,
        ),
        "dry_run": _dry_run_param(_DRY_RUNS),
        "publish": _publish_param(pipeline),
    }


def nightly_params(pipeline: Pipeline) -> dict[str, Param]:
    """The fields of the form of `reconcile__<pipeline>`, which the scheduler leaves as they are."""
    return {
        "until": _instant_param(
            "until",
            f"Take what arrived before this instant. {_ZONE}Empty: the end of the run's interval; of a run started by "
            "hand, all that is there.",
        ),
        "reason": _open_reason("Why this is done; may be empty. Kept with the run."),
        "publish": _publish_param(pipeline),
        "dry_run": _dry_run_param({name: text for name, text in _DRY_RUNS.items() if name != "plan"}),
    }


_SCHEMA: Mapping[str, Any] = Requested.model_json_schema()["properties"]


def _param(name: str, description: str, default: Any = None, *, section: str | None = _HOW, **more: Any) -> Param:
    """The field of the form for a field of a request: its title, and its type, are the request's."""
    kinds = [kind["type"] for kind in _SCHEMA[name]["anyOf"] if kind.get("type") not in (None, "null", "object")]
    kind = kinds[0] if kinds else "string"
    if section is not None:
        more["section"] = section
    return _field(FIELDS[f"--{name.replace('_', '-')}"], description, default, kind=kind, **more)


def _field(title: str, description: str, default: Any = None, *, kind: str = "string", **more: Any) -> Param:
    """A field of a form; one without a default may be left empty."""
    kinds = ["null", kind] if default is None else kind
    return Param(default, type=kinds, title=title, description_md=description, **more)


def _instant_param(name: str, description: str) -> Param:
    """Empty at first. Airflow sends what a form opens with also for runs that are triggered without a form.

    So a range that was known at the last run would cut off what has arrived outside of it since.
    """
    return _param(name, description, section=None, format="date-time")


def _open_reason(description: str) -> Param:
    """A reason that its type does not require: else the form would open in red."""
    return _field("Reason", description, maxLength=MAX_REASON)


def _dry_run_param(choices: Mapping[str, str]) -> Param:
    what = "A dry run publishes nothing."
    return _param("dry_run", what, "none", section=_OUTCOME, enum=list(choices), values_display=dict(choices))


def _publish_param(pipeline: Pipeline) -> Param:
    own = pipeline.publish
    texts = {policy.value: f"{policy.value}: {text}" for policy, text in POLICIES.items()}
    stricter = "Any policy may be chosen." if own.may_override else "Only a stricter one may be chosen."
    return _param(
        "publish",
        f"Who says that the result is published. {stricter} The tolerance: {own.tolerance.in_words()}. "
        "A closed gate stops all of them.",
        BY_DEFINITION,
        section=_OUTCOME,
        enum=[BY_DEFINITION, *(policy.value for policy in Policy)],
        values_display={BY_DEFINITION: f"{BY_DEFINITION}: {own.policy.value}", **texts},
    )


def _required_reason(description: str) -> Param:
    return Param(type="string", minLength=1, maxLength=MAX_REASON, title="Reason", description_md=description)


def decide_params(corrects: bool) -> dict[str, Param]:
    """The fields of the form of `decide__<pipeline>`. `corrects`: the pipeline delivers corrections."""
    meanings = "**publish**: publish what the run has staged, even if its gate is closed. **discard**: drop it."
    if corrects:
        meanings += (
            " Of a published run **repeat**: deliver its corrections once more. **revert**: bring back what readers of "
            "the live job's output had before them."
        )
    return {
        "run": Param(
            type="string",
            minLength=1,
            maxLength=200,
            title="Run",
            description_md="The run id, as its report and the list of runs show it.",
        ),
        "action": Param(
            type="string",
            enum=[*DECISIONS, *(CORRECTING if corrects else ())],
            title="Action",
            description_md=meanings,
        ),
        "reason": _required_reason("Why. Kept with the run, together with your name."),
    }


def look_params(pipeline: Pipeline) -> dict[str, Param]:
    """The fields of the form of `look__<pipeline>`."""
    keys = "; ".join(f"`{name}=...`" for name in pipeline.keys)
    return {
        "what": Param(
            type="string",
            enum=[subject.value for subject in subjects_of(pipeline)],
            values_display={subject.value: subject.title for subject in Subject},
            title="What",
            description_md="What to look at. Nothing is changed.",
        ),
        "window": _field(
            "Window",
            "Of revisions and late records: the start of the window. Of a cutover: the first window of the new job; "
            f"of its check, empty: as it was planned last. {_ZONE}",
            format="date-time",
        ),
        "keys": _field(
            "Keys",
            "Of revisions and late records: one name=value a line; `null` means null. "
            + (f"The keys: {keys}. Empty: all." if keys else "This pipeline has no keys."),
            format="multiline",
            maxLength=2000,
        ),
        "run": _field(
            "Run",
            "Of late and quarantined records and of corrections: only those of this run id. Empty: all.",
            maxLength=200,
        ),
        "sets": _field(
            "Other definitions",
            "Of what others would give: a definition a line, such as `watermark.bound=15min`, or several fields with "
            "commas, `watermark.bound=15min, allowed_lateness=1h`. Four at most.",
            format="multiline",
            maxLength=2000,
        ),
    }


def subjects_of(pipeline: Pipeline) -> list[Subject]:
    """What can be looked at of a pipeline."""
    without = set()
    if pipeline.live is None:
        without |= {Subject.LIVE, Subject.MEETING}
    if pipeline.missing_positions or pipeline.has_files_of_query:
        without |= {Subject.CUTOVER, Subject.MEETING}
    if pipeline.corrections is None:
        without.add(Subject.CORRECTIONS)
    return [subject for subject in Subject if subject not in without]


def maintain_params(*, archives: bool) -> dict[str, Param]:
    """The fields of the form of `maintain__<pipeline>`. `archives`: its history loses what can be kept."""
    what = {
        "what": _field(
            "What",
            f"`{CLEAN_UP}`: what the fields below say. `{ARCHIVE}`: keep what is new in the topic, or in the query's "
            "checkpoint, and do nothing else.",
            CLEAN_UP,
            enum=[CLEAN_UP, ARCHIVE],
        )
    }
    snapshots = "Iceberg snapshots that are younger stay, as `7 d` or `36 h`."
    revisions = "Values that were superseded longer ago are deleted, as `365 d`. Empty: none."
    runs = "Documents and ledger rows of runs that ended longer ago are deleted. `forever`: none."
    return (what if archives else {}) | {
        "keep_snapshots": _field("Keep snapshots", snapshots, "7 d"),
        "keep_revisions": _field("Keep revisions", revisions),
        "keep_runs": _field("Keep runs", runs, KEEP_RUNS),
    }


def read_form(params: Mapping[str, Any]) -> Requested:
    """What the form of a backfill requests. Raises DefinitionError that names the field."""
    refuse_unknown(params, BACKFILL_FIELDS)
    own: dict[str, Any] = {
        name: params.get(name) is True for name in ("accept_degraded", "beyond_limits", "another_log")
    }
    own["chunks"] = _chunks(params.get("chunks", 1))
    return _requested(params, ("from", "to", "as_of", "mode", "dry_run"), own)


def read_nightly_form(params: Mapping[str, Any]) -> Requested:
    """What the form of a reconciliation requests. Raises DefinitionError that names the field."""
    refuse_unknown(params, NIGHTLY_FIELDS)
    requested = _requested(params, ("until", "dry_run"))
    if requested.dry_run is DryRun.PLAN:
        raise DefinitionError("Dry run: 'plan'", "the form", "Choose none or diff.")
    return requested


def _requested(params: Mapping[str, Any], names: Iterable[str], own: Mapping[str, Any] | None = None) -> Requested:
    publish = None if params.get("publish") == BY_DEFINITION else params.get("publish")
    given = {name: params.get(name) for name in names}
    given = {name: None if isinstance(text, str) and not text.strip() else text for name, text in given.items()}
    try:
        return requested_of({**given, **(own or {}), "publish": publish})
    except DefinitionError as problem:
        problem.where = "the form"
        raise in_form_words(problem) from None


def read_maintain_form(params: Mapping[str, Any], file: str, *, archives: bool) -> list[str]:
    """The checked fields as arguments of the application; `file`: the definition's.

    Raises DefinitionError that names the field.
    """
    fields = maintain_params(archives=archives)
    refuse_unknown(params, fields)
    what = params.get("what", CLEAN_UP)
    if what not in (CLEAN_UP, ARCHIVE):
        raise DefinitionError(f"What: {str(what)[:60]!r}", "the form", f"Choose one of {CLEAN_UP}, {ARCHIVE}.")
    if what == ARCHIVE:
        return ["--archive", file]
    options = ["--maintain", file]
    for name in ("keep_snapshots", "keep_revisions", "keep_runs"):
        text, title = str(params.get(name) or "").strip(), fields[name].schema["title"]
        kept = retention(text, title) if name == "keep_snapshots" else retention_or_forever(text, title)
        _refuse_short(kept, title)
        options += [f"--{name.replace('_', '-')}", text] if text else []
    return options


def _refuse_short(kept: timedelta | None, title: str) -> None:
    """Raises DefinitionError for less than the setting `REWINDOW_KEEP_AT_LEAST`; None is for ever."""
    least = settings().keep_at_least
    if kept is not None and kept < retention(least, Variable.KEEP_AT_LEAST):
        hint = f"{Variable.KEEP_AT_LEAST} says so; `rewindow maintain` has no such limit."
        raise DefinitionError(f"{title}: it is below {least}", "the form", hint)


def refuse_unknown(params: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises DefinitionError for a field that the form does not have: over the API anything can be sent."""
    for name in params:
        if name not in known:
            near = nearest(str(name), known)
            hint = f"Did you mean `{near}`? " if near else ""
            raise DefinitionError(
                f"the form has no field `{str(name)[:60]}`", "the form", f"{hint}Its fields are {', '.join(known)}."
            )


def refuse_late_decision(run_id: str, status: RunStatus | None, action: str) -> None:
    """Raises RunStateError where a published run is to be discarded, or a dropped one published.

    Corrections of a run that is not published can be neither repeated nor reverted.
    """
    if action in CORRECTING and (status is None or not status.is_published):
        what = f"the run is {'at work' if status is None else status.value}: it has delivered no corrections"
        raise RunStateError(what, run_id, f"`{action}` is for published runs.")
    if status is not None and status.is_final and status.is_published == (action == DISCARD):
        what = f"the run is {status.value}: `{action}` is not possible any more"
        raise RunStateError(what, run_id, "Start another run to change its windows.")


def require_reason(params: Mapping[str, Any]) -> str:
    """The reason. Raises DefinitionError where it is empty."""
    reason = read_reason(params)
    if not reason:
        raise DefinitionError("Reason: it is empty", "the form", "Write why this is done; it is kept with the run.")
    return reason


def read_reason(params: Mapping[str, Any]) -> str:
    """The reason without control characters, cut at `MAX_REASON` characters."""
    return visible(str(params.get("reason") or "")).strip()[:MAX_REASON]


def _chunks(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_CHUNKS:
        raise DefinitionError(
            f"Chunks: {str(value)[:60]!r}", "the form", f"Write a whole number from 1 to {MAX_CHUNKS}."
        )
    return value
