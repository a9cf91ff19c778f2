"""Documents and docstrings that lead a reader name files that exist; tests import only what may be shared."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "spark_jobs"
FOLDERS = sorted(file.parent.name for file in PACKAGE.glob("*/__init__.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def names_in_readme_map() -> list[str]:
    """The folders of `spark_jobs` as the map in README.md lists them."""
    map_of_folders = (ROOT / "README.md").read_text().partition("    spark_jobs/ ")[2].partition("    dags/  ")[0]
    return re.findall(r"^ {6}(\w+)/ ", map_of_folders, re.MULTILINE)


def test_the_map_in_the_readme_lists_the_folders_of_the_package() -> None:
    assert sorted(names_in_readme_map()) == FOLDERS


def test_the_architecture_page_lists_the_folders_of_the_package() -> None:
    folders = (ROOT / "docs/architecture.md").read_text().partition("## Folders")[2].partition("\n## ")[0]
    first_cells = [line.split("|")[1] for line in folders.splitlines() if line.startswith("| `")]
    assert sorted(name for cell in first_cells for name in re.findall(r"`(\w+)/`", cell)) == FOLDERS


def paths_in_architecture() -> list[str]:
    """Every link, and every word in backticks that has a slash or ends as a file does."""
    text = (ROOT / "docs/architecture.md").read_text()
    links = [f"docs/{target}" for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    words = re.findall(r"`([\w./-]+)`", text)
    return sorted({*links, *(word for word in words if "/" in word or word.endswith((".py", ".md")))})


@pytest.mark.parametrize("path", paths_in_architecture())
def test_a_path_that_the_architecture_page_names_exists(path: str) -> None:
    assert (ROOT / path).exists() or (PACKAGE / path).exists()


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_says_what_it_holds_what_it_may_import_and_where_to_begin(folder: str) -> None:
    text = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text())) or ""
    assert re.search(r"\bimport", text)
    begin = re.search(r"Begin\s+with\s+`([\w./]+)`", text)
    assert begin, "the docstring names no file to begin with"
    assert (PACKAGE / folder / begin[1]).is_file()


def imports_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The module and the name of each `from module import name`, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.mark.parametrize("file", TESTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_tests_import_no_private_name_and_no_test_module(file: Path) -> None:
    """What tests share lies in a module that holds no tests, such as `tests/kafka.py`."""
    imported = list(imports_of(ast.parse(file.read_text())))
    private = [f"{module}.{name}" for module, name in imported if is_private(name) or "._" in module]
    assert private == []
    shared = [f"{module}.{name}" for module, name in imported if is_test(module.rpartition(".")[2]) or is_test(name)]
    assert shared == []


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_test(module: str) -> bool:
    return module.startswith("test_")
