"""What the sections of a definition share: the base model, the field types, and how a value is refused.

Durations and instants are integer milliseconds once read. In YAML they are text with a unit or a zone, because a bare
`30` has no unit. From Python (the conformance cases, tests) integers are taken as milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema

from spark_jobs.definition import instants
from spark_jobs.eventtime import durations

YAML_CONTEXT = {"from_yaml": True}
"""Validation context that makes bare numbers other than 0 an error where a unit is needed."""

VARIABLE_PATTERN = r"\$\{"


class Refusal(ValueError):
    """A value that is refused: `what` is wrong with it, and in `hint` what to write instead.

    `at` is the path from the field down to the wrong part of its value; empty if the whole value is wrong.
    """

    def __init__(self, what: str, hint: str = "", at: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"{what}; {hint}" if hint else what)
        self.what = what
        self.hint = hint
        self.at = at


class NotJudged(ValueError):
    """A value that cannot be judged, because one before it was refused: nothing is said of it."""


class Refusals(ValueError):
    """Several wrong parts of one field's value."""

    def __init__(self, refusals: Iterable[Refusal]) -> None:
        self.refusals = tuple(refusals)
        super().__init__("; ".join(str(refusal) for refusal in self.refusals))


class Section(BaseModel):
    """A part of a definition: immutable; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, populate_by_name=True)


def as_written(text: str | None) -> Any:
    """A field's default in the spelling of YAML, such as `2 min`. It is validated like a value of a definition."""
    return text


def shown(value: object) -> str:
    """A value as a message quotes it: at most 60 characters, spelled as in YAML."""
    text = str(value)
    if value is None or isinstance(value, bool):
        text = {True: "true", False: "false", None: "null"}[value]
    return f"`{text}`" if len(text) <= 60 else f"`{text[:57]}...`"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None if there is none.

    It is the same name except for case and dashes, or the only one that begins with `name`, or the closest one.
    """
    choices = {name.lower(): name for name in sorted(known, reverse=True)}
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    if plain in choices:
        return choices[plain]
    if len(plain) < 3:
        return None
    begun = [choice for choice in choices if choice.startswith(plain)]
    close = begun if len(begun) == 1 else get_close_matches(plain, choices, n=1)
    return choices[close[0]] if close else None


def _refuse_blank(text: str) -> str:
    """The text without surrounding blanks; an empty one is refused."""
    stripped = text.strip()
    if not stripped:
        raise Refusal("is empty", "write a value")
    return stripped


def _needs_unit(value: float | str, info: ValidationInfo) -> bool:
    """Whether the value is a bare number of a YAML file; 0 needs no unit."""
    return isinstance(value, float) or (isinstance(value, int) and value != 0 and _from_yaml(info))


def _from_yaml(info: ValidationInfo) -> bool:
    return bool(info.context and info.context.get("from_yaml"))


def _read_duration(value: Any, info: ValidationInfo) -> int:
    if value is None:
        raise Refusal("is empty", f"write a duration like {durations.EXAMPLES}, or leave the line out")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise Refusal(f"{shown(value)} is not a duration", f"write one like {durations.EXAMPLES}")
    if _needs_unit(value, info):
        raise Refusal(f"{shown(value)} has no unit", f"write `{value} ms`, `{value} s` or `{value} min`")
    if isinstance(value, int):
        return value
    try:
        return durations.parse_duration(str(value))
    except durations.DurationError as error:
        raise Refusal(error.what, error.hint) from None


def _finite(value: int) -> int:
    if abs(value) >= durations.FOREVER:
        raise Refusal("`forever` has no meaning here", "only `allowed_lateness` can be `forever`")
    return value


def _not_negative(value: int) -> int:
    if value < 0:
        raise Refusal(f"`{durations.format_duration(value)}` is negative", "write 0 or a positive duration")
    return value


def _positive(value: int) -> int:
    if value <= 0:
        raise Refusal(f"`{durations.format_duration(value)}` is not positive", "write a duration longer than 0")
    return value


def read_positive_duration(value: Any, info: ValidationInfo) -> int:
    """As a field of type `PositiveDuration` reads it, in ms. Raises Refusal."""
    return _positive(_finite(_read_duration(value, info)))


def _read_instant(value: Any, info: ValidationInfo) -> int:
    if value is None:
        raise Refusal("is empty", f"write a time like `{instants.EXAMPLE}`, or leave the line out")
    if isinstance(value, int) and not isinstance(value, bool) and not _from_yaml(info):
        return value
    if not isinstance(value, str):
        raise Refusal(f"{shown(value)} is not a time", f"write one like `{instants.EXAMPLE}`")
    try:
        return instants.parse_instant(value)
    except instants.InstantError as error:
        raise Refusal(error.what, error.hint) from None


def text_schema(pattern: str, description: str, *more: dict[str, Any]) -> WithJsonSchema:
    texts = [{"type": "string", "pattern": pattern}, {"type": "string", "pattern": VARIABLE_PATTERN}]
    return WithJsonSchema({"anyOf": [*texts, *more], "description": description})


DURATION_SCHEMA = text_schema(
    durations.PATTERN, f"A duration: {durations.EXAMPLES}; or 0.", {"type": "integer", "const": 0}
)
Duration = Annotated[
    int, BeforeValidator(_read_duration), AfterValidator(_finite), AfterValidator(_not_negative), DURATION_SCHEMA
]
PositiveDuration = Annotated[
    int, BeforeValidator(_read_duration), AfterValidator(_finite), AfterValidator(_positive), DURATION_SCHEMA
]
SignedDuration = Annotated[int, BeforeValidator(_read_duration), AfterValidator(_finite), DURATION_SCHEMA]
Lateness = Annotated[
    int,
    BeforeValidator(_read_duration),
    AfterValidator(_not_negative),
    text_schema(
        durations.PATTERN,
        f"A duration: {durations.EXAMPLES}; 0; or forever.",
        {"type": "integer", "const": 0},
        {"const": "forever"},
    ),
]
Instant = Annotated[
    int, BeforeValidator(_read_instant), text_schema(instants.PATTERN, f"A time with its zone: {instants.EXAMPLE}.")
]
Text = Annotated[str, AfterValidator(_refuse_blank)]
Expression = Text
"""A Spark SQL expression; whether Spark can resolve it is checked where there is a Spark session."""


def _one_or_many(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Texts = Annotated[
    tuple[Text, ...],
    Field(min_length=1),
    BeforeValidator(_one_or_many),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""One text, or a list of them."""


def short_for(field: str) -> BeforeValidator:
    """A text in the place of a section: it is the section's first field, which is enough for most."""
    return BeforeValidator(lambda value: {field: value} if isinstance(value, str) else value)


def _later_than(field: str, name: str, hint: str) -> AfterValidator:
    """Refuses an instant (epoch ms) that does not come after that of `field`, which people write as `name`."""

    def check(value: int | None, info: ValidationInfo) -> int | None:
        earlier = info.data.get(field)
        if earlier is not None and value is not None and value <= earlier:
            than = f"`{name}`" + ("" if name == "from" else f" ({instants.format_instant(earlier)})")
            raise Refusal(f"`{instants.format_instant(value)}` is not after {than}", hint)
        return value

    return AfterValidator(check)


END = _later_than("start", "from", "give the later of the two times here")
"""Of a field `to`, behind a field `start` that is written `from`."""
LATEST = _later_than("earliest", "earliest", "good event times lie in [earliest, latest)")
ARRIVAL_LATEST = _later_than(
    "arrival_earliest", "arrival_earliest", "good arrivals lie in [arrival_earliest, arrival_latest)"
)


def _known_zone(zone: str | None) -> str | None:
    if zone is not None:
        try:
            ZoneInfo(zone)
        except (KeyError, ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
            zones = available_timezones()
            city = {name.rpartition("/")[2]: name for name in sorted(zones, reverse=True)}
            near = nearest(zone, zones) or city.get(nearest(zone.rpartition("/")[2], city) or "")
            hint = f"write `{near}`" if near else "write an IANA name like `Europe/Berlin`"
            raise Refusal(f"{shown(zone)} is not a time zone", hint) from None
    return zone


KNOWN_ZONE = AfterValidator(_known_zone)
"""Of a field that names a time zone."""
