"""Environment variables in a definition's text: `${NAME}` and `${NAME:-default}`; `$${` stands for a plain `${`.

They count only in fields that say where things are (`is_place`). Elsewhere, in texts, expressions and names, people are
shown what a field holds: whoever may edit a definition could read the environment of the machines that it runs on. For
the same reason some variables can not be named at all, see `refuse_variable`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from spark_jobs.definition.fields import Refusal, nearest, shown

_REFERENCE = re.compile(r"\$(\$?)\{([^{}]*)\}?")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)

_SECTIONS = frozenset({"history", "live", "corrections", "value", "output"})
_PLACES = (
    "path", "servers", "topic", "table", "namespace", "metastore", "options", "secrets", "connection", "schema_file",
    "url", "subject", "checkpoint",
)  # fmt: skip
_NAMED_BY_USERS = frozenset({"keys", "values", "columns", "tolerance"})
"""Fields whose own fields have names of the user's choice."""
_OF_AIRFLOW = "AIRFLOW"
ALLOWED = (
    "KAFKA", "REGISTRY", "LAKE", "DATA", "REWINDOW_KAFKA", "REWINDOW_SAMPLE", "REWINDOW_STREAMING",
)  # fmt: skip
"""Names that definitions may name without a list, and beginnings of such names before `_`: `KAFKA`, `KAFKA_JAAS`."""
_DEFAULT = tuple(pattern for name in ALLOWED for pattern in (name, f"{name}_*"))
_SECRET = re.compile(r"passw|pwd|secret|token|credential|jaas|(api|access|private|fernet)_?key", re.IGNORECASE)


def is_place(path: tuple[str | int, ...]) -> bool:
    """Whether the field at `path` says where things are: there variables count."""
    names = [step for step in path if isinstance(step, str)]
    if names == ["watermark", "checkpoint"]:
        return True
    if not names or names[0] not in _SECTIONS or not _NAMED_BY_USERS.isdisjoint(names):
        return False
    return any(name in _PLACES for name in names[1:])


def refuse_variable(name: str, environment: Mapping[str, str], *, is_shown: bool = True) -> None:
    """Raise Refusal for a variable that no definition may name.

    Settings of Rewindow and Airflow's variables never. Others count where `REWINDOW_VARIABLES` lists them; without that
    list, where they are named like `ALLOWED`, and in values that people are shown (`is_shown`) not like secrets.
    """
    from spark_jobs.settings import Variable  # takes long to import, and few definitions name a variable

    if name.upper().startswith(_OF_AIRFLOW):
        raise Refusal(f"environment variable {shown(name)} is Airflow's own", "name another variable")
    if name.upper() in list(Variable):
        raise Refusal(f"environment variable {shown(name)} is a setting of Rewindow's own", "name another variable")
    listed = [pattern.strip() for pattern in environment.get(Variable.VARIABLES, "").split(",") if pattern.strip()]
    if not any(fnmatchcase(name, pattern) for pattern in listed or _DEFAULT):
        what = f"environment variable {shown(name)} is not among those that definitions may name"
        more = "" if listed else f", which begins with {', '.join(ALLOWED[:-1])} or {ALLOWED[-1]}"
        raise Refusal(what, f"add it to `{Variable.VARIABLES}`, or name another one{more}")
    if is_shown and not listed and _SECRET.search(name):
        what = f"environment variable {shown(name)} is named like a secret, and people are shown what this field holds"
        raise Refusal(what, f"name another variable, or list it in `{Variable.VARIABLES}`")


def substitute(text: str, environment: Mapping[str, str], *, counts: bool = True) -> str:
    """The text with its variables replaced; as in a shell, `:-` also replaces a variable that is set but empty.

    `counts`: whether variables count in this field. Raises Refusal for a variable where they do not, for one that is
    neither set nor has a default or may not be named, and for a malformed reference.
    """

    def replacement(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        if not counts:
            places = f"variables count only where a definition says where things are ({', '.join(_PLACES)})"
            what = f"{shown(match[0])}: {places}"
            raise Refusal(what, "write the value itself, or `$${` for a plain `${`")
        reference = _NAME.fullmatch(match[2])
        if reference is None or not match[0].endswith("}"):
            hint = "write `${NAME}`, `${NAME:-default}`, or `$${` for a plain `${`"
            raise Refusal(f"{shown(match[0])} is not a variable", hint)
        name, default = reference.groups()
        refuse_variable(name, environment)
        value = environment.get(name)
        if value or (value is not None and default is None):
            return value
        if default is not None:
            return default
        near = nearest(name, environment)
        similar = f" (`{near}` is set)" if near else ""
        hint = f"set it, or write a default: {shown(f'${{{name}:-...}}')}"
        raise Refusal(f"environment variable {shown(name)} is not set{similar}", hint)

    return _REFERENCE.sub(replacement, text)
