"""Where a history lies, as a person writes it on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from spark_jobs.errors import DefinitionError

FORMS = "a path (data/*.jsonl), hive:DATABASE.TABLE, or kafka://HOST:PORT/TOPIC"
"""The forms that `parse_address` reads."""

_KAFKA = re.compile(r"kafka://([^/]+)/(.+)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class SourceKind(StrEnum):
    """Which kind of history it is; the values are those of `history.kind`."""

    FILES = "files"
    HIVE = "hive"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a history lies.

    Attributes:
        kind: Files, a Hive table or a Kafka topic.
        place: A path, glob or URI; the table with its database; or the topic.
        servers: Kafka's bootstrap servers; empty for other kinds.
    """

    kind: SourceKind
    place: str
    servers: str = ""


def parse_address(text: str) -> Address:
    """The address that a person wrote. Raises DefinitionError for one that is none of `FORMS`."""
    text = text.strip()
    if match := _KAFKA.fullmatch(text):
        return Address(SourceKind.KAFKA, match[2], match[1])
    if text.startswith("kafka:"):
        raise DefinitionError(f"{text!r} is not a topic's address", hint="Write kafka://HOST:PORT/TOPIC.")
    if text.startswith("hive:"):
        table = text.removeprefix("hive:").strip("/")
        if not re.fullmatch(r"\w+\.\w+", table):
            raise DefinitionError(f"{text!r} is not a table's address", hint="Write hive:DATABASE.TABLE.")
        return Address(SourceKind.HIVE, table)
    if not text:
        raise DefinitionError("the source is empty", hint=f"Write {FORMS}.")
    return Address(SourceKind.FILES, text)


def within(path: str, project: Path) -> str:
    """A path as a definition in `project` writes it: relative to the project where it lies in it, else absolute."""
    if _SCHEME.match(path):
        return path
    absolute = Path(path).expanduser().absolute()
    try:
        return absolute.relative_to(project.absolute()).as_posix()
    except ValueError:
        return absolute.as_posix()
