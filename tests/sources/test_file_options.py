"""Options of JSON and CSV files: each changes what Spark's own reader changes with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition.history import FilesHistory
from spark_jobs.definition.payload import Reader
from spark_jobs.errors import SourceError
from spark_jobs.sources.files.log_files import find_files, read_files
from spark_jobs.sources.files.query_files import ROWS, with_file_positions
from spark_jobs.sources.records.decode import REASON, parse_schema

FIELDS = "k STRING, at TIMESTAMP, d DATE, v DOUBLE, n BIGINT"
NAMES = ("k", "at", "d", "v", "n")


def _read(
    spark: SparkSession, path: Path, file_format: str, options: dict[str, bool | int | str], fields: str | None = FIELDS
) -> list[Row]:
    """The fields of the lines; those that cannot be decoded are nulls."""
    history = FilesHistory.model_validate(
        {"kind": "files", "path": str(path), "format": file_format, "options": options}
    )
    schema = None if fields is None else parse_schema(spark, fields)
    frame = read_files(spark, history, find_files(spark, history), schema)
    names = [name for name in frame.columns if not name.startswith("rw_")]
    return frame.select(*(F.when(F.col(REASON).isNull(), F.col(name)).alias(name) for name in names)).collect()


ZONED = ["2024-03-01T12:00:00", "2024-03-01 12:00:00.5", "2024-03-01T12:00:00+02:00", "2024-03-01T12:00:00Z"]
ZONED += ["2024-03-01", "2024-03-10T02:30:00", "2024-11-03T01:30:00", "2024-03-01T12:00:00 Asia/Tokyo"]

JSON: dict[str, tuple[dict[str, bool | int | str], list[str]]] = {
    "timeZone": ({"timeZone": "America/New_York"}, [f'{{"at": "{at}", "n": 1}}' for at in ZONED]),
    "timeZone of text read again": (
        {"timeZone": "America/New_York"},
        ['{"at": "2024-03-01T12:00:00", "n": 1}', '{"at": "2024-07-01T12:00:00", "n": 2}'],
    ),
    "timestampFormat": (
        {"timestampFormat": "dd/MM/yyyy HH:mm", "timeZone": "Asia/Tokyo"},
        ['{"at": "01/03/2024 12:00"}'],
    ),
    "dateFormat": ({"dateFormat": "dd/MM/yyyy"}, ['{"d": "01/03/2024"}']),
    "locale": ({"dateFormat": "dd MMMM yyyy", "locale": "de"}, ['{"d": "01 März 2024"}']),
    "allowComments": ({"allowComments": True}, ['{"k": "a" /* x */, "n": 1}']),
    "allowComments around objects": (
        {"allowComments": True},
        ['/* a */ {"k": "a", "n": 1} // } b', '{"k": "a" /* } */, "n": 2} /* c */'],
    ),
    "allowUnquotedFieldNames and a brace": ({"allowUnquotedFieldNames": True}, ['{k: "} b", n: 1}', "{s: {}, n: 2}"]),
    "allowNumericLeadingZeros and a brace": ({"allowNumericLeadingZeros": True}, ['{"k": "} b", "n": 007}']),
    "allowNonNumericNumbers and a brace": ({"allowNonNumericNumbers": True}, ['{"k": "} b", "v": NaN}']),
    "allowSingleQuotes and a brace": ({"allowSingleQuotes": True}, ["{'k': '} b', 'n': 1}"]),
    "allowUnquotedFieldNames": ({"allowUnquotedFieldNames": True}, ['{k: "a", n: 1}']),
    "allowSingleQuotes": ({"allowSingleQuotes": True}, ["{'k': 'a'}"]),
    "allowNumericLeadingZeros": ({"allowNumericLeadingZeros": True}, ['{"n": 007}']),
    "allowBackslashEscapingAnyCharacter": ({"allowBackslashEscapingAnyCharacter": True}, [r'{"k": "a\$"}']),
    "allowNonNumericNumbers": ({"allowNonNumericNumbers": True}, ['{"v": NaN}', '{"v": +INF}']),
    "lineSep": ({"lineSep": "|"}, ['{"n": 1}|{"n": 2}']),
    "encoding": ({"encoding": "ISO-8859-1", "lineSep": "\n"}, ['{"k": "Ã¼"}']),
    "maxStringLen": ({"maxStringLen": 3}, ['{"k": "abcdef"}', '{"k": "abc"}']),
    "maxNumLen": ({"maxNumLen": 3}, ['{"n": 123456}', '{"n": 123}']),
}
CSV: dict[str, tuple[dict[str, bool | int | str], list[str]]] = {
    "timeZone": ({"timeZone": "America/New_York"}, [f"a,{at},,1.0,1" for at in ZONED]),
    "timestampFormat": ({"timestampFormat": "dd/MM/yyyy HH:mm", "timeZone": "Asia/Tokyo"}, ["a,01/03/2024 12:00,,,1"]),
    "dateFormat": ({"dateFormat": "dd/MM/yyyy"}, ["a,,01/03/2024,,1"]),
    "sep": ({"sep": ";"}, ["a;;;1.5;1"]),
    "delimiter": ({"delimiter": "|"}, ["a|||1.5|1"]),
    "quote": ({"quote": "'", "escape": "\\"}, ["'a,b',,,1.5,1"]),
    "escape": ({"escape": "\\"}, ['"a\\"b",,,1.5,1']),
    "comment": ({"comment": "#"}, ["#a,,,1.5,1", "b,,,1.5,1"]),
    "nullValue": ({"nullValue": "NA"}, ["a,,,NA,NA"]),
    "emptyValue": ({"emptyValue": "none", "escape": "\\"}, ['"",,,1.5,1']),
    "nanValue": ({"nanValue": "nix"}, ["a,,,nix,1"]),
    "positiveInf": ({"positiveInf": "much"}, ["a,,,much,1"]),
    "negativeInf": ({"negativeInf": "little"}, ["a,,,little,1"]),
    "ignoreLeadingWhiteSpace": ({"ignoreLeadingWhiteSpace": True}, [" a,,,1.5,1"]),
    "ignoreTrailingWhiteSpace": ({"ignoreTrailingWhiteSpace": True}, ["a ,,,1.5,1"]),
    "ignoreLeadingWhiteSpace before quotes": (
        {"ignoreLeadingWhiteSpace": True},
        [' "a, b",,, 1.5, "1"', '\t"c",,,1.5,1', "d,,,1.5,1"],
    ),
    "ignoreTrailingWhiteSpace behind quotes": (
        {"ignoreTrailingWhiteSpace": True, "sep": "\\t"},
        ['"a\tb" \t\t\t1.5\t"1"  ', '"c"\t\t\t1.5\t1'],
    ),
    "header": ({"header": True}, ["k,at,d,v,n", "a,,,1.5,1"]),
    "lineSep": ({"lineSep": "|"}, ["a,,,1.5,1|b,,,1.5,1"]),
    "encoding": ({"encoding": "ISO-8859-1"}, ["Ã¼,,,1.5,1"]),
}
CASES = [("json", name, *case) for name, case in JSON.items()] + [("csv", name, *case) for name, case in CSV.items()]


@pytest.mark.parametrize(
    ("file_format", "name", "options", "lines"), CASES, ids=[f"{kind} {name}" for kind, name, *_ in CASES]
)
def test_an_option_changes_what_sparks_own_reader_changes_with_it(
    spark: SparkSession,
    tmp_path: Path,
    file_format: str,
    name: str,
    options: dict[str, bool | int | str],
    lines: list[str],
) -> None:
    path = tmp_path / f"a.{file_format}"
    path.write_text("".join(line + ("" if name == "lineSep" else "\n") for line in lines))
    found = _read(spark, path, file_format, options)
    of_spark = spark.read.schema(FIELDS).options(**options).format(file_format).load(str(path)).collect()
    assert str(found) == str(of_spark), "as text, since NaN is not equal to itself"
    others = {key: value for key, value in options.items() if key == "dateFormat" and name == "locale"}
    assert str(_read(spark, path, file_format, others)) != str(found)


def test_the_zone_holds_for_records_that_are_read_once_more(spark: SparkSession, tmp_path: Path) -> None:
    """A number as text is read in a second pass."""
    path = tmp_path / "a.json"
    path.write_text('{"at": "2024-03-01T12:00:00", "n": "7"}\n')
    (row,) = _read(spark, path, "json", {"timeZone": "America/New_York"})
    assert (row.at.isoformat(), row.n) == ("2024-03-01T17:00:00", 7)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"primitivesAsString": True}, '{"n": 1}'),
        ({"prefersDecimal": True}, '{"n": 1.5}'),
        ({"inferTimestamp": True}, '{"n": "2024-03-01T12:00:00Z"}'),
        ({"dropFieldIfAllNull": True}, '{"n": null, "m": 1}'),
    ],
)
def test_an_option_of_inference_changes_the_types(
    spark: SparkSession, tmp_path: Path, options: dict[str, bool | int | str], line: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(line + "\n")
    (row,) = _read(spark, path, "json", options, None)
    assert str(row) == str(spark.read.options(**options).json(str(path)).collect()[0])
    assert str(row) != str(_read(spark, path, "json", {}, None)[0])


def test_a_mode_without_an_effect_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"n": 1}\n')
    with pytest.raises(SourceError, match="`mode: DROPMALFORMED` has no effect"):
        _read(spark, path, "json", {"mode": "DROPMALFORMED"})
    history = FilesHistory.model_validate(
        {"kind": "files", "path": str(path), "format": "json", "options": {"mode": "DROPMALFORMED"}}
    )
    files = find_files(spark, history)
    path.write_text('{"n": "x"}\n')
    frame = read_files(spark, history, files, parse_schema(spark, "n BIGINT"), reader=Reader.SPARK)
    assert frame.select(REASON).collect()[0][0] == "wrong type for field n", "as a query, which drops it"


@pytest.mark.parametrize("header", [True, False])
def test_records_of_csv_files_with_headers_are_placed_by_the_log_of_a_query(
    spark: SparkSession, tmp_path: Path, header: bool
) -> None:
    texts = {"a.csv": "k,n\nx,1\nx,2\n", "b.csv": "k,n\ny,3\n", "c.csv": "k,n\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text if header else text.partition("\n")[2] or "\n")
    history = FilesHistory.model_validate(
        {"kind": "files", "path": str(tmp_path), "format": "csv", "options": {"header": header}}
    )
    files = find_files(spark, history)
    frame = read_files(spark, history, files, parse_schema(spark, "k STRING, n BIGINT"), reader=Reader.SPARK)
    placed = with_file_positions(frame, {file: number for number, file in enumerate(files)})
    assert "_metadata" not in placed.columns
    rows = sorted((row.n, row.rw_offset) for row in placed.collect())
    assert rows == [(1, 0), (2, 1), (3, ROWS)]
