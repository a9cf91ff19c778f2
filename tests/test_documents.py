"""Documents and docstrings that lead a reader name files that exist; tests import only what may be shared."""

from __future__ import annotations

import ast
import io
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from spark_jobs import __version__, errors
from spark_jobs.definition import load_pipeline
from spark_jobs.lakehouse.verdict import Verdict
from tests.tools import commands_page, drawings, fields_page, matrix
from tests.tools.site_links import on_page_markdown
from tests.walk.known import KNOWN

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "spark_jobs"
FOLDERS = sorted(file.parent.name for file in PACKAGE.glob("*/__init__.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
"""README and the pages under `docs/`."""


def id_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_map_of_the_top_folders_names_those_that_exist() -> None:
    text = (ROOT / "docs/contributing.md").read_text().partition("## The folders")[2].partition("\n## ")[0]
    named = re.findall(r"^ {4}(\w+)/ ", text, re.MULTILINE)
    folders = {file.parts[0] for file in map(Path, tracked_files()) if len(file.parts) > 1}
    assert sorted(named) == sorted(name for name in folders if not name.startswith("."))


def test_the_tests_and_walks_that_hold_what_lies_between_runs_exist() -> None:
    text = (ROOT / "docs/contributing.md").read_text().partition("What can go wrong between runs")[2]
    table = text.partition("\n\nWhere ")[0]
    walks = {name.partition(": ")[2] for name in KNOWN}
    named = set(re.findall(r'"([^"]+)"', table))
    assert named and sorted(named - walks) == []
    assert [file for file in re.findall(r"`([a-z_/]+\.py)`", table) if not (ROOT / "tests" / file).exists()] == []


def tracked_files() -> list[str]:
    return subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()


def test_make_clean_removes_what_git_ignores() -> None:
    ignored = [line for line in (ROOT / ".gitignore").read_text().split("\n") if line and not line.startswith("#")]
    removed = subprocess.check_output(["make", "--dry-run", "clean"], cwd=ROOT, text=True).split()
    assert [name for name in ignored if name.rstrip("/") not in removed] == []


def test_the_readme_is_short_and_has_a_picture() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) < 900
    assert "](docs/pictures/" in text


def test_who_has_another_engine_does_not_leave_at_the_first_sentence() -> None:
    (first,) = re.findall(r"^\*\*(.*?)\*\*", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (asked,) = re.findall(r"^\*\*My live job is [^*]*\*\*.*?\n\n", (ROOT / "docs/faq.md").read_text(), re.DOTALL | re.M)
    for engine in ("Flink", "Structured Streaming", "Kafka Streams"):
        assert engine in first and (engine in asked or engine == "Flink")
    assert "Both are replayed" in asked


NOT_UNDERSTOOD = (
    "had published a window of its time", "seconds read as milliseconds do", "sum only of what adds up over windows",
    "by inversion, set by set", "stands for all that readers see", "fired their windows again. At most a fifth",
    "with what they did", "load this page again", "in spite of a closed gate too",
    "put right by a real Airflow", "both, in one aggregation",
)  # fmt: skip
"""What people who had not written the program did not understand in pages and messages."""


def test_no_sentence_that_was_not_understood_comes_back() -> None:
    files = [*(ROOT / "spark_jobs").rglob("*.py"), *(ROOT / "spark_jobs").rglob("*.j2"), *PAGES]
    texts = {file: " ".join(file.read_text().split()).replace('" "', "") for file in files}
    assert [(file.name, said) for file, text in texts.items() for said in NOT_UNDERSTOOD if said in text] == []


def test_the_readme_names_the_demo_and_the_tests_side_by_side_and_ci_runs_the_tests_so() -> None:
    tried = (ROOT / "README.md").read_text().partition("## Try it")[2].partition("\n## ")[0]
    assert re.search(r"^make demo .*minutes\)\nmake test .*minutes\)$", tried, re.MULTILINE)
    assert re.search(r"^make test\b", (ROOT / ".ci/run").read_text(), re.MULTILINE)


def test_the_definition_in_the_readme_is_valid() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(text.splitlines()) <= 10
    assert load_pipeline("orders_hourly.yaml", text=text).name == "orders_hourly"


@pytest.mark.parametrize("page", [page for page in PAGES if "```yaml" in page.read_text()], ids=id_of)
def test_the_fields_in_the_yaml_of_a_page_fit_a_definition(page: Path) -> None:
    """Each block is taken into the definition of the README; on the page of the live job it has a section `live`."""
    yaml = YAML(typ="safe")
    base = yaml.load(blocks(ROOT / "README.md", "yaml")[0])
    if page.stem == "three-truths":
        base["live"] = yaml.load(ROOT / "dags/pipelines/departures_live.yaml")["live"]
    for block in blocks(page, "yaml"):
        whole, parts = io.StringIO(), yaml.load(block)
        is_union = parts.get("history", {}).get("kind") == "union"  # its inputs have these sections
        of_each = ("value", "keys", "event_time", "watermark") if is_union else ()
        yaml.dump({name: section for name, section in base.items() if name not in of_each} | parts, whole)
        assert load_pipeline("orders_hourly.yaml", text=whole.getvalue()).name == "orders_hourly"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


TRIED = {
    "yaml": "test_documents.py::test_the_fields_in_the_yaml_of_a_page_fit_a_definition",
    "README.md console": "project/test_pages.py::test_the_readme_and_the_pages_of_tables_and_reports",
    "airflow.md json": "orchestration/test_notify.py::test_the_notifiers_of_the_page_are_read",
    "airflow.md python": "orchestration/test_dags.py::test_each_pipeline_has_its_five_dags",
    "contributing.md console": "test_documents.py::test_commands_that_a_page_shows_exist",
    "flink.md console": "project/test_flink_import.py::test_the_command_of_the_page",
    "gate.md console": "quality/test_commands.py::test_the_commands_of_the_page",
    "gate.md json": "quality/test_suites.py::test_the_suite_of_the_page_can_be_checked",
    "how-to.md console": "project/test_tutorial.py::test_the_short_ways_go_on_where_the_tutorial_ends",
    "how-to.md python": "project/test_tutorial.py::test_the_short_ways_go_on_where_the_tutorial_ends",
    "operations.md bash": "operations/test_backup.py::test_a_restored_copy_goes_on_with_what_has_arrived_since",
    "operations.md sql": "operations/test_backup.py::test_a_restored_copy_goes_on_with_what_has_arrived_since",
    "report.md console": "project/test_pages.py::test_the_readme_and_the_pages_of_tables_and_reports",
    "semantics.md console": "conformance/test_command.py::test_it_closes_with_the_counts_and_fails_when_a_case_fails",
    "structured-streaming.md console": "project/test_tutorial.py::test_the_page_of_a_structured_streaming_query",
    "structured-streaming.md python": "project/test_tutorial.py::test_the_page_of_a_structured_streaming_query",
    "tables.md python": "project/test_pages.py::test_the_readme_and_the_pages_of_tables_and_reports",
    "tables.md sql": "project/test_pages.py::test_the_readme_and_the_pages_of_tables_and_reports",
    "tutorial.md console": "project/test_tutorial.py::test_the_commands_of_the_page",
    "tutorial.md python": "project/test_tutorial.py::test_the_commands_of_the_page",
}
"""The test (below `tests/`) that runs or reads the code blocks of a page in a language."""


def test_every_code_block_of_a_page_is_tried_by_a_test() -> None:
    found = {
        f"{page.name} {language}"
        for page in PAGES
        for language in re.findall(r"^ *```(\w+)$", page.read_text(), re.MULTILINE)
        if language not in ("text", "yaml")
    }
    assert found == TRIED.keys() - {"yaml"}
    for test in TRIED.values():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text()


def test_the_figures_of_the_readme_and_of_the_page_on_scale_are_those_that_were_measured() -> None:
    """Each duration, ratio and count of a measurement is on the page of benchmarks, as it stands there."""
    measured = (ROOT / "docs/benchmarks.md").read_text()
    (readme,) = re.findall(r"^20M records take (\S+) s on 2 cores, (\S+) times", (ROOT / "README.md").read_text(), re.M)
    assert f"| {readme[0]}.0 s |" in measured and f"| {readme[1]} |" in measured
    table = (ROOT / "docs/scale.md").read_text().partition("## Chunks")[0].replace("1,000,000", "")
    figures = re.findall(r"\b\d[\d.]* s\b|\b\d+\.\d+\b(?! s)|\d[\d.]*M\b|\d[\d.]* [GM]iB|\d+,\d{3}", table)
    assert len(figures) > 15
    assert [one for one in figures if one.removesuffix(" s") not in measured] == []
    for page in (ROOT / "README.md", ROOT / "docs/semantics.md"):
        assert str(len(list((ROOT / "tests/golden/flink").glob("[ds]*.json")))) in page.read_text()


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_links_and_pictures_of_a_page_exist(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text()))
    missing = []
    for target in (target for target in targets if "://" not in target):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            missing.append(target)
    assert missing == []


def test_the_index_names_every_page() -> None:
    named = set(re.findall(r"\]\((\w[\w-]*\.md)\)", (ROOT / "docs/index.md").read_text()))
    assert named == {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}


def test_the_site_has_every_page_and_links_only_to_them() -> None:
    nav = YAML(typ="safe").load(ROOT / "mkdocs.yml")["nav"]
    pages = [page for entry in nav for page in ([entry] if isinstance(entry, str) else next(iter(entry.values())))]
    assert sorted(pages) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))
    text = "[the file](../dags/a.yaml), [`dags/a.yaml`](../dags/a.yaml#x), [here](b.md), ![p](pictures/p.png)"
    assert on_page_markdown(text) == "the file (`dags/a.yaml`), `dags/a.yaml`, [here](b.md), ![p](pictures/p.png)"


def test_version_and_changelog_agree_and_the_tried_versions_are_documented() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert sections[0] == "Unreleased"
    released = [re.fullmatch(r"(\d+\.\d+\.\d+) \(\d{4}-\d{2}-\d{2}\)", section) for section in sections[1:]]
    assert [found[1] for found in released if found] == [section.split()[0] for section in sections[1:]]
    newest = sections[1].split()[0] if len(sections) > 1 else re.findall(r"\*\*(\d+\.\d+\.\d+)\*\*", text)[0]
    assert newest == __version__
    versions = (ROOT / "docs/airflow.md").read_text().partition("### Versions")[2].partition("\n### ")[0]
    for one in matrix.COMBINATIONS:
        for version in (one.python, one.airflow, one.spark):
            assert version in versions


@pytest.mark.parametrize("name", drawings.DRAWINGS)
def test_a_drawing_is_the_one_that_the_core_draws(name: str) -> None:
    renew = "run `python -m tests.tools.drawings`"
    file = ROOT / drawings.FOLDER / f"{name}.svg"
    assert file.read_text(encoding="utf-8") == drawings.DRAWINGS[name]().svg(), renew


def test_each_drawing_is_shown_by_a_page() -> None:
    shown = {name for page in PAGES for name in re.findall(r"]\(drawings/([\w-]+)\.svg\)", page.read_text())}
    assert shown == {file.stem for file in (ROOT / drawings.FOLDER).glob("*.svg")}


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_commands_that_a_page_shows_exist(page: Path) -> None:
    """The command, its options, the target: in blocks and in backticks, behind `rewindow` or `make`."""
    known = dict(commands_page.commands())
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(r"^ {4}(rewindow .*)$|`((?:rewindow|make)\s[^`]+)`", text, re.MULTILINE)
    for line in [*"".join(blocks(page, "console")).replace("\\\n", " ").splitlines(), *map("".join, lines)]:
        words = line.partition(" #")[0].split()
        while words and re.fullmatch(r"\$|\w+=\S*", words[0]):
            words = words[1:]
        if words and words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= set(targets), line
        if not words or not words[0].endswith("rewindow") or not words[1][0].islower():
            continue
        name = next((name for name in (" ".join(words[1:3]), " ".join(words[1:2])) if name in known), None)
        assert name, line
        names = {option for parameter in known[name].params for option in parameter.opts + parameter.secondary_opts}
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= names | {"--debug", "--help"}, line


def test_the_page_of_commands_is_the_one_that_the_command_line_generates() -> None:
    renew = "run `python -m tests.tools.commands_page`"
    assert (ROOT / commands_page.PAGE).read_text(encoding="utf-8") == commands_page.commands_page(), renew


def test_the_reference_of_fields_and_the_schema_are_those_that_the_models_generate() -> None:
    renew = "run `python -m tests.tools.fields_page`"
    assert (ROOT / fields_page.PAGE).read_text(encoding="utf-8") == fields_page.fields_page(), renew
    assert (ROOT / fields_page.SCHEMA).read_text(encoding="utf-8") == fields_page.schema_text(), renew


def test_each_field_in_the_reference_has_a_meaning_and_an_example() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \| (.*) \|$", fields_page.fields_page(), re.MULTILINE)
    assert len(rows) > 100
    assert [name for name, meaning, example in rows if not meaning or not example.startswith(f"`{name}: ")] == []


@pytest.mark.parametrize("file", sorted((ROOT / "dags/pipelines").glob("*.yaml")), ids=lambda file: file.stem)
def test_a_sample_tells_editors_where_the_schema_lies(file: Path) -> None:
    (schema,) = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", file.read_text(), re.MULTILINE)
    assert (file.parent / schema).resolve() == ROOT / fields_page.SCHEMA


def test_the_page_on_the_three_truths_gives_each_verdict_the_sentence_that_command_line_and_report_print() -> None:
    rows = re.findall(r"\| `(\w+)` \| (.+) \|$", (ROOT / "docs/three-truths.md").read_text(), re.MULTILINE)
    assert dict(rows).items() >= {verdict.value: verdict.meaning for verdict in Verdict}.items()


def test_the_exit_code_of_each_error_is_documented() -> None:
    codes = {
        error.exit_code for error in vars(errors).values() if isinstance(error, type) and hasattr(error, "exit_code")
    }
    assert codes <= commands_page.EXIT_CODES.keys()


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


def test_a_docstring_can_be_read_alone() -> None:
    """None begins with a word that points at another docstring."""
    leaning = re.compile(r'"""(The same|Those of|That of)\b')
    found = [f"{file}: {line.strip()}" for file in sorted((ROOT / "spark_jobs").rglob("*.py"))
             for line in file.read_text().splitlines() if leaning.search(line)]  # fmt: skip
    assert found == []


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


def test_each_line_of_the_trust_model_is_held_by_tests_that_exist() -> None:
    text = (ROOT / "docs/security.md").read_text().partition("## Who can reach what")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")][2:]
    assert len(lines) > 25
    for line in lines:
        _, who, what, can, held, _ = (cell.strip() for cell in line.split("|"))
        tests = re.findall(r"`([\w/]+\.py)::(\w+)`", held)
        assert who and what and can in ("yes", "no") and tests, line
        assert held == ", ".join(f"`{file}::{name}`" for file, name in tests)
        missing = [one for one in tests if f"\ndef {one[1]}(" not in (ROOT / "tests" / one[0]).read_text()]
        assert missing == []


def test_each_line_on_what_pages_and_messages_say_is_held_by_tests_that_exist() -> None:
    text = (ROOT / "docs/contributing.md").read_text().partition("### What pages and messages say")[2]
    lines = [line for line in text.partition("\n##")[0].splitlines() if line.startswith("| ")][1:]
    assert len(lines) > 25
    for line in lines:
        _, said, held, _ = (cell.strip() for cell in line.split("|"))
        tests = re.findall(r"`([\w/]+\.py)::(\w+)`", held)
        assert said and tests and held == ", ".join(f"`{file}::{name}`" for file, name in tests), line
        assert [one for one in tests if f"def {one[1]}(" not in (ROOT / "tests" / one[0]).read_text()] == []
