"""CSV by RFC 4180: a quote within a quoted field is written twice, and a quoted field may hold line breaks.

The patterns hold in Java and in Python, so that a run and `rewindow init` read the same records.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

NOT_WELL_QUOTED = "not valid CSV: a quote that is not closed, or within a field without quotes"
_END = r"(?![\s\S])"
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class CsvRules:
    """How the fields of a CSV record are written.

    Attributes:
        separator: One or more characters between fields.
        quote: The character around quoted fields; empty: none.
        escape: What makes a quote a part of its field: the quote itself, or another character; empty: none.
        comment: What begins a line that is no record; empty: nothing.
        before, behind: Whether there may be spaces before a quoted field, and behind it.
    """

    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    comment: str = ""
    before: bool = False
    behind: bool = False

    def record(self) -> str:
        """The pattern of a whole record, which begins and ends with it."""
        return f"{self._field()}(?:{re.escape(self.separator)}{self._field()})*+"

    def records(self) -> str:
        """The pattern of one record of a text, as group 1, with the line break behind it.

        A line that begins no record is one by itself: a stray quote costs its line alone.
        """
        comment = f"{re.escape(self.comment)}[^\\r\\n]*+|" if self.comment else ""
        mark = _in_latin_1(_BOM)
        record = f"(?:{mark})?+{self.record()}(?=[\\r\\n]|{_END})" if self.quote else r"[^\r\n]*+"
        return f"({comment}{record}|[^\\r\\n]*+)(?:\\r\\n|[\\r\\n]|{_END})"

    def encoded(self, encoding: str) -> CsvRules:
        """The rules for text whose bytes in this encoding are taken for those of ISO-8859-1."""
        names = ("separator", "quote", "escape", "comment")
        return replace(self, **{name: _in_latin_1(getattr(self, name), encoding) for name in names})

    def why_wrong(self, record: Column, why: Column | None = None) -> Column:
        """Why the quotes of a record are wrong (NOT_WELL_QUOTED, or `why`); null where they are not.

        Spark's parser takes an open quote at the end for a whole field.
        """
        if not self.quote:
            return F.lit(None).cast("string")
        is_wrong = F.contains(record, F.lit(self.quote)) & ~record.rlike(f"^{self.record()}{_END}")
        return F.when(is_wrong, F.lit(NOT_WELL_QUOTED) if why is None else why)

    def is_open(self, line: Column) -> Column:
        """Whether a line ends within a quoted field: a record that begins there goes on in the next line."""
        escape = re.escape(self.escape)
        half = f"(?:{escape})?+" if self.escape and self.escape != self.quote else ""
        field = f"{self._spaces(self.before)}{re.escape(self.quote)}{self._inside()}{half}"
        return line.rlike(f"^(?:{self._field()}{re.escape(self.separator)})*+{field}{_END}")

    def _field(self) -> str:
        # Possessive quantifiers, as Java would need a frame of its stack for each repetition of others.
        q, s = re.escape(self.quote), re.escape(self.separator)
        plain = f"[^{q}{s}\\r\\n]*+" if len(self.separator) == 1 else f"(?:(?!{s})[^{q}\\r\\n])*+"
        quoted = f"{self._spaces(self.before)}{q}{self._inside()}{q}{self._spaces(self.behind)}"
        return f"(?:{quoted}|{plain})" if q else plain

    def _spaces(self, allowed: bool) -> str:
        return f"(?:(?!{re.escape(self.separator)})[ \\t])*+" if allowed else ""

    def _inside(self) -> str:
        """The pattern of the text between two quotes."""
        q, e = re.escape(self.quote), re.escape(self.escape)
        if e == q:
            return f"[^{q}]*+(?:{q}{q}[^{q}]*+)*+"
        return f"[^{q}{e}]*+(?:{e}[\\s\\S][^{q}{e}]*+)*+" if e else f"[^{q}]*+"


def _in_latin_1(text: str, encoding: str = "UTF-8") -> str:
    try:
        return text.encode(encoding).decode("iso-8859-1")
    except LookupError:  # an encoding that only Java knows; its first half is ASCII's, as `lines` makes sure
        return text
