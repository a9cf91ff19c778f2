"""Walks are shrunk to the steps that matter."""

from __future__ import annotations

from dataclasses import replace

from tests.walk.drawn import drawn
from tests.walk.plan import Arrive, Kind, NewColumn, Night, Shape, Step, Walk
from tests.walk.shrunk import shortest
from tests.walk.walker import Fault


def _fails_after_a_new_column(walk: Walk) -> Fault | None:
    """A night is wrong that follows another night and a new column."""
    nights, has_new = 0, False
    for at, step in enumerate(walk.steps):
        has_new = has_new or (nights > 0 and isinstance(step, NewColumn))
        nights += isinstance(step, Night)
        if isinstance(step, Night) and has_new:
            return Fault(walk, at, ("wrong",), "")
    return None


def _number(step: Step) -> str:
    return type(step).__name__


def test_a_long_walk_becomes_the_few_steps_that_it_fails_by() -> None:
    walk = drawn(3, Kind.ICEBERG, Shape.TUMBLING, 20)
    walk = replace(walk, steps=(*walk.steps, Night(), NewColumn(), Arrive(3), Night()))
    fault = _fails_after_a_new_column(walk)
    assert fault is not None
    found = shortest(fault, _fails_after_a_new_column, tries=500)
    assert [_number(step) for step in found.walk.steps] == ["Night", "NewColumn", "Night"]
    assert shortest(fault, _fails_after_a_new_column, tries=0) == fault


def test_a_fault_is_shown_as_python_up_to_the_step_where_it_is_found() -> None:
    walk = Walk(Kind.FILES, Shape.SESSION, (Arrive(5, behind=3), Night(until=2), Night(), Night()))
    shown = Fault(walk, 1, ("one thing",), "a note").shown()
    assert eval(shown[shown.index("Walk(") :]) == replace(walk, steps=walk.steps[:2])
    assert "one thing" in shown and "a note" in shown
