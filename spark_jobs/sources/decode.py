"""Decode JSON objects and CSV lines by a schema. Text that does not fit gets a reason; it is never lost or made null.

That is text that cannot be parsed, or a field of another type than the schema says. The reason does not depend on which
columns a query reads, because the whole text is always decoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.sources.conversions import decoded
from spark_jobs.spark.gateway import jvm

REASON = "rw_reason"
RAW = "rw_raw"
RAW_BYTES = "rw_raw_bytes"
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


def parse_schema(spark: SparkSession, ddl: str) -> StructType:
    """The fields of a Spark DDL text, as `a STRING, b BIGINT`. Raises ValueError with Spark's reason."""
    try:
        found = StructType.fromJson(_json_of(spark, ddl))
    except PySparkException as error:
        raise ValueError(str(error).split("SQLSTATE")[0].strip().splitlines()[0]) from error
    names = [field.name.lower() for field in found]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"field {', '.join(repeated)} is named twice")
    return found


def _json_of(spark: SparkSession, ddl: str) -> Any:
    return json.loads(jvm(spark).org.apache.spark.sql.types.StructType.fromDDL(ddl).json())


def decode(
    frame: DataFrame,
    text: Column,
    text_format: str,
    schema: StructType,
    options: Mapping[str, Any] | None = None,
    *,
    only: StructType | None = None,
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
    """
    chosen = {key: value for key, value in (options or {}).items() if key.lower() not in ("mode", "header")}
    chosen |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    is_json = text_format == "json"
    if is_json:
        said = {key.lower() for key in chosen}
        chosen = {key: value for key, value in _JSON_AS_FLINK.items() if key.lower() not in said} | chosen
    has_pattern = any(key.lower() == "timestampformat" for key in chosen)

    def decoder(of: Column, fields: StructType) -> Column:
        return F.from_json(of, fields, chosen) if is_json else _from_csv(of, fields, chosen)

    if has_pattern:
        value = decoder(text, StructType([*schema.fields, StructField(_CORRUPT, StringType())]))
    else:
        value = decoded(text, schema, _CORRUPT, decoder, json=is_json)
    # A generator of one row: Spark does not copy it into the filters and columns that use the fields. Otherwise the
    # text would be decoded again for each of them.
    parsed = frame.select("*", F.explode_outer(F.array(value)).alias(_DECODED))
    reason = _json_reason(text, schema) if is_json else _csv_reason(text, schema, chosen)
    columns = {field.name: F.col(_DECODED)[field.name] for field in only or schema}
    return parsed.withColumns({REASON: F.when(text.isNull(), NO_VALUE).otherwise(reason), **columns}).drop(_DECODED)


def _from_csv(text: Column, schema: StructType, options: Mapping[str, Any]) -> Column:
    return F.from_csv(text, _ddl(schema), dict(options))


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in schema)


def _json_reason(text: Column, schema: StructType) -> Column:
    parsed = F.col(_DECODED)
    wrong = list(_wrong_fields(parsed, text, schema, ()))
    return (
        F.when(~F.ltrim(text).startswith("{"), F.when(_is_json(text), "not a JSON object").otherwise("not valid JSON"))
        .when(parsed[_CORRUPT].isNull(), F.when(_has_more(text), "not valid JSON"))
        .when(text.rlike(r"^\s*\{\s*'"), "not valid JSON: text in single quotes")
        .when(_is_json(text), F.coalesce(*wrong, F.lit("wrong type in a field")))
        .otherwise("not valid JSON")
    )


def _wrong_fields(record: Column, text: Column, fields: StructType, path: tuple[str, ...]) -> Iterator[Column]:
    """For each field, those in structs too: that it has the wrong type; null where it has not."""
    for field in fields:
        here = (*path, field.name)
        value, written = record[field.name], F.get_json_object(text, "$" + "".join(f"['{name}']" for name in here))
        yield F.when(value.isNull() & written.isNotNull(), f"wrong type for field {'.'.join(here)}")
        if isinstance(field.dataType, StructType):
            yield from _wrong_fields(value, text, field.dataType, here)


def _is_json(text: Column) -> Column:
    return F.get_json_object(text, "$").isNotNull()


def _has_more(text: Column) -> Column:
    """Whether something follows the object. Spark's parser stops at its end, and a second object would be lost.

    A flat object ends at its first closing brace. Only other text is parsed once more, in brackets.
    """
    # In bytes, because Spark counts the characters of a text one by one.
    before_last = F.substring(text.cast("binary"), F.lit(1), F.octet_length(text) - 1)
    is_flat = text.endswith("}") & ~F.contains(before_last, F.lit(b"}"))
    is_odd = ~F.rtrim(text).endswith("}") | text.rlike(r"\}\s*([^\s,}\]]|,\s*[^\s\"])")
    listed = F.concat(F.lit("["), text, F.lit("]"))
    return ~is_flat & is_odd & (~_is_json(listed) | F.get_json_object(listed, "$[1]").isNotNull())


def _csv_reason(text: Column, schema: StructType, options: Mapping[str, Any]) -> Column:
    parsed = F.col(_DECODED)
    plain = StructType([StructField(field.name, StringType()) for field in schema])
    plain = plain.add(_CORRUPT, StringType())
    as_text = _from_csv(text, plain, options)
    wrong = [
        F.when(parsed[field.name].isNull() & as_text[field.name].isNotNull(), f"wrong type for field {field.name}")
        for field in schema
    ]
    count = f"not valid CSV: {len(schema)} columns are expected"
    return (
        F.when(parsed[_CORRUPT].isNull(), F.lit(None).cast("string"))
        .when(as_text[_CORRUPT].isNotNull(), count)
        .otherwise(F.coalesce(*wrong, F.lit("wrong type in a field")))
    )
