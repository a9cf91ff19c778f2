"""Values of decoded JSON and CSV that Spark does not read as the live job does.

Numbers in JSON: Flink's format takes text that holds a number, and cuts the fraction off a number that should be whole.
Spark's decoder refuses both, so such a record is read once more. The rules are those of Flink's
`JsonToRowDataConverters`:

| the schema's type | what is accepted beside its own values |
| --- | --- |
| BIGINT, INT | numbers with a fraction, which is cut off; text with a whole number, with or without spaces around it |
| SMALLINT, TINYINT | such text |
| DOUBLE, FLOAT, DECIMAL | text with a number |
| BOOLEAN | numbers and text: `true` in upper or lower case is true, all else is false |

Times: Spark takes text without a date for a time of today, and reads short names of zones, which are ambiguous. Such a
value has the wrong type.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_jobs.spark.expression_tree import NO_CLEAR_TIME

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
    text: Column, schema: t.StructType, corrupt: str, decoder: Callable[[Column, t.StructType], Column], *, json: bool
) -> Column:
    """The text as a struct of the schema's fields, and the field `corrupt`: the text where it does not fit.

    Args:
        decoder: Decodes text by a schema, with `corrupt` as Spark's column of corrupt records.
        json: Whether the text is JSON; else it is CSV.
    """
    strict = _Reading(_TIMES, t.VariantType() if json else t.StringType())
    lenient = _Reading(_CONVERTED, t.VariantType())
    has_times, has_more = strict.changes(schema), json and lenient.changes(schema)
    whole = t.StructType([*schema.fields, t.StructField(corrupt, t.StringType())])
    read = decoder(text, strict.schema(whole))
    if not has_times and not has_more:
        return read

    def result(of: _Reading, record: Column) -> Column:
        wrong = record[corrupt].isNotNull() | _any(of.wrong(record[f.name], f.dataType) for f in schema)
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
    """Values of the types `kinds` are decoded as `carrier`, text or a variant, and converted then."""

    kinds: tuple[type[t.DataType], ...]
    carrier: t.DataType

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
        return _time(value) if isinstance(self.carrier, t.StringType) else _of_variant(value, kind)

    def wrong(self, value: Column, kind: t.DataType) -> Column:
        """Whether there is a value that cannot be converted."""
        if not self.changes(kind):
            return F.lit(False)
        match kind:
            case t.StructType():
                return value.isNotNull() & _any(self.wrong(value[field.name], field.dataType) for field in kind)
            case t.ArrayType():
                return F.coalesce(F.exists(value, lambda item: self.wrong(item, kind.elementType)), F.lit(False))
            case t.MapType():
                items = F.map_values(value)
                return F.coalesce(F.exists(items, lambda item: self.wrong(item, kind.valueType)), F.lit(False))
        there = value.isNotNull()
        if isinstance(self.carrier, t.VariantType):
            there = there & ~F.is_variant_null(value)
        return there & self.converted(value, kind).isNull()


def _any(conditions: Iterable[Column]) -> Column:
    return functools.reduce(operator.or_, conditions, F.lit(False))


def _time(text: Column) -> Column:
    return F.when(~text.rlike(NO_CLEAR_TIME), text.try_cast("timestamp"))


def _of_variant(value: Column, kind: t.DataType) -> Column:
    found = F.schema_of_variant(value)
    is_text, is_whole = found == "STRING", found == "BIGINT"
    is_number = is_whole | found.rlike("^(DECIMAL|DOUBLE|FLOAT)")

    def read(name: str) -> Column:
        return F.try_variant_get(value, "$", name)

    match kind:
        case t.TimestampType():
            return F.when(is_whole, F.timestamp_seconds(read("bigint"))).when(is_text, _time(read("string")))
        case t.BooleanType():
            is_true = F.lower(F.trim(read("string"))) == "true"
            return F.when(found == "BOOLEAN", read("boolean")).when(is_text | is_number, is_true)
        case t.ByteType() | t.ShortType():
            return F.when(is_text | is_whole, read(kind.simpleString()))
    return F.when(is_text | is_number, read(kind.simpleString()))
