"""Expressions that can fail on a record, as a cast of text or a division: such a record goes to quarantine.

Spark evaluates them once, in a generator of one row. Elsewhere it may compute a part that two expressions share before
either of them, and a failure of it would end the query.

Some text an expression would read as what it is not: Spark takes text without a date for a time of today, and reads
short names of zones, which are ambiguous; it takes any bytes for text. The conditions here hold for records for which
that would happen, in lambda functions too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.sources.records.decode import NOT_UTF8
from spark_jobs.spark.expression_tree import NO_CLEAR_TIME, SHORT_ZONES, children_of, nodes_of, shown_part
from spark_jobs.spark.gateway import JavaObject, analyzed_plan, column_of, expression_of, jvm, tried, with_children

FAILED = "rw_failed"
"""Why an expression fails on a record; null where none does. The column is there only if one can fail."""
_TRIED = "rw_tried"
_SAFE = {
    # Values, names and their parts
    *("Literal", "With", "CommonExpressionDef", "CommonExpressionRef", "AttributeReference", "Alias", "GetStructField"),
    *("NamedLambdaVariable", "CreateNamedStruct", "CreateArray", "GetJsonObject", "Pi", "EulerNumber"),
    # Comparisons and conditions
    *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "In", "InSet"),
    *("Between", "And", "Or", "Not", "IsNull", "IsNotNull", "IsNaN", "Greatest", "Least"),
    *("Coalesce", "Nvl", "Nvl2", "NullIf", "NaNvl", "CaseWhen", "If"),
    # Text
    *("Upper", "Lower", "StringTrim", "StringTrimLeft", "StringTrimRight", "Concat", "ConcatWs", "Substring", "Length"),
    *("StartsWith", "EndsWith", "Contains", "StringReplace"),
    *("Murmur3Hash", "XxHash64", "Sha2", "Md5"),
    # Times
    *("Year", "Month", "DayOfMonth", "Hour", "Minute", "Second", "DayOfWeek", "TruncTimestamp", "TruncDate"),
    "DateDiff",
}
"""Parts that fail on no record, whatever is in them."""
_DIVISIONS = ("Divide", "IntegralDivide", "Remainder", "Pmod")
_PATTERNS = ("Like", "RLike", "RegExpReplace")
"""They fail on a pattern that is none, and on a replacement that names a group which the pattern does not have."""
_SUMS = ("Add", "Subtract", "Multiply", "UnaryMinus", "Abs")
_SHOWN_LENGTH = 60
_MOST_PARTS = 20


@dataclass(frozen=True, slots=True)
class Attempt:
    """An expression to evaluate.

    Attributes:
        label: What it is in the definition, for people: "key `shop`".
        text: The SQL, for people; `value` and `tree` are the same as a column and as Spark's analyzer sees it.
        only_if: Evaluate it only for records for which this is true.
    """

    label: str
    text: str
    value: Column
    tree: JavaObject
    only_if: Column | None = None


def attempt(frame: DataFrame, label: str, text: str) -> Attempt:
    """A scalar expression over the columns of `frame`, which `expression_type` has accepted."""
    tree = analyzed_plan(frame.select(F.expr(text).alias(_TRIED))).expressions().apply(0)
    return Attempt(label, text, F.expr(text), tree)


def or_null(frame: DataFrame, text: str) -> Column:
    """A scalar expression over the columns of `frame`; null where it fails on a record."""
    return tried(F.expr(text)) if can_fail(frame.sparkSession, attempt(frame, "", text).tree) else F.expr(text)


def can_fail(spark: SparkSession, tree: JavaObject) -> bool:
    """Whether an expression may fail on a record; true also where that is not known."""
    return any(_may_fail(spark, node, name) for node, name in nodes_of(tree))


def evaluated(frame: DataFrame, attempts: Mapping[str, Attempt]) -> DataFrame:
    """Add the value of each attempt as a column; null, and the reason in FAILED, where it fails."""
    spark = frame.sparkSession
    risky = {name: one for name, one in attempts.items() if can_fail(spark, one.tree)}
    columns = {name: one.value for name, one in attempts.items() if name not in risky}
    if not risky:
        return frame.withColumns(columns) if columns else frame
    held = []
    for index, one in enumerate(risky.values()):
        kind = frame.select(one.value.alias(_TRIED)).schema[0].dataType
        right = tried(F.struct(one.value.alias("value"), F.lit(None).cast("string").alias("why")))
        misread = misreadings(spark, one.tree)
        for is_misread, _ in misread:
            right = F.when(~F.coalesce(is_misread, F.lit(False)), right)
        wrong = F.struct(F.lit(None).cast(kind).alias("value"), _reason(spark, one, misread).alias("why"))
        outcome = F.coalesce(right, wrong)
        if one.only_if is not None:
            outcome = F.when(one.only_if, outcome)
        held.append(outcome.alias(f"at{index}"))
    frame = frame.select("*", F.explode_outer(F.array(F.struct(*held))).alias(_TRIED))
    reasons = [F.col(FAILED)] if FAILED in frame.columns else []
    for index, name in enumerate(risky):
        columns[name] = F.col(_TRIED)[f"at{index}"]["value"]
        reasons.append(F.col(_TRIED)[f"at{index}"]["why"])
    return frame.withColumns({**columns, FAILED: F.coalesce(*reasons)}).drop(_TRIED)


def arguments(frame: DataFrame, texts: Mapping[str, str], only_if: Column | None) -> Iterator[tuple[str, Attempt]]:
    """What aggregate expressions compute of each record, by their names: their functions' arguments and filters.

    They are analyzed together: with a thousand of them, each by itself takes minutes.
    """
    spark = frame.sparkSession
    trees = analyzed_plan(frame.agg(*(F.expr(text).alias(_TRIED) for text in texts.values()))).expressions()
    for place, (name, text) in enumerate(texts.items()):
        label = f"aggregate `{name}`"
        for node, kind in nodes_of(trees.apply(place)):
            if kind != "AggregateExpression":
                continue
            condition, given = only_if, node.filter()
            if given.isDefined():
                chosen = column_of(spark, given.get())
                yield name, Attempt(label, text, chosen, given.get(), only_if)
                condition = F.coalesce(tried(chosen), F.lit(False)) if condition is None else condition & tried(chosen)
            for child in children_of(node.aggregateFunction()):
                if child.nodeName() == "SortOrder":  # the order of WITHIN GROUP
                    child = child.child()
                yield name, Attempt(label, text, column_of(spark, child), child, condition)


def _may_fail(spark: SparkSession, node: JavaObject, name: str) -> bool:
    if name in _SAFE or node.foldable():
        return False
    if name == "Cast":
        if reads_bytes(node, name):
            return True
        if node.evalMode().toString() == "TRY":
            return reads_time(node, name)
        cast = jvm(spark).org.apache.spark.sql.catalyst.expressions.Cast
        return not cast.canUpCast(node.child().dataType(), node.dataType())
    if name in _DIVISIONS:
        right = node.children().apply(1)
        return not right.foldable() or (name == "IntegralDivide" and right.sql().lstrip("(").startswith("-1"))
    if name in _SUMS:
        return node.dataType().typeName() not in ("double", "float")
    if name in _PATTERNS:
        _, *given = children_of(node)
        names_group = name == "RegExpReplace" and any(c in given[1].sql() for c in "$\\")
        return names_group or not all(child.foldable() for child in given)
    return True


def _reason(spark: SparkSession, one: Attempt, misread: Sequence[tuple[Column, str]]) -> Column:
    """Which part of the expression fails, and on what: Spark's own words as far as they depend on the record."""
    found = []
    for node in _parts(spark, one.tree):
        name = node.nodeName()
        fails = tried(F.struct(column_of(spark, node))).isNull()
        inputs = [_shown_value(spark, child) for child in children_of(node)]
        if name == "Cast":
            kinds = node.child().dataType().sql(), node.dataType().sql()
            why = F.concat(
                F.lit("the value '"), inputs[0], F.lit(f"' of the type {kinds[0]} cannot be cast to {kinds[1]}")
            )
        elif name == "RaiseError":  # a function of the definition's own, or raise_error()
            why = F.element_at(column_of(spark, node.children().apply(1)), "errorMessage")
        elif name in _DIVISIONS:
            why = F.when(column_of(spark, node.children().apply(1)) == F.lit(0), "division by zero").otherwise(
                "overflow"
            )
        else:
            what = "overflow" if name in _SUMS else "fails"
            why = F.concat(F.lit(f"{what} for "), F.concat_ws(", ", *inputs)) if inputs else F.lit(what)
        found.append(F.when(fails, F.concat(F.lit(f"{one.label}: {shown_part(node, one.text)}: "), why)))
    shown = f"{one.label}: {one.text[:_SHOWN_LENGTH]}"
    unread = [F.when(condition, f"{shown}: {why}") for condition, why in misread]
    return F.coalesce(*unread, *found, F.lit(f"{shown}: fails"))


def _parts(spark: SparkSession, tree: JavaObject) -> list[JavaObject]:
    """The parts of an expression that can fail, the innermost first; none within a lambda function."""
    found: list[JavaObject] = []

    def walk(node: JavaObject) -> bool:
        """Whether the node uses a variable, of a lambda function or of a part that Spark computes once."""
        uses = list(map(walk, children_of(node)))
        name = node.nodeName()
        if name in ("NamedLambdaVariable", "CommonExpressionRef"):
            return True
        if name in ("LambdaFunction", "With"):
            return False
        if not any(uses) and name != "Alias" and _may_fail(spark, node, name):
            found.append(node)
        return any(uses)

    walk(tree)
    return found[:_MOST_PARTS]


def _shown_value(spark: SparkSession, node: JavaObject) -> Column:
    kind = node.dataType().typeName()
    if kind in ("binary", "void", "variant", "map", "array", "struct") or "interval" in kind:
        return F.lit(kind)
    return F.coalesce(F.substring(tried(column_of(spark, node).cast("string")), 1, _SHOWN_LENGTH), F.lit("null"))


_LOCAL_NAMES = ("NamedLambdaVariable", "CommonExpressionRef")
_READERS_OF_TIME = ("Cast", "to_timestamp", "ParseToTimestamp", "try_to_timestamp")
_ZONES_OF = {"ToUTCTimestamp": (1,), "FromUTCTimestamp": (1,), "ConvertTimezone": (0, 1), "make_timestamp": (6,)}
"""The children of expressions that name a zone."""
_Guard = Callable[[SparkSession, JavaObject, list[JavaObject], JavaObject | None], JavaObject | None]
"""Gives a part of a lambda function that fails where it should not be read, from the part, its guarded children, and
itself with them; None: the part needs no guard."""


def misreadings(spark: SparkSession, tree: JavaObject) -> list[tuple[Column, str]]:
    """What the expression would misread of a record: each time the condition and, for people, the reason."""
    unclear = [(one, "text without a date or a clear zone is no time") for one in _unclear_times(spark, tree)]
    return [*unclear, *((one, NOT_UTF8) for one in _no_texts(spark, tree))]


def _unclear_times(spark: SparkSession, tree: JavaObject) -> list[Column]:
    """Whether text that the expression reads as a time has no date, or a zone that is not clear.

    Text in a branch (CASE, coalesce, AND, OR) counts only for records for which that branch is evaluated.
    """
    found: list[Column] = []
    for node, name, path in _evaluated_parts(spark, tree, None):
        children = children_of(node)
        if reads_time(node, name) and not _has_local_names(node):
            found.append(_within(path, tried(column_of(spark, children[0])).rlike(NO_CLEAR_TIME)))
        for index in _ZONES_OF.get(name, ()):
            if index < len(children) and not children[index].foldable() and not _has_local_names(children[index]):
                zone = F.upper(tried(column_of(spark, children[index])))
                found.append(_within(path, zone.isin(sorted(SHORT_ZONES))))
    return [*found, *_guard_fails(spark, tree, _with_clear_times)]


def _no_texts(spark: SparkSession, tree: JavaObject) -> list[Column]:
    """Whether bytes that the expression reads as text are no UTF-8."""
    found = [
        _within(path, ~F.is_valid_utf8(tried(column_of(spark, node))))
        for node, name, path in _evaluated_parts(spark, tree, None)
        if reads_bytes(node, name) and not _has_local_names(node)
    ]
    return [*found, *_guard_fails(spark, tree, _with_valid_text)]


def _guard_fails(spark: SparkSession, tree: JavaObject, guard: _Guard) -> list[Column]:
    """Whether an expression fails with a guard in its lambda functions alone; nothing where the guard has no place."""
    whole = tree.child() if tree.nodeName() == "Alias" else tree
    guarded = _guarded(spark, whole, guard)
    if guarded is None:
        return []
    fails, succeeds = (tried(F.struct(column_of(spark, one))) for one in (guarded, whole))
    return [fails.isNull() & succeeds.isNotNull()]


def _within(path: Column | None, condition: Column) -> Column:
    """The condition, where the branch is evaluated."""
    return condition if path is None else F.coalesce(tried(path), F.lit(False)) & condition


def _evaluated_parts(
    spark: SparkSession, node: JavaObject, path: Column | None
) -> Iterator[tuple[JavaObject, str, Column | None]]:
    """Each node of an expression, its name, and the condition on which it is evaluated; None: always."""
    name, children = node.nodeName(), children_of(node)
    yield node, name, path
    for child, condition in _branches(spark, name, children):
        joined = condition if path is None else path if condition is None else path & condition
        yield from _evaluated_parts(spark, child, joined)


def _guarded(spark: SparkSession, node: JavaObject, guard: _Guard, *, is_within: bool = False) -> JavaObject | None:
    """The expression with a guard at each part of its lambda functions that needs it; None: none does.

    `is_within`: the node is a part of a lambda function.
    """
    name, children = node.nodeName(), children_of(node)
    inside = [_guarded(spark, child, guard, is_within=is_within or name == "LambdaFunction") for child in children]
    changed = any(one is not None for one in inside)
    children = [child if one is None else one for child, one in zip(children, inside, strict=True)]
    result = with_children(spark, node, children) if changed else None
    return (guard(spark, node, children, result) if is_within else None) or result


def _with_clear_times(
    spark: SparkSession, node: JavaObject, children: list[JavaObject], changed: JavaObject | None
) -> JavaObject | None:
    """A part of a lambda function, so that it fails on text without a date or a clear zone; None: it reads none."""
    name, result = node.nodeName(), None
    for index in _ZONES_OF.get(name, ()):
        if index < len(children) and not children[index].foldable():
            zone = column_of(spark, children[index])
            is_short = F.upper(zone).isin(sorted(SHORT_ZONES))
            children[index] = expression_of(spark, F.when(is_short, F.concat(F.lit("?"), zone)).otherwise(zone))
            result = with_children(spark, node, children)
    if reads_time(node, name):
        text, value = column_of(spark, children[0]), column_of(spark, node if changed is None else changed)
        failing = F.concat(F.lit("?"), text).cast(node.dataType().typeName())
        result = expression_of(spark, F.when(text.rlike(NO_CLEAR_TIME), failing).otherwise(value))
    return result


def _with_valid_text(
    spark: SparkSession, node: JavaObject, _children: list[JavaObject], changed: JavaObject | None
) -> JavaObject | None:
    """A part of a lambda function, so that it fails on bytes that are no UTF-8; None: it reads none as text."""
    if not reads_bytes(node, node.nodeName()):
        return None
    return expression_of(spark, F.validate_utf8(column_of(spark, node if changed is None else changed)))


def reads_time(node: JavaObject, name: str) -> bool:
    """Whether the expression reads text, which comes from the record, as a time without a pattern."""
    if name not in _READERS_OF_TIME or node.children().size() != 1 or not node.resolved():
        return False
    child = node.children().apply(0)
    is_time = node.dataType().typeName() in ("timestamp", "timestamp_ntz")
    return is_time and child.dataType().typeName() == "string" and not child.foldable()


def reads_bytes(node: JavaObject, name: str) -> bool:
    """Whether the expression takes bytes for text."""
    if name != "Cast" or not node.resolved():
        return False
    return (node.child().dataType().typeName(), node.dataType().typeName()) == ("binary", "string")


def _has_local_names(node: JavaObject) -> bool:
    """Whether the expression uses a variable of a lambda function, or a part that Spark computes once."""
    names = {name for _, name in nodes_of(node)}
    return bool(names.intersection(_LOCAL_NAMES)) and not names.intersection(("LambdaFunction", "With"))


def _branches(spark: SparkSession, name: str, children: list[JavaObject]) -> list[tuple[JavaObject, Column | None]]:
    """The children of a node, each with the condition on which it is evaluated; None: always."""
    if name not in ("CaseWhen", "If", "Coalesce", "And", "Or") or any(map(_has_local_names, children)):
        return [(child, None) for child in children]

    def column(child: JavaObject) -> Column:
        return tried(column_of(spark, child))

    found: list[tuple[JavaObject, Column | None]] = []
    if name in ("CaseWhen", "If"):
        before: Column | None = None
        for condition, value in zip(children[0::2], children[1::2], strict=False):
            holds = F.coalesce(column(condition), F.lit(False))
            found += [(condition, before), (value, holds if before is None else before & holds)]
            before = ~holds if before is None else before & ~holds
        return [*found, (children[-1], before)] if len(children) % 2 else found
    before = None
    for child in children:
        found.append((child, before))
        goes_on = column(child).isNull() if name == "Coalesce" else column(child).eqNullSafe(F.lit(name == "Or"))
        goes_on = goes_on if name == "Coalesce" else ~goes_on
        before = goes_on if before is None else before & goes_on
    return found
