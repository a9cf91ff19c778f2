"""The deployments of the live job: one after the other, each with what it emitted and the rules that it had."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator

from spark_jobs.definition.about import Label
from spark_jobs.definition.corrections import FilesDestination
from spark_jobs.definition.fields import END, Instant, Lateness, Refusal, Refusals, Section, shown
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.live import Live, TableEmitted, TopicEmitted
from spark_jobs.definition.watermark import Watermark
from spark_jobs.definition.window import SessionWindow, Window
from spark_jobs.eventtime.ranges import TimeRange

if TYPE_CHECKING:
    from spark_jobs.definition.pipeline import Pipeline


class DeploymentRules(Section):
    """What a deployment had other than the definition has it. A section stands for the whole section."""

    watermark: Watermark | None = Field(
        default=None,
        description="Its watermark; left out, that of the definition.",
        examples=["{generator: bounded_out_of_orderness, bound: 15 min}"],
    )
    window: Window | None = Field(
        default=None,
        description="Its windows, no sessions; left out, those of the definition.",
        examples=["{type: tumbling, size: 30 min}"],
    )
    allowed_lateness: Lateness | None = Field(
        default=None,
        description="Its allowed lateness; left out, that of the definition.",
        examples=["2 h"],
    )

    @field_validator("window")
    @classmethod
    def _on_a_grid(cls, window: Window | None) -> Window | None:
        if isinstance(window, SessionWindow):
            hint = "compare that time with a definition of its own"
            raise Refusal("sessions cannot be the windows of one deployment", hint, ("type",))
        return window

    @property
    def changed(self) -> dict[str, Any]:
        """The sections that are given."""
        return {name: section for name in type(self).model_fields if (section := getattr(self, name)) is not None}


class Deployment(Live):
    """One of several deployments: the fields of `live`, and the windows and rules that it had.

    It decides the windows that start from `from` up to `to`.
    """

    name: Label = Field(description="Its name, in reports and verdicts.", examples=["until the upgrade"])
    start: Instant | None = Field(
        default=None,
        alias="from",
        description="The first start of its windows; left out: from the first on.",
        examples=["2013-02-01T12:00:00Z"],
    )
    end: Annotated[Instant | None, END] = Field(
        default=None,
        alias="to",
        description="Its windows start before this time; left out: up to now.",
        examples=["2013-02-01T12:00:00Z"],
    )
    definition: DeploymentRules = Field(
        default=DeploymentRules(),
        description="The rules that it had, where they were not those of this definition.",
        examples=["{allowed_lateness: 2 h}"],
    )


def _tag(value: Any) -> str:
    return Deployment.__name__ if isinstance(value, list | tuple) else Live.__name__


LiveField = Annotated[
    Annotated[Live, Tag(Live.__name__)]
    | Annotated[tuple[Deployment, ...], Field(min_length=1), Tag(Deployment.__name__)],
    Discriminator(_tag),
]
"""One live job, or its deployments in the order of their time."""


def refuse_overlaps(deployments: Sequence[Deployment]) -> None:
    """Raise Refusal where two deployments have one name, or a window could be of both."""
    names: set[str] = set()
    for number, deployment in enumerate(deployments):
        if deployment.name in names:
            raise Refusal(f"{shown(deployment.name)} is given twice", "choose another name", (number, "name"))
        names.add(deployment.name)
    for number, (earlier, later) in enumerate(itertools.pairwise(deployments), 1):
        if earlier.end is None:
            hint = "write the time from which the next one decides"
            raise Refusal("is missing: another deployment follows", hint, (number - 1, "to"))
        if later.start is None:
            raise Refusal("is missing: another deployment comes before", "write when it ends", (number, "from"))
        if later.start < earlier.end:
            what = f"`{format_instant(later.start)}` is before the end of `{earlier.name}`"
            raise Refusal(what, f"write {format_instant(earlier.end)} or later", (number, "from"))


def refuse_words_of_live(live: LiveField | None, engine: str, hints: Mapping[str, str]) -> LiveField | None:
    """Raise Refusals for what a live job of this engine has no use for: fields of `live` that have a hint."""
    several = {(number,): one for number, one in enumerate(live)} if isinstance(live, tuple) else {}
    found = [
        Refusal(f"does not belong to engine `{engine}`", hints[f"live.{name}"], (*at, name))
        for at, one in (several or ({(): live} if isinstance(live, Live) else {})).items()
        for name in sorted(one.model_fields_set)
        if f"live.{name}" in hints and getattr(one, name) not in (None, (), DeploymentRules())
    ]
    if found:
        raise Refusals(found)
    return live


@dataclass(frozen=True, slots=True)
class Deployed:
    """One deployment, and the definition by which its windows are judged: its `live` is one `Live`.

    `name`: None where the definition has one live job for all time. `has_own_rules`: the windows that it should have
    emitted are not those that the pipeline publishes. `start`, `end`: of the starts of its windows (epoch ms).
    """

    pipeline: Pipeline
    name: str | None = None
    has_own_rules: bool = False
    start: int | None = None
    end: int | None = None

    def clipped(self, span: TimeRange) -> TimeRange | None:
        """The part of the starts in `span` that are of this deployment; None where there are none."""
        start = span.start if self.start is None else max(span.start, self.start)
        end = span.end if self.end is None else min(span.end, self.end)
        return TimeRange(start, end) if start < end else None

    def within(self, spans: Sequence[TimeRange]) -> list[TimeRange]:
        """The parts of `spans` that are of this deployment."""
        return [part for span in spans if (part := self.clipped(span)) is not None]


def deployments_of(pipeline: Pipeline) -> tuple[Deployed, ...]:
    """The deployments, in the order of their time; none where the definition has no section `live`."""
    live = pipeline.live
    if live is None:
        return ()
    if isinstance(live, Live):
        return (Deployed(pipeline),)
    return tuple(
        Deployed(
            pipeline.with_live(one, number, one.definition.changed),
            one.name,
            bool(one.definition.changed),
            one.start,
            one.end,
        )
        for number, one in enumerate(live)
    )


def current_deployment(pipeline: Pipeline) -> Pipeline:
    """The definition with the last deployment as its one live job, and the rules of the definition."""
    if pipeline.live is None or isinstance(pipeline.live, Live):
        return pipeline
    return pipeline.with_live(pipeline.live[-1], len(pipeline.live) - 1, {})


def destination_of(pipeline: Pipeline) -> TableEmitted | TopicEmitted | FilesDestination | None:
    """Where a pipeline's corrections go; None: it has none."""
    live, corrections = current_deployment(pipeline).live, pipeline.corrections
    return corrections.destination(live) if corrections is not None and isinstance(live, Live) else None


def restarts_of(pipeline: Pipeline) -> tuple[int, ...]:
    """The restarts that the replay repeats (epoch ms): those of the deployments that had the definition's rules."""
    live = pipeline.live
    if live is None:
        return ()
    if isinstance(live, Live):
        return live.restarts
    return tuple(sorted({at for one in live if not one.definition.changed for at in one.restarts}))
