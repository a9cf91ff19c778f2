"""The Spark session: what it guarantees, what it refuses, and what the user sees of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.errors import CatalogError, EnvironmentSetupError, SourceError
from spark_jobs.settings import Variable
from spark_jobs.spark.catalog import check_catalog
from spark_jobs.spark.gateway import java_session
from spark_jobs.spark.jvm import PACKAGES, class_archive, jar_file, jvm_settings
from spark_jobs.spark.launch import log_file
from spark_jobs.spark.session import check_metastore, rewindow_home, spark_session
from tests.processes import run_python, start_python


def test_the_session_counts_in_utc_and_refuses_overflow_and_bad_casts(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sql("SELECT unix_millis(TIMESTAMP '1970-01-01 00:00:01') AS t").first().t == 1000
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        spark.sql("SELECT 9223372036854775807 + 1").collect()
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        spark.sql("SELECT CAST('x' AS BIGINT)").collect()


def test_the_session_listens_on_the_loopback_interface_and_serves_no_page(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_few_tasks_look_at_many_named_files(spark: SparkSession, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(100)]
    for file in files:
        file.write_text("x")
    context = spark.sparkContext
    context.setJobGroup("listing", "")
    spark.read.text([str(file) for file in files])
    context.setJobGroup("", "")
    jobs = [context.statusTracker().getJobInfo(job) for job in context.statusTracker().getJobIdsForGroup("listing")]
    stages = [context.statusTracker().getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    assert 0 < sum(stage.numTasks for stage in stages if stage) <= 4 * (os.cpu_count() or 1)


def test_python_workers_run_the_same_python(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]


def test_the_pinned_jars_lie_where_spark_keeps_them(spark: SparkSession) -> None:
    assert [package for package in PACKAGES if not jar_file(package).is_file()] == []


def test_java_has_one_collector_the_users_if_they_name_one(monkeypatch) -> None:
    def collectors() -> list[str]:
        options = jvm_settings()["spark.driver.extraJavaOptions"].split()
        return [option for option in options if option.endswith("GC")]

    monkeypatch.setenv(Variable.JAVA_OPTIONS, "-Xss4m")
    assert collectors() == ["-XX:+UseParallelGC"]
    monkeypatch.setenv(Variable.JAVA_OPTIONS, "-Xss4m -XX:+UseZGC")
    assert collectors() == ["-XX:+UseZGC"]
    monkeypatch.setenv(Variable.JAVA_OPTIONS, "-XX:-UseGCOverheadLimit -XX:+UseStringDeduplication")
    assert collectors() == ["-XX:+UseParallelGC"]


def test_a_short_application_has_javas_fast_compiler_unless_the_user_names_another(monkeypatch) -> None:
    def has(option: str, **arguments: bool) -> bool:
        return option in jvm_settings(**arguments)["spark.driver.extraJavaOptions"]

    monkeypatch.delenv(Variable.JAVA_OPTIONS)
    assert has("-XX:TieredStopAtLevel=1", short=True)
    assert not has("-XX:TieredStopAtLevel=1")
    assert has("-XX:Tier4InvocationThreshold=50000")
    monkeypatch.setenv(Variable.JAVA_OPTIONS, "-XX:-TieredCompilation")
    assert not has("-XX:TieredStopAtLevel=1", short=True)
    assert not has("-XX:Tier4")


@pytest.mark.skipif(not class_archive().exists(), reason="`make setup` has archived no classes here")
@pytest.mark.long
def test_java_loads_sparks_classes_from_the_archive_of_set_up(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from spark_jobs.spark.session import spark_session
        spark_session("classes", home=Path(sys.argv[1]), master="local[1]").range(3).collect()
    """
    log = tmp_path / "classes.log"
    options = f"{os.environ[Variable.JAVA_OPTIONS]} -Xlog:class+load:file={log}"
    assert run_python(code, str(tmp_path), environ={Variable.JAVA_OPTIONS: options}).returncode == 0
    # Java makes the classes of lambdas anew in each process.
    lines = log.read_text().splitlines()
    spark_classes = [line for line in lines if " org.apache.spark." in line and "/0x" not in line]
    archived = [line for line in spark_classes if "shared objects file (top)" in line]
    assert len(archived) > 0.9 * len(spark_classes) > 1000


def test_the_same_settings_give_the_same_session(spark: SparkSession, rewindow_home: Path) -> None:
    again = spark_session("another name", home=rewindow_home)
    assert java_session(again).equals(java_session(spark))


def test_another_home_has_its_own_tables_beside_the_first_ones(spark: SparkSession, tmp_path: Path) -> None:
    other = spark_session("other", home=tmp_path / "other")
    other.sql("CREATE NAMESPACE rewindow.only_here")
    other.range(3).writeTo("rewindow.only_here.numbers").create()

    assert other.table("rewindow.only_here.numbers").count() == 3
    assert (tmp_path / "other" / "warehouse" / "only_here" / "numbers").is_dir()
    namespaces = [row.namespace for row in spark.sql("SHOW NAMESPACES IN rewindow").collect()]
    assert "only_here" not in namespaces
    assert other.conf.get("spark.sql.shuffle.partitions") == "2"


def test_an_sql_setting_gives_a_session_of_its_own(spark: SparkSession, rewindow_home: Path) -> None:
    other = spark_session("tests", home=rewindow_home, conf={"spark.sql.shuffle.partitions": "7"})
    assert other.conf.get("spark.sql.shuffle.partitions") == "7"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_views_can_be_kept_in_the_catalog(spark: SparkSession, tmp_path: Path) -> None:
    session = spark_session("views", home=tmp_path)
    session.sql("CREATE NAMESPACE rewindow.v")
    session.range(4).writeTo("rewindow.v.numbers").create()
    session.sql("CREATE VIEW rewindow.v.even AS SELECT id FROM rewindow.v.numbers WHERE id % 2 = 0")
    assert sorted(row.id for row in session.table("rewindow.v.even").collect()) == [0, 2]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"master": "local[1]"}, r"already runs Spark with spark\.master = local\[2\], and local\[1\] was requested"),
        ({"conf": {"spark.driver.memory": "3g"}}, r"spark\.driver\.memory = 2g, and 3g was requested"),
    ],
)
def test_a_running_spark_refuses_what_only_a_start_can_give(spark: SparkSession, wanted: dict, message: str) -> None:
    with pytest.raises(EnvironmentSetupError, match=message) as refused:
        spark_session("other", **wanted)
    assert "another process" in refused.value.hint


def test_a_running_spark_refuses_another_metastore(spark: SparkSession, tmp_path: Path) -> None:
    from tests.services.hive_metastore import HiveMetastore

    with HiveMetastore(tmp_path) as other, pytest.raises(EnvironmentSetupError, match=other.uri):
        spark_session("other", metastore=other.uri)


def test_the_metastore_it_already_uses_is_no_other(spark: SparkSession, hive_metastore) -> None:
    again = spark_session("tests", metastore=hive_metastore.uri)
    assert java_session(again).equals(java_session(spark))


def test_a_metastore_that_does_not_answer_is_reported_before_spark_starts() -> None:
    with pytest.raises(SourceError, match=r"no Hive metastore answers.*thrift://127\.0\.0\.1:1\b") as refused:
        check_metastore("thrift://127.0.0.1:1")
    assert "REWINDOW_METASTORE" in refused.value.hint


@pytest.mark.parametrize("address", ["127.0.0.1:9083", "http://host:9083", "thrift://host", "thrift://host:port"])
def test_what_is_no_address_of_a_metastore_is_refused(address: str) -> None:
    with pytest.raises(SourceError, match="thrift://host:9083"):
        check_metastore(address)


def test_one_answering_metastore_of_several_is_enough(hive_metastore) -> None:
    check_metastore(f"thrift://127.0.0.1:1,{hive_metastore.uri}")


def test_a_silent_catalog_is_a_catalog_error_with_its_address(spark: SparkSession, tmp_path: Path) -> None:
    session = spark_session("rest", home=tmp_path, catalog={"type": "rest", "uri": "http://127.0.0.1:1/?key=hidden"})
    with pytest.raises(CatalogError, match=r"does not answer.*\(rest at http://127\.0\.0\.1:1/\)") as refused:
        check_catalog(session)
    assert "hidden" not in str(refused.value)
    assert refused.value.exit_code == 7


def test_a_home_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentSetupError, match="REWINDOW_HOME"):
        rewindow_home(tmp_path / "file" / "home")


START = """
    import sys
    from spark_jobs.errors import RewindowError
    from spark_jobs.spark.session import spark_session
    try:
        spark = spark_session("test", master="local[1]", conf=dict(pair.split("=", 1) for pair in sys.argv[1:]))
    except RewindowError as error:
        print(type(error).__name__, error)
        sys.exit(error.exit_code)
"""


def test_a_local_run_is_silent_and_leaves_nothing_in_the_working_folder(tmp_path: Path) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    code = """
        from pyspark.errors import AnalysisException
        from spark_jobs.spark.session import spark_session
        spark = spark_session("quiet", master="local[1]")
        spark.sql("CREATE NAMESPACE rewindow.a")
        spark.range(10).writeTo("rewindow.a.numbers").create()
        try:
            spark.sql("SELECT missing FROM rewindow.a.numbers").collect()
        except AnalysisException:
            pass
        spark.stop()
    """
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "spark.jars.excludes none:none\n"
    )  # so Ivy resolves the jars, and says it
    ended = run_python(code, environ={"REWINDOW_HOME": str(home), "SPARK_CONF_DIR": str(conf)}, cwd=work)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert list(work.iterdir()) == []
    assert "iceberg-spark-runtime" in log_file(home).read_text()


@pytest.mark.long
def test_jars_that_cannot_be_fetched_are_named_with_the_mend(tmp_path: Path) -> None:
    nowhere = tmp_path / "ivysettings.xml"
    nowhere.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/none/[artifact].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    ended = run_python(
        START,
        f"spark.jars.ivySettings={nowhere}",
        f"spark.jars.ivy={tmp_path / 'ivy'}",
        environ={"REWINDOW_HOME": str(tmp_path / "home")},
    )
    assert ended.returncode == 8, ended.stderr
    assert "could not fetch its jars: org.apache.iceberg" in ended.stdout
    assert "Maven Central" in ended.stdout
    assert "spark.log" in ended.stdout


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"REWINDOW_DRIVER_MEMORY": "lots"}, "`lots` is not a heap size (REWINDOW_DRIVER_MEMORY). Write 4g or 512m."),
        ({"REWINDOW_DRIVER_MEMORY": "9000000g"}, "could not take a heap of 9000000g"),
        ({"JAVA_HOME": "/nonexistent"}, "JAVA_HOME has no bin/java (JAVA_HOME=/nonexistent)"),
    ],
)
@pytest.mark.long
def test_what_keeps_the_jvm_from_starting_is_told(tmp_path: Path, environ: dict[str, str], message: str) -> None:
    ended = run_python(START, environ={"REWINDOW_HOME": str(tmp_path), **environ})
    assert ended.returncode == 8, ended.stderr
    assert "EnvironmentSetupError" in ended.stdout
    assert message in ended.stdout


@pytest.mark.long
def test_two_applications_at_once_can_begin_with_the_same_empty_home(spark: SparkSession, tmp_path: Path) -> None:
    code = """
        import sys
        from spark_jobs.spark.session import spark_session
        spark = spark_session("one of two", master="local[1]")
        spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.both")
        for n in range(3):
            spark.range(n + 1).writeTo(f"rewindow.both.{sys.argv[1]}_{n}").create()
    """
    environ = {"REWINDOW_HOME": str(tmp_path), "REWINDOW_DRIVER_MEMORY": "512m"}
    both = [start_python(code, name, environ=environ) for name in ("left", "right")]
    errors = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors

    tables = spark_session("reader", home=tmp_path).sql("SHOW TABLES IN rewindow.both").collect()
    assert sorted(row.tableName for row in tables) == ["left_0", "left_1", "left_2", "right_0", "right_1", "right_2"]
