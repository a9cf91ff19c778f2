"""Lines of JSON and CSV files in the files' encoding, and the columns of CSV files by their header.

CSV is read by the rules of `csv_text`. So that a field can hold line breaks, a file is read as one text and cut into
records, unless it is large: Spark reads large files in parts, line by line. A line there that ends within a quoted
field ends the reading with an error, as a line of that field could look like a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.definition.history import FilesHistory
from spark_jobs.definition.payload import Reader
from spark_jobs.errors import SourceError
from spark_jobs.sources.files.csv_text import NOT_WELL_QUOTED, CsvRules
from spark_jobs.sources.files.parquet import with_typed_folders
from spark_jobs.sources.records.decode import JSON_AS_SPARK, NOT_UTF8, RAW, REASON, decode
from spark_jobs.spark.failures import OPEN_QUOTE, plain_path, spans_lines
from spark_jobs.spark.gateway import JAVA_ERRORS, csv_cells, jvm, tried

OptionValue = str | int | float | bool

WHOLE_BYTES = 32 << 20
"""Larger CSV files are read line by line, unless the definition says `multiLine: true`."""
_MOST_BYTES = 1 << 30
"""A text is at most so large: Java holds it in memory, and several of them at once."""
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")
_COMPRESSION = 8
"""How many times larger than its file a text is taken to be."""
_LATIN_1 = "ISO-8859-1"
_BEFORE_A_LINE_IS_DECODED = ("header", "encoding", "charset", "multiline", "linesep", "comment")
_BOM = "\ufeff"
_LINE, _AT, _RECORD = "rw_line", "rw_at", "rw_record"
_LINES_OF = "rw_lines_of"
"""The file that is read line by line, where a record that spans lines is to be told; null: none is taken for two."""


def option(history: FilesHistory, name: str, default: OptionValue = "") -> OptionValue:
    """One of Spark's reader options, by its name in lower case."""
    return next((value for key, value in history.options.items() if key.lower() == name), default)


def is_on(history: FilesHistory, name: str) -> bool:
    """Whether an option that is off by default is on."""
    return str(option(history, name)).lower() == "true"


def read_lines(
    spark: SparkSession,
    history: FilesHistory,
    reader: DataFrameReader,
    paths: list[str],
    sizes: Sequence[int],
    schema: StructType | None,
    infer_from: int | None,
    values: Reader = Reader.FLINK,
) -> DataFrame:
    """The decoded lines of files, with RAW (the line) and REASON (why it cannot be decoded; null: it can).

    Args:
        sizes: The bytes of each file.
        reader: Knows where the folders `k=v` begin. They are columns of text, unless the schema gives another type.
        schema: The fields of the lines and folders; None: those of the lines are inferred.
        infer_from: Infer them from so many files only.
        values: Whose rules decide about values of another type, and about quotes in CSV.

    Raises SourceError for an encoding that cannot be read line by line, and for headers that cannot be used.
    """
    _refuse_mode(history, values)
    if values is Reader.SPARK:
        history = _as_spark_reads(history)
    header = None
    if history.format == "json":
        _refuse_multiline(history)
        lines = _decoded(spark, history, reader.text(paths))
    else:
        of_files = dict(zip(paths, sizes, strict=True))
        if is_on(history, "header"):
            header = _header(spark, history, of_files)
        lines = _decoded(spark, history, _csv_records(history, reader, of_files, header.at if header else {}))
        # Before the fields are decoded, so that the file's name is not carried along.
        wrong = [_quoting_reason(csv_rules(history))] if values is Reader.FLINK else []
        lines = lines.withColumn(_LINE, F.coalesce(_LINE, *wrong)).drop(_LINES_OF)
        lines = lines.drop("_metadata") if values is Reader.FLINK else lines
    folders = {name.lower() for name in lines.columns} - {RAW, _LINE, "_metadata"}
    in_lines = None if schema is None else StructType([f for f in schema if f.name.lower() not in folders])
    if history.format == "json":
        fields = in_lines or inferred(_inferring(spark, history).json(paths[:infer_from]).schema)
        decoded = decode(lines, F.col(RAW), "json", fields, _line_options(history), reader=values)
    else:
        whole = _csv_fields(spark, history, paths, header, in_lines, infer_from)
        decoded = decode(lines, F.col(RAW), "csv", whole, _line_options(history), only=in_lines, reader=values)
    whole = decoded.withColumn(REASON, F.coalesce(_LINE, REASON)).drop(_LINE)
    return with_typed_folders(whole, schema or StructType(), folders)


def _as_spark_reads(history: FilesHistory) -> FilesHistory:
    """The history with what Spark's reader takes where its options do not say."""
    own: Mapping[str, OptionValue] = JSON_AS_SPARK
    if history.format == "csv":
        own = {"escape": "\\", "multiLine": False}
    said = {key.lower() for key in history.options}
    more = {key: value for key, value in own.items() if key.lower() not in said}
    return history.model_copy(update={"options": {**more, **history.options}})


def inferred(schema: StructType) -> StructType:
    """An inferred schema without Spark's column for lines that it could not read."""
    return StructType([field for field in schema if field.name != "_corrupt_record"])


def _encoding(history: FilesHistory) -> str:
    return str(option(history, "encoding", option(history, "charset", "UTF-8")))


def _decoded(spark: SparkSession, history: FilesHistory, lines: DataFrame) -> DataFrame:
    """The lines that are not blank, as RAW, and the column _LINE: why its bytes are no text; null: they are."""
    encoding = _encoding(history)
    value = F.col("value")
    if _charset(spark, encoding, history) == "UTF-8":
        is_text = F.is_valid_utf8(value)
        # A byte-order mark begins the first line of a file.
        plain = F.when(value.startswith(_BOM), F.substring(value, 2, 2**31 - 1)).otherwise(value)
        text, why = F.when(is_text, plain).otherwise(F.make_valid_utf8(value)), NOT_UTF8
    else:
        read = tried(F.decode(value.cast("binary"), encoding))
        is_text, why = read.isNotNull(), f"not valid {encoding}"
        text = F.coalesce(read, F.make_valid_utf8(value))
    named = lines.withColumns({_LINE: F.when(~is_text, why), RAW: text}).drop("value").where(F.trim(RAW) != "")
    comment = str(option(history, "comment"))
    return named.where(~F.col(RAW).startswith(comment)) if comment and history.format == "csv" else named


def _charset(spark: SparkSession, encoding: str, history: FilesHistory) -> str:
    """Java's name of an encoding. Raises SourceError where lines cannot be told apart before they are decoded."""
    packages = jvm(spark)
    where = plain_path(history.path[0])
    try:
        charset = packages.java.nio.charset.Charset.forName(encoding)
        name, encoded = str(charset.name()), charset.encode("a\n1")
        is_by_lines = encoded.array()[: encoded.limit()] == b"a\n1"
    except JAVA_ERRORS as error:
        hint = "Write a name that Java knows, such as UTF-8, ISO-8859-1 or windows-1252."
        raise SourceError(f"there is no encoding `{encoding}`", where, hint) from error
    if not is_by_lines:
        hint = f"Convert the files, for example with `iconv -f {encoding} -t UTF-8`, and leave the option out."
        raise SourceError(f"files in {encoding} cannot be read line by line", where, hint)
    return name


def _line_options(history: FilesHistory) -> dict[str, OptionValue]:
    """The options with which one line is decoded."""
    chosen = {key: value for key, value in history.options.items() if key.lower() not in _BEFORE_A_LINE_IS_DECODED}
    if history.format == "csv" and not any(key.lower() == "escape" for key in chosen):
        chosen["escape"] = option(history, "quote", '"')
    return chosen


def _inferring(spark: SparkSession, history: FilesHistory) -> DataFrameReader:
    reader = spark.read.options(**{**history.options, **_line_options(history)})
    return reader if _encoding(history).upper() in ("UTF-8", "UTF8") else reader.option("lineSep", "\n")


def csv_rules(history: FilesHistory) -> CsvRules:
    """How the fields of the history's CSV files are written."""
    quote = str(option(history, "quote", '"'))
    escape = str(_line_options(history)["escape"])
    before, behind = is_on(history, "ignoreleadingwhitespace"), is_on(history, "ignoretrailingwhitespace")
    # Spark's parser takes no space behind a quote for text, whatever the options say.
    return CsvRules(_separator(history), quote, escape, str(option(history, "comment")), before, before or behind)


def _wants_multiline(history: FilesHistory) -> bool | None:
    """Whether the definition says that records may span lines, or may not; None: it does not say."""
    wanted = str(option(history, "multiline")).lower()
    return None if wanted not in ("true", "false") else wanted == "true"


def _is_read_whole(history: FilesHistory, path: str, size: int) -> bool:
    """Whether a CSV file is read as one text. Raises SourceError where it should be, and is too large."""
    wanted = _wants_multiline(history)
    if not csv_rules(history).quote or option(history, "linesep") or wanted is False:
        return False
    text_size = size * (_COMPRESSION if path.endswith(_COMPRESSED) else 1)
    if wanted and text_size > _MOST_BYTES:
        hint = "Split it into smaller files, or leave the option `multiLine` out where no field has line breaks."
        raise SourceError("the file is too large for records over several lines", plain_path(path), hint)
    return wanted or text_size <= WHOLE_BYTES


def _csv_records(
    history: FilesHistory, reader: DataFrameReader, sizes: Mapping[str, int], headers: Mapping[str, int]
) -> DataFrame:
    """The records of CSV files, undecoded, as the column `value`, and the column _LINES_OF.

    `sizes`: by path. `headers`: the place of each file's header among its lines, from 0: that record is left out, and
    no other one that reads like it. Where there are several parts, their files are named in the column `_metadata`.
    """
    parts = []
    together = _read_together(history, sizes, headers)
    for (is_whole, header, _), paths in together.items():
        numbered = _of_texts(history, reader, paths) if is_whole else _by_lines(history, reader, paths)
        numbered = numbered.select("*", "_metadata") if len(together) > 1 else numbered
        parts.append((numbered if header is None else numbered.where(F.col(_AT) != F.lit(header))).drop(_AT))
    return reduce(DataFrame.unionByName, parts)


def _read_together(
    history: FilesHistory, sizes: Mapping[str, int], headers: Mapping[str, int]
) -> dict[tuple[bool, int | None, str], list[str]]:
    """The paths that are read at once, by whether as whole texts, and by the place of their header.

    Where a file with a header is read by lines, it is read by itself: only then its lines can be numbered.
    """
    together: dict[tuple[bool, int | None, str], list[str]] = {}
    for path, size in sizes.items():
        is_whole, header = _is_read_whole(history, path, size), headers.get(path)
        alone = "" if is_whole or header is None else path
        together.setdefault((is_whole, header, alone), []).append(path)
    return together


def _by_lines(history: FilesHistory, reader: DataFrameReader, paths: list[str]) -> DataFrame:
    """The lines of files, each with its place in the column _AT, which counts from 0 where there is one file.

    Spark numbers the rows of the first task from 0, and reads the first part of a file there.
    """
    told = bool(csv_rules(history).quote) and _wants_multiline(history) is not False
    file = F.col("_metadata.file_path") if told else F.lit(None).cast("string")
    return reader.text(paths).select("*", file.alias(_LINES_OF), F.monotonically_increasing_id().alias(_AT))


def _of_texts(history: FilesHistory, reader: DataFrameReader, paths: list[str]) -> DataFrame:
    """The records of files that are read as one text each, each with its place in the column _AT, from 0."""
    texts = reader.text(paths, wholetext=True).withColumn(_LINES_OF, F.lit(None).cast("string"))
    # One character a byte, so that bytes that are no text in their encoding stay what they are.
    text = F.decode(F.col("value").cast("binary"), _LATIN_1)
    pattern = csv_rules(history).encoded(_encoding(history)).records()
    records = F.posexplode(F.regexp_extract_all(text, F.lit(pattern), F.lit(1))).alias(_AT, _RECORD)
    found = texts.select("*", records).withColumn("value", F.encode(F.col(_RECORD), _LATIN_1).cast("string"))
    return found.drop(_RECORD)


def _quoting_reason(rules: CsvRules) -> Column:
    """Why the quotes of a CSV record are wrong; null where they are not.

    Where a file is read by lines, one that ends within a quoted field is an error: the next one may look like a record.
    """
    error = F.concat_ws(" ", F.lit(OPEN_QUOTE), _LINES_OF, F.substring(RAW, 1, 80))
    is_open = F.col(_LINES_OF).isNotNull() & rules.is_open(F.col(RAW))
    return rules.why_wrong(F.col(RAW), F.when(is_open, F.raise_error(error).cast("string")).otherwise(NOT_WELL_QUOTED))


def _separator(history: FilesHistory) -> str:
    """The separator's characters: Spark's options may spell a tab as `\\t`."""
    written = str(option(history, "sep", option(history, "delimiter", ",")))
    return {"\\t": "\t", "\\\\": "\\"}.get(written, written)


@dataclass(frozen=True, slots=True)
class _Header:
    """The header line that all files share, the names of its columns, and its place among each file's lines, from 0."""

    line: str
    names: Sequence[str]
    at: Mapping[str, int]


def _csv_fields(
    spark: SparkSession,
    history: FilesHistory,
    paths: list[str],
    header: _Header | None,
    schema: StructType | None,
    infer_from: int | None,
) -> StructType:
    """The fields of a CSV line, by the header or else in the order of the schema."""
    fields = schema or inferred(_inferring(spark, history).csv(paths[:infer_from], multiLine=True).schema)
    if header is None:
        return fields
    names = header.names
    known = {field.name.lower(): field for field in fields}
    for field in fields:
        if field.name.lower() not in {name.lower() for name in names}:
            written = [name.strip().lower() for name in csv_cells(spark, header.line, _line_options(history))]
            many = written.count(field.name.lower())
            what = f"the header has no column `{field.name}`" if not many else f"the header has `{field.name}` twice"
            raise SourceError(what, plain_path(paths[0]), f"Correct value.schema; the header has {', '.join(names)}.")
    return StructType([known.get(name.lower()) or StructField(name, StringType()) for name in names])


def _header(spark: SparkSession, history: FilesHistory, sizes: Mapping[str, int]) -> _Header:
    """The header of CSV files: in each the first line that is neither blank nor a comment. Its names: `column_names`.

    Raises SourceError where the files have different ones, or none of them has a line.
    """
    found: tuple[str, str] | None = None
    places: dict[str, int] = {}
    ends = {name: value for name, value in history.options.items() if name.lower() == "linesep"}
    for path, size in sizes.items():
        head = _decoded(
            spark, history, spark.read.options(**ends).text(path).withColumn(_AT, F.monotonically_increasing_id())
        )
        first = head.select(RAW, csv_rules(history).why_wrong(F.col(RAW)).isNull(), _AT).head(1)
        if not first:
            continue
        places[path] = int(first[0][2])  # before it are blank lines and comments: of these a record is a line, too
        if not first[0][1]:
            if not _is_read_whole(history, path, size):
                raise spans_lines(path, str(first[0][0]))
            records = _csv_records(history, spark.read, {path: size}, {})
            first = _decoded(spark, history, records).select(RAW).head(1)
        line = str(first[0][0])
        if found is not None and line != found[1]:
            raise SourceError(
                f"the files have different headers: `{found[1]}` and `{line}`",
                f"{plain_path(found[0])} and {plain_path(path)}",
                "Give the files of each header a pipeline of their own, or rewrite them.",
            )
        found = found or (path, line)
    if found is None:
        where = ", ".join(map(plain_path, history.path))
        raise SourceError("all files are empty, so there is no CSV header", where, "Put files with records there.")
    return _Header(found[1], column_names(csv_cells(spark, found[1], _line_options(history))), places)


def column_names(cells: Sequence[str]) -> list[str]:
    """The names of the columns under a header, as Spark gives them.

    A column without a name is `_c<index>`, and columns of one name get their index behind it: `note6`, `note7`.
    """
    plain = [cell.strip() for cell in cells]
    times = Counter(name.lower() for name in plain)
    return [
        f"_c{index}" if not name else f"{name}{index}" if times[name.lower()] > 1 else name
        for index, name in enumerate(plain)
    ]


def _refuse_mode(history: FilesHistory, values: Reader) -> None:
    mode = str(option(history, "mode", "PERMISSIVE"))
    if values is Reader.FLINK and mode.upper() != "PERMISSIVE":
        hint = "Leave it out: records that do not fit go to quarantine, whose `threshold` stops a run."
        raise SourceError(f"the option `mode: {mode}` has no effect", plain_path(history.path[0]), hint)


def _refuse_multiline(history: FilesHistory) -> None:
    if is_on(history, "multiline"):
        hint = "Leave the option `multiLine` out and write one record on each line."
        raise SourceError("records over several lines cannot be read", plain_path(history.path[0]), hint)
