"""The definition of a Kafka Streams application."""

from __future__ import annotations

from typing import ClassVar

from spark_jobs.definition.asked import SESSION, TUMBLING, Asked, Question
from spark_jobs.definition.pipeline import Pipeline

_ASKED = Asked(
    flags=("grace",),
    windows={**TUMBLING, "hopping": ("size", "advance"), "sliding": ("time_difference",), **SESSION},
    tolerance=Question(
        "grace", "Grace period", "The grace period of the windows: TimeWindows.ofSizeAndGrace(size, grace)."
    ),
    behind_watermark="""\
  # restarts: [{at: 2026-03-01T02:00:00Z}]    # starts of the application: stream time begins anew""",
    behind_window="emission: each_update               # CHECK: the application's own; also: on_close",
)


class KafkaStreamsPipeline(Pipeline):
    """A Kafka Streams application, in its own words."""

    asked: ClassVar[Asked] = _ASKED
    tolerance: ClassVar[str | None] = "grace"


MODEL = KafkaStreamsPipeline
