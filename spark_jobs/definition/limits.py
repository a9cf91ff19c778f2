"""The most that a run may cost before somebody has to say that it is meant."""

from __future__ import annotations

from pydantic import ByteSize, Field

from spark_jobs.definition.fields import PositiveDuration, Section


class Limits(Section):
    """Limits of one run. A plan above one of them is refused; `--beyond-limits` allows it for this run."""

    records: int | None = Field(
        default=None, ge=1, description="The most records that a run reads.", examples=[2_000_000_000]
    )
    bytes: ByteSize | None = Field(
        default=None, ge=1, description="The most bytes of files that a run reads.", examples=["500 GB"]
    )
    duration: PositiveDuration | None = Field(
        default=None,
        description="The longest that a run may take, as it is estimated from the pipeline's own runs. Before there "
        "are any, this limit refuses nothing.",
        examples=["6 h"],
    )
