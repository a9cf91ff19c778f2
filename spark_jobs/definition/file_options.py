"""The options of Spark's readers that a history of files obeys, by format. Others are refused by name.

An option without an effect would be worse than none: who writes it expects other numbers.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from spark_jobs.definition.fields import Refusal

_LISTING = ("basePath", "recursiveFileLookup", "pathGlobFilter", "modifiedBefore", "modifiedAfter")
_TIMES = ("dateFormat", "timestampFormat", "timestampNTZFormat", "enableDateTimeParsingFallback", "timeZone", "locale")
_LINES = ("encoding", "charset", "lineSep", "multiLine", "mode", "samplingRatio")
_REBASED = ("datetimeRebaseMode", "int96RebaseMode")
OBEYED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "parquet": (*_LISTING, "mergeSchema", *_REBASED),
        "orc": (*_LISTING, "mergeSchema"),
        "avro": (
            *(*_LISTING, "avroSchema", "avroSchemaUrl", "positionalFieldMatching", "datetimeRebaseMode"),
            *("recursiveFieldMaxDepth", "enableStableIdentifiersForUnionType", "stableIdentifierPrefixForUnionType"),
        ),
        "json": (
            *(*_LISTING, *_LINES, *_TIMES),
            *("allowComments", "allowUnquotedFieldNames", "allowSingleQuotes", "allowNumericLeadingZeros"),
            *("allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars", "allowNonNumericNumbers"),
            *("primitivesAsString", "prefersDecimal", "inferTimestamp", "dropFieldIfAllNull"),
            *("maxNestingDepth", "maxNumLen", "maxStringLen"),
        ),
        "csv": (
            *(*_LISTING, *_LINES, *_TIMES),
            *("header", "sep", "delimiter", "quote", "escape", "comment"),
            *("nullValue", "nanValue", "positiveInf", "negativeInf", "emptyValue", "inferSchema", "preferDate"),
            *("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "maxColumns", "maxCharsPerColumn"),
        ),
    }
)
"""By format; names in any case."""
_INSTEAD = {
    "ignorecorruptfiles": "leave the damaged files out of `history.path`: records would be missing without a word",
    "ignoremissingfiles": "leave it out: records would be missing without a word",
    "enforceschema": "leave it out: columns are found by the names in the header",
    "columnnameofcorruptrecord": "leave it out: records that cannot be read go to quarantine",
    "columnpruning": "leave it out: each line is read whole, so that no error depends on the columns that are used",
    "unescapedquotehandling": "leave it out: a line with such a quote goes to quarantine",
    "chartoescapequoteescaping": "leave it out: an escape is escaped by itself",
    "wholetext": "leave it out: a record is a line",
    "compression": "leave it out: it is for writing. The file's name says how it was compressed",
}


def option_refusals(file_format: str, options: Mapping[str, object]) -> Iterator[Refusal]:
    """What is wrong with the options of such files; `at` is the option's name."""
    obeyed = OBEYED.get(file_format)
    if obeyed is None:  # the format itself is refused
        return
    known = {name.lower(): name for name in obeyed}
    for name in options:
        if name.lower() in known or ("." in name and file_format not in ("json", "csv")):  # Hadoop's have dots
            continue
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"write `{known[near[0]]}`" if near else f"leave it out, or write one of {', '.join(obeyed)}"
        hint = _INSTEAD.get(name.lower(), hint)
        yield Refusal(f"has no effect on {file_format} files", hint, ("options", name))
