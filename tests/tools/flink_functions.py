"""Compare what real Flink gave with what Spark gives for it: `python -m tests.tools.flink_functions`.

It writes the list that `import flink-sql` obeys, `spark_jobs/project/files/flink_functions.json`, and its page,
`docs/flink-functions.md`. Flink's values are in `tests/data/flink_expressions/record.json`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from spark_jobs.project.flink_expressions import Known, Scope, Translated, signatures, translated
from spark_jobs.project.flink_parser import FlinkParser, SqlNode, column_sql
from spark_jobs.project.flink_script import spark_type
from spark_jobs.project.flink_types import Kind, common, flink_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = Path("tests/data/flink_expressions")
LIST = Path("spark_jobs/project/files/flink_functions.json")
PAGE = Path("docs/flink-functions.md")
GIVEN: dict[str, Any] = json.loads((FOLDER / "given.json").read_text())
_TOGETHER = 25
_SAME, _STOPS, _EARLY = "same", "stops", "before 1970 "


@dataclass(frozen=True, slots=True)
class Recorded:
    """What Flink gave for an expression: the values by row, or by group for an aggregate."""

    sql: str
    zone: str
    type: str
    values: Mapping[str, Any]
    is_aggregate: bool


def recorded() -> list[Recorded]:
    """All that Flink's planner takes."""
    found = json.loads((FOLDER / "record.json").read_text())["results"]
    of_groups = {*GIVEN["aggregates"]}
    return [
        Recorded(one["sql"], one["zone"], one["type"], one["values"], one["sql"] in of_groups)
        for one in found
        if "type" in one
    ]


def scope(zone: str | None = "UTC") -> Scope:
    """The columns of the table of values."""
    columns: dict[str, str] = GIVEN["columns"]
    types = {name: flink_type(kind) for name, kind in columns.items()}
    return Scope({name: column_sql(name) for name in columns}, types, "", zone)


def values_in_spark(spark: SparkSession, zone: str) -> DataFrame:
    """The table of values, as a source decodes them: a time with a zone is that instant."""
    columns: dict[str, str] = GIVEN["columns"]

    def value(name: str, text: str | None) -> str:
        kind = spark_type(columns[name])
        if text is None:
            return f"CAST(NULL AS {kind})"
        if flink_type(columns[name]).kind in (Kind.ROW, Kind.ARRAY, Kind.MAP):
            text = re.sub(r"\b(ARRAY|MAP)\[(.*?)\]", r"\1(\2)", text.replace("ROW(", "STRUCT("))
            return f"CAST({text} AS {kind})"
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        read = f"CAST('{escaped}' AS {kind})"
        return f"to_utc_timestamp({read}, '{zone}')" if "LTZ" in columns[name] else read

    rows = (
        f"SELECT {place} AS rid, " + ", ".join(f"{value(name, row.get(name))} AS `{name}`" for name in columns)
        for place, row in enumerate(GIVEN["rows"])
    )
    return spark.sql(" UNION ALL ".join(rows)).localCheckpoint()


@dataclass(frozen=True, slots=True)
class InSpark:
    """What Spark gives: its type and values, or why it refuses the expression."""

    type: str
    values: Mapping[str, Any]
    refused: str = ""


def evaluated(frame: DataFrame, expressions: Sequence[str], *, is_aggregate: bool) -> list[InSpark]:
    """What Spark gives for expressions, in few jobs: together, else one by one, else row by row."""
    found: list[InSpark] = []
    for start in range(0, len(expressions), _TOGETHER):
        found += _together(frame, expressions[start : start + _TOGETHER], is_aggregate)
    return found


def _together(frame: DataFrame, expressions: Sequence[str], is_aggregate: bool) -> list[InSpark]:
    from pyspark.sql.functions import expr

    key = "g" if is_aggregate else "rid"
    names = [expr(one).alias(f"v{place}") for place, one in enumerate(expressions)]
    try:
        result = frame.groupBy(key).agg(*names) if is_aggregate else frame.select(key, *names)
        types = [field.dataType.simpleString() for field in result.schema.fields[1:]]
        rows = result.selectExpr(key, *(_as_text(f"v{place}", kind) for place, kind in enumerate(types))).collect()
    except PySparkException as error:
        if len(expressions) > 1:
            half = len(expressions) // 2
            first = _together(frame, expressions[:half], is_aggregate)
            return first + _together(frame, expressions[half:], is_aggregate)
        return [_one_by_one(frame, expressions[0], is_aggregate, error)]
    return [InSpark(kind, {str(row[0]): row[place + 1] for row in rows}) for place, kind in enumerate(types)]


def _as_text(name: str, kind: str) -> str:
    if kind.startswith("array"):
        return f"transform({name}, x -> string(x)) AS {name}"
    if kind == "binary":
        return f"lower(hex({name})) AS {name}"
    return f"string({name}) AS {name}"


def _one_by_one(frame: DataFrame, sql: str, is_aggregate: bool, error: PySparkException) -> InSpark:
    from pyspark.sql.functions import expr

    key = "g" if is_aggregate else "rid"
    try:
        chosen = (
            frame.groupBy(key).agg(expr(sql).alias("v")) if is_aggregate else frame.select(key, expr(sql).alias("v"))
        )
    except PySparkException:
        return InSpark("", {}, str(error).splitlines()[0][:200])
    kind = chosen.schema["v"].dataType.simpleString()
    values: dict[str, Any] = {}
    for (name,) in frame.select(key).distinct().collect():
        try:
            (row,) = chosen.where(f"{key} = '{name}'").selectExpr(_as_text("v", kind)).collect()
            values[str(name)] = row[0]
        except PySparkException as stopped:
            values[str(name)] = {"error": str(stopped).splitlines()[0][:100]}
    return InSpark(kind, values)


def difference(flink: Recorded, spark: InSpark) -> str:
    """How Spark differs: `same`, `stops` where it has an error for a value of Flink, else what it gave.

    Flink's parts of times are wrong before 1970, where it cuts off towards zero: that is said apart.
    """
    if spark.refused:
        return f"Spark does not take it: {spark.refused}"
    if flink_type(flink.type).kind is not _spark_kind(spark.type) and not _both_times(flink.type, spark.type):
        return f"Flink gives {flink.type}, Spark {spark.type.upper()}"
    if _scale(flink.type) != _scale(spark.type):
        return f"Flink gives {flink.type}, Spark {spark.type.upper()}"
    stops, early = False, ""
    for name, theirs in flink.values.items():
        ours = spark.values.get(name)
        if isinstance(theirs, dict):
            continue  # the live job ended here
        if isinstance(ours, dict):
            stops = True
        elif not _equal(theirs, ours, flink.type):
            told = f"{_row(flink, name)}Flink gives {_shown(theirs)}, Spark {_shown(ours)}"
            if not _is_early(flink, name):
                return told
            early = f"{_EARLY}{told}"
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


def _scale(text: str) -> int | None:
    found = re.fullmatch(r"decimal\(\d+,\s*(\d+)\).*", text.lower())
    return int(found[1]) if found else None


def _equal(flink: Any, spark: Any, kind: str) -> bool:
    if flink is None or spark is None:
        return flink is spark
    if isinstance(flink, list):
        inner = kind[kind.find("<") + 1 : -1]
        return len(flink) == len(spark) and all(_equal(a, b, inner) for a, b in zip(flink, spark, strict=True))
    match flink_type(kind).kind:
        case Kind.DOUBLE:
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


def compared(
    spark: SparkSession, known: Mapping[str, Known] | None = None
) -> Iterator[tuple[Recorded, Translated, str]]:
    """Each recorded expression, what import makes of it, and how Spark differs."""
    with FlinkParser() as parser:
        for zone in GIVEN["zones"]:
            frame = values_in_spark(spark, zone)
            for is_aggregate in (False, True):
                own = [one for one in recorded() if one.zone == zone and one.is_aggregate is is_aggregate]
                made = [translated(parser.expression(one.sql), scope(zone), parser, known) for one in own]
                results = evaluated(frame, [one.sql for one in made], is_aggregate=is_aggregate)
                for one, in_spark, result in zip(own, made, results, strict=True):
                    yield one, in_spark, difference(one, result)


def is_single(node: SqlNode) -> bool:
    """Whether an expression is one call over columns and literals."""
    inner = node.all()[1:]
    return (
        not node.is_leaf
        and node.type != "SqlNodeList"
        and node.operator != "FILTER"
        and all(one.is_leaf or one.type == "SqlNodeList" for one in inner)
    )


def functions(spark: SparkSession) -> dict[str, dict[str, Any]]:
    """The list: by signature what Flink gives, and how Spark gives it, or differs.

    A signature is there where an expression is an instance of it; what differs for a literal differs for what is wider
    too. One with narrower operands is there where the wide one is not, differs, or gives something else.
    """
    instead: dict[str, str] = GIVEN["instead"]
    templates = {name: Known(Kind.UNKNOWN, sql) for name, sql in instead.items()}
    outcomes: dict[str, list[tuple[Recorded, str]]] = {}
    wide: dict[str, str] = {}
    seen: set[str] = set()
    with FlinkParser() as parser:
        names = {one.sql: _names(parser.expression(one.sql)) for one in recorded()}
    for one, _, outcome in compared(spark, templates):
        for name, is_own in names[one.sql].items():
            outcomes.setdefault(name, []).append((one, outcome))
            wide[name] = [*names[one.sql]][-1]
            seen |= {name} if is_own else set()
    entries = {name: _entry(outcomes[name], _template(outcomes[name], names, instead)) for name in seen}
    return {
        name: entries[name]
        for name in sorted(entries)
        if wide[name] == name or wide[name] not in seen or _is_better(entries[name], entries[wide[name]])
    }


def _is_better(narrow: Mapping[str, Any], wide: Mapping[str, Any]) -> bool:
    is_other = any(narrow.get(what) != wide.get(what) for what in ("gives", "spark"))
    return is_other or ("differs" in wide and "differs" not in narrow)


def _template(
    outcomes: list[tuple[Recorded, str]], names: Mapping[str, Mapping[str, bool]], instead: Mapping[str, str]
) -> str:
    """The template by which the expressions of a signature were written."""
    return next((instead[each] for each in names[outcomes[0][0].sql] if each in instead), "")


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
`TIMESTAMP_LTZ`. What is not listed here gets a CHECK, as does what differs. Where it says *stops*, a run ends with an
error for a value for which Flink has a result, such as a sum that wraps around.

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


def write(spark: SparkSession) -> None:
    """Write the list and its page anew."""
    found = functions(spark)
    LIST.write_text(list_text(found))
    PAGE.write_text(page_text(found))


if __name__ == "__main__":
    from spark_jobs.spark.session import spark_session

    write(spark_session("flink functions"))
