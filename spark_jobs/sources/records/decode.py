"""Decode JSON objects and CSV lines by a schema. Text that does not fit gets a reason; it is never lost or made null.

That is text that cannot be parsed, or a field of another type than the schema says. The reason does not depend on
which columns a query reads, because the whole text is always decoded.

Some values Spark does not read as the live job does. Numbers in JSON: Flink's format takes text that holds a number,
and cuts the fraction off a number that should be whole. Spark's decoder refuses both, so such a record is read once
more. The rules are those of Flink's `JsonToRowDataConverters`:

| the schema's type | what is accepted beside its own values |
| --- | --- |
| BIGINT, INT | numbers with a fraction, which is cut off; text with a whole number, with or without spaces around it |
| SMALLINT, TINYINT | such text |
| DOUBLE, FLOAT, DECIMAL | text with a number |
| BOOLEAN | numbers and text: `true` in upper or lower case is true, all else is false |

Times: Spark takes text without a date for a time of today, and reads short names of zones, which are ambiguous. Such a
value has the wrong type.

A query of Structured Streaming reads by Spark's own decoder: a value of another type is null, and its record counts.
So do the records here that `Reader.SPARK` decodes; UNREAD says what they have lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.definition.payload import Reader
from spark_jobs.spark.conditions import any_of
from spark_jobs.spark.expression_tree import NO_CLEAR_TIME
from spark_jobs.spark.gateway import jvm

REASON = "rw_reason"
RAW = "rw_raw"
RAW_BYTES = "rw_raw_bytes"
UNREAD = "rw_unread"
"""What is null in a record because it does not fit its type; the column is there only with `Reader.SPARK`."""
NO_VALUE = "no value"
NOT_UTF8 = "not valid UTF-8"
JSON_AS_SPARK: Mapping[str, Any] = {
    "allowSingleQuotes": True,
    "allowNonNumericNumbers": True,
    "allowUnquotedControlChars": False,
}
"""What Spark takes for JSON where its options do not say."""
_JSON_AS_FLINK: Mapping[str, Any] = {name: not allowed for name, allowed in JSON_AS_SPARK.items()}
"""What Flink's JSON format takes: control characters within text, and neither `NaN` nor text in single quotes."""
_DECODED = "rw_decoded"
_CORRUPT = "rw_corrupt"
_OBJECT_BEHIND_COMMENTS = r"^(\s|/\*([^*]|\*+[^*/])*\*+/)*\{"


def parse_schema(spark: SparkSession, ddl: str) -> StructType:
    """The fields of a Spark DDL text, as `a STRING, b BIGINT`. Raises ValueError with Spark's reason."""
    try:
        parsed = jvm(spark).org.apache.spark.sql.types.StructType.fromDDL(ddl)
        found = StructType.fromJson(json.loads(parsed.json()))
    except PySparkException as error:
        raise ValueError(str(error).split("SQLSTATE")[0].strip().splitlines()[0]) from error
    names = [field.name.lower() for field in found]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"field {', '.join(repeated)} is named twice")
    return found


def decode(
    frame: DataFrame,
    text: Column,
    text_format: str,
    schema: StructType,
    options: Mapping[str, Any] | None = None,
    *,
    only: StructType | None = None,
    reader: Reader = Reader.FLINK,
) -> DataFrame:
    """Add the decoded fields to `frame`, and REASON: why the text cannot be decoded; null where it can.

    A field hides a column of the same name. The reasons are `no value`, `not valid JSON`, `not a JSON object`,
    `not valid CSV: N columns are expected` and `wrong type for field X`.

    Args:
        text: The column to decode.
        text_format: `json` or `csv`.
        schema: The fields of the text.
        options: Options of Spark's reader. What they do not say of JSON is as in Flink's format.
        only: The part of the schema whose fields are added; None: all of it.
        reader: Whose rules decide about values of another type. With Spark's, REASON is null and UNREAD has the
            reason, unless the option `mode` drops or refuses such records.
    """
    mode = next((str(value).upper() for key, value in (options or {}).items() if key.lower() == "mode"), "PERMISSIVE")
    chosen = {key: value for key, value in (options or {}).items() if key.lower() not in ("mode", "header")}
    chosen |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    is_json = text_format == "json"
    if is_json and reader is Reader.FLINK:
        said = {key.lower() for key in chosen}
        chosen = {key: value for key, value in _JSON_AS_FLINK.items() if key.lower() not in said} | chosen
    has_pattern = any(key.lower() == "timestampformat" for key in chosen)

    def decoder(of: Column, fields: StructType) -> Column:
        return F.from_json(of, fields, chosen) if is_json else _from_csv(of, fields, chosen)

    if has_pattern or reader is Reader.SPARK:
        value = decoder(text, StructType([*schema.fields, StructField(_CORRUPT, StringType())]))
    else:
        zone = next((str(value) for key, value in chosen.items() if key.lower() == "timezone"), None)
        value = decoded(text, schema, _CORRUPT, decoder, json=is_json, zone=zone)
    # A generator of one row: Spark does not copy it into the filters and columns that use the fields. Otherwise the
    # text would be decoded again for each of them.
    parsed = frame.select("*", F.explode_outer(F.array(value)).alias(_DECODED))
    reason = _json_reason(text, schema, chosen) if is_json else _csv_reason(text, schema, chosen)

    def as_text(name: str) -> Column:
        return F.get_json_object(text, f"$['{name}']") if is_json else _from_csv(text, _plain(schema), chosen)[name]

    reason = F.when(text.isNull(), NO_VALUE).otherwise(reason)
    columns = {field.name: F.col(_DECODED)[field.name] for field in only or schema}
    if reader is Reader.SPARK:
        times = [field.name for field in schema if isinstance(field.dataType, t.TimestampType)]
        undated = {name: _is_undated(columns[name], as_text(name)) for name in times if name in columns}
        for name, is_wrong in undated.items():
            columns[name] = F.when(~is_wrong, columns[name])
            reason = F.coalesce(reason, F.when(is_wrong, f"wrong type for field {name}"))
    if reader is Reader.SPARK and mode == "PERMISSIVE":
        before = [F.col(UNREAD)] if UNREAD in frame.columns else []
        columns[UNREAD], reason = F.coalesce(*before, reason), F.lit(None).cast("string")
    return parsed.withColumns({REASON: reason, **columns}).drop(_DECODED)


def _from_csv(text: Column, schema: StructType, options: Mapping[str, Any]) -> Column:
    fields = (f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in schema)
    return F.from_csv(text, ", ".join(fields), dict(options))


def _json_reason(text: Column, schema: StructType, options: Mapping[str, Any]) -> Column:
    parsed = F.col(_DECODED)
    wrong = _first_of(parsed, lambda record: _wrong_fields(record, text, schema, ()))
    values = _values(text, options)
    has_comments = any(key.lower() == "allowcomments" and str(on).lower() == "true" for key, on in options.items())
    is_object = text.rlike(_OBJECT_BEHIND_COMMENTS) if has_comments else F.ltrim(text).startswith("{")
    return (
        F.when(~is_object, F.when(F.size(values) > 0, "not a JSON object").otherwise("not valid JSON"))
        .when(parsed[_CORRUPT].isNull(), F.when(_may_have_more(text) & ~_is_one(values), "not valid JSON"))
        .when(_is_one(values), wrong)
        .when(text.rlike(r"^\s*\{\s*'"), "not valid JSON: text in single quotes")
        .otherwise("not valid JSON")
    )


def _first_of(record: Column, reasons: Callable[[Column], Iterable[Column]]) -> Column:
    """The first reason that the fields of a record give.

    In a lambda function: else Spark's optimizer compares each field that is named with each other one.
    """
    return F.transform(F.array(record), lambda one: F.coalesce(*reasons(one), F.lit("wrong type in a field")))[0]


def _wrong_fields(record: Column, text: Column, fields: StructType, path: tuple[str, ...]) -> Iterator[Column]:
    """For each field, those in structs too: that it has the wrong type; null where it has not."""
    for field in fields:
        here = (*path, field.name)
        value, written = record[field.name], F.get_json_object(text, "$" + "".join(f"['{name}']" for name in here))
        yield F.when(value.isNull() & written.isNotNull(), f"wrong type for field {'.'.join(here)}")
        if isinstance(field.dataType, StructType):
            yield from _wrong_fields(value, text, field.dataType, here)


def _values(text: Column, options: Mapping[str, Any]) -> Column:
    """The JSON values of a text, separated by commas, as texts; null where the options do not take it for JSON."""
    return F.from_json(F.concat(F.lit("["), text, F.lit("\n]")), t.ArrayType(t.StringType()), dict(options))


def _is_one(values: Column) -> Column:
    return F.coalesce(F.size(values) == 1, F.lit(False))


def _may_have_more(text: Column) -> Column:
    """Whether something may follow the object. Spark's parser stops at its end, and a second object would be lost.

    A flat object ends at its first closing brace. Only other text is parsed once more.
    """
    # In bytes, because Spark counts the characters of a text one by one.
    before_last = F.substring(text.cast("binary"), F.lit(1), F.octet_length(text) - 1)
    is_flat = text.endswith("}") & ~F.contains(before_last, F.lit(b"}"))
    is_odd = ~F.rtrim(text).endswith("}") | text.rlike(r"\}\s*([^\s,}\]]|,\s*[^\s\"])")
    return ~is_flat & is_odd


def _csv_reason(text: Column, schema: StructType, options: Mapping[str, Any]) -> Column:
    parsed = F.col(_DECODED)
    as_text = _from_csv(text, _plain(schema), options)

    def wrong(both: Column) -> Iterator[Column]:
        for field in schema:
            is_wrong = both["parsed"][field.name].isNull() & both["as_text"][field.name].isNotNull()
            yield F.when(is_wrong, f"wrong type for field {field.name}")

    count = f"not valid CSV: {len(schema)} columns are expected"
    return (
        F.when(parsed[_CORRUPT].isNull(), F.lit(None).cast("string"))
        .when(as_text[_CORRUPT].isNotNull(), count)
        .otherwise(_first_of(F.struct(parsed.alias("parsed"), as_text.alias("as_text")), wrong))
    )


def _plain(schema: StructType) -> StructType:
    """The fields as text, and Spark's column for records that it could not read."""
    return StructType([StructField(field.name, StringType()) for field in schema]).add(_CORRUPT, StringType())


def _is_undated(time: Column, text: Column) -> Column:
    """Whether Spark has read text without a date, as a time of today. Other days need no look at the text."""
    is_of_now = time >= F.date_sub(F.current_date(), 1).cast("timestamp")
    return F.when(is_of_now, F.coalesce(text.rlike(r"^\s*(\D|[+-]?\d{1,3}\D)"), F.lit(False))).otherwise(F.lit(False))


_TIMES = (t.TimestampType,)
_CONVERTED = (
    *_TIMES,
    t.BooleanType,
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.FloatType,
    t.DoubleType,
    t.DecimalType,
)


def decoded(
    text: Column,
    schema: t.StructType,
    corrupt: str,
    decoder: Callable[[Column, t.StructType], Column],
    *,
    json: bool,
    zone: str | None = None,
) -> Column:
    """The text as a struct of the schema's fields, and the field `corrupt`: the text where it does not fit.

    Args:
        decoder: Decodes text by a schema, with `corrupt` as Spark's column of corrupt records.
        json: Whether the text is JSON; else it is CSV.
        zone: That of times without one; None: UTC.
    """
    strict = _Reading(_TIMES, t.VariantType() if json else t.StringType(), zone)
    lenient = _Reading(_CONVERTED, t.VariantType(), zone)
    has_times, has_more = strict.changes(schema), json and lenient.changes(schema)
    whole = t.StructType([*schema.fields, t.StructField(corrupt, t.StringType())])
    read = decoder(text, strict.schema(whole))
    if not has_times and not has_more:
        return read

    def result(of: _Reading, record: Column) -> Column:
        converted = (f for f in schema if of.changes(f.dataType))
        wrong = record[corrupt].isNotNull() | any_of(of.wrong(record[f.name], f.dataType) for f in converted)
        fields = [of.converted(record[f.name], f.dataType).alias(f.name) for f in schema]
        return F.struct(*fields, F.when(wrong, text).alias(corrupt))

    def once(record: Column) -> Column:
        good = F.when(record.isNotNull(), result(strict, record)) if has_times else record
        if not has_more:
            return good
        # In a function of arrays, because Spark would else decode the text anew for each field.
        again = F.array(decoder(text, lenient.schema(whole)))
        return F.when(record[corrupt].isNull(), good).otherwise(
            F.transform(again, lambda other: result(lenient, other))[0]
        )

    return F.transform(F.array(read), once)[0]


@dataclass(frozen=True, slots=True)
class _Reading:
    """Values of the types `kinds` are decoded as `carrier`, text or a variant, and converted then.

    `zone`: that of times without one; None: UTC.
    """

    kinds: tuple[type[t.DataType], ...]
    carrier: t.DataType
    zone: str | None

    def changes(self, kind: t.DataType) -> bool:
        return self.type_of(kind) != kind

    def schema(self, schema: t.StructType) -> t.StructType:
        return t.StructType([t.StructField(field.name, self.type_of(field.dataType)) for field in schema])

    def type_of(self, kind: t.DataType) -> t.DataType:
        match kind:
            case t.StructType():
                return self.schema(kind)
            case t.ArrayType():
                return t.ArrayType(self.type_of(kind.elementType))
            case t.MapType():
                return t.MapType(kind.keyType, self.type_of(kind.valueType))
        return self.carrier if isinstance(kind, self.kinds) else kind

    def converted(self, value: Column, kind: t.DataType) -> Column:
        """The value as its type in the schema; null where it cannot be."""
        if not self.changes(kind):
            return value
        match kind:
            case t.StructType():
                fields = [self.converted(value[field.name], field.dataType).alias(field.name) for field in kind]
                return F.when(value.isNotNull(), F.struct(*fields))
            case t.ArrayType():
                return F.transform(value, lambda item: self.converted(item, kind.elementType))
            case t.MapType():
                return F.transform_values(value, lambda _, item: self.converted(item, kind.valueType))
        is_text = isinstance(self.carrier, t.StringType)
        return _time(value, self.zone) if is_text else _of_variant(value, kind, self.zone)

    def wrong(self, value: Column, kind: t.DataType) -> Column:
        """Whether there is a value that cannot be converted."""
        if not self.changes(kind):
            return F.lit(False)
        match kind:
            case t.StructType():
                return value.isNotNull() & any_of(self.wrong(value[field.name], field.dataType) for field in kind)
            case t.ArrayType():
                return F.coalesce(F.exists(value, lambda item: self.wrong(item, kind.elementType)), F.lit(False))
            case t.MapType():
                items = F.map_values(value)
                return F.coalesce(F.exists(items, lambda item: self.wrong(item, kind.valueType)), F.lit(False))
        there = value.isNotNull()
        if isinstance(self.carrier, t.VariantType):
            there = there & ~F.is_variant_null(value)
        return there & self.converted(value, kind).isNull()


_SHORT_NAME = r"^\s*[+-]?(?!NaN|Infinity)(?i:nan|inf|infinity)\s*$"
"""Names of numbers that Spark reads and Java's `parseDouble` does not, which Flink calls."""
_MOST_SECONDS = (2**63 - 1) // 1_000_000
"""What a TIMESTAMP holds, in seconds of the epoch: Spark's conversion fails beyond it, and the whole job with it."""


def _time(text: Column, zone: str | None) -> Column:
    found = text.try_cast("timestamp")
    if zone is not None:
        has_own = text.rlike(r"[T ]\d{1,2}(:\d{1,2}){0,2}([.]\d*)?\s*[^\s\d:.]")
        found = F.when(has_own, found).otherwise(F.to_utc_timestamp(found, zone))
    return F.when(~text.rlike(NO_CLEAR_TIME), found)


def _of_variant(value: Column, kind: t.DataType, zone: str | None) -> Column:
    found = F.schema_of_variant(value)
    is_text, is_whole = found == "STRING", found == "BIGINT"
    is_number = is_whole | found.rlike("^(DECIMAL|DOUBLE|FLOAT)")

    def read(name: str) -> Column:
        return F.try_variant_get(value, "$", name)

    match kind:
        case t.TimestampType():
            seconds = read("bigint")
            fits = is_whole & seconds.between(-_MOST_SECONDS, _MOST_SECONDS)
            return F.when(fits, F.timestamp_seconds(seconds)).when(is_text, _time(read("string"), zone))
        case t.BooleanType():
            is_true = F.lower(F.trim(read("string"))) == "true"
            return F.when(found == "BOOLEAN", read("boolean")).when(is_text | is_number, is_true)
        case t.ByteType() | t.ShortType():
            return F.when(is_text | is_whole, read(kind.simpleString()))
        case t.FloatType() | t.DoubleType():
            is_text = is_text & ~read("string").rlike(_SHORT_NAME)
    return F.when(is_text | is_number, read(kind.simpleString()))
