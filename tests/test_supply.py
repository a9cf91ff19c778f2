"""What is installed to run and to develop, and the document that lists it."""

from __future__ import annotations

import re
from pathlib import Path

from spark_jobs.spark.jars import pinned
from spark_jobs.spark.jvm import PACKAGES, ivy_folder
from tests.sbom import joined

ROOT = Path(__file__).parents[1]


def packages(name: str) -> set[str]:
    """The packages that a lock installs on some platform."""
    lines = (ROOT / name).read_text().splitlines()
    found = (re.match(r"([\w.-]+)==", line) for line in lines if "sys_platform == 'never'" not in line)
    return {match[1] for match in found if match}


def test_what_runs_has_no_tool_of_developers_and_no_package_is_locked_twice() -> None:
    running, developing = packages("requirements.txt"), packages("requirements-dev.txt")
    assert not running & developing
    assert {"pyspark", "apache-airflow", "great-expectations", "s3fs"} <= running
    assert {"pytest", "hypothesis", "ruff", "moto", "playwright", "pyiceberg"} <= developing
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    assert "requirements.txt" in image and "requirements-dev" not in image


def test_locks_have_hashes_and_name_no_host() -> None:
    for file in ROOT.glob("requirements*.txt"):
        text = file.read_text()
        assert "://" not in text and "--index" not in text, file
        pins = len(re.findall(r"^[\w.-]+(\[[\w,-]+\])?==", text, re.MULTILINE))
        assert len(re.findall(r"^[\w.-]+(?:\[[\w,-]+\])?==.*\\\n +--hash=sha256:", text, re.MULTILINE)) == pins > 0, (
            file
        )


def test_the_list_of_what_runs_has_its_packages_and_each_jar_with_hash_and_licence() -> None:
    components = [{"bom-ref": name, "name": name} for name in ("PySpark", "pytest")]
    depends = [{"ref": "PySpark", "dependsOn": ["pytest"]}, {"ref": "pytest"}]
    made = joined({"components": components, "dependencies": depends}, "pyspark==4.0.0 \\\n", ivy_folder() / "cache")
    names = {one["bom-ref"]: one for one in made["components"]}
    assert "PySpark" in names and "pytest" not in names
    assert not any("kafka-streams" in name or "flink-clients" in name for name in names), "only tests use these"
    assert made["dependencies"] == [{"ref": "PySpark", "dependsOn": []}]
    for package in PACKAGES:
        group, artifact, version = package.split(":")
        jar = names[f"jar:{artifact}-{version}.jar"]
        assert jar["purl"] == f"pkg:maven/{group}/{artifact}@{version}" and jar["licenses"]
        assert jar["hashes"] == [{"alg": "SHA-256", "content": pinned()[f"{artifact}-{version}.jar"]}]
