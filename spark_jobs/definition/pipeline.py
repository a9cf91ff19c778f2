"""A pipeline: the definition of one live job and of its replay, validated and immutable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from spark_jobs.definition.about import Address, Label
from spark_jobs.definition.corrections import Corrections
from spark_jobs.definition.custom_code import code_digest
from spark_jobs.definition.deduplicate import Deduplicate
from spark_jobs.definition.deployments import Deployment, LiveField, refuse_overlaps, restarts_of
from spark_jobs.definition.engine import AnyWatermark, Engine, in_words_of_the_engine
from spark_jobs.definition.fields import Lateness, Refusal, Refusals, Section, as_written, nearest, shown
from spark_jobs.definition.flink_sql import FlinkSql, refuse_other_jobs
from spark_jobs.definition.functions import LiveFunctions
from spark_jobs.definition.history import FilesHistory
from spark_jobs.definition.kafka import KafkaHistory, StitchedHistory
from spark_jobs.definition.kafka_streams import StreamsEmission, StreamsWatermark, short_retention
from spark_jobs.definition.live import FilesEmitted, Live
from spark_jobs.definition.lookup import Lookup
from spark_jobs.definition.mode import Mode
from spark_jobs.definition.names import NamedExpressions, PipelineName
from spark_jobs.definition.output import (
    AHEAD,
    Limits,
    Output,
    Publish,
    PublishField,
    Quarantine,
    Schedule,
    ScheduleField,
)
from spark_jobs.definition.payload import EventTime, Filter, Reader, Value, payload_of_topic
from spark_jobs.definition.project import project_folder
from spark_jobs.definition.structured_streaming import QueryInput, StreamingWatermark
from spark_jobs.definition.union import OF_INPUTS, History, UnionHistory, UnionInput, has_union, with_sections_of_inputs
from spark_jobs.definition.watermark import Watermark
from spark_jobs.definition.window import Window
from spark_jobs.definition.yaml_tree import FieldPath, SourceMap
from spark_jobs.errors import Problem
from spark_jobs.eventtime.durations import parse_duration
from spark_jobs.eventtime.spark.aggregation import OutputMode

_NO_RESULT = {
    "name", "description", "owner", "tags", "links", "output", "publish", "schedule", "live", "corrections", "mode",
    "limits"
}  # fmt: skip
"""Sections that change no result. `mode` chooses among the results; each run keeps the one that it had."""

_ADDED = {
    "arrival_earliest": None, "arrival_latest": None, "ahead": parse_duration(AHEAD), "schema_id": None,
    "envelope": None, "registry": None, "format": None, "gaps": "refuse", "trigger": None, "discovered": {},
    "no_data_batches": True, "reader": None,
}  # fmt: skip
"""Fields that came later, and the values with which a definition is the one that it was."""


class Pipeline(Section):
    """One pipeline definition. Durations and instants are integer milliseconds.

    Two definitions with the same `definition_hash` give the same results, see `to_canonical_json`. `source_of` gives
    the file and line of a field, for checks that come later and need a Spark session.
    """

    name: PipelineName = Field(
        description="Name of the pipeline: lower-case letters, digits and _.", examples=["departures_hourly"]
    )
    description: str | None = Field(
        default=None,
        description="What the pipeline is for; changes nothing.",
        examples=["Flights per airline and hour."],
    )
    owner: Label | None = Field(
        default=None,
        description="Who answers for the pipeline, a team or a mail address; shown in Airflow.",
        examples=["team-flights"],
    )
    tags: tuple[Label, ...] = Field(
        default=(), description="Tags of the DAGs in Airflow, beside `rewindow` and the name.", examples=[["flights"]]
    )
    links: dict[Label, Address] = Field(
        default={},
        description="Pages about the pipeline, by their titles; shown in Airflow.",
        examples=[{"Runbook": "https://wiki.example.com/departures"}],
    )
    history: History = Field(description="The history to replay.", examples=["{kind: files, ...}"])
    value: Value = Field(
        default=Value(),
        description="How a record's value is decoded.",
        examples=["{format: json, column: value, schema: 'sched_dep STRING'}"],
    )
    lookup: Lookup | None = Field(
        default=None,
        description="A table that each record is looked up in; left out: none.",
        examples=["{table: lake.ref.shops, on: shop_id, as_of: run}"],
    )
    functions: LiveFunctions = Field(
        default={},
        description="The live job's own functions, by the names that expressions call them by.",
        examples=[{"median_fare": {"jar": "jobs/fares.jar", "class": "com.example.MedianFare"}}],
    )
    keys: NamedExpressions = Field(
        default={},
        description="Key columns: a name and a SQL expression each. None: one window for all records.",
        examples=[{"carrier": "key"}],
    )
    event_time: EventTime = Field(
        description="Which time is a record's event time.", examples=["{expression: sched_dep, unit: iso}"]
    )
    engine: Engine = Field(
        default=Engine.FLINK, description="What the live job runs on: flink, spark or kafka_streams."
    )
    watermark: AnyWatermark = Field(
        description="The live job's watermark, in the words of its engine.",
        examples=["{generator: bounded_out_of_orderness, bound: 30 min}"],
    )
    filter: Filter = Field(
        default=Filter(),
        description="Records that are left out, before or after the watermark.",
        examples=["{after_watermark: distance > 0}"],
    )
    deduplicate: Deduplicate | None = Field(
        default=None,
        description="What the live job does about duplicates before its windows; left out: it drops none.",
        examples=["{by: event_id}"],
    )
    window: Window = Field(description="The live job's windows.", examples=["{type: tumbling, size: 1 h}"])
    output_mode: OutputMode | None = Field(
        default=None,
        description="Output mode of a Structured Streaming query: append (a row when a window closes), update (a row "
        "for each batch that it took a record in) or complete.",
        examples=["append"],
    )
    flink_sql: FlinkSql | None = Field(
        default=None,
        description="The live job is a query of Flink SQL; left out: a DataStream job.",
        examples=["{aggregation: auto}"],
    )
    emission: StreamsEmission | None = Field(
        default=None,
        description="When a Kafka Streams application gives a row: each_update, or on_close with its strategy.",
        examples=["each_update", "{kind: on_close, strategy: suppress}"],
    )
    allowed_lateness: Lateness = Field(
        default=as_written("0 s"),
        description="How long after its window's end a late record is still counted.",
        examples=["0 s", "2 h", "forever"],
    )
    aggregates: NamedExpressions = Field(
        min_length=1,
        description="Result columns: a name and a Spark SQL aggregate each.",
        examples=[{"flights": "count(*)"}],
    )
    panes: Literal["last", "all"] = Field(
        default="last", description="last: one row per window, its last firing. all: a row per firing."
    )
    mode: Mode = Field(
        default=Mode.BOTH,
        description="Which values runs compute: what the live rules give, what is true now, or both. "
        "complete: needs no order of the log.",
        examples=["complete"],
    )
    end_of_input: Literal["flush", "freeze"] = Field(
        default="flush",
        description="flush: open windows fire at the end, as of a bounded input. freeze: as the live job stands there.",
    )
    quarantine: Quarantine = Field(
        default=Quarantine(), description="What happens to records that cannot be used.", examples=["{threshold: 1 %}"]
    )
    limits: Limits = Field(
        default=Limits(),
        description="The most that a run may cost; a plan above it is refused.",
        examples=["{records: 2_000_000_000, duration: 6 h}"],
    )
    output: Output = Field(default=Output(), description="Where the results go.", examples=["{namespace: demo}"])
    publish: PublishField = Field(
        default=Publish(),
        description="Who says that a run is published: a policy, or a policy with its tolerance.",
        examples=["within_tolerance", "{policy: within_tolerance, tolerance: 2 %}"],
    )
    schedule: ScheduleField = Field(
        default=Schedule(), description="When the reconciliation runs in Airflow.", examples=["0 5 * * *"]
    )
    live: LiveField | None = Field(
        default=None,
        description="What the live job emitted, to compare with; a list, where it had several deployments.",
        examples=["{source: {kind: table, ...}}"],
    )
    corrections: Corrections | None = Field(
        default=None,
        description="What is delivered to the readers of the live job's output after a run is published; left out: "
        "nothing.",
        examples=["{value: complete}"],
    )

    _sources: SourceMap = PrivateAttr(default_factory=SourceMap)
    _text: str = PrivateAttr("")
    _columns: Mapping[str, str] = PrivateAttr(default_factory=dict[str, str])

    @model_validator(mode="before")
    @classmethod
    def _in_words_of_the_engine(cls, raw: Any) -> Any:
        is_union = isinstance(raw, Mapping) and has_union(raw)
        return in_words_of_the_engine(with_sections_of_inputs(raw) if is_union else raw)

    @field_validator("keys", "event_time", "watermark", mode="before")
    @classmethod
    def _of_the_first_input(cls, section: Any, info: ValidationInfo) -> Any:
        """Of a union those of its first input: the keys have the same names in all, the watermarks the same timer."""
        if section is not OF_INPUTS:
            return section
        name, history = str(info.field_name), info.data.get("history")
        first = getattr(history.of[0], name) if isinstance(history, UnionHistory) else None
        if first is not None and not isinstance(first, QueryInput):
            return first
        # The inputs are refused themselves.
        return {"keys": {}, "event_time": {"expression": "NULL"}, "watermark": {"generator": "none"}}[name]

    @field_validator("engine")
    @classmethod
    def _inputs_are_of_the_engine(cls, engine: Engine, info: ValidationInfo) -> Engine:
        history = info.data.get("history")
        if isinstance(history, UnionHistory):
            wrong = Watermark if engine is Engine.SPARK else QueryInput
            if any(isinstance(one.watermark, wrong) for one in history.of):
                hint = "`{delay: 10 minutes}`" if engine is Engine.SPARK else "`{generator: ...}`"
                raise Refusal(f"the inputs' watermarks are not those of engine `{engine}`", f"write {hint} in each")
        return engine

    @field_validator("value", mode="before")
    @classmethod
    def _kafka_keeps_it_in_value(cls, value: Any, info: ValidationInfo) -> Any:
        if "history" not in info.data:  # refused: whether this one may leave the column out is not known
            needs_one = isinstance(value, dict) and value.get("format", "columns") != "columns"
            return {"column": "value", **value} if needs_one else value
        if not isinstance(info.data["history"], KafkaHistory | StitchedHistory):
            return value
        return payload_of_topic(value)

    @field_validator("deduplicate")
    @classmethod
    def _duplicates_have_an_order(cls, deduplicate: Deduplicate | None, info: ValidationInfo) -> Deduplicate | None:
        history = info.data.get("history")
        if deduplicate is None or history is None or _are_files_of_query(history, info.data.get("watermark")):
            return deduplicate
        if missing := history.position.missing:
            names = ", ".join(f"`history.position.{name}`" for name in missing)
            raise Refusal(f"needs {names}: which of several copies came first", "name the columns")
        return deduplicate

    @field_validator("output", mode="before")
    @classmethod
    def _table_defaults_to_the_name(cls, output: Any, info: ValidationInfo) -> Any:
        given = output.model_dump() if isinstance(output, Output) else output
        if isinstance(given, dict) and given.get("table") is None and "name" in info.data:
            return {**given, "table": info.data["name"]}
        return output

    @field_validator("publish")
    @classmethod
    def _tolerance_names_aggregates(cls, publish: Publish, info: ValidationInfo) -> Publish:
        _refuse_undefined(("change", publish.tolerance.change, info.data.get("aggregates")), at=("tolerance",))
        return publish

    @field_validator("live")
    @classmethod
    def _live_names_what_is_defined(cls, live: LiveField | None, info: ValidationInfo) -> LiveField | None:
        """Keys, values and tolerances are those of the definition, and so are the columns that a watermark needs."""
        several = live if isinstance(live, tuple) else ()
        refuse_overlaps(several)
        for one, at in [(live, ())] if isinstance(live, Live) else [(one, (n,)) for n, one in enumerate(several)]:
            _refuse_undefined(
                ("keys", one.keys, info.data.get("keys")),
                ("values", one.values, info.data.get("aggregates")),
                ("tolerance", one.tolerance, info.data.get("aggregates")),
                at=at,
            )
        if isinstance(info.data.get("history"), UnionHistory):
            _refuse_unless_of_union(live)
        for number, one in enumerate(several):
            _refuse_other_columns(one.definition.watermark, info.data.get("watermark"), (number, "definition"))
        return live

    @field_validator("live")
    @classmethod
    def _live_needs_both(cls, live: LiveField | None, info: ValidationInfo) -> LiveField | None:
        mode = info.data.get("mode")
        if live is not None and mode in (Mode.FAITHFUL, Mode.COMPLETE):
            what = f"is compared with faithful and complete values, and `mode: {mode}` computes the {mode} ones only"
            raise Refusal(what, "leave out `mode`, or leave out `live`")
        return live

    @field_validator("corrections")
    @classmethod
    def _corrections_have_a_place(cls, corrections: Corrections | None, info: ValidationInfo) -> Corrections | None:
        """There is a live job to correct, a place to write to, and what is named is defined."""
        if corrections is None or "live" not in info.data:
            return corrections
        live = info.data["live"]
        if live is None:
            raise Refusal("have nothing to correct: there is no section `live`", "say under `live` what the job emits")
        sources = [one.source for one in ((live,) if isinstance(live, Live) else live)]
        hint = "write `to: {kind: files, path: ...}`, or name a table or a topic"
        if corrections.to is None and isinstance(sources[-1], FilesEmitted):
            raise Refusal("is missing: the live job's own files are not rewritten", hint, ("to",))
        if corrections.to is None and any(source != sources[-1] for source in sources):
            raise Refusal("is missing: the deployments of the live job have several outputs", hint, ("to",))
        _refuse_undefined(
            ("keys", corrections.keys, info.data.get("keys")),
            ("values", corrections.values, info.data.get("aggregates")),
        )
        return corrections

    @model_validator(mode="after")
    def _store_keeps_long_enough(self) -> Self:
        watermark = self.watermark
        refusal = short_retention(watermark, self.window) if isinstance(watermark, StreamsWatermark) else None
        if refusal is not None:
            raise refusal
        return self

    @field_validator("flink_sql")
    @classmethod
    def _is_of_flink(cls, section: FlinkSql | None, info: ValidationInfo) -> FlinkSql | None:
        window, watermark, history = (info.data.get(name) for name in ("window", "watermark", "history"))
        if section is not None and window is not None and watermark is not None and history is not None:
            refuse_other_jobs(section, window, watermark, history)
        return section

    @property
    def has_files_of_query(self) -> bool:
        """Whether a Structured Streaming query reads the files itself.

        Then they need no position: the query's checkpoint says which batch has read each.
        """
        return _are_files_of_query(self.history, self.watermark)

    @property
    def reader(self) -> Reader:
        """Whose rules decode JSON and CSV."""
        return self.value.reader or (Reader.SPARK if self.engine is Engine.SPARK else Reader.FLINK)

    @property
    def is_archived(self) -> bool:
        """Whether `rewindow archive` keeps what the history loses: a topic's records, or a query's batches."""
        history = self.history
        is_kept = isinstance(history, StitchedHistory) and history.past.lake_format == "iceberg"
        return is_kept or self.engine is Engine.SPARK

    @property
    def missing_positions(self) -> tuple[str, ...]:
        """The fields of the position without which the order of the log is not known."""
        return () if self.has_files_of_query else self.history.position.missing

    @property
    def inputs(self) -> tuple[Self, ...]:
        """The inputs of a union, each as a definition of its own; none where the history is no union."""
        if not isinstance(self.history, UnionHistory):
            return ()
        return tuple(self._of_input(one, number) for number, one in enumerate(self.history.of))

    def _of_input(self, one: UnionInput, number: int) -> Self:
        sections = {name: getattr(one, name) for name in ("history", "value", "keys", "event_time", "watermark")}
        rejects = self.filter.model_copy(update={"before_watermark": one.filter.before_watermark})
        copy = self.model_copy(update={**sections, "filter": rejects})
        return copy.loaded_from(self._sources.with_input(("history", "of", number)), self._text, one.columns)

    @property
    def input_columns(self) -> Mapping[str, str]:
        """Of one input of a union: its columns under the names that the other inputs have them, see `inputs`."""
        return self._columns

    def with_live(self, live: Live, number: int, changed: Mapping[str, Any]) -> Self:
        """This definition with one of its deployments as the live job, and the sections that it had changed.

        `number`: its place in the list. Fields of it have their own lines in errors.
        """
        copy = self.model_copy(update={**changed, "live": live})
        return copy.loaded_from(self._sources.with_item(("live",), number), self._text)

    @property
    def file(self) -> str:
        """The file that the definition was loaded from; empty for one written in Python."""
        return self._sources.file

    @property
    def project(self) -> Path:
        """The folder where the definition's relative paths start."""
        return project_folder(self.file) if self.file else Path.cwd()

    @property
    def text(self) -> str:
        """The definition as written, variables unresolved; empty for one written in Python."""
        return self._text

    def loaded_from(self, sources: SourceMap, text: str, columns: Mapping[str, str] | None = None) -> Self:
        """This definition, changed so that it knows the file and the text that it was loaded from.

        `columns`: those of one input of a union, see `input_columns`.
        """
        self._sources, self._text, self._columns = sources, text, columns or {}
        return self

    def source_of(self, field: FieldPath) -> str:
        """`file:line` of a field, such as `("aggregates", "flights")`; where it was left out, of the section around it.

        Empty for a definition written in Python.
        """
        return self._sources.place(field)

    def problem(self, field: FieldPath, what: str, hint: str = "") -> Problem:
        """A problem of a field, with its file and line."""
        return self._sources.problem(field, what, hint)

    def to_canonical_json(self) -> str:
        """Everything that can change a result, as JSON with sorted keys and one spelling for each value.

        Left out: name, description, owner, tags, links, mode, output, publish, schedule, corrections, and all of
        `live` except the restarts, which the replay repeats. The history except for its position is as written, with
        unresolved variables: the place of the same history on some machine is not part of the definition. So is a
        schema registry, without its credentials. Everything else is resolved. A custom generator counts with its code.
        """
        content = self.model_dump(
            mode="json",
            by_alias=True,
            exclude=_NO_RESULT,
        )
        if self.engine is Engine.FLINK:  # as every definition was before there were others
            del content["engine"], content["output_mode"], content["emission"]
        for name in ("deduplicate", "lookup", "flink_sql", "functions"):
            if not content[name]:
                del content[name]
        for name, function in self.functions.items():
            content["functions"][name]["code"] = function.code(self.project)
        if self.window.type == "session" and self.window.time_zone is None:  # it came later
            del content["window"]["time_zone"]
        if self.lookup is not None:
            content["lookup"] = self._sources.as_written(("lookup",), content["lookup"])
        if self.engine is Engine.SPARK:  # where the checkpoint lies on some machine is not part of the definition
            place = ("watermark", "checkpoint")
            content["watermark"]["checkpoint"] = self._sources.as_written(place, content["watermark"]["checkpoint"])
        self._write_as_written(content, ())
        if self.inputs:
            for number, one in enumerate(content["history"]["of"]):
                self._write_as_written(one, ("history", "of", number))
            for name in ("value", "keys", "event_time"):
                del content[name]
            if self.engine is Engine.SPARK:
                del content["watermark"]["delay"], content["watermark"]["source"]
            else:
                del content["watermark"]
        for section in ("history", "quarantine", "value", "watermark"):
            if section in content:
                content[section] = _as_it_was(content[section])
        if restarts := restarts_of(self):
            content["restarts"] = list(restarts)
        for section in (content, *content["history"].get("of", ())):
            _add_code(section.get("watermark") or {})
        return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    def _write_as_written(self, content: dict[str, Any], at: FieldPath) -> None:
        """Put back what is written of a history and a registry in `content`, the definition or an input of it.

        The position is resolved, and the inputs of a union are.
        """
        history = content["history"]
        written = self._sources.as_written((*at, "history"), history)
        content["history"] = {**written, **{name: history[name] for name in ("position", "of") if name in history}}
        registry = content["value"]["registry"]
        if registry is not None:
            written = self._sources.as_written((*at, "value", "registry"), registry)
            content["value"]["registry"] = {**written, "auth": None}

    @property
    def definition_hash(self) -> str:
        """SHA-256 (hex) of `to_canonical_json()`."""
        return hashlib.sha256(self.to_canonical_json().encode()).hexdigest()


def _add_code(watermark: dict[str, Any]) -> None:
    """The code of a custom generator decides as its parameters do."""
    if (reference := watermark.get("class")) and (code := code_digest(reference)):
        watermark["code"] = code


def _as_it_was(content: dict[str, Any]) -> dict[str, Any]:
    """A section without the fields that came later, where they have no effect."""

    def before(value: Any) -> Any:
        if isinstance(value, list):
            return [before(item) for item in value]
        return _as_it_was(value) if isinstance(value, dict) else value

    return {name: before(value) for name, value in content.items() if name not in _ADDED or value != _ADDED[name]}


def _are_files_of_query(history: History, watermark: object) -> bool:
    is_query = isinstance(history, FilesHistory) and isinstance(watermark, StreamingWatermark)
    names = ("partition", "offset", "arrival", "sequence")
    return is_query and all(getattr(history.position, name) is None for name in names)


def _refuse_unless_of_union(live: Live | tuple[Live, ...] | None) -> None:
    """Raise Refusal for what is compared by one topic's partitions, where the job reads several histories."""
    for number, one in enumerate((live,) if isinstance(live, Live) else live or ()):
        at: FieldPath = () if isinstance(live, Live) else (number,)
        if isinstance(one, Deployment) and one.definition.changed:
            raise Refusal("has no meaning beside a union", "leave it out", (*at, "definition"))
        for name in ("last_offsets", "late_output"):
            if getattr(one, name) is not None:
                what = "says partitions without their input, and the history is a union"
                raise Refusal(what, "leave it out", (*at, name))


def _refuse_other_columns(
    deployed: Watermark | None, defined: Watermark | StreamingWatermark | StreamsWatermark | None, at: FieldPath
) -> None:
    """Raise Refusal where a deployment's watermark has expressions over the records that the definition's has not."""
    if deployed is None or defined is None:
        return
    for field in ("marker", "stream"):
        expression = getattr(deployed, field)
        if expression is not None and expression != getattr(defined, field):
            what = f"{shown(expression)} is not the `{field}` of the definition's watermark"
            hint = f"the records are read once for all deployments: write `watermark.{field}` alike"
            raise Refusal(what, hint, (*at, "watermark", field))


def _refuse_undefined(*sections: tuple[str, Iterable[str], dict[str, str] | None], at: FieldPath = ()) -> None:
    """Raise Refusals for names that are no key or aggregate: the field, the names in it, and those that are known."""
    refusals = []
    for field, given, known in sections:
        if known is None:
            continue  # they were refused themselves
        for name in given:
            if name not in known:
                near = nearest(name, known)
                hint = f"did you mean `{near}`?" if near else f"they are {', '.join(known) or 'none'}"
                what = f"{shown(name)} is no {'key' if field == 'keys' else 'aggregate'} of this definition"
                refusals.append(Refusal(what, hint, (*at, field, name)))
    if refusals:
        raise Refusals(refusals)
