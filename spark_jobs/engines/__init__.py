"""What runs need of the live job's engine beyond the log: what it has recorded, what it waits for, its timing.

It may import everything up to lakehouse. Begin with `live_engine.py`; each engine has a module of its own name.
"""

from spark_jobs.definition import Pipeline
from spark_jobs.definition.engines import part_of
from spark_jobs.engines.live_engine import Holding, LiveEngine, Recorded

__all__ = ["Holding", "LiveEngine", "Recorded", "live_engine"]


def live_engine(pipeline: Pipeline) -> LiveEngine:
    """The engine of a definition's live job."""
    return part_of(pipeline.engine, "engines").ENGINE
