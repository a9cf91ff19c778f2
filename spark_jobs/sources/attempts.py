"""Expressions that can fail on a record, as a cast of text or a division: such a record goes to quarantine.

Spark evaluates them once, in a generator of one row. Elsewhere it may compute a part that two expressions share before
either of them, and a failure of it would end the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.sources.misread import misreadings, reads_bytes, reads_time
from spark_jobs.spark.expression_tree import nodes_of, shown_part
from spark_jobs.spark.gateway import JavaObject, analyzed_plan, column_of, jvm, tried

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
    *("StartsWith", "EndsWith", "Contains", "StringReplace", "Like", "RLike", "RegExpReplace"),
    *("Murmur3Hash", "XxHash64", "Sha2", "Md5"),
    # Times
    *("Year", "Month", "DayOfMonth", "Hour", "Minute", "Second", "DayOfWeek", "TruncTimestamp", "TruncDate"),
    "DateDiff",
}
"""Parts that fail on no record, whatever is in them."""
_DIVISIONS = ("Divide", "IntegralDivide", "Remainder", "Pmod")
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


def arguments(frame: DataFrame, label: str, text: str, only_if: Column | None) -> Iterator[Attempt]:
    """What an aggregate expression computes of each record: its functions' arguments and filters."""
    spark = frame.sparkSession
    tree = analyzed_plan(frame.agg(F.expr(text).alias(_TRIED))).expressions().apply(0)
    for node, name in nodes_of(tree):
        if name != "AggregateExpression":
            continue
        condition, given = only_if, node.filter()
        if given.isDefined():
            chosen = column_of(spark, given.get())
            yield Attempt(label, text, chosen, given.get(), only_if)
            condition = F.coalesce(tried(chosen), F.lit(False)) if condition is None else condition & tried(chosen)
        children = node.aggregateFunction().children()
        for index in range(children.size()):
            child = children.apply(index)
            if child.nodeName() == "SortOrder":  # the order of WITHIN GROUP
                child = child.child()
            yield Attempt(label, text, column_of(spark, child), child, condition)


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
    return True


def _reason(spark: SparkSession, one: Attempt, misread: Sequence[tuple[Column, str]]) -> Column:
    """Which part of the expression fails, and on what: Spark's own words as far as they depend on the record."""
    found = []
    for node in _parts(spark, one.tree):
        name = node.nodeName()
        fails = tried(F.struct(column_of(spark, node))).isNull()
        inputs = [_shown_value(spark, node.children().apply(i)) for i in range(node.children().size())]
        if name == "Cast":
            kinds = node.child().dataType().sql(), node.dataType().sql()
            why = F.concat(
                F.lit("the value '"), inputs[0], F.lit(f"' of the type {kinds[0]} cannot be cast to {kinds[1]}")
            )
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
        children = node.children()
        uses = [walk(children.apply(index)) for index in range(children.size())]
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
