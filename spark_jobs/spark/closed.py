"""What no SQL text may do in a session: call Java, read the environment, open files.

The author of a definition or of a suite writes SQL and is not the owner of the machine that it runs on.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_jobs.spark.gateway import jvm, session_state

CALL_JAVA = frozenset({"reflect", "java_method", "try_reflect"})
"""Functions that call any static method of Java, such as `System.getenv`."""

CLOSED = {
    # `${env:NAME}` and `${spark.name}` in a text would be replaced before it is parsed.
    "spark.sql.variable.substitute": "false",
    # parquet.`/path` would be a table.
    "spark.sql.runSQLOnFiles": "false",
}


def close(session: SparkSession) -> None:
    """Take the functions that call Java from the session; one that was made from another session has them again."""
    functions = session_state(session).functionRegistry()
    for name in CALL_JAVA:
        functions.dropFunction(jvm(session).org.apache.spark.sql.catalyst.FunctionIdentifier(name))
