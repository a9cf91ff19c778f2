# ruff: noqa: E501 (tables of values)
"""Whatever stands in a definition, it loads or is refused with a place: no other exception reaches the user."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.definition import load_pipeline
from spark_jobs.errors import DefinitionError

VALID: dict[str, Any] = {
    "name": "p",
    "history": {"kind": "files", "path": ["a", "b"], "format": "csv", "options": {"sep": ","}, "position": {"partition": "p"}},
    "value": {"format": "json", "column": "v", "schema": "a INT"},
    "keys": {"k": "key"},
    "event_time": {"expression": "ts", "unit": "ms", "earliest": "1970-01-01T00:00:00Z"},
    "watermark": {
        "generator": "interleaved",
        "bound": "1 s",
        "stream": "s",
        "streams": ["a"],
        "emission": "periodic",
        "interval": "200 ms",
        "timer_start": "1970-01-01T00:00:00Z",
        "subtasks": [[0], [1, 2]],
        "partitions": 3,
        "flink": "2.3",
    },
    "filter": {"before_watermark": "a > 0"},
    "window": {"type": "sliding", "size": "1 h", "slide": "15 min", "offset": "0"},
    "allowed_lateness": "forever",
    "aggregates": {"n": "count(*)"},
    "quarantine": {"policy": "quarantine", "threshold": "1 %"},
    "output": {"namespace": "demo", "table": "t"},
}  # fmt: skip

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["", " ", "files", "hive", "tumbling", "custom", "1 h", "forever", "${X}", "${X:-1}", "a.b", "0", "é"]),
    st.text(max_size=6),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=5
)  # fmt: skip


def _places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, value in inner for place in _places(value, (*path, key)))]


def _with(node: Any, path: tuple[Any, ...], value: Any, name: str | None) -> Any:
    if not path:
        return value if name is None or not isinstance(node, dict) else {**node, name: value}
    changed = node.copy()
    changed[path[0]] = _with(node[path[0]], path[1:], value, name)
    return changed


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    place=st.sampled_from(_places(VALID)), value=VALUES, name=st.none() | st.sampled_from(["bound", "gap", "zz", ""])
)
def test_a_changed_definition_loads_or_is_refused_with_its_place(tmp_path, place, value, name) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(json.dumps(_with(VALID, place, value, name)), encoding="utf-8")
    try:
        load_pipeline(file, {})
    except DefinitionError as error:
        assert error.problems
        assert all(re.match(rf"{re.escape(str(file))}:\d+: ", str(problem)) for problem in error.problems)


def test_the_unchanged_definition_loads(tmp_path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(json.dumps(VALID), encoding="utf-8")
    assert load_pipeline(file, {}).name == "p"
