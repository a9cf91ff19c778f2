"""The jar of the job in `job/`, compiled against Flink's interfaces and Spark's jars."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pyspark

from spark_jobs.functions.java import FLINK_PACKAGES
from spark_jobs.spark.jars import fetch_jars
from tests.java import compiled

HERE = Path(__file__).parent


def job_jar(folder: Path) -> Path:
    """Compile the job into `folder/job.jar`."""
    folders = [fetch_jars(package, "Flink's interfaces'") for package in FLINK_PACKAGES]
    path = os.pathsep.join(f"{one}/*" for one in [*folders, Path(pyspark.__file__).parent / "jars"])
    classes = folder / "classes"
    classes.mkdir(exist_ok=True)
    compiled(sorted((HERE / "job").glob("*.java")), path, classes)
    jar = folder / "job.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for file in sorted(classes.rglob("*.class")):
            archive.write(file, file.relative_to(classes))
    return jar
