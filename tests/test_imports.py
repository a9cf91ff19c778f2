"""What each folder may import (the contracts of pyproject.toml), and which kinds it may distinguish."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest

from spark_jobs.definition.engines import PACKAGES

ROOT = Path(__file__).parents[1]
PRODUCT = ROOT / "spark_jobs"
SWITCH_ON_HISTORY = re.compile(
    r"(isinstance\(.*|case )(Files|Hive|Table|Kafka|Stitched)History\b|history\.kind\b [=!i]"
)


def test_folders_import_only_what_their_contracts_allow() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_two_modules_distinguish_the_kinds_of_history() -> None:
    """The sources open a history, and lineage names it without opening it."""
    switching = {
        path.relative_to(PRODUCT).as_posix()
        for path in PRODUCT.rglob("*.py")
        if "definition" not in path.parts
        and any(SWITCH_ON_HISTORY.search(line) for line in path.read_text().splitlines())
    }
    assert switching == {"sources/history.py", "orchestration/lineage.py"}


def test_a_module_that_is_run_begins_when_all_of_it_is_defined() -> None:
    begins = {path: ast.parse(path.read_text()).body for path in PRODUCT.rglob("*.py")}
    guards = {path: [n for n, node in enumerate(body) if _is_guard(node)] for path, body in begins.items()}
    assert any(guards.values())
    assert [path for path, found in guards.items() if found and found != [len(begins[path]) - 1]] == []


def _is_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


ENGINE_FOLDERS = {"flink", "spark", "kafka_streams"}


def _names(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr


def _asks_which_engine(node: ast.AST, engines: Collection[str], kinds: Collection[str]) -> bool:
    """Whether the code compares an engine's name, or asks for the class of something that one engine has."""
    match node:
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Name("PACKAGES")]):
            return False  # whether there is such an engine at all
        case ast.Compare():
            sides = [node.left, *node.comparators]
            texts = {one.value for side in sides for one in ast.walk(side) if isinstance(one, ast.Constant)}
            return bool({"engine", "engine_name"} & {name for side in sides for name in _names(side)}) or bool(
                texts & {*engines}
            )
        case ast.Match():
            return "engine" in _names(node.subject)
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, asked]):
            return bool({*_names(asked)} & {*kinds})
        case ast.MatchClass():
            return bool({*_names(node.cls)} & {*kinds})
    return False


def _is_of_an_engine(path: Path) -> bool:
    """A file in an engine's own folder, or the file of its name; Spark's session and its errors have `spark` too."""
    place = path.relative_to(PRODUCT).parts
    return any(part.removesuffix(".py") in ENGINE_FOLDERS for part in place[1:])


def _classes(paths: Iterable[Path]) -> set[str]:
    trees = (ast.parse(path.read_text()) for path in paths)
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def places_that_ask(paths: Iterable[Path]) -> list[str]:
    """The places outside the engines' own files that ask which engine a live job has."""
    product = [path for path in PRODUCT.rglob("*.py") if path.relative_to(PRODUCT).parts[0] != "eventtime"]
    own = [path for path in product if _is_of_an_engine(path)]
    kinds = _classes(own) - _classes(path for path in product if path not in own)
    return [
        f"{path.name}:{getattr(node, 'lineno', 0)}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if _asks_which_engine(node, PACKAGES, kinds)
    ]


def test_no_module_outside_the_engines_own_asks_which_engine_it_is() -> None:
    assert places_that_ask(path for path in PRODUCT.rglob("*.py") if not _is_of_an_engine(path)) == []


@pytest.mark.parametrize(
    "planted",
    [
        "x = pipeline.engine is Engine.SPARK",
        "x = pipeline.engine == other",
        'x = raw.get("engine") == "kafka_streams"',
        'x = name in ("flink", "spark")',
        "x = isinstance(spec.rules, StructuredStreamingRules)",
        "x = isinstance(pipeline.watermark, (str, StreamsWatermark))",
        "match spec.rules:\n    case KafkaStreamsRules():\n        pass",
        "match pipeline.engine:\n    case other:\n        pass",
    ],
)
def test_a_module_that_asks_is_found(tmp_path: Path, planted: str) -> None:
    path = tmp_path / "planted.py"
    path.write_text(planted)
    assert places_that_ask([path]) != []


def test_runs_do_not_know_that_a_query_reads_in_batches() -> None:
    """What a live job records of its reading is input of a run: `spark_jobs.engines`."""
    files = (PRODUCT / "runs").rglob("*.py")
    assert [path.name for path in files if "batch" in path.read_text().lower()] == []
