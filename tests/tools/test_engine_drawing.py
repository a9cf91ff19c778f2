"""The drawing of the three engines is the one that their models draw, and its page says what they do."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tools import engine_drawing


def test_the_drawing_is_the_one_that_the_models_draw_and_a_page_shows_it() -> None:
    renew = "run `python -m tests.tools.engine_drawing`"
    assert engine_drawing.DRAWING.read_text(encoding="utf-8") == engine_drawing.three_engines().svg(), renew
    assert f"](drawings/{engine_drawing.DRAWING.name})" in Path("docs/engines.md").read_text(encoding="utf-8")


def test_the_engines_drop_different_records_as_the_page_says() -> None:
    sixth, seventh = 5, 6
    assert engine_drawing.dropped_by_flink() == {8, 9}
    assert engine_drawing.dropped_by_kafka_streams() == {sixth, 8, 9, 11}
    assert engine_drawing.dropped_by_structured_streaming() == {seventh, 8, 9}


def test_the_page_goes_record_by_record_as_the_models_do() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d), minute (\d+) \| (.*) \|$", Path("docs/engines.md").read_text("utf-8"), re.M)
    assert [(int(partition), int(time)) for _, partition, time, _ in rows] == engine_drawing.EVENTS
    models = ("Flink", "Kafka Streams", "Structured Streaming")
    for column, model in enumerate(models):
        _, dropped_by = engine_drawing.ENGINES[model]
        dropped = {n for n, (*_, cells) in enumerate(rows) if "dropped" in cells.split(" | ")[column]}
        assert dropped == dropped_by()
