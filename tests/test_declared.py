"""Every package that `spark_jobs` imports is declared in pyproject.toml, in the extra of the code that imports it."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PRODUCT = ROOT / "spark_jobs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS_OF = {
    "demo": ("airflow",),
    "orchestration": ("airflow",),
    "orchestration/lineage.py": ("openlineage",),
    "project/files": ("airflow",),
    "quality": ("gate",),
    "quality/gx.py": ("gate", "report"),
    "report": ("report",),
    "web": ("airflow",),
}
"""By folder or file: the extras whose packages it may import, beside those of every installation."""
PROVIDERS = "airflow.providers."


def declared(requirements: list[str]) -> set[str]:
    """The packages of these requirements; `rewindow[airflow]` stands for those of that extra."""
    names = set[str]()
    for one in map(Requirement, requirements):
        if one.name == PROJECT["name"]:
            names |= {name for extra in one.extras for name in declared(PROJECT["optional-dependencies"][extra])}
        else:
            names.add(canonicalize_name(one.name))
    return names


@cache
def of_extras(extras: tuple[str, ...]) -> set[str]:
    """The packages of an installation with these extras."""
    return declared(PROJECT["dependencies"] + [f"rewindow[{extra}]" for extra in extras])


def may_import(file: Path) -> set[str]:
    path = file.relative_to(PRODUCT).as_posix()
    places = [place for place in EXTRAS_OF if path == place or path.startswith(f"{place}/")]
    return of_extras(EXTRAS_OF[max(places, key=len)] if places else ())


@cache
def imported(file: Path) -> frozenset[str]:
    """The full names of the modules that a file imports, inside functions too."""
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return frozenset(names)


def packages_of(module: str, providers: dict[str, list[str]]) -> set[str]:
    """The packages that may bring a module. Airflow's own are parts of `apache-airflow`, but for its providers."""
    top = module.partition(".")[0]
    if module.startswith(PROVIDERS):
        words = module.removeprefix(PROVIDERS).split(".")
        return {f"apache-airflow-providers-{'-'.join(words[:count])}" for count in range(1, len(words) + 1)}
    if top == "airflow":
        return {"apache-airflow"}
    return {canonicalize_name(name) for name in providers.get(top, [])}


def test_every_import_of_the_package_is_declared_where_it_is_used() -> None:
    providers = dict(packages_distributions())
    undeclared = {
        f"{file.relative_to(ROOT)}: {module}"
        for file in PRODUCT.rglob("*.py")
        for module in imported(file)
        if module.partition(".")[0] not in {*sys.stdlib_module_names, "spark_jobs"}
        and not packages_of(module, providers) & may_import(file)
    }
    assert undeclared == set()


def test_every_declared_package_is_imported_or_named_as_one_that_is_only_started() -> None:
    """A package that nothing uses any more is not installed for nothing."""
    providers = dict(packages_distributions())
    used = {
        name for file in PRODUCT.rglob("*.py") for module in imported(file) for name in packages_of(module, providers)
    }
    not_imported = {"s3fs": "fsspec finds it by name", "tzdata": "zoneinfo finds it by name"}
    assert of_extras(("all", "openlineage")) <= used | not_imported.keys()


def test_every_declared_package_is_pinned() -> None:
    texts = [(ROOT / name).read_text() for name in ("requirements.txt", "requirements-dev.txt")]
    pinned = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==", "\n".join(texts), re.MULTILINE)
    needed = of_extras(("dev",))
    assert needed <= {canonicalize_name(name) for name in pinned}


def test_the_gate_s_package_is_pinned_exactly_in_both_places() -> None:
    """`quality/by_day.py` overrides methods that Great Expectations does not document as public."""
    (gate,) = PROJECT["optional-dependencies"]["gate"]
    assert re.fullmatch(r"great-expectations==[\d.]+", gate)
    assert f"\n{gate} " in (ROOT / "requirements.txt").read_text()
