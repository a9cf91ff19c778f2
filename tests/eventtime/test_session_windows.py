"""Sessions: which records are in one, and what late records do to them (rules 24 to 28).

In a drawing the letters are records, in alphabetical order of arrival, at their event times. The windows are the
sessions that fire at the end of input. The gap is 4 ms.
"""

from __future__ import annotations

import pytest

from spark_jobs.eventtime.flink.operator import Firing, MergeTooLateError, WindowOperator
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.eventtime.windows import SessionWindows
from tests.eventtime.drawing import drawn

GAP = 4

COMPLETE = {
    "one record: as long as the gap": """
        0|  a
        0|  [===)
        """,
    "a record within the gap makes it longer": """
        0|  a b
        0|  [=====)
        """,
    "exactly a gap apart is one session: they touch": """
        0|  a   b
        0|  [=======)
        """,
    "more than a gap apart are two": """
        0|  a    b
        0|  [===)
        0|       [===)
        """,
    "the order of arrival does not matter": """
        0|  b   c a
        0|  [=========)
        """,
    "a record between two sessions makes them one": """
        0|  a   c   b
        0|  [===========)
        """,
}


def letters(firing: Firing[str]) -> str:
    return "".join(sorted(firing.elements))


def session(firing: Firing[str]) -> tuple[int, int, int, str]:
    """Start, end, pane and contents."""
    return firing.window.start, firing.window.end, firing.pane, letters(firing)


@pytest.mark.parametrize("name", COMPLETE)
def test_records_are_in_the_sessions_drawn(name: str) -> None:
    picture = drawn(COMPLETE[name])
    operator: WindowOperator[str] = WindowOperator(SessionWindows(GAP), 0)
    for letter in sorted(picture.marks):
        operator.process("key", picture.marks[letter], letter)
    fired = list(operator.advance_watermark(MAX_TIMESTAMP))
    assert [firing.window for firing in fired] == picture.windows
    for firing in fired:
        inside = [m for m, time in picture.marks.items() if firing.window.start <= time < firing.window.end]
        assert letters(firing) == "".join(sorted(inside))


def test_sessions_of_two_keys_never_merge() -> None:
    operator: WindowOperator[str] = WindowOperator(SessionWindows(GAP), 0)
    operator.process("one", 2, "a")
    operator.process("two", 3, "b")
    assert [session(f) for f in operator.advance_watermark(MAX_TIMESTAMP)] == [(2, 6, 0, "a"), (3, 7, 0, "b")]


def test_a_record_that_is_late_alone_is_taken_when_it_reaches_an_open_session() -> None:
    """
    0|      [===)      open; the watermark is at 7
    0|   [===)         alone it would be late: its last timestamp is 6
    0| [===)           alone it would be late too
    0| [========)
    """
    operator: WindowOperator[str] = WindowOperator(SessionWindows(GAP), 0)
    operator.process("key", 6, "a")
    assert list(operator.advance_watermark(7)) == []
    assert operator.process("key", 3, "b") == ([], False)
    assert operator.process("key", 1, "c") == ([], False), "it reaches the session of `b`"
    assert operator.process("other", 3, "d") == ([], True), "of another key: no session to reach"
    assert [session(f) for f in operator.advance_watermark(9)] == [(1, 10, 0, "abc")]


def test_without_a_lateness_a_fired_session_is_gone_and_a_later_one_can_overlap_it() -> None:
    """
    0|  [===)          fired at watermark 5
    0|    [===)        a new one: its last timestamp 7 is still ahead
    """
    operator: WindowOperator[str] = WindowOperator(SessionWindows(GAP), 0)
    operator.process("key", 2, "a")
    assert [session(f) for f in operator.advance_watermark(5)] == [(2, 6, 0, "a")]
    operator.process("key", 4, "b")
    assert [session(f) for f in operator.advance_watermark(7)] == [(4, 8, 0, "b")]


def test_with_a_lateness_a_record_that_bridges_fired_sessions_fires_a_new_one_with_all_contents() -> None:
    """
    0|  [===)          fired
    0|          [===)  fired
    0|      c          arrives late: [6, 10) touches both
    0|  [===========)  fires at once, as pane 0 of a new window
    """
    operator: WindowOperator[str] = WindowOperator(SessionWindows(GAP), 20)
    operator.process("key", 2, "a")
    operator.process("key", 10, "b")
    assert [session(f) for f in operator.advance_watermark(13)] == [(2, 6, 0, "a"), (10, 14, 0, "b")]
    (fired,), is_late = operator.process("key", 6, "c")
    assert session(fired) == (2, 14, 0, "abc")
    assert fired.by_element
    assert not is_late


def test_with_a_lateness_a_record_inside_a_fired_session_fires_it_again_as_the_next_pane() -> None:
    operator: WindowOperator[str] = WindowOperator(SessionWindows(GAP), 20)
    operator.process("key", 2, "a")
    operator.process("key", 4, "b")
    assert [session(f) for f in operator.advance_watermark(7)] == [(2, 8, 0, "ab")]
    (fired,), _ = operator.process("key", 3, "c")
    assert session(fired) == (2, 8, 1, "abc")


def test_a_merge_that_ends_ahead_of_the_watermark_fires_when_the_watermark_gets_there() -> None:
    operator: WindowOperator[str] = WindowOperator(SessionWindows(GAP), 20)
    operator.process("key", 2, "a")
    assert [session(f) for f in operator.advance_watermark(5)] == [(2, 6, 0, "a")]
    assert operator.process("key", 5, "b") == ([], False)
    assert [session(f) for f in operator.advance_watermark(8)] == [(2, 9, 0, "ab")]


def test_with_a_lateness_of_forever_flink_fails_the_job_at_a_merge_after_a_watermark() -> None:
    operator: WindowOperator[str] = WindowOperator(SessionWindows(GAP), MAX_TIMESTAMP)
    operator.process("key", 2, "a")
    operator.process("key", 3, "b")
    list(operator.advance_watermark(0))
    with pytest.raises(MergeTooLateError, match="cannot become earlier than the current watermark by merging"):
        operator.process("key", 4, "c")


def test_a_record_without_a_timestamp_opens_a_session_before_the_first_watermark_and_is_late_after_it() -> None:
    operator: WindowOperator[str] = WindowOperator(SessionWindows(GAP), 0)
    assert operator.process("key", MIN_TIMESTAMP, "a") == ([], False)
    assert [letters(f) for f in operator.advance_watermark(0)] == ["a"]
    assert operator.process("key", MIN_TIMESTAMP, "b") == ([], True)
