# ruff: noqa: E501 (tables of values)
"""Inputs that are nearly right: a good document or text with a few changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Place = tuple[Any, ...]

ODD_TEXTS = (
    "", " ", "\x00", "\ud800", "é", "\u202e", "a.b", "${X}", "${X:-1}", "$", "null", "~", "- a", "{", "[1]", "'", '"', "`",
    "1 h", "-1 h", "forever", "0", "-1", "1e999", "9" * 400, "9" * 5000, "a" * 3000, "2013-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z", "\n", "count(*)", "files", "kafka", "../..", "/", "s3://b/k", "http://[::1", "%", "%ff",
)  # fmt: skip
ODD_NUMBERS = (
    0, -1, 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf"),
    float("-inf"),
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(ODD_NUMBERS), st.sampled_from(ODD_TEXTS),
    st.text(max_size=8),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
"""Any JSON value."""
TOKENS = (
    b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"{", b"}", b"[", b"]", b'"', b"'", b"\\", b"\\ud800",
    b":", b",", b"\n", b"\r", b"\t", b"null", b"NaN", b"Infinity", b"1e999", b"-", b"9" * 400, b"[" * 30_000, b'{"a":' * 20_000,
    b"&a", b"*a", b"!!python/object:x", b"%", b"#", b"v2", b"true", b"1.5", b"99999999999999999999",
)  # fmt: skip


def places(node: Any, path: Place = ()) -> list[Place]:
    """The paths of all nodes of a document."""
    inner = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


def at(node: Any, path: Place) -> Any:
    """The node at a path."""
    for part in path:
        node = node[part]
    return node


def replaced(node: Any, path: Place, change: Callable[[Any], Any]) -> Any:
    """The document with another node at the path."""
    if not path:
        return change(node)
    copied = dict(node) if isinstance(node, Mapping) else list(node)
    copied[path[0]] = replaced(node[path[0]], path[1:], change)
    return copied


@st.composite
def changed(draw: DrawFn, documents: Sequence[Any] | SearchStrategy[Any], most: int = 3) -> Any:
    """A document with up to `most` changes."""
    document = draw(documents if isinstance(documents, SearchStrategy) else st.sampled_from(documents))
    for _ in range(draw(st.integers(0, most))):
        document = _changed_once(draw, document)
    return document


def _changed_once(draw: DrawFn, document: Any) -> Any:
    known = places(document)
    path = draw(st.sampled_from(known))
    match draw(st.sampled_from(("value", "value", "graft", "name", "remove"))):
        case "value":
            value = draw(VALUES)
            return replaced(document, path, lambda _: value)
        case "graft":
            other = at(document, draw(st.sampled_from(known)))
            return replaced(document, path, lambda _: other)
        case "name":
            name, value = draw(st.sampled_from(ODD_TEXTS) | st.text(max_size=6)), draw(VALUES)
            return replaced(document, path, lambda node: {**node, name: value} if isinstance(node, Mapping) else node)
    if not path:
        return {}
    return replaced(document, path[:-1], lambda node: _without(node, path[-1]))


def _without(node: Any, part: Any) -> Any:
    if isinstance(node, Mapping):
        return {key: value for key, value in node.items() if key != part}
    return [value for index, value in enumerate(node) if index != part]


@st.composite
def damaged(draw: DrawFn, data: SearchStrategy[bytes], most: int = 3) -> bytes:
    """Bytes with up to `most` changes."""
    text = draw(data)
    for _ in range(draw(st.integers(0, most))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        token = draw(st.sampled_from(TOKENS) | st.binary(max_size=6))
        match draw(st.sampled_from(("insert", "replace", "cut", "repeat", "remove"))):
            case "insert":
                text = text[:start] + token + text[start:]
            case "replace":
                text = text[:start] + token + text[end:]
            case "cut":
                text = text[:start]
            case "repeat":
                text = text[:end] + text[start:end] * 3 + text[end:]
            case _:
                text = text[:start] + text[end:]
    return text


def as_json(documents: SearchStrategy[Any]) -> SearchStrategy[bytes]:
    """Documents as JSON, and as bytes that are nearly JSON."""
    written = documents.map(lambda document: json.dumps(document).encode())
    return written | damaged(written)


def shown_bytes(data: bytes) -> str:
    """Bytes for people; long ones are cut in the middle."""
    shown = repr(data)
    return shown if len(shown) <= 600 else f"{shown[:400]}...{shown[-150:]} ({len(data):,} bytes)"
