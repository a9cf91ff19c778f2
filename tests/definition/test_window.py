# ruff: noqa: E501 (a message stands on one line)
"""The window section.

sliding, slide > size:   [----size----)      [----size----)
                         0         1 h   2 h          3 h     records in the gap are in no window
"""

from __future__ import annotations

import pytest

TUMBLING = "type: tumbling\n  size: 1 h"


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        ("type: tumbling, size: 1 h, offset: -15 min", {"size": 3_600_000, "offset": -900_000, "time_zone": None}),
        ("type: tumbling, size: 1 day, time_zone: America/New_York", {"size": 86_400_000, "time_zone": "America/New_York"}),
        ("type: sliding, size: 1 h, slide: 15 min", {"size": 3_600_000, "slide": 900_000, "gaps_between": False}),
        ("type: sliding, size: 1 h, slide: 2 h, gaps_between: true", {"slide": 7_200_000, "gaps_between": True}),
        ("type: cumulative, size: 1 day, step: 1 h", {"size": 86_400_000, "step": 3_600_000, "offset": 0}),
        ("type: session, gap: PT30M", {"gap": 1_800_000, "gap_expression": None}),
        ("type: session, gap_expression: timeout_s * 1000", {"gap": None, "gap_expression": "timeout_s * 1000"}),
    ],
)  # fmt: skip
def test_each_kind_of_window_loads(load, definition, lines: str, fields: dict[str, object]) -> None:
    window = load(definition((TUMBLING, lines.replace(", ", "\n  ")))).window
    assert {name: getattr(window, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("size: 1 h", "12: window.type: is missing; write one of tumbling, sliding, cumulative, session"),
        ("type: slding, size: 1 h", "13: window.type: `slding` is not known; write `sliding`"),
        ("type: tumbling, size: 1 h, slide: 2 h", "15: window.slide: does not belong to type `tumbling`; it is a field of sliding"),
        ("type: tumbling, size: 1 h, ofset: 2 min", "15: window.ofset: unknown field; did you mean `offset`?"),
        ("type: tumbling", "12: window.size: is missing; write `size: 1 h`"),
        ("type: tumbling, size: -1 h", "14: window.size: `-1 h` is not positive; write a duration longer than 0"),
        ("type: tumbling, size: 1 h, offset: 90 min", "15: window.offset: `1 h 30 min` is not smaller than the size (1 h); write `offset: 30 min`, which gives the same windows"),
        ("type: tumbling, size: 1 h, offset: -1 h", "15: window.offset: `-1 h` is not smaller than the size (1 h); leave it out: the windows are the same"),
        ("type: sliding, size: 1 h, slide: 20 min, offset: 30 min", "16: window.offset: `30 min` is not smaller than the slide (20 min); write `offset: 10 min`, which gives the same windows"),
        ("type: sliding, size: 1 h, slide: 2 h", "15: window.slide: `2 h` is longer than the size (1 h): records between two windows would be in none; write a shorter slide, or `gaps_between: true` if that is meant"),
        ("type: sliding, size: 1 h, slide: 1 h, gaps_between: true", "15: window.slide: slide 1 h leaves no gaps; leave `gaps_between` out"),
        ("type: sliding, size: 1 h, slide: 0", "15: window.slide: `0` is not positive; write a duration longer than 0"),
        ("type: cumulative, size: 1 h, step: 7 min", "15: window.step: the size (1 h) is not a whole number of steps of 7 min; write a step that divides the size"),
        ("type: cumulative, size: 1 h, step: 2 h", "15: window.step: the size (1 h) is not a whole number of steps of 2 h; write a step that divides the size"),
        ("type: session", "12: window.gap: is missing; write `gap: 30 min`, or a `gap_expression` that gives milliseconds"),
        ("type: session, gap: 30 min, gap_expression: g", "14: window.gap: there is a `gap_expression` too; keep one of the two"),
        ("type: session, gap: 0", "14: window.gap: `0` is not positive; write a duration longer than 0"),
        ("type: sliding, size: 1 h, slide: 1 h, time_zone: UTC", "16: window.time_zone: does not belong to type `sliding`; it is a field of tumbling, session"),
        ("type: tumbling, size: 1 h, time_zone: Europe/Berlin", "15: window.time_zone: a time zone is for windows of whole days, and size is 1 h; write `size: 1 day`, or shift the windows with `offset`"),
        ("type: tumbling, size: 1 day, time_zone: Europe/Berln", "15: window.time_zone: `Europe/Berln` is not a time zone; write `Europe/Berlin`"),
        ("type: tumbling, size: 1 day, time_zone: New York", "15: window.time_zone: `New York` is not a time zone; write `America/New_York`"),
        ("type: tumbling, size: 1 day, time_zone: ../x", "15: window.time_zone: `../x` is not a time zone; write an IANA name like `Europe/Berlin`"),
    ],
)  # fmt: skip
def test_windows_that_cannot_be_are_refused(refusals, definition, lines: str, message: str) -> None:
    assert refusals(definition((TUMBLING, lines.replace(", ", "\n  ")))) == [f"p.yaml:{message}"]


def test_a_window_that_is_no_mapping_is_refused(refusals, definition) -> None:
    assert refusals(definition(("window:\n  " + TUMBLING, "window: tumbling"))) == [
        "p.yaml:12: window: `tumbling` is not a mapping of fields; write `window: {type: tumbling, size: 1 h}`"
    ]
