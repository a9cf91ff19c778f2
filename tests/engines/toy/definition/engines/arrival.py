"""The definition of a live job of the toy engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from spark_jobs.definition.asked import TUMBLING, Asked, Question
from spark_jobs.definition.fields import Duration, as_written
from spark_jobs.definition.pipeline import PlainPipeline
from spark_jobs.definition.watermark import OneRuleWatermark
from spark_jobs.eventtime.flink.suppliers import GeneratorKind, GeneratorSupplier, supplier_of


class ArrivalWatermark(OneRuleWatermark):
    """How far stream time stays behind the arrivals."""

    behind: Duration = Field(description="How far it stays behind.", examples=["10 s"])

    generator: ClassVar[GeneratorKind] = GeneratorKind.TIME_LAG
    partitions: ClassVar[tuple[int, ...] | None] = None

    @property
    def supplier(self) -> GeneratorSupplier:
        return supplier_of(self.generator, lag=self.behind)


class ArrivalPipeline(PlainPipeline):
    """A live job of the toy engine."""

    engine_name: ClassVar[str] = "arrival"
    title: ClassVar[str] = "The toy engine"
    tolerance: ClassVar[str | None] = "behind"
    asked: ClassVar[Asked] = Asked(("behind",), TUMBLING, Question("behind", "How far behind", "It is a toy."))
    elsewhere: ClassVar[Mapping[str, str]] = {"watermark.bound": "the toy calls it `behind`"}

    watermark: ArrivalWatermark = Field(
        default=as_written(None), description="Its watermark.", examples=[{"behind": 0}]
    )


MODEL = ArrivalPipeline
