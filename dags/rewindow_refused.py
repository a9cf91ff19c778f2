"""An import error that names the pipelines in `dags/pipelines` that have no DAGs, and why. It holds no DAG."""

from pathlib import Path

from airflow.sdk import DAG, get_parsing_context  # noqa: F401  (Airflow looks for this word before it reads a file)

from spark_jobs.errors import DefinitionError
from spark_jobs.orchestration.dags import refused

if get_parsing_context().dag_id is None:
    problems = refused(Path(__file__).parent / "pipelines")
    if problems:
        raise DefinitionError("\n".join(problems))
