"""The questions of `rewindow init`: each takes its flag, else asks, with a proposal from the records that were read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from spark_jobs.definition.engine import Engine
from spark_jobs.definition.fields import nearest
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.durations import DurationError, format_duration, parse_duration
from spark_jobs.project.answers import Address, Answers, SourceKind, position_fields
from spark_jobs.project.proposal import (
    Disorder,
    PositionProposal,
    column_name,
    disorder,
    event_times,
    is_averaged,
    key_fields,
    propose_position,
    summable_fields,
)
from spark_jobs.project.sample import Field, FieldKind, Sample
from spark_jobs.project.times import TimeReading, bounds_of, named_time_reading, time_reading

_OF_ENGINE = {
    **dict.fromkeys(("job", "generator", "bound", "lag", "lateness"), Engine.FLINK),
    **dict.fromkeys(("delay", "checkpoint", "trigger"), Engine.SPARK),
    "grace": Engine.KAFKA_STREAMS,
}
"""The flags that belong to one engine alone."""
NONE = "none"
"""The answer for "there is none"."""
_DATASTREAM, _SQL = _JOBS = ("datastream", "sql")
_GENERATORS = ("bounded_out_of_orderness", "ascending", "none")
_TUMBLING, _SESSION = {"tumbling": ("size",)}, {"session": ("gap",)}
_SLIDING = {"sliding": ("size", "slide")}
_WINDOWS = {
    Engine.FLINK: {**_TUMBLING, **_SLIDING, "cumulative": ("size", "step"), **_SESSION},
    Engine.SPARK: {**_TUMBLING, **_SLIDING, **_SESSION},
    Engine.KAFKA_STREAMS: {**_TUMBLING, "hopping": ("size", "advance"), "sliding": ("time_difference",), **_SESSION},
}
"""The kinds of windows of each engine, with their lengths."""
_EXAMPLES = {"size": "1 h", "gap": "30 min", "time_difference": "10 min"}
_EXAMPLES |= dict.fromkeys(("slide", "step", "advance"), "15 min")
_LENGTHS = {
    "size": "How long a window is.",
    "slide": "The time from one window's start to the next.",
    "advance": "The time from one window's start to the next.",
    "time_difference": "How far apart the first and the last record of a window are, at most.",
    "step": "By how much a window is longer than the one before.",
    "gap": "The quiet time that ends a session.",
}
_SAY_NOTHING = {"data", "files", "history", "input", "raw", "tmp", "windows", "reconciliation"} | {
    "json",
    "csv",
    "parquet",
}
"""Names of folders that make no name of a pipeline."""
_UNKNOWN_TIME = "event_time"
_GUESSED_UNITS = {FieldKind.TEXT: "iso", FieldKind.INTEGER: "ms", FieldKind.NUMBER: "s"}
_NO_TIME = "no field of the records that were read looks like a time; name the one that is the event time"
_UNITS = ("timestamp", "s", "ms", "us", "iso")
_KINDS = ("append_time", "producer_time")

Check = Callable[[str], str]


class Ask(Protocol):
    """Asks a person, or takes the default.

    `why` explains the question in a sentence, `flag` is the option that answers it. `check` returns the answer in its
    final form, or raises DefinitionError, after which a person is asked again.
    """

    def __call__(self, question: str, why: str, flag: str, default: str | None, check: Check) -> str: ...


def settle(
    address: Address, sample: Sample, flags: Mapping[str, Any], ask: Ask, metastore: str | None = None
) -> Answers:
    """Ask whatever the flags do not answer.

    `flags`: what the command line has answered, by the names of its parameters; None for what it has not.

    Raises DefinitionError for an answer that cannot be used.
    """
    settle_one = _Settling(sample, flags, ask)
    name = settle_one("name", "Name of the pipeline", "It names its tables and DAGs.", _name_of(address), _name)
    engine = settle_one.engine()
    time_field, reading = settle_one.event_time()
    position, arrival_kind = (PositionProposal(None, None, None, False), "")
    if address.kind is not SourceKind.KAFKA:
        position, arrival_kind = settle_one.position()
    found = _disorder(sample, time_field, reading, position)
    taken = [field.path for field in (time_field, position.partition, position.offset, position.arrival) if field]
    keys = settle_one.keys(taken)
    is_sql = engine is Engine.FLINK and settle_one.is_sql()
    watermark, measured = settle_one.sql_watermark(found) if is_sql else settle_one.watermark(engine, found)
    window = settle_one.window(engine)
    lateness = None if engine is not Engine.FLINK else "0 s" if is_sql else settle_one.lateness()
    key_fields_taken = [*taken, *(field.path for text in keys.values() if (field := sample.find(text)))]
    aggregates = settle_one.aggregates(keys, key_fields_taken)
    why = "The namespace of its tables in the catalog."
    namespace = settle_one("namespace", "Namespace", why, "default", _identifier)
    return Answers(
        name=name,
        address=address,
        sample=sample,
        event_time=reading,
        keys=keys,
        position=position_fields(position, arrival_kind),
        disorder=found,
        keys_are_guessed=not flags.get("keys"),
        engine=engine,
        watermark=watermark,
        measured=measured,
        window=window,
        lateness=lateness,
        is_sql=is_sql,
        aggregates=aggregates,
        namespace=namespace,
        metastore=metastore,
    )


@dataclass(frozen=True, slots=True)
class _Settling:
    sample: Sample
    flags: Mapping[str, Any]
    ask: Ask

    def __call__(self, flag: str, question: str, why: str, default: str | None, check: Check) -> str:
        """The flag's answer, else the person's."""
        given = self.flags.get(flag)
        option = _option(flag)
        if given is not None:
            try:
                return check(given)
            except DefinitionError as error:
                raise DefinitionError(f"{option}: {error.what}", hint=error.hint) from None
        return self.ask(question, why, option, default, check)

    def engine(self) -> Engine:
        """What the live job runs on. Raises DefinitionError for a flag that belongs to another engine."""
        why = "What the live job runs on; its rules decide which records were late: docs/engines.md."
        engine = Engine(self("engine", "Engine of the live job", why, Engine.FLINK, _one_of(tuple(Engine))))
        for flag, own in _OF_ENGINE.items():
            if own is not engine and self.flags.get(flag) is not None:
                others = ", ".join(_option(name) for name, of in _OF_ENGINE.items() if of is engine)
                what = f"{_option(flag)} belongs to engine `{own}`, not to `{engine}`"
                raise DefinitionError(what, hint=f"It has {others}. Or --engine {own}.")
        return engine

    def event_time(self) -> tuple[Field | None, TimeReading]:
        candidates = event_times(self.sample, propose_position(self.sample))
        names = [".".join(field.path) for field, _ in candidates]
        why = "The time at which something happened, according to the record; it decides the record's window."
        if names[1:]:
            why += f" Fields that can be it: {', '.join(names)}."
        else_note = "" if names else " No field of the records looks like a time."
        chosen = self("time", "Event time", why + else_note, names[0] if names else _UNKNOWN_TIME, _not_empty)
        field = self.sample.find(chosen)
        reading = named_time_reading(field) if field is not None else None
        if field is None and chosen == _UNKNOWN_TIME and not self.flags.get("time"):
            unit = self.flags.get("unit") or ("timestamp" if self.sample.framing else "iso")
            return None, TimeReading(chosen, unit, f"{_NO_TIME}, and what it is", lambda value: None)
        if reading is None or self.flags.get("unit"):
            why = "What it is: a timestamp, a number of s, ms or us since 1970, or ISO text with a zone (iso)."
            guess = _GUESSED_UNITS.get(field.kind, "timestamp") if field is not None else "timestamp"
            unit = self("unit", "Unit of the event time", why, guess, _one_of(_UNITS))
            note = f"the unit is a guess; it can be {', '.join(_UNITS)}" if self.flags.get("unit") is None else ""
            expression = field.expression if field is not None else chosen
            reading = TimeReading(expression, unit, note, reading.to_ms if reading else lambda value: None)
        if field is not None:
            times = [time for time in map(reading.to_ms, field.values) if time is not None]
            reading = replace(reading, bounds=bounds_of(times))
        return field, reading

    def position(self) -> tuple[PositionProposal, str]:
        """The fields of the position in the log, and whether the arrival is the broker's or the producer's time."""
        found = propose_position(self.sample)
        why = {
            "partition": "The partition of the log from which the record came. Needed to replay lateness; else none.",
            "offset": "Its offset in the partition.",
            "arrival": "When the broker appended it.",
        }
        chosen: dict[str, Field | None] = {}
        for flag in why:
            if flag == "offset" and chosen["partition"] is None:
                chosen[flag] = None  # an offset without a partition gives no order
                continue
            proposed: Field | None = getattr(found, flag)
            default = ".".join(proposed.path) if proposed else NONE
            text = self(flag, f"Column of the {flag}", why[flag], default, self._field_or_none)
            chosen[flag] = None if text == NONE else self.sample.find(text)
        arrival = chosen["arrival"]
        if arrival is not None and time_reading(arrival) is None:
            hint = "Name a timestamp, ISO text, or a number of s, ms or us since 1970."
            raise DefinitionError(f"`{'.'.join(arrival.path)}` holds no times", hint=hint)
        kind = ""
        if arrival is not None:
            why_kind = (
                "append_time: the broker's clock (message.timestamp.type=LogAppendTime). producer_time: the producer's "
                "clock, which is Kafka's default: approximate, but for Kafka Streams, where only the order counts."
            )
            default = "append_time" if found.is_broker_time and arrival == found.arrival else "producer_time"
            kind = self("arrival_kind", "Whose clock is the arrival", why_kind, default, _one_of(_KINDS))
        return replace(found, **chosen), kind

    def _field_or_none(self, text: str) -> str:
        if text == NONE:
            return text
        field = self.sample.find(text)
        if field is None:
            names = [".".join(field.path) for field in self.sample.fields]
            near = nearest(text, names)
            hint = f"Did you mean `{near}`?" if near else f"The fields are {', '.join(names)}; or {NONE}."
            raise DefinitionError(f"there is no field `{text}`", hint=hint)
        return ".".join(field.path)

    def keys(self, taken: Sequence[tuple[str, ...]]) -> dict[str, str]:
        """The key columns and their expressions."""
        found = key_fields(self.sample, taken)
        if named := self.flags.get("keys"):
            return self._named_keys(named)
        names = [".".join(field.path) for field in found]
        why = "The fields that the live job groups by, separated by commas; each combination has windows of its own."
        if names[1:]:
            why += f" Fields that can be it: {', '.join(names)}."
        answer = self.ask("Keys", why, "--key", names[0] if names else NONE, self._keys_exist)
        return self._named_keys(_outside_brackets(answer))

    def _keys_exist(self, text: str) -> str:
        self._named_keys(_outside_brackets(_not_empty(text)))
        return text

    def _named_keys(self, texts: Iterable[str]) -> dict[str, str]:
        keys: dict[str, str] = {}
        for text in (text for text in texts if text != NONE):
            name, equals, expression = text.partition("=")
            field = self.sample.find(text)
            if field is not None:
                keys[column_name(field, keys)] = field.expression
            elif equals:
                keys[name.strip()] = expression.strip()
            else:
                self._field_or_none(text)
        return keys

    def watermark(self, engine: Engine, found: Disorder) -> tuple[dict[str, str], str]:
        """The fields of `watermark`, and the one whose value is what was measured; empty: none is."""
        if engine is Engine.KAFKA_STREAMS:
            why = "The grace period of the windows: TimeWindows.ofSizeAndGrace(size, grace)."
            return self._behind("grace", "Grace period", why, found)
        if engine is Engine.SPARK:
            why = "The delay of the query's withWatermark(eventTime, delay)."
            delay, measured = self._behind("delay", "Delay of the watermark", why, found)
            return delay | self._checkpoint(), measured
        why = "How the live job's watermark follows the records; `rewindow schema` lists the others."
        generator = self("generator", "Watermark generator", why, _GENERATORS[0], _one_of(_GENERATORS))
        if generator != _GENERATORS[0]:
            return {"generator": generator}, ""
        why = (
            "How far the live job's watermark stays behind the latest event time. Take it from the job: in Flink "
            "forBoundedOutOfOrderness(...), or WATERMARK FOR ts AS ts - INTERVAL ..."
        )
        bound, measured = self._behind("bound", "Out-of-orderness bound", why, found)
        return {"generator": generator, **bound}, measured

    def is_sql(self) -> bool:
        """Whether the live job is a query of Flink SQL, whose windows are computed by other operators."""
        why = "A job written with the DataStream API, or a query of Flink SQL: their windows differ, see docs/flink.md."
        return self("job", "Kind of Flink job", why, _DATASTREAM, _one_of(_JOBS)) == _SQL

    def sql_watermark(self, found: Disorder) -> tuple[dict[str, str], str]:
        """The fields of a table's `watermark`, and the one whose value is what was measured; empty: none is."""
        why = "The delay of WATERMARK FOR ts AS ts - INTERVAL ...; Flink SQL takes off no further millisecond."
        lag, measured = self._behind("lag", "Delay of the watermark", why, found)
        return {"generator": "lag", **lag}, measured

    def _behind(self, flag: str, question: str, why: str, found: Disorder) -> tuple[dict[str, str], str]:
        """How far the watermark stays behind, as the engine calls it, and that name where it is what was measured."""
        proposed = format_duration(found.bound)
        chosen = self(flag, question, f"{why} The proposal covers all records that were read.", proposed, _duration)
        is_measured = self.flags.get(flag) is None and chosen == proposed
        return {flag: chosen}, flag if is_measured else ""

    def _checkpoint(self) -> dict[str, str]:
        """Where the checkpoint lies, or what stands in for a lost one."""
        why = f"The query's checkpointLocation: a folder, or an address of a store; {NONE} where it is lost."
        checkpoint = self("checkpoint", "Checkpoint", why, None, _not_empty)
        if checkpoint != NONE:
            return {"checkpoint": checkpoint}
        why = "The interval of the query's trigger: by it and by append times records are placed in micro-batches."
        return {"gaps": "approximate", "trigger": self("trigger", "Trigger", why, "10 s", _duration)}

    def window(self, engine: Engine) -> dict[str, str]:
        """The fields of `window`."""
        kinds = _WINDOWS[engine]
        why = f"The live job's windows: {', '.join(kinds)}."
        kind = self("window", "Kind of window", why, "tumbling", _one_of(tuple(kinds)))
        fields = {"type": kind}
        for field in kinds[kind]:
            question = field.capitalize().replace("_", " ")
            fields[field] = self(field, question, _LENGTHS[field], _EXAMPLES[field], _duration)
        return fields

    def lateness(self) -> str:
        """`allowed_lateness`, which Flink alone has."""
        why = "How long after its end a window of the live job still takes late records; Flink's default is 0."
        return self(
            "lateness", "Allowed lateness", why, "0", lambda text: text if text == "forever" else _duration(text)
        )

    def aggregates(self, keys: dict[str, str], taken: Sequence[tuple[str, ...]]) -> dict[str, str]:
        """The result columns and their aggregates."""
        proposed = {column_name(Field(("records",), (), 0), keys): "count(*)"}
        for field in summable_fields(self.sample, taken):
            function = "avg" if is_averaged(field) else "sum"
            proposed[column_name(field, [*keys, *proposed], f"_{function}")] = f"{function}({field.expression})"
        if named := self.flags.get("aggregates"):
            return dict(map(_named, named))
        why = "The result columns, as name=aggregate in Spark SQL, separated by semicolons."
        default = "; ".join(f"{name}={expression}" for name, expression in proposed.items())
        answer = self.ask("Aggregates", why, "--aggregate", default, _all_named)
        return dict(_named(part) for part in answer.split(";") if part.strip())


def _option(flag: str) -> str:
    return "--" + flag.replace("_", "-")


def _disorder(sample: Sample, field: Field | None, reading: TimeReading, position: PositionProposal) -> Disorder:
    if field is None:
        return Disorder(0, 0, False)
    return disorder(sample, field, reading, position)


def _outside_brackets(text: str) -> list[str]:
    """The parts between the commas that are in no brackets."""
    return [part.strip() for part in re.split(r",(?![^()]*\))", text) if part.strip()]


def _name_of(address: Address) -> str:
    """A name from the last part of the address that is no wildcard."""
    parts = [part.split(".")[0] for part in re.split(r"[/]", address.place) if not re.search(r"[*?\[]", part)]
    if address.kind is not SourceKind.FILES:
        parts = [address.place.rpartition(".")[2]]
    words = [re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_") for part in parts]
    words = [word for word in words if word and word[0].isalpha() and word not in _SAY_NOTHING]
    return words[-1] if words else "events"


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", text) or text in ("input", "windows", "reconciliation"):
        raise DefinitionError(f"`{text}` is not a name", hint="Write lower-case letters, digits and _.")
    return text


def _identifier(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", text):
        raise DefinitionError(f"`{text}` is not a name", hint="Write letters, digits and _.")
    return text


def _not_empty(text: str) -> str:
    if not text.strip():
        raise DefinitionError("the answer is empty", hint="Write a field.")
    return text.strip()


def _one_of(choices: Sequence[str]) -> Check:
    def check(text: str) -> str:
        if text not in choices:
            raise DefinitionError(f"`{text}` is not known", hint=f"Write one of {', '.join(choices)}.")
        return text

    return check


def _duration(text: str) -> str:
    try:
        return format_duration(parse_duration(text))
    except DurationError as error:
        raise DefinitionError(error.what, hint=f"{error.hint[0].upper()}{error.hint[1:]}.") from None


def _named(text: str) -> tuple[str, str]:
    name, equals, expression = text.partition("=")
    if not equals or not name.strip() or not expression.strip():
        raise DefinitionError(f"`{text.strip()}` is not name=aggregate", hint="Write records=count(*).")
    return name.strip(), expression.strip()


def _all_named(text: str) -> str:
    for part in (part for part in text.split(";") if part.strip()):
        _named(part)
    return _not_empty(text)
