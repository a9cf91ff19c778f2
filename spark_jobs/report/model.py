"""The report as data: `report.json`. These models are the reference, the JSON Schema and what pages and commands read.

Instants are epoch milliseconds and durations milliseconds, unless they are texts. What is missing or null in a document
is the default of its field; fields that this version does not know are left out.
"""

from __future__ import annotations

import json
from typing import Any, Literal, Self

from pydantic import AliasChoices, Field

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.report.counted import Advisor, Changes, Counts, Late, Part, Texts, Watermark
from spark_jobs.runs.life.documents import (
    Application,
    Approval,
    Checked,
    ChunkDocument,
    ExpectationResult,
    QuarantineReason,
    Requested,
)
from spark_jobs.runs.life.status import Level
from spark_jobs.runs.life.verdicts import Compared, Deployment
from spark_jobs.runs.night.account import AccountTerms

FORMAT = "rewindow-report/1"


class RunPart(Part):
    run_id: str = Field(description="the run's id")
    pipeline: str = Field(default="", description="the pipeline's name")
    kind: str | None = Field(default=None, description="`backfill` or `reconcile`")
    requested: Requested = Field(
        default=Requested(),
        description="what the form or the command line requested: `from`, `to`, `as_of`, `mode`, ...",
    )
    reason: str | None = Field(default=None, description="the reason that a person gave")
    requested_by: str | None = Field(default=None, description="who started it")
    requested_at: str | None = Field(default=None, description="when it was requested")
    started_at: str | None = Field(default=None, description="when it began")
    finished_at: str | None = Field(default=None, description="when it ended; null: not yet")
    at_work: bool = Field(default=False, description="whether the run has not ended")
    output_table: str | None = Field(default=None, description="the table of the windows")
    dag_id: str | None = Field(default=None, description="the DAG that carried it out; null: the command line")


class NextStep(Part):
    """Something to do next. A report that is opened as a file has no links to pages."""

    text: str = Field(description="what to do next")
    command: str | None = Field(default=None, description="the command for it, or null")
    page: str | None = Field(
        default=None, description="the address below Rewindow's pages in Airflow where it is done, or null"
    )
    label: str | None = Field(default=None, description="the text of the link to it, or null")


class Verdict(Part):
    """How a run ended."""

    status: str = Field(description="as in `outcome.json`; `unknown` while there is none")
    level: Level = Field(description="`good`, `note`, `waiting` or `bad`")
    title: str = Field(description="two or three words")
    sentence: str = Field(description="what happened, in a sentence")
    restated: str = Field(default="", description="what of the numbers that readers had changes, and by how much")
    why: str = Field(default="", description="why, with the number of windows by cause")
    live: str = Field(default="", description="what the live job's windows are worth; empty: none were compared")
    next: tuple[NextStep, ...] = Field(default=(), description="what to do next")


class LiveVerdict(Part):
    verdict: str = Field(description="a [verdict](three-truths.md#verdicts)")
    windows: int = Field(description="windows with it")
    share: float | None = Field(default=None, description="their share; null for `not_closed`")
    sentence: str = Field(default="", description="what it means")
    labels: Counts = Field(default={}, description="windows by nearest explanation")


class LiveDeployment(Deployment):
    different: int = Field(default=0, description="mismatch, missing and extra windows of it")


class Live(Compared, Part):
    different: int = Field(default=0, description="mismatch, missing and extra windows")
    different_share: float | None = Field(default=None, description="their share")
    verdicts: tuple[LiveVerdict, ...] = Field(default=(), description="one entry for each verdict that occurs")
    certainty: Texts = Field(default=(), description="how sure the verdicts are, in sentences")
    next: Texts = Field(default=(), description="what to do next")
    deployments: tuple[LiveDeployment, ...] = Field(default=(), description="empty where the live job had only one")


class Corrections(Part):
    destination: str = Field(description="where the corrections go")
    value: str = Field(default="", description="which value is delivered")
    is_delivered: bool = Field(
        default=False, description="whether they are delivered; false: an approval would deliver them"
    )
    rows: Counts = Field(default={}, description="rows by `upsert` and `delete`")
    sentence: str = Field(default="", description="what became of them, in a sentence")
    problem: str | None = Field(default=None, description="why they could not be delivered; null: they could")
    notes: Texts = Field(default=(), description="what else to know")
    next: Texts = Field(default=(), description="what to do next")
    steps: tuple[NextStep, ...] = Field(default=(), description="the same with `command`, or `page` and `label`")


class Expectation(ExpectationResult):
    counted: bool = Field(default=True, description="whether there was something to count")


class Expectations(Checked, Part):
    met: int = Field(
        default=0, description="expectations that were met; those with nothing to count are not among them"
    )
    not_counted: int = Field(
        default=0, description="expectations with nothing to count in this run: no row, or no such figure"
    )
    failed: Counts = Field(default={}, description="expectations that failed, by severity")
    results: tuple[Expectation, ...] = Field(
        default=(), description="those that were not met first, then the most severe"
    )


class Partition(Part):
    partition: int = Field(description="a partition of the log")
    records: int = Field(default=0, description="its records")
    first_offset: int | None = Field(default=None, description="its first offset")
    end_offset: int | None = Field(default=None, description="its end offset, exclusive")
    first_arrival: int | None = Field(default=None, description="its first arrival")
    last_arrival: int | None = Field(default=None, description="its last arrival")


class ReadFile(Part):
    path: str = Field(default="", description="a file that was read")
    size: int | None = Field(default=None, description="its size in bytes")


class Estimate(Part):
    seconds: dict[str, float] = Field(default={}, description="seconds by stage, as earlier runs have taken them")
    runs: int = Field(default=0, description="earlier runs that the estimate rests on")


class Plan(Part):
    source: str | None = Field(default=None, description="the history, in words")
    definition_hash: str | None = Field(default=None, description="hash of what in the definition decides results")
    definition: dict[str, Any] | None = Field(default=None, description="the definition, with all defaults")
    mode: str | None = Field(default=None, description="`faithful`, `complete` or `both`")
    span: TimeRange | None = Field(default=None, description="the first window start; windows start before the end")
    is_whole: bool = Field(default=False, description="whether the range covers all windows of the history")
    event_times: TimeRange | None = Field(
        default=None, description="the first event time of the history; after its last one"
    )
    processing_time_end: int | None = Field(default=None, description="the processing time up to which timers ran")
    records: int | None = Field(default=None, description="records up to the end offsets")
    quarantined: int | None = Field(default=None, description="records that cannot be used")
    missing_event_times: int | None = Field(default=None, description="usable records without event time")
    reading: str | None = Field(default=None, description="what the results stand on, in words")
    window_ends: int | None = Field(default=None, description="ends of windows in the range")
    watermark: str | None = Field(default=None, description="how the watermark was computed, in words")
    partition_columns: Texts = Field(default=(), description="columns of the log's partition")
    partitions: tuple[Partition, ...] = Field(default=(), description="the partitions of the log")
    inputs: Texts = Field(
        default=(),
        description="the names of a union's inputs: partition 10,002 is partition 2 of the second one, here and in all "
        "parts of the report",
    )
    files: tuple[ReadFile, ...] = Field(
        default=(), validation_alias=AliasChoices("files", "pinned"), description="the files that were read"
    )
    warnings: Texts = Field(default=(), description="what the plan warns of")
    fidelity: str | None = Field(default=None, description="how exact lateness is: see [sources](sources.md)")
    fidelity_reasons: Texts = Field(default=(), description="why it is not more exact")
    version: str | None = Field(default=None, description="Rewindow's version")
    chunks: tuple[ChunkDocument, ...] = Field(default=(), description="chunks that were computed")
    planned_chunks: int = Field(default=0, description="chunks of the plan")
    estimated: Estimate | None = Field(
        default=None,
        validation_alias=AliasChoices("estimated", "cost"),
        description="how long the plan expects it to take",
    )
    timings: dict[str, float] = Field(default={}, description="seconds by stage")
    applications: tuple[Application, ...] = Field(default=(), description="the Spark applications")
    tables: dict[str, str | None] = Field(default={}, description="the tables of the run")

    @property
    def steps(self) -> Texts:
        """The steps that took time, the longest first, and those that were expected to."""
        by_length = sorted(self.timings, key=lambda step: -self.timings[step])
        return tuple(dict.fromkeys((*by_length, *(self.estimated.seconds if self.estimated else ()))))


class Account(AccountTerms, Part):
    """What became of each record, and of each pair of a record and a window."""


class Figure(Part):
    name: str = Field(description="a figure")
    is_share: bool = Field(default=False, description="whether it is a share")
    now: float = Field(description="its value in this run")
    low: float = Field(description="the lowest before")
    median: float = Field(description="the median before")
    high: float = Field(description="the highest before")
    values: tuple[float, ...] = Field(default=(), description="the values before, the oldest first")
    place: str = Field(default="", description="where this run stands among them, in words")
    is_unusual: bool = Field(default=False, description="outside all of them, and they are five or more")


class Normal(Part):
    runs: int = Field(description="published runs of the same kind before, thirty at most")
    by_length: bool = Field(
        default=False, description="of a backfill: only those over a range of about the same length count"
    )
    since: str | None = Field(default=None, description="when the first of them was requested")
    figures: tuple[Figure, ...] = Field(default=(), description="the figures of the run among theirs")


class Links(Part):
    run_before: str | None = Field(default=None, description="id of the run before")
    definition: str | None = Field(default=None, description="version of the definition in git")
    late_rows: str | None = Field(default=None, description="the command that lists the run's late records")


class Report(Part):
    """The report of a run. A part is null where the run did not get that far."""

    format: Literal["rewindow-report/1"] = Field(default=FORMAT, description="the version of the format")
    damaged: Texts = Field(default=(), description="documents of the run that are damaged, and left out")
    run: RunPart = Field(title="The run", description="what was requested, by whom")
    verdict: Verdict = Field(title="The verdict", description="how the run ended")
    approval: Approval | None = Field(default=None, title="Approval", description="null where nobody had to decide")
    decision: str | None = Field(default=None, description="why the run was published, or was not")
    unchecked: str | None = Field(default=None, description="why no expectation was checked; null where some were")
    changes: Changes | None = Field(default=None, title="What changed", description="what publishing changes")
    watermark: Watermark | None = Field(default=None, title="The watermark", description="its charts, as numbers")
    late: Late | None = Field(default=None, title="Late records", description="how late they were")
    live: Live | None = Field(default=None, title="The live job", description="null where nothing was compared")
    corrections: Corrections | None = Field(
        default=None, title="Corrections", description="null where the run delivers nothing"
    )
    expectations: Expectations | None = Field(default=None, title="Expectations", description="what the gate found")
    advisor: Advisor | None = Field(default=None, title="Advisor", description="how other settings would have done")
    plan: Plan | None = Field(default=None, title="Plan", description="the plan, and how it went")
    account: Account | None = Field(default=None, title="The account", description="what became of each record")
    quarantine: tuple[QuarantineReason, ...] = Field(
        default=(), title="Records that cannot be used", description="by reason, the most frequent one first"
    )
    normal: Normal | None = Field(default=None, title="Is this normal?", description="null where no such run is known")
    links: Links = Field(default=Links(), title="Where to look further", description="what the run is connected with")

    @classmethod
    def read(cls, data: bytes) -> Self:
        """A report that Rewindow wrote. Raises ValueError or RecursionError for anything else."""
        return cls.model_validate(json.loads(data))


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of `report.json`."""
    schema = Report.model_json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "$id": FORMAT,
        "title": "Rewindow report",
    }
