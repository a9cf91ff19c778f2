"""What a definition says of a live job that was started anew from a mark, such as a savepoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.engines import live_engine
from spark_jobs.errors import DefinitionError, HistoryError
from spark_jobs.formatting import plural
from spark_jobs.marks.mark import Mark
from spark_jobs.marks.read import ends_in
from spark_jobs.replay.columns import ARRIVAL
from spark_jobs.sources import came_since, canonical, good, open_history


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart as a definition says it.

    Attributes:
        definition: The line of the YAML file.
        misplaced: Records that the job had read before, and that the replay takes for read after the restart.
    """

    definition: str
    misplaced: int

    @property
    def note(self) -> str:
        """What is not exact; empty: nothing."""
        if not self.misplaced:
            return ""
        return (
            f"{plural(self.misplaced, 'record')} that the job had read arrived then or later: the replay reads "
            f"{'it' if self.misplaced == 1 else 'them'} after the restart"
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def restart_from(spark: SparkSession, pipeline: Pipeline, mark: Mark) -> Restart:
    """The restart of a job that went on from the mark. Reads the positions of the whole history.

    The job began anew with the first record behind the mark's offsets.

    Raises DefinitionError where the mark is of a job that reads other topics, or the engine's own records say when it
    was restarted; HistoryError where no record lies behind the mark.
    """
    ends = ends_in(spark, pipeline, mark)
    records = good(canonical(open_history(spark, pipeline), pipeline))
    (first,) = records.where(came_since(ends)).agg(F.min(ARRIVAL)).collect()[0]
    if first is None:
        raise HistoryError("no record has come since the mark", mark.where, "Wait until the job has read one.")
    live = live_engine(pipeline)
    definition = live.restart_in_definition(ends, first)
    if definition is None:
        raise DefinitionError("the job records its restarts itself", mark.where, "Its definition says none.")
    misplaced = 0 if live.restarts_by_offset else records.where(~came_since(ends) & (F.col(ARRIVAL) >= first)).count()
    return Restart(definition, misplaced)
