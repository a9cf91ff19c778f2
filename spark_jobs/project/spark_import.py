"""A definition drafted from the checkpoint of a Structured Streaming query: what it tells, and what a person fills in.

The offsets name the topics, the logs of file sources the files. The schema of the aggregation's state names the keys,
the kind of window and the delay of the watermark, and hints at the aggregates. Nothing there tells the size of the
windows, the output mode, the payload or the brokers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs.definition.loading import CHECK
from spark_jobs.definition.names import is_pipeline_name
from spark_jobs.errors import DefinitionError, SourceError
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.eventtime.spark.checkpoint import (
    Checkpoint,
    CheckpointError,
    KafkaOffsets,
    is_checkpoint_file,
    read_checkpoint,
)
from spark_jobs.formatting import one_line
from spark_jobs.project.sample import quoted as as_column
from spark_jobs.project.writing import SCHEMA_LINE
from spark_jobs.project.yaml_text import quoted, scalar

_STRUCT = b'{"type":"struct"'
_DELAY = "spark.watermarkDelayMs"
_DEDUPLICATION = {"dedupe": "drop_duplicates", "dedupeWithinWatermark": "drop_duplicates_within_watermark"}
_UNREPLAYED = {
    "symmetricHashJoin": "a join of streams",
    "flatMapGroupsWithState": "flatMapGroupsWithState",
    "transformWithStateExec": "transformWithState",
}


@dataclass(frozen=True, slots=True)
class Draft:
    """A definition that is not complete: `remarks` say what a person must fill in or look at."""

    name: str
    text: str
    remarks: tuple[str, ...]


def draft_of(folder: Path, name: str | None = None) -> Draft:
    """The draft for a checkpoint in a local folder.

    Raises SourceError where there is no checkpoint, DefinitionError where no source of it is a topic or files, or for a
    name that a pipeline cannot have.
    """
    checkpoint = _read(folder)
    sources = [*_topics(checkpoint), *_folders(checkpoint)]
    if not sources:
        what = "no source of the query reads a topic, or files"
        raise DefinitionError(what, str(folder), "Let the query read a batch first.")
    chosen = name or re.sub(r"[^a-z0-9_]+", "_", sources[0].name.lower()).strip("_")
    if not is_pipeline_name(chosen):
        raise DefinitionError(f"{chosen!r} is no name of a pipeline", hint="Give one with --name, like orders_hourly.")
    states = list(_states(folder))
    return _drafted(chosen, folder, sources, states)


def _read(folder: Path) -> Checkpoint:
    files = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and is_checkpoint_file(path.relative_to(folder).as_posix())
    }
    if not any(file.startswith("offsets/") for file in files):
        hint = "Name the folder that the query has as its `checkpointLocation`."
        raise SourceError("there is no checkpoint of a Structured Streaming query: no offsets/N", str(folder), hint)
    try:
        return read_checkpoint(files.items())
    except CheckpointError as problem:
        raise SourceError(f"{problem.file}: {problem.what}", str(folder), problem.hint) from problem


@dataclass(frozen=True, slots=True)
class _Source:
    """One source of the query: its id, a name for what it reads, and the sections with what is left to fill in."""

    id: str
    name: str
    history: str
    value: str
    remark: str


def _topics(checkpoint: Checkpoint) -> list[_Source]:
    """The sources that read topics."""
    last = checkpoint.offsets[max(checkpoint.offsets)]
    remark, value = "history.servers: the brokers; no checkpoint has them", f'{{format: json, schema: "{CHECK}"}}'
    return [
        _Source(source, topic, f"{{kind: kafka, servers: {CHECK}, topic: {quoted(topic)}}}", value, remark)
        for source, offset in last.offsets.items()
        if isinstance(offset, KafkaOffsets)
        for topic in offset.ends
    ]


def _folders(checkpoint: Checkpoint) -> list[_Source]:
    """The sources that read files, with the folder that all files of a source are in."""
    found: list[_Source] = []
    for source, files in checkpoint.files.items():
        folder = os.path.commonpath([file.hadoop_path.removeprefix("file:").rpartition("/")[0] for file in files])
        kind = files[0].path.rpartition(".")[2]
        chosen = kind if kind in ("parquet", "orc", "avro", "json", "csv") else CHECK
        history = f"{{kind: files, path: {quoted(folder)}, format: {chosen}}}"
        remark = "history: the path and the format, as the query has them; the checkpoint has the files"
        found.append(_Source(source, folder.rpartition("/")[2], history, f'{{schema: "{CHECK}"}}', remark))
    return found


def _states(folder: Path) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Each stateful operator: its name, and the schemas of its state, keys first."""
    for operator in sorted((folder / "state").glob("*")):
        metadata = operator / "_metadata" / "metadata"
        text = metadata.read_text(encoding="utf-8").partition("\n")[2] if metadata.is_file() else "{}"
        name = json.loads(text).get("operatorInfo", {}).get("operatorName", "")
        files = [path for path in sorted(operator.rglob("schema")) if path.is_file()]
        yield name, list(_schemas(files[0].read_bytes())) if files else []


def _schemas(content: bytes) -> Iterator[Mapping[str, Any]]:
    """The JSON schemas in a state's schema file, which has other bytes between them."""
    at = content.find(_STRUCT)
    while at >= 0:
        text = content[at:].decode("utf-8", errors="replace")
        schema, length = json.JSONDecoder().raw_decode(text)
        yield schema
        at = content.find(_STRUCT, at + len(text[:length].encode()))


def _deduplicate(operator: str, schemas: list[Mapping[str, Any]]) -> str:
    """The section of a deduplication whose state has these schemas: its first one has the columns."""
    fields = schemas[0].get("fields", ()) if schemas else ()
    by = [field["name"] for field in fields if _DELAY not in field.get("metadata", {})]
    timed = ", event_time: true" if operator == "dedupe" and len(by) < len(fields) else ""
    listed = ", ".join(quoted(as_column(one)) for one in by) or CHECK
    return f"deduplicate: {{by: [{listed}], kind: {_DEDUPLICATION[operator]}{timed}}}"


def _named(keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The keys, each with a name that a column of results can have: its own, where that is one."""
    taken: set[str] = set()
    for key in keys:
        plain = (
            re.sub(r"[^A-Za-z0-9]+", "_", key).strip("_") if not re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII) else key
        )
        plain = plain if plain and not plain[0].isdigit() else f"key_{plain}".rstrip("_")
        while plain.lower() in taken:
            plain += "_2"
        taken.add(plain.lower())
        yield plain, key


def _drafted(
    name: str, folder: Path, sources: list[_Source], states: list[tuple[str, list[Mapping[str, Any]]]]
) -> Draft:
    remarks = [
        sources[0].remark,
        "value: the format and the schema of the payload",
        "event_time: the column of `withWatermark`, and its unit",
        "output_mode: append, update or complete",
        "aggregates: the expressions of `agg`",
    ]
    keys: dict[str, str] = {}
    delay, window, values = None, None, []
    deduplicate: list[str] = []
    for operator, schemas in states:
        if operator in _DEDUPLICATION:
            deduplicate = [_deduplicate(operator, schemas)]
            remarks.append("deduplicate.by: the columns of the deduplication, as expressions over a record")
        elif operator in _UNREPLAYED:
            remarks.append(f"the query has {_UNREPLAYED[operator]}: it cannot be replayed")
        for field in schemas[0].get("fields", ()) if schemas and operator.startswith(("stateStore", "session")) else ():
            metadata = field.get("metadata", {})
            delay = metadata.get(_DELAY, delay)
            if metadata.get("spark.timeWindow") or metadata.get("spark.sessionWindow"):
                window = "session" if metadata.get("spark.sessionWindow") else "tumbling"
            elif isinstance(field.get("type"), str):
                keys[field["name"]] = field["type"]
        if operator.startswith("session"):
            window = "session"
        values += [field["name"] for schema in schemas[1:2] for field in schema.get("fields", ())]
    if len(sources) > 1:
        listed = ", ".join(f"{source.id}: {source.name}" for source in sources)
        remarks.append(f"the query has several sources ({listed}): this draft is of the first one")
    if delay is None:
        remarks.append("watermark.delay: the delay of `withWatermark`")
    window_text = "{type: session, gap: CHECK}" if window == "session" else "{type: tumbling, size: CHECK}"
    gap = "window: the gap; for one in days or months the `time_zone`, too"
    remarks.append(gap if window == "session" else "window: its size, and `sliding` with a slide")
    remarks.append("filter: a WHERE of the query; no checkpoint has it, and without it the numbers are wrong")
    remarks.append("live: where the rows of the query lie, if they are to be compared")
    known = ", ".join(f"{name}: {scalar(as_column(key))}" for name, key in _named(keys))
    values = list(dict.fromkeys(value.partition("[")[0] for value in values))  # MS[0] to MS[51] are one value
    in_state = ", ".join(f"{key} {kind}" for key, kind in keys.items())
    place = one_line(str(folder))
    lines = [
        SCHEMA_LINE,
        f"# Drafted from the checkpoint {place}. Fill in what says {CHECK}; `rewindow check` finds what is left.",
        f"name: {name}",
        f"history: {sources[0].history}",
        f"value: {sources[0].value}",
        f"keys: {{{known}}}" + (f"  # in the state: {one_line(in_state)}" if keys else ""),
        f"event_time: {{expression: {CHECK}, unit: timestamp}}",
        "engine: spark",
        "watermark:",
        f"  delay: {CHECK if delay is None else format_duration(int(delay))}",
        f"  checkpoint: {quoted(str(folder))}",
        *([f"  source: {quoted(sources[0].id)}"] if len(sources) > 1 else []),
        *deduplicate,
        f"window: {window_text}",
        f"output_mode: {CHECK}  # append, update or complete",
        "aggregates:" + (f"  # the state has {one_line(', '.join(values))}" if values else ""),
        f"  n: {CHECK}",
    ]
    return Draft(name, "\n".join(lines) + "\n", tuple(remarks))
