"""The naive simulator agrees with everything that was recorded from Flink, and its own cases are up to date."""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.golden import make_generator_cases, naive, strategies

HERE = Path(__file__).parent
FLINK = HERE / "flink"
INDEX = json.loads((FLINK / "index.json").read_text(encoding="utf-8"))
FILES = [entry["file"] for entry in INDEX["cases"]]
RECORDED = {"expected": "2.3.0", "expected_flink_1_20_3": "1.20.3"}


def load(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def order_of_firings(streaming: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What of the order means something: the steps, and ascending (or the assigner's) ends within each."""
    return [(row[5], row[4], row[6], row[2]) for row in streaming["firings"]]


def test_the_recorded_cases_are_the_ones_of_the_index() -> None:
    assert len(FILES) == 106
    assert {path.name for path in FLINK.glob("*.json")} == {*FILES, "index.json"}
    for entry in INDEX["cases"]:
        assert hashlib.sha256((FLINK / entry["file"]).read_bytes()).hexdigest() == entry["sha256"], entry["file"]


@pytest.mark.parametrize("file", FILES)
def test_naive_gives_what_flink_gave(file: str) -> None:
    case = load(FLINK, file)
    for key, version in RECORDED.items():
        if key not in case:
            continue
        recorded = case[key]["streaming"]
        ours = naive.simulate(case, version)["streaming"]
        assert ours.keys() == recorded.keys()
        for part, value in naive.comparable(recorded).items():
            assert naive.comparable(ours)[part] == value, f"{part} of {version}"
        assert order_of_firings(ours) == order_of_firings(recorded)


@pytest.mark.parametrize("file", FILES)
def test_naive_gives_what_flink_gave_in_batch_mode(file: str) -> None:
    case = load(FLINK, file)
    recorded = case["expected"]["batch"]
    ours = naive.batch(case)
    assert sorted(ours["firings"]) == sorted(recorded["firings"])
    assert {**ours, "firings": []} == {**recorded, "firings": []}


def test_a_case_that_differs_on_older_flink_says_so() -> None:
    """The other recordings are the same on 1.20.3, and so are ours."""
    for file in FILES:
        case = load(FLINK, file)
        newer, older = (naive.simulate(case, version)["streaming"] for version in ("2.3.0", "1.20.3"))
        same = all(newer[part] == older[part] for part in older)
        assert same == ("expected_flink_1_20_3" not in case), file


def test_the_generator_cases_are_what_the_script_makes() -> None:
    present = {path.name: path.read_text(encoding="utf-8") for path in (HERE / "generators").glob("*.json")}
    made = make_generator_cases.files()
    assert present.keys() == made.keys()
    for name, text in made.items():
        assert present[name] == text, f"{name}: run python -m tests.golden.make_generator_cases"


def test_the_published_lag_table_comes_out() -> None:
    """Twelve events, out-of-orderness 4 in the lag convention: the last, 19, is behind the watermark 20."""
    case = load(HERE / "generators", "gen_lag_published_table.json")
    records = [naive.Record(index, row) for index, row in enumerate(case["records"])]
    watermark = case["config"]["watermark"]
    spoken = [naive.emitted(watermark, "per_event", records[: n + 1])[0] for n in range(len(records))]
    assert spoken == [3, 7, 7, 11, 11, 11, 13, 13, 17, 20, 20, 20]
    assert case["expected"]["streaming"]["late"] == [[11, 0, 11, 20]]


def test_the_simulator_imports_nothing_from_the_product() -> None:
    for name in ("naive.py", "custom_generators.py", "strategies.py", "make_generator_cases.py"):
        for node in ast.walk(ast.parse((HERE / name).read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            assert not any(module.split(".")[0] == "spark_jobs" for module in modules), name


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(strategies.cases(nulls=("drop", "fail"), sessions_forever=True))
def test_laws_that_hold_for_every_case(case: dict[str, Any]) -> None:
    for version in RECORDED.values():
        streaming = naive.simulate(case, version)["streaming"]
        watermarks = [w for _, w in streaming["watermark_before_rle"] if w is not None]
        assert watermarks == sorted(watermarks)
        emitted = [w for _, _, w in streaming.get("emissions", [])]
        assert emitted == sorted(set(emitted))

        records = {(row[0], row[1]): row for row in case["records"]}
        late = {(partition, offset) for _, partition, offset, _ in streaming["late"]}
        for row in streaming["firings"]:
            key, start, end, watermark, cause, elements = row[0], row[1], row[2], row[4], row[6], row[13]
            assert end - 1 <= watermark
            contents = list(zip(elements[::2], elements[1::2], strict=True))
            assert len(set(contents)) == row[8] == len(contents)
            assert not late & set(contents)
            for position in contents:
                record = records[position]
                assert record[3] == key
                assert start <= (naive.MIN if record[4] is None else record[4]) < end
            if cause == "E":
                last = case["records"][row[5] - 1]
                assert (last[0], last[1]) in contents
