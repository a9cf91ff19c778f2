"""The definition of a Structured Streaming query."""

from __future__ import annotations

from typing import ClassVar

from spark_jobs.definition.asked import SESSION, SLIDING, TUMBLING, Asked, Question
from spark_jobs.definition.payload import Reader
from spark_jobs.definition.pipeline import Pipeline

_ASKED = Asked(
    flags=("delay", "checkpoint", "trigger"),
    windows={**TUMBLING, **SLIDING, **SESSION},
    tolerance=Question("delay", "Delay of the watermark", "The delay of the query's withWatermark(eventTime, delay)."),
    has_checkpoint=True,
    behind_window="output_mode: append                 # CHECK: the query's own; also: update, complete",
)


class SparkPipeline(Pipeline):
    """A Structured Streaming query, in Spark's words."""

    asked: ClassVar[Asked] = _ASKED
    own_reader: ClassVar[Reader] = Reader.SPARK
    records_what_it_read: ClassVar[bool] = True
    counts_microseconds: ClassVar[bool] = True
    takes_ids_without_event_time: ClassVar[bool] = True
    tolerance: ClassVar[str | None] = "delay"
    of_machine: ClassVar[tuple[tuple[str, str], ...]] = (("watermark", "checkpoint"),)


MODEL = SparkPipeline
