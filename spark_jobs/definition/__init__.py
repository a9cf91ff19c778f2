"""A pipeline as its YAML file describes it: read, validated and immutable.

It may import only eventtime and errors: no Spark, so that Airflow reads definitions quickly. Begin with `pipeline.py`.
"""

from spark_jobs.definition.loading import load_pipeline
from spark_jobs.definition.pipeline import Pipeline
from spark_jobs.definition.schema import json_schema

__all__ = ["Pipeline", "json_schema", "load_pipeline"]
