"""Airflow: the DAGs of a pipeline, their form and their operators. Nothing here imports Spark or Great Expectations."""
