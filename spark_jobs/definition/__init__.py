"""Pipeline definitions: what a user writes as YAML, read, checked and made immutable. Imports no Spark."""

from spark_jobs.definition.loading import load_pipeline, load_pipelines
from spark_jobs.definition.pipeline import Pipeline
from spark_jobs.definition.schema import json_schema

__all__ = ["Pipeline", "json_schema", "load_pipeline", "load_pipelines"]
