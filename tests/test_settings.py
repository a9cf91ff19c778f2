"""Settings: types, defaults, refusals, the page that documents them, and that nothing else reads the variables."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.settings import Settings, Variable, cache_folder, project_folder, settings
from spark_jobs.spark.session import rewindow_home
from spark_jobs.spark.warm import runtime_folder
from tests.tools.settings_page import PAGE, settings_page

ROOT = Path(__file__).parents[1]
OWNER = ROOT / "spark_jobs/settings.py"
OF_THE_SAMPLE_PIPELINES = {"REWINDOW_KAFKA", "REWINDOW_SAMPLE", "REWINDOW_STREAMING"}
"""Variables of the user's, which sample pipelines name, as `${REWINDOW_KAFKA}`."""


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in Variable:
        monkeypatch.delenv(variable, raising=False)


def test_defaults() -> None:
    found = settings()
    assert found.home == Path.cwd() / ".rewindow"
    assert found.run_store == str(Path.cwd() / ".rewindow" / "runs")
    assert (found.driver_memory, found.pool, found.parallel_chunks) == ("4g", "default_pool", 2)
    assert found.spark_connection == "spark_default"
    assert not found.spark_ui
    assert found.catalog_conf is found.metastore is found.notifiers is None


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    unset = settings()
    for variable in Variable:
        monkeypatch.setenv(variable, "")
    assert settings() == unset


def test_a_change_of_the_environment_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings().pool == "default_pool"
    monkeypatch.setenv("REWINDOW_POOL", "spark")
    assert settings().pool == "spark"


def test_the_home_is_absolute_and_holds_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWINDOW_HOME", "~/lake")
    assert settings().home == Path.home() / "lake"
    assert settings().run_store == str(Path.home() / "lake" / "runs")
    monkeypatch.setenv("REWINDOW_RUNS", "s3://lake/runs")
    assert settings().run_store == "s3://lake/runs"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (Variable.DRIVER_MEMORY, "lots", "`lots` is not a heap size (REWINDOW_DRIVER_MEMORY). Write 4g or 512m."),
        (Variable.DRIVER_MEMORY, "0g", "`0g` is not a heap size (REWINDOW_DRIVER_MEMORY). Write 4g or 512m."),
        (Variable.PARALLEL_CHUNKS, "0", "`0` is not a number of tasks (REWINDOW_PARALLEL_CHUNKS). Write 1 or 2."),
        (Variable.PARALLEL_CHUNKS, "two", "`two` is not a number of tasks (REWINDOW_PARALLEL_CHUNKS). Write 1 or 2."),
        (Variable.SPARK_UI, "maybe", "`maybe` is not a switch (REWINDOW_SPARK_UI). Write 1 or 0."),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: Variable, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(EnvironmentSetupError) as refused:
        settings()
    assert str(refused.value) == message
    assert refused.value.exit_code == 8


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        settings().pool = "other"


def test_each_variable_has_one_field_with_a_sentence_and_an_example_that_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = Settings.model_fields
    assert [field.validation_alias for field in fields.values()] == list(Variable)
    for name, field in fields.items():
        assert field.title
        assert field.description
        assert field.description.endswith(".")
        assert field.examples
        for example in field.examples:
            monkeypatch.setenv(str(field.validation_alias), example)
            assert getattr(settings(), name) is not None


def test_settings_import_neither_spark_nor_airflow() -> None:
    program = "import sys, spark_jobs.settings; print(*({'pyspark', 'py4j', 'airflow', 'pandas'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True).strip() == ""


def test_the_page_is_the_one_that_the_class_generates() -> None:
    renew = "run `python -m tests.tools.settings_page`"
    assert (ROOT / PAGE).read_text(encoding="utf-8") == settings_page(), renew


def test_no_other_module_reads_the_variables() -> None:
    """No other module names a variable in a literal of its own, or reads one of `Variable` from the environment."""
    sources = [file for folder in ("spark_jobs", "dags") for file in (ROOT / folder).rglob("*.py")]
    assert OWNER in sources
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for file in sources
        if file != OWNER
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.expr) and (_is_name_of_variable(node) or _reads_a_variable(node))
    ]
    assert found == []


def _is_name_of_variable(node: ast.AST) -> bool:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    prefixed = node.value.startswith("REWINDOW_") and node.value.replace("_", "").isalnum()
    return prefixed and node.value not in OF_THE_SAMPLE_PIPELINES


def _reads_a_variable(node: ast.AST) -> bool:
    """`os.environ[Variable.X]` that is read, `os.environ.get(Variable.X)` or `os.getenv(Variable.X)`."""
    match node:
        case ast.Subscript(value=value, slice=key, ctx=ast.Load()):
            return ast.unparse(value).endswith("environ") and _is_member(key)
        case ast.Call(func=ast.Attribute(attr="get" | "getenv") as called, args=[key, *_]):
            return ast.unparse(called).endswith(("environ.get", "getenv")) and _is_member(key)
    return False


def _is_member(key: ast.expr) -> bool:
    return ast.unparse(key).startswith("Variable.")


def test_the_readers_are_recognized() -> None:
    def readings(text: str) -> int:
        return sum(_reads_a_variable(node) for node in ast.walk(ast.parse(text)))

    assert readings("os.environ[Variable.HOME]") == 1
    assert readings("environ.get(Variable.HOME, '')") == 1
    assert readings("os.getenv(Variable.HOME)") == 1
    assert readings("os.environ[Variable.HOME] = folder") == 0
    assert readings("{**os.environ, Variable.HOME: folder}") == 0


OTHER = 12_345
"""A user who is neither this one nor root."""


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to another user")
@pytest.mark.parametrize("mark", [".rewindow", "dags/pipelines"])
@pytest.mark.parametrize("of_other", ["folder", "mark", "link"])
def test_a_project_above_that_another_user_has_put_there_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, of_other: str
) -> None:
    above, here = tmp_path / "above", tmp_path / "above/below/here"
    here.mkdir(parents=True)
    planted = above / mark
    planted.parent.mkdir(exist_ok=True)
    monkeypatch.chdir(here)
    if of_other == "link":
        (tmp_path / "own").mkdir()
        planted.symlink_to(tmp_path / "own")
        assert project_folder() == above
        os.chown(planted, OTHER, -1, follow_symlinks=False)
    else:
        planted.mkdir()
        assert project_folder() == above
        os.chown(above if of_other == "folder" else planted, OTHER, -1)
    assert project_folder() == here
    assert settings().home == here / ".rewindow"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to another user")
def test_a_home_of_another_user_is_taken_only_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".rewindow").mkdir()
    os.chown(tmp_path / ".rewindow", OTHER, -1)
    with pytest.raises(EnvironmentSetupError, match="the home folder belongs to another user"):
        rewindow_home()
    monkeypatch.setenv("REWINDOW_HOME", str(tmp_path / ".rewindow"))
    assert rewindow_home() == tmp_path / ".rewindow"


def test_folders_that_are_made_are_closed_to_other_users(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path = tmp_path_factory.mktemp("f")  # a socket's address is short
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    umask = os.umask(0)
    try:
        home, runtime = rewindow_home(tmp_path / "home"), runtime_folder()
    finally:
        os.umask(umask)
    assert runtime is not None
    for folder in (home, runtime, cache_folder()):
        assert folder.stat().st_mode & 0o777 == 0o700
