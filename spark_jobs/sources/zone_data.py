"""The time zone data of Java and of Python: Java's decide, as Spark assigns the windows with them.

Each has data of the release that it was installed with. Where the releases differ, Python takes the rules of a
definition's zone from Java, so that all parts of a run agree on where its days begin.
"""

from __future__ import annotations

import io
import struct
import zoneinfo
from importlib import metadata
from pathlib import Path
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.errors import SourceError
from spark_jobs.eventtime.zones import choose, is_chosen
from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, jvm

_LAST_YEAR = 2200
"""The rules are taken up to this year; after it the last offset stays."""


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


def use_java_zone(spark: SparkSession, pipeline: Pipeline) -> None:
    """Let Java's data decide on the zone of the pipeline's windows, in this process.

    Raises SourceError where Java does not know the zone.
    """
    name = getattr(pipeline.window, "time_zone", None)
    if name is None or is_chosen(name):
        return
    try:
        rules = jvm(spark).java.time.ZoneId.of(name).getRules()
    except JAVA_ERRORS as error:
        where = pipeline.source_of(("window", "time_zone")) or pipeline.name
        hint = "Install a newer Java, or write another name of the zone."
        raise SourceError(
            f"Java's time zone data ({java_release(spark)}) have no zone `{name}`", where, hint
        ) from error
    if java_release(spark) != python_release():
        choose(ZoneInfo.from_file(io.BytesIO(_as_file(rules, spark)), key=name))


def zone_note(spark: SparkSession, pipeline: Pipeline) -> str | None:
    """Which data decide where the windows' days begin; None where it does not matter."""
    java, python = java_release(spark), python_release()
    if getattr(pipeline.window, "time_zone", None) is None or java == python:
        return None
    return f"time zone data: Java's release {java} decides where days begin; Python has {python}"


def _as_file(rules: JavaObject, spark: SparkSession) -> bytes:
    """Java's rules of a zone in the format of zone files (RFC 8536, version 2)."""
    moment = jvm(spark).java.time.Instant.ofEpochSecond(-(1 << 40))
    offsets = [int(rules.getOffset(moment).getTotalSeconds())]
    times: list[int] = []
    while (change := rules.nextTransition(moment)) is not None and change.getDateTimeBefore().getYear() <= _LAST_YEAR:
        moment = change.getInstant()
        times.append(int(moment.getEpochSecond()))
        offsets.append(int(change.getOffsetAfter().getTotalSeconds()))
    kinds = list(dict.fromkeys(offsets))
    header = b"TZif2" + bytes(15)
    empty = header + struct.pack(">6l", 0, 0, 0, 0, 1, 1) + struct.pack(">lbb", 0, 0, 0) + b"\0"
    body = header + struct.pack(">6l", 0, 0, 0, len(times), len(kinds), 1)
    body += struct.pack(f">{len(times)}q", *times) + bytes(kinds.index(offset) for offset in offsets[1:])
    body += b"".join(struct.pack(">lbb", kind, 0, 0) for kind in kinds) + b"\0"
    return empty + body + b"\n\n"
