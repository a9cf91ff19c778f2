"""The definition of a Flink job."""

from __future__ import annotations

from typing import ClassVar

from spark_jobs.definition.asked import SESSION, SLIDING, TUMBLING, Asked, Question
from spark_jobs.definition.pipeline import Pipeline

_ASKED = Asked(
    flags=("generator", "bound", "lateness"),
    windows={**TUMBLING, **SLIDING, "cumulative": ("size", "step"), **SESSION},
    tolerance=Question(
        "bound",
        "Out-of-orderness bound",
        "How far the live job's watermark stays behind the latest event time. Take it from the job: in Flink "
        "forBoundedOutOfOrderness(...), or WATERMARK FOR ts AS ts - INTERVAL ...",
    ),
    generators=("bounded_out_of_orderness", "ascending", "none"),
    has_lateness=True,
    behind_watermark="""\
  emission: per_event               # `periodic` also needs `timer_start`, the phase of the job's timer
  # partitions: [0, 1, 2]           # the registered partitions; left out, those found in the history
  flink: "2.3"                      # in quotes: the version whose rules the job follows""",
    at_end="end_of_input: flush                 # windows still open at the end fire; `freeze` leaves them open, as a "
    "live job does",
)


class FlinkPipeline(Pipeline):
    """A Flink job, in Flink's words."""

    asked: ClassVar[Asked] = _ASKED
    left_out: ClassVar[frozenset[str]] = frozenset({"engine", "output_mode", "emission"})


MODEL = FlinkPipeline
