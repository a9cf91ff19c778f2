"""Compare what real Flink gave with what Spark gives for it: `python -m tests.tools.flink_functions`.

It writes the list that `import flink-sql` obeys, `spark_jobs/project/files/flink_functions.json`, and its page,
`docs/flink-functions.md`. Flink's values are in `tests/data/flink_expressions/record.json`; Spark's, which it records
first, in `spark.json` beside it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyspark

from spark_jobs.project.flink_expressions import Known, Scope, Translated, known_of, signatures, translated
from spark_jobs.project.flink_parser import FlinkParser, SqlNode, column_sql
from spark_jobs.project.flink_script import NoCounterpartError
from spark_jobs.project.flink_types import Kind, common, flink_type
from tests.tools.spark_values import ENDS, FOLDER, GIVEN, Asked, Evaluator, InSpark

LIST = Path("spark_jobs/project/files/flink_functions.json")
PAGE = Path("docs/flink-functions.md")
SPARK_RECORD = FOLDER / "spark.json"
_SAME, _STOPS, _EARLY = "same", "stops", "before 1970 "
TEMPLATES = {name: Known(Kind.UNKNOWN, sql) for name, sql in GIVEN["instead"].items()}
"""What may give in Spark what Flink gives, by signature."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What Flink gave for an expression: the values by row, or by group for an aggregate."""

    sql: str
    zone: str
    type: str
    values: Mapping[str, Any]
    is_aggregate: bool


@dataclass(frozen=True, slots=True)
class Written:
    """What an expression of Flink is in Spark, in a session's zone."""

    sql: str
    zone: str
    is_aggregate: bool


SparkRecord = Mapping[Written, InSpark]


@cache
def recorded() -> tuple[Recorded, ...]:
    """All that Flink's planner takes."""
    found = json.loads((FOLDER / "record.json").read_text())["results"]
    of_groups = {*GIVEN["aggregates"]}
    return tuple(
        Recorded(one["sql"], one["zone"], one["type"], one["values"], one["sql"] in of_groups)
        for one in found
        if "type" in one
    )


def scope(zone: str | None = "UTC") -> Scope:
    """The columns of the table of values."""
    columns: dict[str, str] = GIVEN["columns"]
    types = {name: flink_type(kind) for name, kind in columns.items()}
    return Scope({name: column_sql(name) for name in columns}, types, "", zone)


@dataclass(frozen=True, slots=True)
class Made:
    """What import makes of a recorded expression."""

    flink: Recorded
    translated: Translated

    @property
    def written(self) -> Written:
        """What is asked of Spark."""
        return Written(self.translated.sql, self.flink.zone, self.flink.is_aggregate)


def made(parser: FlinkParser, known: Mapping[str, Known]) -> list[Made]:
    """Each recorded expression as import writes it with this list; without those that it refuses."""
    found = []
    for one in recorded():
        with suppress(NoCounterpartError):
            found.append(Made(one, translated(parser.expression(one.sql), scope(one.zone), parser, known)))
    return found


def in_spark() -> dict[Written, InSpark]:
    """What Spark was seen to give."""
    return {
        Written(one["sql"], one["zone"], one["aggregate"]): InSpark(one["type"], one["values"], one["refused"])
        for one in json.loads(SPARK_RECORD.read_text())["results"]
    }


def record(asked: Iterable[Written], before: SparkRecord) -> dict[Written, InSpark]:
    """`before`, and what Spark gives for what is not in it."""
    new = [one for one in dict.fromkeys(asked) if one not in before]
    evaluator, found = Evaluator(), {}
    for kind in dict.fromkeys((one.zone, one.is_aggregate) for one in new):
        own = [one for one in new if (one.zone, one.is_aggregate) == kind]
        results = evaluator.evaluated(Asked(*kind, tuple(one.sql for one in own)))
        found.update(zip(own, results, strict=True))
    return {**before, **found}


def difference(flink: Recorded, spark: InSpark) -> str:
    """How Spark differs: `same`, `stops` where it has an error for a value of Flink (not for all), else what it gave.

    Flink's parts of times are wrong before 1970, where it cuts off towards zero: that is said apart.
    """
    if spark.refused:
        return f"Spark does not take it: {spark.refused}"
    if ENDS in spark.values.values():
        return f"{flink.sql}: a value ends Spark's process, for want of memory"
    if flink_type(flink.type).kind is not _spark_kind(spark.type) and not _both_times(flink.type, spark.type):
        return f"Flink gives {flink.type}, Spark {spark.type.upper()}"
    if _digits(flink)[0 if flink.is_aggregate else 1 :] != _digits(spark)[0 if flink.is_aggregate else 1 :]:
        return f"Flink gives {flink.type}, Spark {spark.type.upper()}"
    stops, ends, early, agree = False, "", "", False
    for name, theirs in flink.values.items():
        ours = spark.values.get(name)
        if isinstance(theirs, dict):
            continue  # the live job ended here
        if isinstance(ours, dict):
            stops = True
            if theirs is not None:
                ends = ends or f"{_row(flink, name)}Flink gives {_shown(theirs)}, Spark ends the run"
        elif not _equal(theirs, ours, flink.type):
            told = f"{_row(flink, name)}Flink gives {_shown(theirs)}, Spark {_shown(ours)}"
            if not _is_early(flink, name):
                return told
            early = f"{_EARLY}{told}"
        else:
            agree = agree or theirs is not None
    if ends and not agree:
        return ends
    return early or (_STOPS if stops else _SAME)


def _is_early(flink: Recorded, name: str) -> bool:
    """Whether an expression is over times before 1970 in this row."""
    if flink.is_aggregate:
        return False
    return any(GIVEN["rows"][int(name)].get(column, "") < "1970" for column in _used(flink) if column in "twlyv")


def _row(flink: Recorded, name: str) -> str:
    if flink.is_aggregate:
        return f"{flink.sql}: "
    row = GIVEN["rows"][int(name)]
    shown = ", ".join(f"{column} = {_shown(row.get(column))}" for column in _used(flink))
    return f"{flink.sql}{' with ' if shown else ''}{shown}: "


def _used(flink: Recorded) -> list[str]:
    """The columns in an expression."""
    text = re.sub(r"'[^']*'", "", flink.sql)
    return [column for column in GIVEN["columns"] if re.search(rf"\b{column}\b", text)]


def _shown(value: Any) -> str:
    return "null" if value is None else str(value) if isinstance(value, list) else f"'{value}'"


def _spark_kind(text: str) -> Kind:
    words = {"struct": "ROW", "void": "NULL", "interval day": "INTERVAL DAY", "interval year": "INTERVAL YEAR"}
    return flink_type(next((flink for spark, flink in words.items() if text.startswith(spark)), text.upper())).kind


def _both_times(flink: str, spark: str) -> bool:
    return flink_type(flink).kind in (Kind.TIMESTAMP, Kind.INSTANT) and spark == "timestamp"


def _digits(one: Recorded | InSpark) -> Sequence[str]:
    """A decimal's precision and scale; nothing for other types."""
    found = re.fullmatch(r"decimal\((\d+),\s*(\d+)\).*", one.type.lower())
    return found.groups() if found else ()


def _equal(flink: Any, spark: Any, kind: str) -> bool:
    if flink is None or spark is None:
        return flink is spark
    if isinstance(flink, list):
        inner = kind[kind.find("<") + 1 : -1]
        return len(flink) == len(spark) and all(_equal(a, b, inner) for a, b in zip(flink, spark, strict=True))
    match flink_type(kind).kind:
        case Kind.DOUBLE | Kind.FLOAT:
            one, other = float(flink), float(spark)
            return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=_precision(kind))
        case Kind.TIMESTAMP | Kind.INSTANT:
            return _time(str(flink)) == _time(str(spark))
        case Kind.ROW:
            return str(flink)[3:-1] == str(spark)[1:-1]
        case Kind.MAP:
            entries = (str(text)[1:-1].replace(" -> ", "=").split(", ") for text in (flink, spark))
            return sorted(next(entries)) == sorted(next(entries))
    return str(flink) == str(spark)


def _precision(kind: str) -> float:
    return 1e-6 if kind.startswith("FLOAT") else 1e-12


def _time(text: str) -> str:
    text = text.replace("T", " ").rstrip("Z").lstrip("+")
    text = f"{text}:00" if text.count(":") == 1 else text
    return text.rstrip("0").rstrip(".") if "." in text else text


def is_single(node: SqlNode) -> bool:
    """Whether an expression is one call over columns and literals."""
    inner = node.all()[1:]
    return (
        not node.is_leaf
        and node.type != "SqlNodeList"
        and node.operator != "FILTER"
        and all(one.is_leaf or one.type == "SqlNodeList" for one in inner)
    )


def functions(spark: SparkRecord, parser: FlinkParser) -> dict[str, dict[str, Any]]:
    """The list: by signature what Flink gives, and how Spark gives it, or differs.

    A signature is there where an expression is an instance of it; what differs for a literal differs for what is wider
    too. One with narrower operands is there where the next wider one is not, differs, or gives something else.
    """
    outcomes: dict[str, list[tuple[Recorded, str, str]]] = {}
    lists: dict[str, list[list[str]]] = {}
    seen: set[str] = set()
    names = {one.sql: _names(parser.expression(one.sql)) for one in recorded()}
    for one in (one for one in made(parser, TEMPLATES) if names[one.flink.sql]):
        own = names[one.flink.sql]
        outcome, template = difference(one.flink, spark[one.written]), _template(own)
        for name, is_own in own.items():
            outcomes.setdefault(name, []).append((one.flink, outcome, template))
            lists.setdefault(name, []).append([*own])
            seen |= {name} if is_own else set()
    entries = {name: entry for name in seen if (entry := _entry_of(name, outcomes[name], names))}
    kept: dict[str, dict[str, Any]] = {}
    ranks = {name: max(len(own) - own.index(name) for own in lists[name]) for name in entries}
    for name in sorted(entries, key=lambda one: (ranks[one], one)):  # the widest first
        next_ones = [next((each for each in own[own.index(name) + 1 :] if each in kept), None) for own in lists[name]]
        if any(one is None or _is_better(entries[name], kept[one]) for one in next_ones):
            kept[name] = entries[name]
    return dict(sorted(kept.items()))


def _is_better(narrow: Mapping[str, Any], wide: Mapping[str, Any]) -> bool:
    is_other = any(narrow.get(what) != wide.get(what) for what in ("gives", "spark"))
    return is_other or ("differs" in wide) != ("differs" in narrow)


def _entry_of(
    name: str, outcomes: list[tuple[Recorded, str, str]], names: Mapping[str, Mapping[str, bool]]
) -> dict[str, Any]:
    """The entry of a signature, from the expressions that its own template has written; else empty."""
    instances = [[*names[one.sql]] for one, _, _ in outcomes if names[one.sql][name]]
    fewest = min(instances, key=len)
    template = _template(fewest[fewest.index(name) :])
    own = [(one, outcome) for one, outcome, by in outcomes if by == template]
    return _entry(own, template) if own else {}


def _template(names: Iterable[str]) -> str:
    """The template by which an expression with these signatures is written, the narrowest first."""
    return next((TEMPLATES[each].spark for each in names if each in TEMPLATES), "")


def _names(node: SqlNode) -> dict[str, bool]:
    return signatures(node, scope()) if is_single(node) else {}


def _entry(outcomes: list[tuple[Recorded, str]], spark: str) -> dict[str, Any]:
    kind = common(flink_type(one.type) for one, _ in outcomes)
    entry: dict[str, Any] = {
        "gives": str(kind.kinds[0] if len({flink_type(one.type).kinds for one, _ in outcomes}) == 1 else kind.kind)
    }
    early = next((outcome for _, outcome in outcomes if outcome.startswith(_EARLY)), "")
    fine = (_SAME, _STOPS, *(outcome for _, outcome in outcomes if outcome.startswith(_EARLY)))
    wrong = {one.zone: outcome for one, outcome in reversed(outcomes) if outcome not in fine}
    if "UTC" in wrong:
        entry["differs"] = wrong["UTC"]
    elif wrong or "ZONE" in spark:
        entry["zone"] = True
    if spark:
        entry["spark"] = spark
    if outcomes[0][0].is_aggregate:
        entry["aggregate"] = True
    if early and not wrong:
        entry["early"] = early
    if any(outcome == _STOPS for _, outcome in outcomes) and not wrong:
        entry["stops"] = True
    return entry


def list_text(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The list as its file holds it, one line for each signature."""
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}" for name, entry in found.items())
    return f"{{\n{lines}\n}}\n"


_INTRODUCTION = """\
# Flink SQL's functions in Spark

What [`import flink-sql`](flink.md) makes of functions, operators and casts. Each was evaluated in Flink {flink} and in
Spark over values with nulls, negative numbers, zero, the ends of each type, fractions, empty and non-ASCII text, and
times before 1970, with UTC and `Asia/Kolkata` as the session's zone. `>0` is a literal above zero, `'text'` one
without a backslash, `'pattern'` a pattern of dates of `yyyy`, `MM`, `dd`, `HH`, `mm`, `ss` and `SSS`. INSTANT is
`TIMESTAMP_LTZ`, SCALE the scale of the operand. Where digits decide to how many places a decimal is rounded, as in a
division, operands that have others in Spark (literals, BIGINT) get a cast. What is not listed here gets a CHECK, as
does what differs. Where it says *stops*, a run ends with an error for a value for which Flink has a result, such as a
sum that wraps around.

`python -m tests.tools.flink_functions` generates this page; do not edit it by hand.

| Flink | gives | in Spark |
| --- | --- | --- |
"""


def page_text(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The page."""
    flink = json.loads((FOLDER / "record.json").read_text())["flink"]
    return _INTRODUCTION.format(flink=flink) + "".join(_line(name, entry) for name, entry in found.items())


def _line(name: str, entry: Mapping[str, Any]) -> str:
    text = f"`{entry['spark']}`" if entry.get("spark") else "the same"
    if entry.get("differs"):
        text = f"CHECK: {entry['differs']}"
    elif entry.get("zone") and not entry.get("spark"):
        text += " where the session's zone is UTC; else CHECK"
    text += "; *stops*" if entry.get("stops") else ""
    text += f"; {entry['early']}" if entry.get("early") else ""
    cells = (one.replace("|", "\\|").replace("<", "&lt;") for one in (f"`{name}`", str(entry["gives"]), text))
    return f"| {' | '.join(cells)} |\n"


def record_text(found: SparkRecord) -> str:
    """What Spark gave, one line for each expression and zone."""
    lines = (
        {"sql": sql.sql, "zone": sql.zone, "aggregate": sql.is_aggregate, "type": one.type, "values": one.values,
         "refused": one.refused}
        for sql, one in found.items()
    )  # fmt: skip
    text = ",\n".join(map(json.dumps, lines))
    return f'{{"spark": "{pyspark.__version__}", "results": [\n{text}\n]}}\n'


def write() -> None:
    """Write Spark's record, the list and its page anew."""
    with FlinkParser() as parser:
        single = [one for one in made(parser, TEMPLATES) if _names(parser.expression(one.flink.sql))]
        found = functions(spark := record((one.written for one in single), {}), parser)
        whole = made(parser, {name: known_of(one) for name, one in found.items()})
    found_in_spark = record((one.written for one in whole), spark)
    SPARK_RECORD.write_text(record_text(found_in_spark))
    LIST.write_text(list_text(found))
    PAGE.write_text(page_text(found))


if __name__ == "__main__":
    write()
