"""What Rewindow reads from the environment: every `REWINDOW_*` variable, its type, its default and its meaning.

This is the only module that reads these variables; `docs/settings.md` is generated from the class `Settings`. It
imports no Spark and no Airflow. Variables that a pipeline's YAML names as `${NAME}` belong to the user and are read by
`spark_jobs.definition.environment`.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from spark_jobs.errors import EnvironmentSetupError


class Variable(StrEnum):
    """The names of the environment variables, for messages and for the environment of child processes."""

    HOME = "REWINDOW_HOME"
    RUNS = "REWINDOW_RUNS"
    CATALOG_CONF = "REWINDOW_CATALOG_CONF"
    METASTORE = "REWINDOW_METASTORE"
    EXPECTATIONS = "REWINDOW_EXPECTATIONS"
    DRIVER_MEMORY = "REWINDOW_DRIVER_MEMORY"
    JAVA_OPTIONS = "REWINDOW_JAVA_OPTIONS"
    PACKAGES = "REWINDOW_PACKAGES"
    SPARK_UI = "REWINDOW_SPARK_UI"
    SPARK_IDLE_MINUTES = "REWINDOW_SPARK_IDLE_MINUTES"
    SPARK_CONNECTION = "REWINDOW_SPARK_CONNECTION"
    SPARK_CONF = "REWINDOW_SPARK_CONF"
    POOL = "REWINDOW_POOL"
    PARALLEL_CHUNKS = "REWINDOW_PARALLEL_CHUNKS"
    NOTIFIERS = "REWINDOW_NOTIFIERS"
    SPARK_HISTORY = "REWINDOW_SPARK_HISTORY"
    TABLE_LINK = "REWINDOW_TABLE_LINK"
    VARIABLES = "REWINDOW_VARIABLES"
    SCHEMA_FOLDERS = "REWINDOW_SCHEMA_FOLDERS"
    KEEP_AT_LEAST = "REWINDOW_KEEP_AT_LEAST"
    CATALOG_SECONDS = "REWINDOW_CATALOG_SECONDS"
    STORE_SECONDS = "REWINDOW_STORE_SECONDS"


def _heap_size(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*[mg]", text, re.IGNORECASE):
        raise ValueError("a heap size is a whole number with m or g")
    return text


def _coordinates(text: str) -> str:
    if not all(re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", part.strip()) for part in text.split(",")):
        raise ValueError("a package is written as group:artifact:version")
    return text


HOME_NAME = ".rewindow"
PIPELINES = Path("dags/pipelines")
"""Where a project's folder has its definitions."""


def project_folder() -> Path:
    """The nearest folder, from the current one upwards, that has `dags/pipelines` or a home; else the current one.

    Above the current folder, what belongs to another user does not count: anybody can put a project into /tmp.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        if any(_counts(folder, mark, is_above=folder != here) for mark in (PIPELINES, Path(HOME_NAME))):
            return folder
    return here


def _counts(folder: Path, mark: Path, *, is_above: bool) -> bool:
    """Whether the folder has the mark of a project, all of it this user's own or root's where it is above."""
    steps = [folder, *(folder / step for step in (*reversed(mark.parents), mark) if step.name)]
    return (folder / mark).is_dir() and not (is_above and any(is_of_another(step) for step in steps))


def is_of_another(place: Path) -> bool:
    """Whether a file, a folder or a link itself belongs to another user than this one and root."""
    return place.lstat().st_uid not in (os.getuid(), 0)


def cache_folder() -> Path:
    """This user's folder of what can be made again: `$XDG_CACHE_HOME/rewindow`, else `~/.cache/rewindow`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rewindow"


class Settings(BaseSettings):
    """One field for each variable, which is named like it. A variable that is empty counts as not set.

    A field's `title` names the kind of value; with the field's examples it makes the message about a bad value.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        env_ignore_empty=True,
        case_sensitive=True,
        extra="ignore",
        str_strip_whitespace=True,
        alias_generator=lambda name: Variable[name.upper()].value,
    )

    home: Annotated[Path, AfterValidator(lambda folder: folder.expanduser().absolute())] = Field(
        default_factory=lambda: project_folder() / HOME_NAME,
        validate_default=True,
        title="a folder",
        description="Holds the embedded catalog, its tables, the runs and the logs; without it, `.rewindow` in the "
        "project's folder does: the nearest one upwards with `dags/pipelines` or `.rewindow`, else the current one.",
        examples=["/data/rewindow"],
    )
    runs: str | None = Field(
        default=None,
        title="a folder, or an address that fsspec knows",
        description="Holds the documents and reports of the runs; without it, `$REWINDOW_HOME/runs` does.",
        examples=["s3://lake/rewindow/runs"],
    )
    catalog_conf: str | None = Field(
        default=None,
        title="`name=value` pairs, separated by commas",
        description="Iceberg's properties of the catalog `rewindow`; without it, the catalog is SQLite under the home.",
        examples=["type=hive,uri=thrift://host:9083,warehouse=s3a://lake/rewindow"],
    )
    metastore: str | None = Field(
        default=None,
        title="a Thrift address",
        description="Hive metastore of pipelines whose history or live tables name none.",
        examples=["thrift://host:9083"],
    )
    expectations: Path | None = Field(
        default=None,
        title="a folder",
        description="Holds the expectation suites; without it, `expectations/` beside the pipeline's `dags/` does.",
        examples=["/data/expectations"],
    )
    driver_memory: Annotated[str, AfterValidator(_heap_size)] = Field(
        default="4g",
        title="a heap size",
        description="Heap of Spark's driver, which in a local run does all the work.",
        examples=["4g", "512m"],
    )
    java_options: str | None = Field(
        default=None,
        title="options of `java`",
        description="More options for Spark's JVM; one that names a garbage collector replaces the parallel collector.",
        examples=["-Xss4m -XX:+UseZGC"],
    )
    packages: Annotated[str, AfterValidator(_coordinates)] | None = Field(
        default=None,
        title="Maven coordinates, separated by commas",
        description="More jars for Spark, such as the JDBC driver of a catalog. Spark fetches them from Maven Central.",
        examples=["org.postgresql:postgresql:42.7.7"],
    )
    spark_ui: bool = Field(
        default=False,
        title="a switch",
        description="Serves Spark's own web page in a local run.",
        examples=["1", "0"],
    )
    spark_idle_minutes: float = Field(
        default=10,
        ge=0,
        title="a number of minutes",
        description="How long a local run's JVM waits for the next command, which then starts at once; 0: it ends with "
        "its command. `rewindow spark stop` ends it.",
        examples=["0", "10"],
    )
    spark_connection: str = Field(
        default="spark_default",
        title="an Airflow connection",
        description="Connection of type Spark that says where Airflow's tasks run Spark.",
        examples=["spark_yarn"],
    )
    spark_conf: str | None = Field(
        default=None,
        title="`name=value` pairs, separated by commas",
        description="More Spark settings for the tasks in Airflow.",
        examples=["spark.executor.memory=8g,spark.executor.cores=4"],
    )
    pool: str = Field(
        default="default_pool",
        title="an Airflow pool",
        description="Pool of the tasks that start Spark.",
        examples=["spark"],
    )
    parallel_chunks: int = Field(
        default=2,
        ge=1,
        title="a number of tasks",
        description="Chunks of one run that Airflow replays at the same time, at most.",
        examples=["1", "2"],
    )
    notifiers: str | None = Field(
        default=None,
        title="a JSON list of notifiers",
        description="Airflow notifiers that are called for failed gates, refused runs, failures and pending approvals.",
        examples=['[{"class": "package.Notifier", "arguments": {}, "on": ["gate_failed"]}]'],
    )
    spark_history: str | None = Field(
        default=None,
        title="a web address",
        description="Spark history server that a task's link opens; without it, the link opens the live Spark UI.",
        examples=["https://spark-history.example.com"],
    )
    table_link: str | None = Field(
        default=None,
        title="a web address with `{table}`",
        description="Page of a table in your data catalog; without it, a task's link opens the run's report.",
        examples=["https://catalog.example.com/tables/{table}"],
    )

    variables: str | None = Field(
        default=None,
        title="names of variables, separated by commas; `*` stands for any letters",
        description="The variables that definitions may name, as `${NAME}` and under `secrets` and `auth`; without it, "
        "those that begin with `KAFKA`, `REGISTRY`, `LAKE` or `DATA` (alone or before `_`), and in `${NAME}` of these "
        "no names of secrets. Airflow's variables and Rewindow's settings never count.",
        examples=["KAFKA_*,LAKE"],
    )
    schema_folders: str | None = Field(
        default=None,
        title="folders, separated by colons",
        description="More folders from which definitions may read a `schema_file`, beside the project's own.",
        examples=["/data/schemas"],
    )
    keep_at_least: str = Field(
        default="1 d",
        title="a length of time",
        description="The shortest time that the form of `maintain__<pipeline>` may keep snapshots, revisions and runs: "
        "who may send it can erase nothing that is younger. `rewindow maintain` has no such limit.",
        examples=["1 d", "30 d"],
    )
    catalog_seconds: int = Field(
        default=60,
        ge=1,
        le=3600,
        title="a number of seconds",
        description="How long a run waits for one answer of the Iceberg catalog and of the Hive metastore. A property "
        "of `REWINDOW_CATALOG_CONF` that says it for its catalog goes first.",
        examples=["60"],
    )
    store_seconds: int = Field(
        default=20,
        ge=1,
        le=3600,
        title="a number of seconds",
        description="How long a run waits for one answer of an object store like S3. It tries 6 times for documents of "
        "runs and for tables (Iceberg's `S3FileIO`), 3 times for files under `s3a://`, which take 15 s at least. "
        "fsspec's, the catalog's and Spark's own settings go first.",
        examples=["20"],
    )

    @property
    def home_origin(self) -> str:
        """Where the home comes from: the variable, the project's folder, or the current folder; for people."""
        if "home" in self.model_fields_set:
            return str(Variable.HOME)
        return "the current folder" if self.home.parent == Path.cwd() else "the project's folder"

    @property
    def run_store(self) -> str:
        """The address of the folder that holds all runs."""
        return self.runs or str(self.home / "runs")


def settings() -> Settings:
    """The settings as the environment has them now; nothing is cached.

    Raises EnvironmentSetupError that names the variable whose value cannot be used, whichever setting is needed.
    """
    try:
        return Settings()
    except ValidationError as error:
        problem = error.errors()[0]
        variable = problem["loc"][0]
        raise EnvironmentSetupError(
            f"`{problem['input']}` is not {_field(variable).title}", str(variable), f"Write {_examples(variable)}."
        ) from error


def pairs(text: str, variable: Variable, kind: str) -> dict[str, str]:
    """The pairs in `name=value,name=value`, the text of `variable`; of the same name twice, the last.

    Spaces around names and values, and empty parts, do not count. A value may contain `=`, but no comma. `kind`: what a
    pair is, with an article and for the message. Raises EnvironmentSetupError for a part without `=`.
    """
    found: dict[str, str] = {}
    for place, part in enumerate(filter(str.strip, text.split(",")), 1):
        name, equals, value = part.partition("=")
        if not equals:
            raise EnvironmentSetupError(
                f"part {place} is not {kind}",  # not shown: it can be the rest of a password with a comma
                variable,
                f"Write name=value pairs separated by commas, such as {_examples(variable)}. "
                "No value may contain a comma.",
            )
        found[name.strip()] = value.strip()
    return found


def more_conf() -> dict[str, str]:
    """The Spark settings that a shop adds for the tasks in Airflow, in `REWINDOW_SPARK_CONF`.

    Raises EnvironmentSetupError where one has no value.
    """
    return pairs(settings().spark_conf or "", Variable.SPARK_CONF, "a setting")


def _field(variable: object) -> FieldInfo:
    return next(field for field in Settings.model_fields.values() if field.validation_alias == variable)


def _examples(variable: object) -> str:
    return " or ".join(_field(variable).examples or ())
