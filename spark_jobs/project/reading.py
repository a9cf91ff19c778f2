"""Read a few records of files, without Spark: JSON lines, CSV, Parquet and ORC, wherever fsspec finds files."""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import fsspec
import pyarrow.parquet as pq
from pyarrow.lib import ArrowException
from pyarrow.orc import ORCFile

from spark_jobs.errors import SourceError
from spark_jobs.project.sample import Sample, ddl_of, json_object, nameable
from spark_jobs.sources.files.csv_text import CsvRules
from spark_jobs.sources.lake.table_folders import refuse_table_folders

_FORMATS = {
    ".parquet": "parquet", ".orc": "orc", ".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json",
    ".json": "json",
}  # fmt: skip
_AVRO = ".avro"
_GLOB = set("*?[")
_SNIFFED = 64_000
"""Characters of a CSV file in which its delimiter is looked for."""
_LINE_BREAK = re.compile(r"\r\n|[\r\n]")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_UTF_8_LETTER = re.compile(rb"[\xc3-\xf4][\x80-\xbf]")


def read_files(path: str, limit: int) -> Sample:
    """At most `limit` records of the files at a path, folder or glob, in the order of the files' names.

    Raises SourceError where there is no file, its format is unknown, or it cannot be read.
    """
    system, place, files = _files(path)
    formats = {_format_of(file) for file in files} - {None}
    if len(formats) != 1:
        found = ", ".join(sorted(str(name) for name in formats)) or "none of these endings"
        hint = "Name files that end in .parquet, .orc, .avro, .csv, .jsonl, .ndjson or .json (.gz, too), of one format."
        raise SourceError(f"the format of the files is not clear: {found}", path, hint)
    (file_format,) = formats
    files = [file for file in files if _format_of(file) == file_format]
    where = _pattern(path, system, files)
    what = f"{path}: {len(files)} {file_format} file{'s' if len(files) != 1 else ''}"
    try:
        if file_format in ("parquet", "orc"):
            batches = _parquet_batch if file_format == "parquet" else _orc_batch
            return _containers(system, files, _literal_folder(place), limit, where, what, file_format, batches)
        heads = _heads(system, files, _literal_folder(place), limit)
        return (_json if file_format == "json" else _csv)(heads, limit, where, what)
    except (OSError, ValueError, ArrowException) as error:
        raise SourceError(f"the files cannot be read: {error}", path, "Name files that can be read.") from error


def _files(path: str) -> tuple[Any, str, list[str]]:
    """The file system, the path in it, and the files there, by name, without those that a run leaves out."""
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
    refuse_table_folders(files)
    base = _literal_folder(place)
    files = [file for file in files if not _is_hidden(file.removeprefix(base) or PurePosixPath(file).name)]
    if not files:
        raise SourceError("no file is there", path, "Name a file, a folder or a glob such as data/*.jsonl.")
    return system, place, files


def _is_hidden(file: str) -> bool:
    """Whether a file, or a folder above it, is one that Spark leaves out: an unfinished write, mostly."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in PurePosixPath(file).parts)


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


@dataclass(frozen=True, slots=True)
class _Heads:
    """The first lines of files as text, each with the columns that its folders `k=v` give."""

    texts: Sequence[tuple[dict[str, str], str]]
    options: Mapping[str, str | bool]
    checks: tuple[str, ...]


def _heads(system: Any, files: Sequence[str], base: str, limit: int) -> _Heads:
    """At most so many lines of all files, in their order; of files in folders `k=v` each has its share.

    Raises SourceError for an encoding whose lines cannot be told apart before they are decoded.
    """
    folders = [_folders_of(file, base) for file in files]
    share = max(2, limit // len(files)) if any(folders) else limit
    heads: list[tuple[dict[str, str], bytes]] = []
    left = limit
    for file, columns in zip(files, folders, strict=True):
        with system.open(file, "rb", compression="infer") as opened:
            lines = list(itertools.islice(opened, min(share, left) + 1))
        if lines and (lines[0][:2] in _UTF_16 or b"\0" in lines[0][:4]):
            hint = "Convert them, for example with `iconv -f UTF-16 -t UTF-8`."
            raise SourceError("the files look like UTF-16, which cannot be read line by line", file, hint)
        heads.append((columns, b"".join(lines)))
        left -= len(lines)
        if left <= 0:
            break
    encoding = _encoding_of(b"".join(head for _, head in heads))
    texts = [(columns, head.decode(encoding, "replace").removeprefix("\ufeff")) for columns, head in heads]
    if encoding == "utf-8":
        return _Heads(texts, {}, ())
    check = f"the files are not UTF-8; that they are {encoding} is a guess"
    return _Heads(texts, {"encoding": encoding}, (check,))


def _folders_of(file: str, base: str) -> dict[str, str]:
    """The columns that Spark makes of the folders named `k=v` between the path that was given and the file."""
    parts = PurePosixPath(file.removeprefix(base)).parts[:-1]
    return {name: unquote(value) for name, is_named, value in (part.partition("=") for part in parts) if is_named}


def _literal_folder(place: str) -> str:
    """The part of a path before its first wildcard."""
    wild = next((index for index, letter in enumerate(place) if letter in _GLOB), len(place))
    return place[:wild].rpartition("/")[0] if wild < len(place) else place


def _encoding_of(data: bytes) -> str:
    """UTF-8, unless bytes are no text in it and none are letters beyond ASCII."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        if not _UTF_8_LETTER.search(data):
            return "windows-1252"
    return "utf-8"


def _json(heads: _Heads, limit: int, path: str, what: str) -> Sample:
    lines = [(columns, line) for columns, text in heads.texts for line in _LINE_BREAK.split(text) if line.strip()]
    lines = lines[:limit]
    read = [(columns, found) for columns, line in lines if (found := json_object(line)) is not None]
    objects, twins = nameable([found for _, found in read])
    if not objects:
        hint = "Each line must hold one JSON object. Rewrite the file that way, for example with `jq -c '.[]'`."
        raise SourceError("no line of the files is a JSON object", path, hint)
    return Sample(
        [{**found, **columns} for (columns, _), found in zip(read, objects, strict=True)],
        f"{what}, {len(lines)} lines read",
        schema=ddl_of(objects),
        path=path,
        file_format="json",
        options=heads.options,
        unreadable=len(lines) - len(objects),
        checks=(*heads.checks, *twins),
    )


def _csv(heads: _Heads, limit: int, path: str, what: str) -> Sample:
    first = heads.texts[0][1]
    try:
        delimiter = csv.Sniffer().sniff(first[:_SNIFFED], ",;\t|").delimiter
    except csv.Error:
        delimiter = ","
    start = _LINE_BREAK.split(first.lstrip(), maxsplit=1)[0]
    if re.fullmatch(r"sep=.", start):
        hint = "Remove it from each file, for example with `sed -i 1d`."
        raise SourceError(f"the first line is Excel's `{start}`, which is no header", path, hint)
    if delimiter == "|" and "|" not in start.replace("||", ""):
        delimiter = "||"
    rules = CsvRules(delimiter)
    texts = [(columns, _records(rules, text)) for columns, text in heads.texts]
    head = next((_cells(records[0], delimiter) for _, records in texts if records), None) or []
    named = [cell for cell in head if cell.strip()]
    has_header = bool(named) and not any(map(_is_number, named))
    names = [cell.strip() for cell in head] if has_header else [f"c{number}" for number in range(len(head))]
    read = [(columns, _cells(record, delimiter)) for columns, records in texts for record in records[has_header:]]
    read = read[:limit]
    whole = [(columns, row) for columns, row in read if row is not None and len(row) == len(names)]
    # A column without a name, as pandas writes its index, and columns of one name cannot be used by it.
    times = Counter(name.lower() for name in names)
    values = {
        name: _typed([row[index] or None for _, row in whole])
        for index, name in enumerate(names)
        if name and times[name.lower()] == 1
    }
    records = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    if not records:
        raise SourceError("the files hold no record", path, "Name files with records.")
    options: dict[str, str | bool] = {"header": True} if has_header else {}
    if delimiter != ",":
        options["sep"] = delimiter
    if any(_LINE_BREAK.search(record) for _, records in texts for record in records):
        options["multiLine"] = True
    return Sample(
        [{**record, **columns} for record, (columns, _) in zip(records, whole, strict=True)],
        f"{what}, {len(read)} lines read",
        schema=ddl_of(records),
        path=path,
        file_format="csv",
        options={**options, **heads.options},
        unreadable=len(read) - len(whole),
        checks=heads.checks,
    )


def _records(rules: CsvRules, text: str) -> list[str]:
    """The records of a text, cut as a run cuts them."""
    return [record for record in re.findall(rules.records(), text) if record.strip()]


def _cells(record: str, delimiter: str) -> list[str] | None:
    """The cells of one record by RFC 4180, as a run reads it; None where a quote is not closed."""
    single = delimiter if len(delimiter) == 1 else "\x1f"
    try:
        rows = list(csv.reader([record.replace(delimiter, single)], delimiter=single, strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


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


def avro_files(path: str) -> str | None:
    """The path for the definition where Avro container files lie at a path; None where others do.

    Raises SourceError where no file is there.
    """
    system, _, files = _files(path)
    return _pattern(path, system, files) if all(file.endswith(_AVRO) for file in files) else None


def _parquet_batch(opened: Any, limit: int) -> list[dict[str, Any]]:
    batch = next(pq.ParquetFile(opened).iter_batches(batch_size=limit), None)
    return [] if batch is None else batch.to_pylist()


def _orc_batch(opened: Any, limit: int) -> list[dict[str, Any]]:
    file = ORCFile(opened)
    return file.read_stripe(0).slice(0, limit).to_pylist() if file.nstripes else []


def _containers(
    system: Any,
    files: Sequence[str],
    base: str,
    limit: int,
    path: str,
    what: str,
    file_format: str,
    head: Callable[[Any, int], list[dict[str, Any]]],
) -> Sample:
    records: list[dict[str, Any]] = []
    folders = [_folders_of(file, base) for file in files]
    share = max(2, limit // len(files)) if any(folders) else limit
    for file, columns in zip(files, folders, strict=True):
        with system.open(file, "rb") as opened:
            found = head(opened, min(share, limit - len(records)))
        records += [{**record, **columns} for record in found]
        if len(records) >= limit:
            break
    if not records:
        raise SourceError("the files hold no record", path, "Name files with records.")
    return decoded(records, f"{what}, {len(records)} records read", path=path, file_format=file_format)


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
