"""Java and Python must know the zone of a definition's windows by the same rules.

Spark assigns windows with Java's time zone data, other parts of a run compute with Python's. Each has data of the
release that it was installed with; most releases change few zones.
"""

from __future__ import annotations

import re
import zoneinfo
from bisect import bisect_right
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import SourceError
from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, jvm

_DAY = 86_400
_END = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp())
"""Rules are compared from 1970 up to this epoch second. Older ones depend on how a system has built its data."""
_RELEASE = re.compile(r"\d{4}[a-z]+")
_NEWER_JAVA = "Install a newer Java"
_NEWER_PYTHON = "update the system's package `tzdata`, or the Python package where the system has none"


def java_release(spark: SparkSession) -> str:
    """The release of Java's time zone data, such as `2025a`."""
    return str(jvm(spark).java.time.zone.ZoneRulesProvider.getVersions("UTC").lastKey())


def python_release() -> str:
    """The release of Python's time zone data; `unknown` where the system does not say it."""
    for folder in map(Path, zoneinfo.TZPATH):
        if (folder / "UTC").exists():
            listed = folder / "tzdata.zi"
            first = listed.open(encoding="ascii").readline() if listed.exists() else ""
            return first.removeprefix("# version").strip() or "unknown"
    try:
        year, letter = metadata.version("tzdata").split(".")[:2]
    except (metadata.PackageNotFoundError, ValueError):
        return "unknown"
    return f"{year}{chr(ord('a') + int(letter) - 1)}"


def refuse_unlike_zone(spark: SparkSession, pipeline: Pipeline) -> None:
    """Raises SourceError where Java does not know the zone of the pipeline's windows, or by other rules than Python."""
    name = getattr(pipeline.window, "time_zone", None)
    if name is None:
        return
    java, python = java_release(spark), python_release()
    where = pipeline.source_of(("window", "time_zone")) or pipeline.name
    try:
        rules = jvm(spark).java.time.ZoneId.of(name).getRules()
    except JAVA_ERRORS as error:
        hint = "Install a newer Java, or write another name of the zone."
        raise SourceError(f"Java's time zone data ({java}) have no zone `{name}`", where, hint) from error
    at = None if java == python else _first_difference(rules, ZoneInfo(name), spark)
    if at is not None:
        what = f"Java's time zone data ({java}) and Python's ({python}) differ for `{name}`"
        raise SourceError(f"{what}, first at {format_instant(at * 1000)}", where, what_to_update(java, python))


def what_to_update(java: str, python: str) -> str:
    """How the data of the older release get as new as the other; for both sides where an order is not known."""
    if _RELEASE.fullmatch(java) and _RELEASE.fullmatch(python) and java != python:
        return f"{_NEWER_JAVA}." if java < python else f"{_NEWER_PYTHON[0].upper()}{_NEWER_PYTHON[1:]}."
    return f"{_NEWER_JAVA}, and {_NEWER_PYTHON}."


def _first_difference(rules: JavaObject, zone: ZoneInfo, spark: SparkSession) -> int | None:
    """The first epoch second at which the offsets from UTC differ: on any day, or beside a change that Java knows."""
    starts, offsets = _java_offsets(rules, spark)
    probes = {*range(0, _END, _DAY), *starts, *(start - 1 for start in starts if start)}
    for at in sorted(probes):
        if datetime.fromtimestamp(at, zone).utcoffset().total_seconds() != offsets[bisect_right(starts, at) - 1]:  # pyright: ignore[reportOptionalMemberAccess]
            return at
    return None


def _java_offsets(rules: JavaObject, spark: SparkSession) -> tuple[list[int], list[int]]:
    """The offsets in seconds that Java's rules have from 1970 on, each with the epoch second from which on it holds."""
    moment = jvm(spark).java.time.Instant.EPOCH
    starts, offsets = [0], [int(rules.getOffset(moment).getTotalSeconds())]
    while (change := rules.nextTransition(moment)) is not None and change.toEpochSecond() < _END:
        moment = change.getInstant()
        starts.append(int(change.toEpochSecond()))
        offsets.append(int(change.getOffsetAfter().getTotalSeconds()))
    return starts, offsets
