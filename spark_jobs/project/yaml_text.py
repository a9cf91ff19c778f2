"""Texts in the YAML of drafts: as YAML reads them back, whatever is in them, on one line."""

from __future__ import annotations

import json
import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][\w ./()*+-]*|\d+ [a-z]+( \d+ [a-z]+)*|0")
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_UNSEEN = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufffe\uffff]")
"""Characters that JSON takes as they are, and that people do not see or YAML does not read."""


def scalar(value: Any) -> str:
    """A text as YAML reads it back: in quotes where it must be."""
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT and not text.endswith(" "):
        return text
    return quoted(text)


def quoted(text: str) -> str:
    """A text in quotes as a definition reads it back: what people cannot see is an escape, and `${` is no variable."""
    written = json.dumps(text.replace("${", "$${"), ensure_ascii=False)
    return _UNSEEN.sub(lambda one: f"\\u{ord(one[0]):04x}", written)
