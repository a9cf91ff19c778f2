"""The sequential operator against recorded cases, and the command that runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_jobs.errors import DefinitionError
from tests.conformance.case import Case, load_cases
from tests.conformance.compare import first_difference
from tests.conformance.formats import run_cases
from tests.conformance.sequential import run_sequential

GOLDEN = Path("tests/golden")
CASES = [*load_cases(GOLDEN / "flink"), *load_cases(GOLDEN / "generators")]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_sequential_operator_does_everything_that_the_case_records(path: Path) -> None:
    case = Case.read(path)
    for version, strategy, expected in case.expectations:
        difference = first_difference(case, expected, run_sequential(case, strategy), set_based=False)
        assert difference is None, f"Flink {version}: {difference}"


def changed_copy(folder: Path, change) -> Path:
    document = json.loads((GOLDEN / "flink" / "sem_refire_per_late_element.json").read_text())
    change(document["expected"]["streaming"])
    (folder / "case.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e["firings"].pop(),
        lambda e: e["firings"].append(e["firings"][-1]),
        lambda e: e["firings"][0].__setitem__(9, e["firings"][0][9] + 1),
        lambda e: e["late"].append([0, 0, 0, None]),
        lambda e: e["watermark_before_rle"].pop(),
        lambda e: e.__setitem__("final_watermark", 1),
        lambda e: e.__setitem__("error", {"class": "x", "message": "y", "at": 1}),
    ],
)
def test_a_case_that_says_something_else_fails_with_one_line(tmp_path: Path, change) -> None:
    lines: list[str] = []
    assert run_cases(changed_copy(tmp_path, change), "sequential", verbose=False, say=lines.append) == (0, 1)
    assert len(lines) == 1
    assert lines[0].startswith("FAIL case.json: Flink 2.3.0: ")


def test_a_folder_without_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="no case files found"):
        load_cases(tmp_path)


def test_a_file_of_another_format_fails_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    lines: list[str] = []
    assert run_cases(tmp_path, "sequential", verbose=False, say=lines.append) == (0, 1)
    assert "not a case of the formats flink-oracle-case/1" in lines[0]


def test_a_file_of_an_unknown_format_fails_with_the_format_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"format": "beam-oracle-case/9"}')
    lines: list[str] = []
    assert run_cases(tmp_path, "sequential", verbose=False, say=lines.append) == (0, 1)
    assert "but of 'beam-oracle-case/9'" in lines[0]
