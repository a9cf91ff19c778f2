"""Environment variables in a definition's text: `${NAME}` and `${NAME:-default}`; `$${` stands for a plain `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_jobs.definition.fields import Refusal, nearest

_REFERENCE = re.compile(r"\$(\$?)\{([^{}]*)\}?")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """The text with its variables replaced; as in a shell, `:-` also replaces a variable that is set but empty.

    Raises Refusal for a variable that is neither set nor has a default, and for a malformed reference.
    """

    def replacement(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        reference = _NAME.fullmatch(match[2])
        if reference is None or not match[0].endswith("}"):
            hint = "write `${NAME}`, `${NAME:-default}`, or `$${` for a plain `${`"
            raise Refusal(f"`{match[0]}` is not a variable", hint)
        name, default = reference.groups()
        value = environment.get(name)
        if value or (value is not None and default is None):
            return value
        if default is not None:
            return default
        near = nearest(name, environment)
        similar = f" (`{near}` is set)" if near else ""
        hint = f"set it, or write a default: `${{{name}:-...}}`"
        raise Refusal(f"environment variable `{name}` is not set{similar}", hint)

    return _REFERENCE.sub(replacement, text)
