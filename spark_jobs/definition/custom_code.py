"""The code of a user's own watermark generator, read and never run: a changed class is another definition.

Read are the modules that define the class and its base classes, wherever an `import` gets these names from. Python's
own modules and Rewindow's are left out, and so is what a class calls in other modules. A module's text counts as it is,
with its comments.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from pathlib import Path

_NOT_THE_USERS = {*sys.stdlib_module_names, "spark_jobs"}
_Place = tuple[str, str]
"""A module and the name of a class there."""


def code_digest(reference: str) -> str | None:
    """SHA-256 (hex) of the modules that define the class `module:Class`; None where none of them is on this machine.

    Without it nothing can run; a definition has a hash all the same.
    """
    module, _, name = reference.partition(":")
    texts: dict[str, bytes] = {}
    waiting: list[_Place] = [(module, name)]
    seen: set[_Place] = set()
    while waiting:
        place = waiting.pop()
        if place in seen or place[0].partition(".")[0] in _NOT_THE_USERS:
            continue
        seen.add(place)
        if (found := _module_of(place[0])) is not None:
            texts |= {found.name: found.text} if found.defines(place[1]) else {}
            waiting += found.further(place[1])
    content = b"".join(b"%s\0%s\0" % (one.encode(), texts[one]) for one in sorted(texts))
    return hashlib.sha256(content).hexdigest() if texts else None


@dataclass(frozen=True, slots=True)
class _Module:
    """A module that was found: its text, and what it says where that is Python."""

    name: str
    package: str
    text: bytes
    tree: ast.Module

    def defines(self, name: str) -> bool:
        """Whether the class is defined here, for all that can be told: no import brings it in."""
        return bool(self._classes(name)) or not self.further(name)

    def further(self, name: str) -> list[_Place]:
        """Where else the class comes from: its base classes, or the modules from which it is imported."""
        imported = dict(self._imported())
        classes = self._classes(name)
        if not classes:
            stars = [(module, name) for known, (module, _) in imported.items() if known.startswith("*")]
            return [imported[name]] if name in imported else stars
        bases = (ast.unparse(base).partition("[")[0] for one in classes for base in one.bases)
        return [self._place(base, imported) for base in bases]

    def _classes(self, name: str) -> list[ast.ClassDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef) and node.name == name]

    def _place(self, base: str, imported: dict[str, _Place]) -> _Place:
        """Where a base class is defined that the text calls `base`: `Base` or `module.Base`."""
        first, _, rest = base.partition(".")
        if first not in imported:
            return self.name, base
        module, name = imported[first]
        path = ".".join(part for part in (module, name, rest) if part)
        return path.rpartition(".")[0], path.rpartition(".")[2]

    def _imported(self) -> Iterator[tuple[str, _Place]]:
        """Each name that an import brings in, with the module and the name there; a module itself has no name there."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                module = resolve_name("." * node.level + (node.module or ""), self.package)
                for alias in node.names:
                    known = f"*{module}" if alias.name == "*" else alias.asname or alias.name
                    yield known, (module, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    yield alias.asname or first, (alias.name if alias.asname else first, "")


def _module_of(name: str) -> _Module | None:
    """The module of this name; None where it is not there. Nothing of it is run, nor of the packages around it."""
    path, spec = None, None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        spec = _found(".".join(parts[:count]), path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    assert spec is not None
    text = _text_of(spec)
    if text is None:
        return None
    try:
        tree = ast.parse(text)
    except (ValueError, SyntaxError):  # compiled, or what no run can import
        tree = ast.Module([], [])
    is_package = spec.submodule_search_locations is not None
    return _Module(name, name if is_package else name.rpartition(".")[0], text, tree)


def _found(name: str, path: list[str] | None) -> ModuleSpec | None:
    try:
        specs = (finder.find_spec(name, path) for finder in sys.meta_path)
        return next((spec for spec in specs if spec is not None), None)
    except Exception:  # a finder of somebody else's
        return None


def _text_of(spec: ModuleSpec) -> bytes | None:
    """A module's source; its file where it has none."""
    try:
        source = getattr(spec.loader, "get_source", lambda _: None)(spec.name)
        if source is not None:
            return source.replace("\r\n", "\n").encode()
        return Path(spec.origin).read_bytes() if spec.origin and spec.has_location else None
    except (ImportError, OSError, SyntaxError, UnicodeDecodeError):
        return None
