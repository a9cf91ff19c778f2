"""Airflow: the two DAGs of each pipeline, their form and their operators.

It may import submit, runs and definition, but no Spark and no Great Expectations where a DAG file is parsed, because
Airflow does that again and again. Begin with `dags.py`.
"""
