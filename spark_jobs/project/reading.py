"""Read a few records of files, without Spark: JSON lines, CSV and Parquet, from any file system that fsspec knows."""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import fsspec
import pyarrow.parquet as pq
from pyarrow.lib import ArrowException

from spark_jobs.errors import SourceError
from spark_jobs.project.sample import Sample, ddl_of, json_object

_FORMATS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
_GLOB = set("*?[")
_SNIFFED = 64_000
"""Characters of a CSV file in which its delimiter is looked for."""


def read_files(path: str, limit: int) -> Sample:
    """At most `limit` records of the files at a path, folder or glob, in the order of the files' names.

    Raises SourceError where there is no file, its format is unknown, or it cannot be read.
    """
    system, _, files = _files(path)
    formats = {_format_of(file) for file in files} - {None}
    if len(formats) != 1:
        found = ", ".join(sorted(str(name) for name in formats)) or "none of these endings"
        hint = "Name files that end in .parquet, .csv, .jsonl, .ndjson or .json (with .gz, too), of one format."
        raise SourceError(f"the format of the files is not clear: {found}", path, hint)
    (file_format,) = formats
    files = [file for file in files if _format_of(file) == file_format]
    where = _pattern(path, system, files)
    what = f"{path}: {len(files)} {file_format} file{'s' if len(files) != 1 else ''}"
    try:
        if file_format == "parquet":
            return _parquet(system, files, limit, where, what)
        lines = _lines(system, files)
        if file_format == "json":
            return _json(lines, limit, where, what)
        return _csv(lines, limit, where, what)
    except (OSError, ValueError, ArrowException) as error:
        raise SourceError(f"the files cannot be read: {error}", path, "Name files that can be read.") from error


def _files(path: str) -> tuple[Any, str, list[str]]:
    """The file system, the path in it, and the files there, by name, without those that begin with . or _."""
    try:
        system, place = fsspec.core.url_to_fs(path)
        if _GLOB & set(place):
            found = [file for one in system.glob(place) for file in (system.find(one) if system.isdir(one) else [one])]
        elif system.isdir(place):
            found = system.find(place)
        else:
            found = [place] if system.exists(place) else []
        files = sorted(file for file in found if system.isfile(file))
    except (OSError, ValueError, ImportError) as error:
        raise SourceError(f"cannot be listed: {error}", path, "Check the path and the access to it.") from error
    files = [file for file in files if not PurePosixPath(file).name.startswith((".", "_"))]
    if not files:
        raise SourceError("no file is there", path, "Name a file, a folder or a glob such as data/*.jsonl.")
    return system, place, files


def _format_of(file: str) -> str | None:
    path = PurePosixPath(file)
    suffix = PurePosixPath(path.stem).suffix if path.suffix in (".gz", ".bz2", ".zst", ".snappy") else path.suffix
    return _FORMATS.get(suffix.lower())


def _pattern(path: str, system: Any, files: Sequence[str]) -> str:
    """The path for the definition: a folder with other files too becomes a glob."""
    if _GLOB & set(path) or (len(files) == 1 and path.rstrip("/").endswith(PurePosixPath(files[0]).name)):
        return path
    flat = all(PurePosixPath(file).parent == PurePosixPath(files[0]).parent for file in files)
    endings = {"".join(PurePosixPath(file).suffixes[-2:]) for file in files}
    nested = PurePosixPath(files[0]).parent.name != PurePosixPath(path.rstrip("/")).name
    return path if nested or not flat or len(endings) != 1 else f"{path.rstrip('/')}/*{endings.pop()}"


def _lines(system: Any, files: Sequence[str]) -> Iterator[Iterator[str]]:
    for file in files:
        with system.open(file, "rt", encoding="utf-8-sig", compression="infer", newline="") as opened:
            yield iter(opened)


def _json(files: Iterator[Iterator[str]], limit: int, path: str, what: str) -> Sample:
    lines = (line for file in files for line in file if line.strip())
    texts = list(itertools.islice(lines, limit))
    objects = [found for found in map(json_object, texts) if found is not None]
    if not objects:
        hint = "Each line must hold one JSON object. Rewrite the file that way, for example with `jq -c '.[]'`."
        raise SourceError("no line of the files is a JSON object", path, hint)
    return Sample(
        objects,
        f"{what}, {len(texts)} lines read",
        schema=ddl_of(objects),
        path=path,
        file_format="json",
        unreadable=len(texts) - len(objects),
    )


def _csv(files: Iterator[Iterator[str]], limit: int, path: str, what: str) -> Sample:
    first = next(files)
    text = "".join(itertools.islice(first, limit + 1))
    try:
        delimiter = csv.Sniffer().sniff(text[:_SNIFFED], ",;\t|").delimiter
    except csv.Error:
        delimiter = ","
    lines = [line for line in text.splitlines() if line.strip()]
    if delimiter == "|" and lines and "|" not in lines[0].replace("||", ""):
        delimiter = "||"
    rows = [cells for line in lines if (cells := _cells(line, delimiter)) is not None]
    named = [cell for cell in rows[0] if cell.strip()] if rows else []
    has_header = bool(named) and not any(map(_is_number, named))
    names = [cell.strip() for cell in rows[0]] if has_header else [f"c{number}" for number in range(len(rows[0]))]
    whole = [row for row in rows[has_header:] if len(row) == len(names)]
    # A column without a name, as pandas writes its index, and columns of one name cannot be used by it.
    times = Counter(name.lower() for name in names)
    columns = {
        name: _typed([row[index] or None for row in whole])
        for index, name in enumerate(names)
        if name and times[name.lower()] == 1
    }
    records = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if not records:
        raise SourceError("the files hold no record", path, "Name files with records.")
    options: dict[str, str | bool] = {"header": True} if has_header else {}
    if delimiter != ",":
        options["sep"] = delimiter
    return Sample(
        records,
        f"{what}, {len(lines) - has_header} lines read",
        schema=ddl_of(records),
        path=path,
        file_format="csv",
        options=options,
        unreadable=len(lines) - has_header - len(whole),
    )


def _cells(line: str, delimiter: str) -> list[str] | None:
    """The cells of one line by RFC 4180, as a run reads it; None where a quote is not closed."""
    single = delimiter if len(delimiter) == 1 else "\x1f"
    try:
        return next(csv.reader([line.replace(delimiter, single)], delimiter=single, strict=True), [])
    except csv.Error:
        return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _typed(values: Sequence[str | None]) -> list[Any]:
    """A column's texts as integers, numbers or booleans where all of them are."""
    there = [value for value in values if value is not None]
    for read in (int, float, _boolean):
        try:
            if all(str(value).strip() == value for value in there):
                return [None if value is None else read(value) for value in values]
        except ValueError:
            continue
    return list(values)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _parquet(system: Any, files: Sequence[str], limit: int, path: str, what: str) -> Sample:
    records: list[dict[str, Any]] = []
    for file in files:
        with system.open(file, "rb") as opened:
            for batch in pq.ParquetFile(opened).iter_batches(batch_size=limit):
                records += batch.to_pylist()[: limit - len(records)]
                if len(records) >= limit:
                    break
        if len(records) >= limit:
            break
    if not records:
        raise SourceError("the files hold no record", path, "Name files with records.")
    return decoded(records, f"{what}, {len(records)} records read", path=path, file_format="parquet")


def decoded(records: Sequence[Mapping[str, Any]], source: str, *, path: str = "", file_format: str = "") -> Sample:
    """Records with typed columns; a text column that holds a JSON object in every record is decoded."""
    for name in records[0]:
        values = [record[name] for record in records if record.get(name) is not None]
        objects = [json_object(value) for value in values]
        if values and all(found for found in objects):
            decoded = [{**record, **(json_object(record[name]) or {})} for record in records]
            for record in decoded:
                del record[name]
            return Sample(
                decoded,
                source,
                "json",
                name,
                ddl_of([found for found in objects if found]),
                path=path,
                file_format=file_format,
                log_columns=frozenset(records[0]) - {name},
            )
    return Sample(list(records), source, path=path, file_format=file_format)
