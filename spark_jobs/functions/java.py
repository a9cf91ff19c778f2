"""Classes of the live job's jars as functions of a session. Spark's own compiler makes the adapter at first use."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.atomic import replace_file
from spark_jobs.definition.fields import Refusal
from spark_jobs.definition.functions import LiveFunction, digest_of
from spark_jobs.settings import cache_folder
from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, java_session, jvm
from spark_jobs.spark.jars import fetch_jars

_SOURCE = Path(__file__).parent / "LiveFunction.java"
_CLASS = "rewindow.functions.LiveFunction"
FLINK_PACKAGES = (
    "org.apache.flink:flink-core:2.3.0",
    "org.apache.flink:flink-core-api:2.3.0",
    "org.apache.flink:flink-table-common:2.3.0",
    "org.apache.flink:flink-metrics-core:2.3.0",
)
"""Flink's interfaces, without a cluster: 3.6 MB."""


class Kind(StrEnum):
    """What a class is, by the interface or class that makes it a function."""

    FLINK_AGGREGATE = "flink_aggregate"
    FLINK_REDUCE = "flink_reduce"
    TABLE_AGGREGATE = "table_aggregate"
    TABLE_SCALAR = "table_scalar"
    SPARK_AGGREGATE = "spark_aggregate"
    SPARK_ROW = "spark_row"
    HIVE_ROW = "hive_row"
    HIVE_AGGREGATE = "hive_aggregate"

    @property
    def is_row(self) -> bool:
        """Whether it is called for each record by itself."""
        return self in (Kind.TABLE_SCALAR, Kind.SPARK_ROW, Kind.HIVE_ROW)


_HINT = (
    "name a class that implements Flink's AggregateFunction, ReduceFunction or ScalarFunction, or extends Spark's "
    "Aggregator, a UDF1 to UDF8, or Hive's UDF, GenericUDF, UDAF or AbstractGenericUDAFResolver"
)


@dataclass(frozen=True, slots=True)
class Described:
    """What a class is: its kind, the type of its result (DDL), the arguments of a row function, and its jars."""

    kind: Kind
    returns: str
    arguments: int
    files: tuple[Path, ...]


def described(spark: SparkSession, function: LiveFunction, project: Path) -> Described:
    """What the class of a function is, read from its jar.

    Raises Refusal: there is no such jar or class in the project, or it cannot be called.
    """
    file = (project / str(function.jar)).resolve()
    if not file.is_relative_to(project.resolve()) or not file.is_file():
        raise Refusal(f"the project has no jar `{function.jar}`", f"it is looked for in {project}")
    adapter = _adapter(spark)
    try:
        told, files = str(adapter.describe(_texts(spark, [file]), function.class_name)), [file]
    except JAVA_ERRORS as error:
        if "org/apache/flink/" not in str(error) and "org.apache.flink." not in str(error):
            raise Refusal(_in_words(function, error), "name a class of that jar") from error
        files = [file, *_flinks_jars()]
        try:
            told = str(adapter.describe(_texts(spark, files), function.class_name))
        except JAVA_ERRORS as still:
            raise Refusal(_in_words(function, still), "put what the class needs into its jar") from still
    kind, result, counts = (*told.split("|"), "", "")[:3]
    if kind == "abstract":
        raise Refusal(f"class `{function.class_name}` is abstract", "name the class that the job uses")
    if kind == "no_constructor":
        what = f"class `{function.class_name}` has no constructor without arguments"
        raise Refusal(what, "add one, or a class that extends it with the job's own arguments")
    if not kind:
        raise Refusal(f"class `{function.class_name}` is no function that can be called", _HINT)
    if "," in counts:
        what = f"class `{function.class_name}` takes {counts.replace(',', ' or ')} arguments: SQL has one number"
        raise Refusal(what, "name a class of the jar that has one such method")
    if not (function.returns or result):
        raise Refusal(f"class `{function.class_name}` does not say the type of its result", "write it under `returns`")
    return Described(Kind(kind), function.returns or result, int(counts or 1), tuple(files))


def register(spark: SparkSession, name: str, as_name: str, function: LiveFunction, told: Described) -> None:
    """Make a class known to the session's SQL as `as_name`. Its jars reach the executors as files, by their content.

    A row function gives a struct of `value` and `why` it failed: see `register_tried`.
    """
    adapter, context = _adapter(spark), spark.sparkContext
    names = []
    for file in told.files:
        kept = _kept(file)
        if (context.applicationId, kept.name) not in _added:
            context.addFile(str(kept))
            _added.add((context.applicationId, kept.name))
        names.append(kept.name)
    java_type = jvm(spark).org.apache.spark.sql.types.DataType.fromDDL(told.returns)
    made = adapter(name, function.class_name, told.kind.value, _texts(spark, names), java_type)
    adapter.register(java_session(spark), as_name, made, told.arguments)


def register_tried(spark: SparkSession, name: str, tried: str, kind: Kind | None = None) -> None:
    """Make `name` the value of the row function `tried`, or an error with the reason why that failed on the record.

    `kind`: of a class of a jar. One of Hive's gets its arguments as one struct, since their types choose its method.
    """
    _adapter(spark).registerTried(java_session(spark), name, tried, kind is Kind.HIVE_ROW)


_added: set[tuple[str | None, str]] = set()
"""The files that applications of this process have, by the application's id and the file's name."""


def _kept(file: Path) -> Path:
    """A copy under a name that its content gives, so that a changed jar is another file."""
    return _in_cache(f"{digest_of(file)}.jar", file.read_bytes)


def _in_cache(name: str, content: Callable[[], bytes]) -> Path:
    """The file of this name in the cache, made with its content where it is missing."""
    file = cache_folder() / "functions" / name
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, content())
    return file


@cache
def _flinks_jars() -> tuple[Path, ...]:
    found: dict[str, Path] = {}
    for package in FLINK_PACKAGES:
        artifact = package.split(":")[1]
        for file in fetch_jars(package, "Flink's interfaces'").glob(f"{artifact}-*.jar"):
            found[file.name] = file
    return tuple(found[name] for name in sorted(found))


def _adapter(spark: SparkSession) -> JavaObject:
    """The adapter's class in Spark's JVM; compiled and shipped once a JVM."""
    loader = java_session(spark).sharedState().jarClassLoader()
    try:
        loader.loadClass(_CLASS)
    except JAVA_ERRORS:
        jar = _compiled(spark, loader)
        java_session(spark).sessionState().resourceLoader().addJar(str(jar))
        loader.loadClass(_CLASS)
    jvm(spark).java.lang.Thread.currentThread().setContextClassLoader(loader)  # py4j looks names up by it
    return jvm(spark).rewindow.functions.LiveFunction


def _compiled(spark: SparkSession, loader: JavaObject) -> Path:
    """The jar of the adapter, compiled where it is missing."""
    text = _SOURCE.read_text()

    def compiled() -> bytes:
        compiler = jvm(spark).org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(_SOURCE.name, jvm(spark).java.io.StringReader(text))
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, code in compiler.getBytecodes().items():
                archive.writestr(name.replace(".", "/") + ".class", bytes(code))
        return written.getvalue()

    return _in_cache(f"adapter-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jar", compiled)


def _texts(spark: SparkSession, values: list[Path] | list[str]) -> JavaObject:
    words = jvm(spark).java.util.ArrayList()
    for value in values:
        words.add(str(value))
    return words


def _in_words(function: LiveFunction, error: PySparkException | Exception) -> str:
    first = str(error).strip().splitlines()
    reason = next((line for line in first if "Exception" in line or "Error" in line), first[0] if first else "")
    if "ClassNotFoundException" in reason:
        return f"the jar `{function.jar}` has no class `{function.class_name}`"
    return f"class `{function.class_name}` cannot be loaded: {reason.removeprefix(': ')}"
