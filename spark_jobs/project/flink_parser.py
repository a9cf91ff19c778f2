"""Flink's own SQL parser, in a JVM of its own: a script becomes statements, and an expression becomes Spark SQL.

    with FlinkParser() as parser:
        statements, unread = parser.statements(text)

The parser is the one of Flink's release, `flink-sql-parser`, with Calcite; it comes from Maven Central, once.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from spark_jobs.spark.gateway import elements
from spark_jobs.spark.own_jvm import own_jvm

PARSER_PACKAGE = "org.apache.flink:flink-sql-parser:2.3.0"


_IN_FLINK = re.compile(r"(?:_UTF16|u&)?'(?:[^']|'')*'|`(?:[^`]|``)*`|BETWEEN ASYMMETRIC|\s+")
_IN_SPARK = re.compile(r"'(?:[^'\\]|\\.)*'|`((?:[^`]|``)*)`", re.DOTALL)
"""The texts and quoted names of SQL: a quote within a text is two in Flink, and behind a backslash in Spark."""
_NAME = re.compile(rf"{_IN_SPARK.pattern}|(?<!\w)(?=\w*[a-z])[A-Za-z_]\w*\b(?!\s*\()", re.DOTALL)
"""As above, and names without quotes. SQL's own words are in capitals."""
_COMMENT = r"--[^\n]*|/\*(?:[^*]|\*(?!/))*\*/"
_SKIPPED = rf"{_COMMENT}|'[^']*'|`[^`]*`"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LISTED = """
    ALL AND ANY AS BETWEEN BY CASE CAST CURRENT_CATALOG CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER DATE
    DISTINCT ELSE END EXISTS EXTRACT FALSE FILTER FROM GROUP HAVING IN INTERVAL IS JOIN LIKE LOCALTIMESTAMP NOT NULL ON
    OR ORDER PARTITION SELECT SESSION_USER THEN TIME TIMESTAMP TRUE UNION USER USING WHEN WHERE WINDOW WITH
"""
_WORDS = frozenset(_LISTED.split())
"""Names that stay in backticks: without them Spark or Flink's parser may read something else."""
_LEAVES = ("SqlIdentifier", "SqlDataTypeSpec", "SqlIntervalQualifier", "SqlDynamicParam")


@dataclass(frozen=True, slots=True, eq=False)
class SqlNode:
    """A node of a parsed statement; false where the statement leaves that part out (`NOTHING`).

    Attributes:
        node: The parser's object.
        type: Its Java class without the package, such as `SqlSelect`.
        kind: Calcite's kind, such as `SELECT` or `AS`.
        line: The line of the script, from 1.
    """

    node: Any
    type: str
    kind: str
    line: int

    def __bool__(self) -> bool:
        return self.node is not None

    @property
    def text(self) -> str:
        """The node as SQL on one line; empty for nothing."""
        return " ".join(str(self.node.toString()).split()) if self else ""

    @property
    def names(self) -> tuple[str, ...]:
        """The parts of an identifier; `*` is an empty part."""
        if not self:
            return ()
        return tuple(elements(get_field(self.node, "names")))

    @property
    def operator(self) -> str:
        """The name of a call's operator or function, such as `TUMBLE`; empty for what is no call."""
        if not self or self.is_leaf or self.type == "SqlNodeList":
            return ""
        return str(self.node.getOperator().getName())

    @property
    def is_leaf(self) -> bool:
        """Whether it has no parts: an identifier, a literal, a type."""
        return self.type.startswith(_LEAVES) or "Literal" in self.type

    @property
    def operands(self) -> list[SqlNode]:
        """The parts of a call or of a list; none for identifiers and literals. `NOTHING` is what a call leaves out."""
        if self.type == "SqlNodeList":
            return [wrapped(node) for node in elements(self.node)]
        if not self or self.is_leaf:
            return []
        return [wrapped(node) for node in elements(self.node.getOperandList())]

    @property
    def literal(self) -> str:
        """The value of a text or number."""
        return str(self.node.toValue())

    def all(self) -> list[SqlNode]:
        """The node and all below it."""
        return [self, *(inner for operand in self.operands for inner in operand.all())] if self else []


NOTHING = SqlNode(None, "", "", 0)
"""A part that a statement leaves out."""


def wrapped(node: Any) -> SqlNode:
    """The parser's object as a node; `NOTHING` for null."""
    if node is None:
        return NOTHING
    name = str(node.getClass().getSimpleName())
    return SqlNode(node, name, str(node.getKind().toString()), node.getParserPosition().getLineNum())


def column_sql(name: str) -> str:
    """A column's name in backticks, as `FlinkParser.spark_sql` takes it in `replaced`."""
    return "`" + name.replace("`", "``") + "`"


def tidy(text: str) -> str:
    """Spark SQL without needless backticks."""
    return _IN_SPARK.sub(_plain, text)


def as_flink(text: str) -> str:
    """Spark SQL with its texts and names as Flink's parser reads them."""
    return _NAME.sub(_in_flink, text)


def in_place_of(names: Sequence[str], replaced: Mapping[str, str], alias: str) -> str | None:
    """The SQL of a name: that of its column, and the fields of a row behind it; None where no column is named."""
    found = column_of(names, replaced, alias)
    if found is None:
        return None
    column, fields = replaced[found[0]], found[1]
    row = column if not fields or column.startswith(("`", "(")) else f"({column})"
    return ".".join([row, *map(column_sql, fields)])


def column_of(names: Sequence[str], columns: Container[str], alias: str) -> tuple[str, Sequence[str]] | None:
    """Which of the columns a name stands for, and the fields of a row behind it; None where it is none.

    As SQL resolves names: the first part is a table's alias if that table has a column of the second part, else it is
    a column, whose fields the other parts name.
    """
    qualified, first = ".".join(names[:2]), names[0]
    if len(names) > 1 and qualified in columns:
        return qualified, names[2:]
    if len(names) > 1 and first == alias and names[1] in columns:
        return names[1], names[2:]
    if first in columns:
        return first, names[1:]
    return (names[1], ()) if len(names) == 2 and names[1] in columns else None


def is_same_sql(one: str, other: str) -> bool:
    """Whether two texts are the same SQL but for quotes, spaces and case."""
    first, second = (re.sub(r"[`\s]", "", text).lower() for text in (one, other))
    return first == second


def _plain(token: re.Match[str]) -> str:
    name = token[1]
    if name is None or name.upper() in _WORDS or not _PLAIN_NAME.fullmatch(name):
        return token[0]
    return str(name)


def _in_flink(token: re.Match[str]) -> str:
    text = token[0]
    if not text.startswith("'"):
        return text if text.startswith("`") else column_sql(text)
    return "'" + re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL).replace("'", "''") + "'"


def _in_spark(token: re.Match[str]) -> str:
    text = token[0]
    if text.startswith("`"):
        return text
    if not text.endswith("'"):
        return text.split()[0] if text.strip() else " "
    plain = _decoded(text.removeprefix("u&")) if text.startswith("u&") else text.removeprefix("_UTF16")
    return "'" + plain[1:-1].replace("''", "'").replace("\\", "\\\\").replace("'", "\\'") + "'"


def _decoded(text: str) -> str:
    """A text whose characters beyond ASCII are units of UTF-16, as in `u&'\\00e4'`."""
    units = re.sub(r"\\([0-9a-f]{4}|\\)", lambda unit: unit[1] if unit[1] == "\\" else chr(int(unit[1], 16)), text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True, slots=True)
class Unread:
    """A statement that is not Flink SQL: its line, how it begins, and the parser's reason."""

    line: int
    text: str
    why: str


def _each_statement(script: str) -> Iterator[tuple[int, str]]:
    """The statements between semicolons, each with its line, also those of a statement set."""
    for statement in re.finditer(rf"(?:{_SKIPPED}|[^;])+", script):
        text = re.sub(
            rf"^(?:\s|{_COMMENT}|EXECUTE\s+STATEMENT\s+SET\s+BEGIN\b)+", "", statement[0], flags=re.IGNORECASE
        )
        if text:
            yield script.count("\n", 0, statement.end() - len(text)) + 1, text


class FlinkParser:
    """The parser. Its JVM starts with the first use and ends with the block."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._jvm: Any = None

    def __enter__(self) -> FlinkParser:
        self._jvm = self._running.enter_context(own_jvm(PARSER_PACKAGE, "Flink's SQL parser"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def statements(self, script: str) -> tuple[list[SqlNode], list[Unread]]:
        """The statements of a script, and those that are not Flink SQL: none of these takes the others with it."""
        try:
            return self._parsed(script), []
        except Py4JJavaError:
            found: list[SqlNode] = []
            unread: list[Unread] = []
            for line, text in _each_statement(script):
                try:
                    found += self._parsed("\n" * (line - 1) + text)
                except Py4JJavaError as error:
                    reason = str(error.java_exception.getMessage()).splitlines()[0]
                    unread.append(Unread(line, text.split("\n", 1)[0][:60], f"Flink's parser refuses it: {reason}"))
            return found, unread

    def _parsed(self, script: str) -> list[SqlNode]:
        return [wrapped(node) for node in elements(self._parser(script).parseStmtList())]

    def expression(self, sql: str) -> SqlNode:
        """An expression as a node."""
        return wrapped(self._parser(sql).parseExpression())

    def formatted(self, node: Any) -> str:
        """The parser's object as Spark SQL."""
        calcite = self._jvm.org.apache.calcite.sql
        context = calcite.dialect.SparkSqlDialect.DEFAULT_CONTEXT.withIdentifierQuoteString("`")
        config = calcite.pretty.SqlPrettyWriter.config().withDialect(calcite.dialect.SparkSqlDialect(context))
        config = config.withQuoteAllIdentifiers(True).withAlwaysUseParentheses(False)
        return tidy(_IN_FLINK.sub(_in_spark, str(calcite.pretty.SqlPrettyWriter(config).format(node)).strip()))

    def milliseconds(self, interval: SqlNode) -> int | None:
        """The length of an interval literal in ms; None for months, years and what is no literal."""
        if interval.type != "SqlIntervalLiteral" or "MONTH" in interval.text or "YEAR" in interval.text:
            return None
        decimal = self._jvm.java.lang.Class.forName("java.math.BigDecimal")
        return int(interval.node.getValueAs(decimal))

    def _parser(self, text: str) -> Any:
        jvm = self._jvm
        calcite, flink = jvm.org.apache.calcite, jvm.org.apache.flink.sql.parser
        config = (
            calcite.sql.parser.SqlParser.config()
            .withParserFactory(flink.impl.FlinkSqlParserImpl.FACTORY)
            .withConformance(flink.validate.FlinkSqlConformance.DEFAULT)
            .withLex(calcite.config.Lex.JAVA)
            .withIdentifierMaxLength(256)
        )
        return calcite.sql.parser.SqlParser.create(text, config)
