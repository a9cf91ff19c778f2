"""Corrections as the records of a topic: JSON with the fields and the key that the live job's own records have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from spark_jobs.corrections.columns import Columns
from spark_jobs.definition.corrections import TimeSpelling
from spark_jobs.definition.live import WindowColumns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"s": 1 / 1000, "ms": 1, "us": 1000}


def time_text(instant: datetime, spelling: TimeSpelling) -> str:
    """A time as Flink's JSON has it: a fraction only where there is one. `instant`: in the zone that is shown."""
    between = " " if spelling in (TimeSpelling.SQL, TimeSpelling.SQL_UTC) else "T"
    text = f"{instant:%Y-%m-%d}{between}{instant:%H:%M:%S}"
    if instant.microsecond:
        text += f".{instant.microsecond:06}".rstrip("0")
    return text + ("Z" if spelling in (TimeSpelling.SQL_UTC, TimeSpelling.ISO_UTC) else "")


def bound_value(milliseconds: int, bound: str, window: WindowColumns, spelling: TimeSpelling) -> int | str:
    """A bound of a window (epoch ms) as the definition says that the live job writes it."""
    if bound == "window_end":
        milliseconds -= window.inclusive_end
    instant = _EPOCH + timedelta(milliseconds=milliseconds)
    if window.time_zone is not None:
        local = instant.astimezone(ZoneInfo(window.time_zone)).replace(tzinfo=UTC)
        milliseconds, instant = round((local - _EPOCH) / timedelta(milliseconds=1)), local
    if window.unit in _UNITS:
        return int(milliseconds * _UNITS[window.unit]) if window.unit != "s" else milliseconds // 1000
    if window.unit == "iso" and window.time_zone is None and spelling in (TimeSpelling.SQL, TimeSpelling.ISO):
        spelling = TimeSpelling.SQL_UTC if spelling is TimeSpelling.SQL else TimeSpelling.ISO_UTC
    return time_text(instant, spelling)


def json_text(fields: Mapping[str, Any], spelling: TimeSpelling) -> bytes:
    """Compact JSON, as Flink writes it; decimals keep their digits, null stays null."""
    numbers: list[str] = []

    def plain(value: Any) -> Any:
        match value:
            case Decimal():
                numbers.append(f"{value:f}")
                return f"\x00{len(numbers) - 1}\x00"
            case datetime():
                return time_text(value, spelling)
            case date():
                return value.isoformat()
            case bytes() | bytearray():
                return value.decode("utf-8", "replace")
            case Mapping():
                return {str(k): plain(v) for k, v in value.items()}
            case list() | tuple():
                return [plain(v) for v in value]
            case _:
                return value

    text = json.dumps(plain(fields), separators=(",", ":"), ensure_ascii=False)
    for place, number in enumerate(numbers):
        text = text.replace(f'"\\u0000{place}\\u0000"', number)
    return text.encode()


def own_fields(columns: Columns, spelling: TimeSpelling, row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that name a window: its keys, and its bounds (epoch ms in `row`)."""
    fields = {column: row[name] for name, column in columns.keys.items()}
    for bound, column in columns.bounds.items():
        fields[column] = bound_value(row[bound], bound, columns.window, spelling)
    return fields


def built(names: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields `names` in their order; those that are not known are null."""
    return {name: known.get(name) for name in names}
