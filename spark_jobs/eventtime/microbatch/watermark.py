"""The watermark of a query, derived from its records: what Spark's `WatermarkTracker` computes (Spark rules 7 to 14).

A checkpoint has the watermark of each batch, and that one counts. It is derived where there is no checkpoint any more,
and to see whether a definition's delay is the one that the query ran with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from spark_jobs.eventtime.microbatch.batches import INITIAL_WATERMARK


class WatermarkPolicy(StrEnum):
    """How the watermarks of several inputs become one (`spark.sql.streaming.multipleWatermarkPolicy`)."""

    MIN = "min"
    MAX = "max"


@dataclass(slots=True)
class WatermarkTracker:
    """One query between two starts. Times in epoch ms; `delays` has one for each input.

    A start makes a new one with the last watermark: the inputs' maxima are forgotten (Spark rules 10, 12).
    """

    delays: Sequence[int]
    policy: WatermarkPolicy = WatermarkPolicy.MIN
    watermark: int = INITIAL_WATERMARK
    _of_inputs: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self._of_inputs = [INITIAL_WATERMARK] * len(self.delays)

    def after_batch(self, maxima: Sequence[int | None]) -> int:
        """The watermark after a batch in which the inputs had these largest event times; None: no event time."""
        for i, (largest, delay) in enumerate(zip(maxima, self.delays, strict=True)):
            if largest is not None:
                self._of_inputs[i] = max(self._of_inputs[i], largest - delay)
        combined = min(self._of_inputs) if self.policy is WatermarkPolicy.MIN else max(self._of_inputs)
        self.watermark = max(self.watermark, combined)
        return self.watermark
