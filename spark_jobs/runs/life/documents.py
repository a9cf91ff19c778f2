"""The documents of a run's folder, each a frozen model with a version. No Spark in this module.

A document is written whole by `write`, and read by `read`: None where the run has not come so far. Raises DocumentError
for a damaged document, and for one of another layout.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Self, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer, field_validator

from spark_jobs import LAYOUT
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.instants import parse_instant
from spark_jobs.definition.mode import Mode
from spark_jobs.definition.output import Policy
from spark_jobs.errors import DefinitionError, DocumentError, RewindowError, first_line
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.change import RESTATED, visible
from spark_jobs.lakehouse.counts import RunCounts
from spark_jobs.runs.life.restated import Restated
from spark_jobs.runs.life.status import RunKind, RunStatus, Stage
from spark_jobs.runs.life.store import DEFINITION, RunFolder
from spark_jobs.runs.planning.git_version import git_version
from spark_jobs.spark.catalog import CATALOG


class DocumentPart(BaseModel):
    """A piece of a document. Fields that this version does not know are kept as they are."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, by the names in the file."""
        return self.model_dump(mode="json", by_alias=True)


class Document(DocumentPart):
    """One document. `FILE` is its name in the folder."""

    FILE: ClassVar[str]
    document_version: int = Field(default=LAYOUT, description="the layout of the document")

    @classmethod
    def read(cls, folder: RunFolder) -> Self | None:
        """The run's document; None where it has not been written. Raises DocumentError where it is damaged."""
        return cls.read_as(folder, cls.FILE)

    @classmethod
    def read_as(cls, folder: RunFolder, file: str) -> Self | None:
        data = folder.read_bytes(file)
        if data is None:
            return None
        try:
            content = json.loads(data)
            refuse_other_layout(content, folder.address(file))
            return cls.model_validate(content)
        except (ValueError, RecursionError) as problem:
            reason = misfit(problem) if isinstance(problem, ValidationError) else first_line(problem)
            raise DocumentError(
                f"the document is damaged: {reason[:200]}",
                folder.address(file),
                "Restore it from a copy, or discard the run and start it again.",
            ) from problem

    def write(self, folder: RunFolder) -> None:
        self.write_as(folder, self.FILE)

    def write_as(self, folder: RunFolder, file: str) -> None:
        folder.write(file, self.to_dict())


def refuse_other_layout(content: object, where: str) -> None:
    """Raises DocumentError where a document says that it has another layout than those of this version."""
    layout = content.get("document_version", LAYOUT) if isinstance(content, dict) else LAYOUT
    if layout != LAYOUT:
        raise DocumentError(
            f"the document has layout {layout!r}, and this version of Rewindow reads layout {LAYOUT}",
            where,
            "Use the version of Rewindow that wrote it.",
        )


def misfit(problem: ValidationError) -> str:
    """The first field that does not fit, and why."""
    first = problem.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"]))
    return f"{field}: {first['msg']}" if field else first["msg"]


def instant_of(text: str | None) -> int | None:
    """A document's instant as epoch ms; None where it has none."""
    return None if not text else parse_instant(text)


class DryRun(StrEnum):
    """How far a dry run goes: the plan only, or up to what would change."""

    PLAN = "plan"
    DIFF = "diff"


class Requested(DocumentPart):
    """The fields of the form or of the command line that were filled; None: not given."""

    start: str | None = Field(default=None, alias="from", description="windows with a start from here on")
    end: str | None = Field(default=None, alias="to", description="windows that start before it")
    until: str | None = Field(default=None, description="of a reconciliation: records that arrived before it")
    as_of: dict[int, int] | None = Field(default=None, description="end offsets by partition")
    as_of_mark: str | None = Field(default=None, description="the live job's own mark that gives these end offsets")
    mode: Mode | None = Field(default=None, description="`both`, `faithful` or `complete`")
    chunks: int | None = Field(default=None, description="the number of chunks")
    panes: str | None = Field(default=None, description="`all`: each firing is a row; `last`: the last one")
    accept_degraded: bool | None = Field(default=None, description="a fidelity below `log_order` is accepted")
    beyond_limits: bool | None = Field(default=None, description="the definition's `limits` do not hold")
    another_log: bool | None = Field(
        default=None, description="another log than the one that was read may take the place of all that is published"
    )
    dry_run: DryRun | None = Field(default=None, description="`plan` or `diff`: nothing is published")
    publish: Policy | None = Field(default=None, description="the policy in place of the definition's")

    @field_validator("dry_run", "publish", "mode", "panes", mode="before")
    @classmethod
    def _nothing_is_none(cls, value: object) -> object:
        return None if value in (None, "", "none") else value

    def given(self) -> dict[str, Any]:
        """The fields that were given, as JSON values."""
        return {name: value for name, value in self.to_dict().items() if value is not None}

    def with_ends(self, ends_of: Callable[[str], dict[int, int]]) -> Self:
        """The request with the end offsets that its mark gives, where there is one."""
        return self if self.as_of_mark is None else self.model_copy(update={"as_of": ends_of(self.as_of_mark)})

    def plan_options(self, pipeline: Pipeline) -> dict[str, Any]:
        """What of this decides on the plan, as `spark_jobs.runs.planning.plan.make_plan` takes it.

        Raises ValueError for a mark whose end offsets nobody has looked up (`with_ends`).
        """
        if self.as_of_mark is not None and self.as_of is None:
            raise ValueError(f"the end offsets of the mark {self.as_of_mark} are not known yet")
        return {
            "start": instant_of(self.start),
            "end": instant_of(self.end),
            "as_of": self.as_of or None,
            "mode": self.mode or pipeline.mode,
            "chunks": self.chunks,
            "beyond_limits": self.beyond_limits is True,
            "another_log": self.another_log is True,
        }


class Request(Document):
    """`request.json`: what was requested, by whom and why; a run begins with it."""

    FILE: ClassVar[str] = "request.json"

    run_id: str
    pipeline: str
    file: str | None = None
    kind: RunKind
    requested: Requested = Field(default_factory=Requested)
    reason: str = ""
    requested_by: str = ""
    requested_at: str = ""
    definition: dict[str, Any] = Field(default_factory=dict)
    definition_hash: str = ""
    definition_version: str = ""
    output_table: str = ""
    dag_id: str | None = None
    dag_run_id: str | None = None

    @field_serializer("requested")
    def _given_only(self, value: Requested) -> dict[str, Any]:
        return value.given()

    @classmethod
    def of(
        cls,
        run_id: str,
        pipeline: Pipeline,
        kind: RunKind,
        reason: str,
        at: datetime,
        requested: Requested | None = None,
        requested_by: str = "",
    ) -> Request:
        return cls(
            run_id=run_id,
            pipeline=pipeline.name,
            file=pipeline.file,
            kind=kind,
            requested=requested or Requested(),
            reason=reason,
            requested_by=requested_by,
            requested_at=at.isoformat(),
            definition=json.loads(pipeline.to_canonical_json()),
            definition_hash=pipeline.definition_hash,
            definition_version=version.in_words if (version := git_version(pipeline.file)) else "",
            output_table=f"{CATALOG}.{pipeline.output.namespace}.{pipeline.output.table}",
        )

    @classmethod
    def required(cls, folder: RunFolder) -> Request:
        """The run's request. Raises DefinitionError where there is no such run."""
        request = cls.read(folder)
        if request is None:
            raise DefinitionError(
                "there is no such run", folder.run_id, "Name one that `rewindow run` or Airflow has started here."
            )
        return request


def recorded_definition(folder: RunFolder, request: Request | None) -> Pipeline | None:
    """The definition in the run's folder; None where the run was refused before it was read.

    `request`: names the file that it came from; None: not known.

    Raises DefinitionError where it cannot be read here: a variable that it names may be set only where the run was.
    """
    text = folder.read_text(DEFINITION)
    return None if text is None else load_pipeline((request and request.file) or DEFINITION, text=text)


def _is_pair(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(value, (list, tuple)) and len(value) == 2


class StagedRange(Document):
    """`staged.json`: what the staged rows of an attempt stand for.

    `base`: the snapshot of the published table that the run started from; None: there was no table. `table_id` and
    `sequence`: its id, and the number of its last commit then; None: there was no table. Of the published
    windows the staged ones stand for those with a start in `reach`, or, of a reconciliation, for those with a start in
    `recent` and the ones before that are staged as touched (`older` spans their starts). `replaces`: the late and
    quarantined rows stand for all that earlier runs wrote of the range. `since`: a reconciliation's stand for the
    records from these offsets on; None: a run over a range. `expected`: by part of the staging
    (`spark_jobs.lakehouse.staging.StagedPart`), the chunks that have to be staged.
    `changes_late`: a staged late record takes the place of a published one at its position.
    `everything`: the staged windows stand for all that is published, wherever it lies. `repairs`: another program had
    changed the table when the run began, so that the staged rows are compared with what readers see.
    """

    FILE: ClassVar[str] = "staged.json"

    base: int | None = None
    table_id: str | None = None
    sequence: int | None = None
    reach: TimeRange
    replaces: bool
    since: dict[int, int] | None = None
    recent: TimeRange | None = None
    older: TimeRange | None = None
    attempt: str | None = None
    expected: dict[str, tuple[int, ...]]
    everything: bool = False
    repairs: bool = False
    changes_late: bool = False

    @field_validator("reach", "recent", "older", mode="before")
    @classmethod
    def _pair(cls, value: object) -> object:
        return dict(zip(("start", "end"), value, strict=True)) if _is_pair(value) else value

    @field_serializer("reach", "recent", "older")
    def _as_pair(self, value: TimeRange | None) -> list[int] | None:
        return None if value is None else [value.start, value.end]


class TimelineDocument(Document):
    """`timeline.json`: all of a timeline but its rows, see `spark_jobs.replay.timeline.Timeline`.

    `steps`: the rows are in `timeline.arrow`, else they are staged. `step`: the mean distance of two thresholds (ms), 0
    where it is not known.
    """

    FILE: ClassVar[str] = "timeline.json"

    flushes: bool
    state: dict[str, Any]
    watermark_below: int
    note: str = ""
    idle: dict[str, Any] | None = None
    step: int
    steps: bool

    def timeline(self) -> dict[str, Any]:
        """The fields of the timeline alone."""
        names = ("flushes", "state", "watermark_below", "note", "idle", "step")
        return {name: getattr(self, name) for name in names}


class ChunkDocument(Document):
    """`chunk-0001.json`, ...: a chunk that is staged. `start` and `end` are epoch ms."""

    chunk: int = Field(description="its number, from 1")
    start: int = Field(description="first window start")
    end: int = Field(description="windows start before it")
    seconds: float = Field(description="how long it took")

    @property
    def file(self) -> str:
        return f"chunk-{self.chunk:04}.json"


class EarlierRun(RunCounts, DocumentPart):
    """A published run before a run, in short: `counts` are its windows by change, `span` its range of windows.

    `span` is None where the plan of that run is gone.
    """

    run_id: str
    kind: RunKind
    requested_at: str = ""
    counts: dict[str, int] = Field(default_factory=dict)
    windows_recomputed: int | None = None
    span: TimeRange | None = None
    restated: Restated | None = None


class NotStaged(DocumentPart):
    """What a run did not look at, see `spark_jobs.runs.work.verification`; None: not known, or it does not apply.

    `records_before`: the records that the run before had read. `records_below`: how many of them are there now, at
    most; more than `records_before`: some came below the end offsets since. `windows_left`: published rows that a run
    over the whole history neither computes again nor retracts. `foreign_commits`: commits of other programs that change
    rows, since the last publication. `goes_on`: the run is of the definition of the run before it and has read more, so
    that no window can lose a record. `files_changed`: files of the plan that are gone or were written again since.
    `unaccounted_records` and `unaccounted_pairs`: see `spark_jobs.runs.night.account`.
    """

    records_before: int | None = None
    records_below: int | None = None
    windows_left: int | None = None
    foreign_commits: int | None = None
    goes_on: bool = False
    files_changed: int | None = None
    unaccounted_records: int | None = None
    unaccounted_pairs: int | None = None


class Changes(RunCounts, Document):
    """`changes.json`: what publishing would change. `counts`: windows by change; `causes`: windows by cause.

    `causes_by_change`: windows by change and cause. `windows_recomputed`: see `spark_jobs.runs.work.figures`.
    `changed_span`: from the start of the first window that changes for readers to the end of the last; None: none
    changes. `changed_periods`: the days in which one of them starts, in UTC as `2026-12-01T00:00:00`; of windows of at
    most an hour the hours. `run_before`: the run
    that was published last before this one. `earlier`: those before it. `unchecked`: why no expectation was checked;
    empty where some were. `history_gone`: windows that keep their values, because records that they were made of are
    gone. `restated`: what of the numbers that readers had changes; None: a run of a version that did not count it.
    """

    FILE: ClassVar[str] = "changes.json"

    counts: dict[str, int] = Field(default_factory=dict)
    causes: dict[str, int] = Field(default_factory=dict)
    causes_by_change: dict[str, dict[str, int]] = Field(default_factory=dict)
    windows_recomputed: int | None = None
    changed_span: TimeRange | None = None
    changed_periods: tuple[str, ...] = ()
    run_before: str | None = None
    earlier: tuple[EarlierRun, ...] = ()
    unchecked: str = ""
    not_staged: NotStaged = NotStaged()
    history_gone: int = 0
    restated: Restated | None = None

    @property
    def of_readers(self) -> Restated:
        """What of the numbers that readers had changes; of a run of before, no more than how many windows."""
        return self.restated or Restated(windows=sum(self.counts.get(change, 0) for change in RESTATED))

    @property
    def changed(self) -> int:
        """Windows that readers would see change, come or go."""
        return sum(visible(self.counts).values())


class Evidence(DocumentPart):
    """What was verified; the ledger keeps it, and only what has the same snapshots may be published.

    `snapshots`: those of the staging tables, by part. `gate`: the gate's verdict; None: there was no gate.
    """

    attempt: str | None
    snapshots: dict[str, int]
    gate: str | None = None
    gate_blocks: bool = False


class NamedExpectation(DocumentPart):
    """Which expectation of which suite."""

    suite: str = Field(default="", description="the suite")
    data: str = Field(default="", description="the data that it checks")
    expectation: str = Field(default="", description="Great Expectations' type")
    name: str = Field(default="", description="its name in the suite")


class DayResult(DocumentPart):
    """What an expectation that is checked by day gave for one day."""

    day: str = Field(description="UTC day of the windows' start, as 2013-02-08")
    observed: Any = Field(default=None, description="the observed value")
    checked: int | None = Field(default=None, description="values that were checked")
    unexpected_count: int | None = Field(default=None, description="values that were not as expected")
    unexpected_percent: float | None = Field(default=None, description="their share, in percent")


class ExpectationResult(NamedExpectation):
    """The result of one expectation. One that could not be checked has failed."""

    description: str = Field(default="", description="why it must hold")
    severity: str = Field(default="", description="`critical`, `warning` or `info`")
    success: bool = Field(description="whether it was met")
    column: str | None = Field(default=None, description="its column")
    columns: dict[str, Any] = Field(default={}, description="the arguments that name columns")
    observed: Any = Field(default=None, description="the observed value")
    threshold: dict[str, Any] = Field(default={}, description="the allowed values, by argument")
    checked: int | None = Field(default=None, description="values that were checked")
    unexpected_count: int | None = Field(default=None, description="values that were not as expected")
    unexpected_percent: float | None = Field(default=None, description="their share, in percent")
    samples: tuple[dict[str, Any], ...] = Field(default=(), description="at most five rows")
    error: str | None = Field(default=None, description="why it could not be computed")
    days: int | None = Field(default=None, description="days that were checked, each on its own; null: all together")
    days_failed: int = Field(default=0, description="of them, those that failed")
    failed_days: tuple[DayResult, ...] = Field(default=(), description="at most 100 of those, the earliest first")


class UncheckedExpectation(NamedExpectation):
    """An expectation that did not apply to the run."""

    reason: str = Field(default="", description="why it did not apply")


class GateVerdict(StrEnum):
    """passed: every critical and warning expectation is met. warned: a warning is not. failed: a critical one is not.

    An expectation that could not be checked is not met.
    """

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"


class Checked(BaseModel):
    """What a check of expectations says of itself, in its document and in the report alike."""

    verdict: GateVerdict = Field(description="`passed`, `warned`, `failed`")
    blocks: bool = Field(description="whether the gate is closed: a critical expectation failed")
    suites: tuple[dict[str, str], ...] = Field(default=(), description="the suites that were read")
    left_out: tuple[UncheckedExpectation, ...] = Field(default=(), description="what did not apply")
    seconds: float | None = Field(default=None, description="how long the check took")
    spark_jobs: int | None = Field(default=None, description="Spark jobs of the check")


class Gate(Checked, Document):
    """`gate.json`: what the expectations say of the staged windows."""

    FILE: ClassVar[str] = "gate.json"

    results: tuple[ExpectationResult, ...] = ()

    @property
    def failures(self) -> list[ExpectationResult]:
        """The expectations that failed."""
        return [result for result in self.results if not result.success]

    @property
    def critical_failures(self) -> list[ExpectationResult]:
        return [result for result in self.failures if result.severity == "critical"]

    @property
    def failed(self) -> dict[str, int]:
        """How many expectations failed, by severity."""
        return dict(Counter(result.severity for result in self.failures))


class Answer(StrEnum):
    APPROVED = "approved"
    REJECTED = "rejected"


class Approval(Document):
    """`approval.json`: who answered what. `attempt`: the attempt that was shown."""

    FILE: ClassVar[str] = "approval.json"

    decision: Answer = Field(description="`approved` or `rejected`")
    by: str = Field(description="who decided")
    at: str = Field(default="", description="when")
    comment: str = Field(default="", description="why")
    attempt: str | None = Field(default=None, description="the attempt that was shown")

    @property
    def why(self) -> str:
        """Who answered what, in a few words."""
        return f"{self.decision.value} by {self.by}" + (f": {self.comment}" if self.comment else "")


class QuarantineReason(DocumentPart):
    """One reason why records cannot be used, how many, and the first of them. `arrival`: epoch ms."""

    reason: str = Field(description="why records cannot be used")
    records: int = Field(description="how many")
    partition: int | None = Field(default=None, description="where the first of them is")
    offset: int | None = Field(default=None, description="its offset")
    arrival: int | None = Field(default=None, description="its arrival, epoch ms")
    value: str = Field(default="", description="its value as text; of bytes that are no text their hexadecimal digits")


class Quarantine(Document):
    """`quarantine.json`: why records of the run cannot be used, the most frequent reason first."""

    FILE: ClassVar[str] = "quarantine.json"

    reasons: tuple[QuarantineReason, ...] = ()


class Duplicates(Document):
    """`duplicates.json`: how many records of the history the live job dropped as duplicates before its windows."""

    FILE: ClassVar[str] = "duplicates.json"

    records: int = 0


class Application(Document):
    """`application-<stage>[-<chunk>].json`: the Spark application of a stage. `seconds` is None until it has ended."""

    stage: Stage = Field(description="the stage of a Spark application")
    chunk: int | None = Field(default=None, description="its chunk, or null")
    application_id: str = Field(description="Spark's id of it")
    ui: str | None = Field(default=None, description="the address of its page, while it works")
    timings: dict[str, float] = Field(default_factory=dict, description="seconds by step of it")
    seconds: float | None = Field(default=None, description="how long it took; null: it has not ended")

    PREFIX: ClassVar[str] = "application-"

    @classmethod
    def file_of(cls, stage: Stage, chunk: int | None = None) -> str:
        return f"{cls.PREFIX}{stage.value}{f'-{chunk:04}' if chunk else ''}.json"

    @classmethod
    def all_of(cls, folder: RunFolder) -> list[Application]:
        """The applications of a run, by file name."""
        found = (cls.read_as(folder, name) for name in folder.documents() if name.startswith(cls.PREFIX))
        return [application for application in found if application is not None]


class Outcome(Document):
    """`outcome.json`: where a run stands, and why. It follows the ledger, which is right where the two differ.

    `refusal`: of a run that waits, why a stage of its own could not publish or discard it when that was last tried.
    """

    FILE: ClassVar[str] = "outcome.json"

    run_id: str
    status: RunStatus
    counts: RunCounts = Field(default_factory=RunCounts)
    changes: dict[str, int] = Field(default_factory=dict)
    timings: dict[str, float] = Field(default_factory=dict)
    note: str = ""
    applications: tuple[Application, ...] = ()
    tables: dict[str, str] = Field(default_factory=dict)
    fidelity: str | None = None
    fidelity_reasons: tuple[str, ...] = ()
    version: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    message: str = ""
    where: str = ""
    hint: str = ""
    exit_code: int | None = None
    stage: Stage | None = None
    decision: dict[str, str] | None = None
    refusal: str = ""

    def sentence(self) -> str:
        """The message, where it happened and what to do."""
        where = f" ({self.where})" if self.where else ""
        return f"{self.message}{where}. {self.hint}".strip()


class AnyOutcome(Outcome):
    """An outcome as pages read it, of any version of Rewindow: the status may be a word that this one does not know."""

    run_id: str = ""
    status: RunStatus | str = Field(union_mode="left_to_right")  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def known_status(self) -> RunStatus | None:
        return self.status if isinstance(self.status, RunStatus) else None


def status_of(folder: RunFolder) -> RunStatus | None:
    """Where the run stands by its outcome; None where it has none. The ledger is right where the two differ."""
    outcome = Outcome.read(folder)
    return None if outcome is None else outcome.status


def failure_fields(problem: Exception) -> Mapping[str, Any]:
    """An error as fields of an outcome."""
    if isinstance(problem, RewindowError):
        return {"message": problem.what, "where": problem.where, "hint": problem.hint, "exit_code": problem.exit_code}
    first = next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
    return {"message": first[:500], "where": type(problem).__name__, "hint": "", "exit_code": 1}
