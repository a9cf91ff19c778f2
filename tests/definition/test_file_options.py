"""Options of a history of files: what has no effect is refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_jobs.definition.file_options import OBEYED, option_refusals


@pytest.mark.parametrize(
    ("file_format", "name", "hint"),
    [
        ("csv", "headers", "write `header`"),
        ("csv", "enforceSchema", "by the names in the header"),
        ("csv", "primitivesAsString", "leave it out, or write one of"),
        ("json", "timezon", "write `timeZone`"),
        ("json", "fs.s3a.endpoint", "leave it out"),
        ("parquet", "ignoreCorruptFiles", "records would be missing without a word"),
        ("parquet", "timeZone", "leave it out, or write one of"),
        ("orc", "mergeSchemas", "write `mergeSchema`"),
        ("avro", "avroSchemaURI", "write `avroSchemaUrl`"),
    ],
)
def test_an_option_without_an_effect_is_refused_by_name(file_format: str, name: str, hint: str) -> None:
    (refused,) = option_refusals(file_format, {name: "x"})
    assert refused.at == ("options", name)
    assert refused.what == f"has no effect on {file_format} files"
    assert hint in refused.hint


def test_names_are_in_any_case_and_hadoops_have_dots() -> None:
    for file_format, names in OBEYED.items():
        assert not list(option_refusals(file_format, {name.upper(): 1 for name in names}))
    assert not list(option_refusals("parquet", {"fs.s3a.endpoint": "x"}))


def test_the_page_lists_what_is_obeyed() -> None:
    page = (Path(__file__).parents[2] / "docs/sources.md").read_text()
    (of_all,) = re.findall(r"^\| all \| (`.*) \|$", page, re.MULTILINE)
    for file_format, names in OBEYED.items():
        rows = re.findall(rf"^\| {file_format} \| (`.*) \|$", page, re.MULTILINE)
        assert any(re.findall(r"`(\w+)`", f"{of_all}, {row}") == list(names) for row in rows), file_format
