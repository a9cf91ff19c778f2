"""Turn what Spark, Hive, Hadoop and Kafka raise while a history is read into one short error of Rewindow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from pyspark.errors import PySparkException, QueryContextType

from spark_jobs.errors import CatalogError, HistoryError, RewindowError, SourceError
from spark_jobs.spark.gateway import JAVA_ERRORS, java_throwable
from spark_jobs.spark.java import java_reason

_FILE = re.compile(r"(?:file|hdfs|s3a?|gs|abfss?|wasbs?|viewfs):/[^\s,;)}\]]+")
_NOT_FOUND = re.compile(r"PATH_NOT_FOUND|FILE_NOT_EXIST|FileNotFoundException|does not exist")
_MISMATCH = re.compile(r"PARQUET_COLUMN_DATA_TYPE_MISMATCH|ParquetDecodingException|SchemaColumnConvertNotSupported")
_DAMAGED = re.compile(
    r"FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER|is not a Parquet file|Could not read footer|EOFException|"
    r"Malformed ORC|Could not read|ZipException|incorrect header check|Unexpected end of|BlockMissingException"
)
_METASTORE = re.compile(
    r"MetaException|TTransportException|Could not connect to meta store|SessionHiveMetaStoreClient|Connection refused"
)
_CATALOG = re.compile(
    r"org\.apache\.iceberg\.exceptions\.(REST|Service(Unavailable|Failure)|CommitStateUnknown)Exception|"
    r"org\.apache\.iceberg\.hive\.RuntimeMetaException|T(Application|Protocol|Transport)Exception|"
    r"org\.apache\.iceberg\.jdbc\.Unchecked|\bat (org\.postgresql|com\.mysql|org\.mariadb)\.|"
    r"\[TABLE_OR_VIEW_NOT_FOUND\]|NoSuchTableException|Cannot parse missing \w+: "
)
"""Also a driver that stumbles, metadata of another thing, and tables that a run has made itself and are not there."""
_STORE = re.compile(
    r"software\.amazon\.awssdk\.[\w.]*Exception|org\.apache\.hadoop\.fs\.s3a\.\w*Exception|"
    r"org\.apache\.iceberg\.aws\.s3\.S3\w+|Premature end of Content-Length"
)
"""Also that an answer lacks what Iceberg's reader takes for granted: it stumbles, in its own classes."""
_S3A = re.compile(r"org\.apache\.hadoop\.fs\.s3a\.\w+")
_STORE_FAILS = "the object store does not answer as it must"
_IN_STORE = re.compile(r"\bs3a?://")
_NO_FILE = re.compile(r"RuntimeIOException|Not an Avro data file|" + _DAMAGED.pattern)
"""An answer that is none of a file of the tables."""

_EXPRESSION = re.compile(
    r"^\[?(CAST_INVALID_INPUT|CAST_OVERFLOW|CANNOT_PARSE_TIMESTAMP|ARITHMETIC_OVERFLOW|DIVIDE_BY_ZERO|"
    r"INVALID_ARRAY_INDEX\w*|NUMERIC_VALUE_OUT_OF_RANGE\S*|INTERVAL_ARITHMETIC_OVERFLOW\S*|DATETIME_OVERFLOW|"
    r"INVALID_FRACTION_OF_SECOND|REMAINDER_BY_ZERO)\b"
)


OPEN_QUOTE = "rw_open_quote"
"""Begins the error for a line of CSV that ends within a quoted field, before its file and its text."""

FUNCTION_FAILED = "rw_function_failed"
"""Begins the error of a definition's own aggregate: what stands behind it is for people."""


class AggregateOverflowError(HistoryError):
    """The sum of an aggregate is too large for its type."""


def plain_path(uri: str) -> str:
    """A file's address as people write it: a local path without `file:`."""
    return re.sub(r"^file:/+", "/", uri)


def _file_in(text: str) -> str:
    """The address of the first file that a message names; empty: it names none."""
    found = _FILE.search(text)
    return found[0].rstrip(".:'\"") if found else ""


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Translate the errors of a block that reads a history.

    Rewindow's own errors, and errors that have nothing to do with the source, pass unchanged.

    Args:
        where: The place that the error names when the message of Spark names no file.

    Raises:
        SourceError: The history cannot be read.
        HistoryError: An expression of the definition fails on a record, or a record breaks a rule.
    """
    try:
        yield
    except RewindowError:
        raise
    except JAVA_ERRORS as error:
        translated = read_error(error, where)
        if translated is None:
            raise
        raise translated from error


def catalog_failure(problem: BaseException) -> CatalogError | None:
    """The error to show where the tables' catalog failed in the middle of a run; None for anything else."""
    if not isinstance(problem, JAVA_ERRORS):
        return None
    if not _CATALOG.search(_whole_text(problem)):
        return store_failure(problem)
    what = f"the catalog of the tables does not answer as it must: {short(java_reason(problem))[:300]}"
    hint = "Start it and run again: nothing is published in part. `rewindow doctor` tries the catalog."
    return CatalogError(what, "catalog `rewindow`", hint)


def store_failure(problem: BaseException) -> CatalogError | None:
    """The error to show where the object store of the tables failed; None for anything else."""
    if not isinstance(problem, JAVA_ERRORS):
        return None
    text = _whole_text(problem)
    if not _STORE.search(text) and not (_IN_STORE.search(text) and _NO_FILE.search(text)):
        return None
    what = f"{_STORE_FAILS}: {short(java_reason(problem))[:300]}"
    where = _file_in(text) or "the tables of the catalog `rewindow`"
    return CatalogError(what, where, "Start it and run again: nothing is published in part.")


@contextmanager
def catalog_answers() -> Iterator[None]:
    """Translate what the catalog's client raises in the block. Raises CatalogError."""
    try:
        yield
    except JAVA_ERRORS as problem:
        translated = catalog_failure(problem)
        if translated is None:
            raise
        raise translated from problem


def spans_lines(path: str, line: str) -> SourceError:
    """The error for a CSV file that is read line by line, where a line ends within a quoted field."""
    return SourceError(
        f"a record spans lines, and the file is read line by line: a quote is still open at the end of `{line}`",
        plain_path(path),
        "Write `options: {multiLine: true}`, and leave `lineSep` out: files of up to 1 GiB are then read as a whole. "
        "Where no field has line breaks and quotes are wrong, write `multiLine: false`: such lines go to quarantine.",
    )


def read_error(error: BaseException, where: str) -> RewindowError | None:
    """The error to show for what Spark raised; None when it does not come from reading the source."""
    text = _whole_text(error)
    reason = java_reason(error)
    if (unclosed := re.search(rf"{OPEN_QUOTE} (\S+) (.*?)(?: SQLSTATE: \w+)?$", text, re.MULTILINE)) is not None:
        return spans_lines(unquote(unclosed[1]), unclosed[2])
    if (of_function := re.search(rf"{FUNCTION_FAILED} (.+)$", text, re.MULTILINE)) is not None:
        hint = "Correct the function, or leave such records out with a filter; nothing was published."
        return HistoryError(short(of_function[1]), where, hint)
    place = plain_path(_file_in(text)) or where
    if _EXPRESSION.search(_first_line(str(error))):
        if "ARITHMETIC_OVERFLOW" in _first_line(str(error)) and not _fragments(error):
            return AggregateOverflowError(
                "the sum of an aggregate overflows",
                where,
                "Write sum(CAST(... AS DECIMAL(38, 0))) for the exact sum, or try_sum(...) for null. Flink's sum of a "
                "BIGINT wraps around, so a live job may have written a wrong number here.",
            )
        return HistoryError(
            f"{_failed_expression(error)} fails on a record: {short(str(error))}",
            where,
            "Write the tolerant form, as try_cast(...) or try_divide(...), or filter such records out.",
        )
    if (of_kafka := _kafka_error(text, reason, where)) is not None:
        return of_kafka
    if (colon := re.search(r"Relative path in absolute URI: ([^\s)]+)", text)) is not None:
        hint = "Rename it, for example with `-` in place of `:`."
        return SourceError(f"Hadoop reads no file with a colon in its name: {colon[1]}", where, hint)
    if "CONFLICTING_PARTITION_COLUMN_NAMES" in text:
        what = "the folders `k=v` are not the same for all files"
        return SourceError(what, where, "Put all files below folders of the same names, in the same order.")
    if "partition column value" in text or "Empty partition column" in text:
        hint = "Rename it: both parts of a folder's name `k=v` need text."
        return SourceError("a folder `k=v` has no name or no value", where, hint)
    if "zStandard library not available" in text:
        hint = "Write the files with gzip (`.gz`), or without compression."
        return SourceError("this Hadoop reads no files compressed with zstandard (`.zst`)", place, hint)
    if _MISMATCH.search(text):
        what = "a column has another type in one file than in the table or the other files"
        return SourceError(f"{what}: {short(reason)}", place, "Rewrite the file, or leave it out.")
    if _NOT_FOUND.search(text) and "TABLE_OR_VIEW" not in text:
        return SourceError("a file of the history is gone", place, "Put it back, or plan again without it.")
    if _S3A.search(text):
        hint = "Start it, check its address and keys, and run again."
        return SourceError(f"{_STORE_FAILS}: {short(reason)[:300]}", place, hint)
    if _DAMAGED.search(text):
        return SourceError(
            f"the file is truncated or damaged: {short(reason)}", place, "Write it again, or leave it out."
        )
    if _METASTORE.search(text):
        hint = "Start it, or correct the pipeline's `metastore` or REWINDOW_METASTORE."
        return SourceError(f"the Hive metastore does not answer: {short(reason)}", where, hint)
    if re.search(r"AccessControlException|Permission denied", text):
        return SourceError(f"no permission to read: {short(reason)}", place, "Ask for read access to it.")
    return None


def _failed_expression(error: BaseException) -> str:
    """The part of an expression in which an error arose, as Spark knows it."""
    fragments = _fragments(error)
    return f"the expression `{short(fragments[0])}`" if fragments else "an expression"


def _fragments(error: BaseException) -> list[str]:
    contexts = error.getQueryContext() if isinstance(error, PySparkException) else []
    fragments = [context.fragment() for context in contexts if context.contextType() is QueryContextType.SQL]
    return [fragment for fragment in fragments if fragment.strip()]


def _kafka_error(text: str, reason: str, where: str) -> RewindowError | None:
    """The error to show for what Spark's Kafka connector or Kafka's consumer raised; None for anything else."""
    if found := re.search(r"rw_no_append_time (\d+) (\d+)", text):
        return HistoryError(
            f"offset {found[2]} of partition {found[1]} carries the producer's time, not the broker's",
            where,
            "The topic's message.timestamp.type was changed. Write `timestamps: producer_time` in the history, "
            "or begin behind those records (history.start).",
        )
    if not re.search(r"kafka", text, re.IGNORECASE):
        return None
    if re.search(r"data may have been lost|OffsetOutOfRange|Some data may|KAFKA_DATA_LOSS", text):
        what = "records vanished while they were read: retention, or the topic was deleted"
        return SourceError(f"{what} ({short(reason)})", where, "Plan again; the tables are as they were.")
    if re.search(r"AuthenticationException|AuthorizationException|SslException", text):
        hint = "Check `options` and `secrets` in the history."
        return SourceError(f"the brokers refuse access: {short(reason)}", where, hint)
    if re.search(r"TimeoutException|Timeout|Disconnect|Connection to node|FETCH", text):
        hint = "Start them and run again; the tables are as they were. `read_timeout` says how long to wait."
        return SourceError("the brokers have stopped answering", where, hint)
    if re.search(r"org\.apache\.kafka\.|spark\.sql\.kafka010", text):
        return SourceError(f"the topic cannot be read: {short(reason)}", where, "Run again, or see `rewindow doctor`.")
    return None


def short(text: str) -> str:
    """Spark's message in one line, without its error class, SQL state and Java class names."""
    line = _first_line(text)
    line = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", re.sub(r"^(?:[a-z]\w*\.)+[A-Z]\w*:\s*", "", line))
    return line.split("SQLSTATE")[0].strip().rstrip(".")


def _first_line(text: str) -> str:
    text = re.sub(r"^An error occurred while calling \S+\s*:?", "", text)  # py4j's line before Java's message
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _whole_text(error: BaseException) -> str:
    """The messages of the error and of all its causes in Java."""
    parts = [str(error)]
    cause = java_throwable(error)
    for _ in range(20):
        if cause is None or not hasattr(cause, "getCause"):
            break
        parts.append(cause.toString())
        cause = cause.getCause()
    return "\n".join(parts)
