"""The DAGs of all pipelines in `dags/pipelines`: see `spark_jobs.orchestration.dags`."""

from pathlib import Path

from airflow.sdk import DAG  # noqa: F401  (Airflow looks for this word before it reads a file)

from spark_jobs.orchestration.dags import dags_of

for dag in dags_of(Path(__file__).parent / "pipelines"):
    globals()[dag.dag_id] = dag
