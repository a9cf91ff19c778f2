"""The catalog's configuration: embedded by default, any other from one environment variable."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_jobs.errors import CatalogError, EnvironmentSetupError
from spark_jobs.settings import Variable
from spark_jobs.spark.catalog import (
    catalog_conf,
    catalog_file,
    configured_catalog,
    describe_catalog,
    embedded_catalog,
    parse_catalog_conf,
    prepare_catalog,
)


def test_without_configuration_the_catalog_is_sqlite_under_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(Variable.CATALOG_CONF, raising=False)
    home = Path("/data/rewindow")
    assert configured_catalog(home) == embedded_catalog(home)
    assert embedded_catalog(home)["uri"] == "jdbc:sqlite:/data/rewindow/catalog.db"
    assert embedded_catalog(home)["warehouse"] == "/data/rewindow/warehouse"


def test_another_catalog_is_configuration_only(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " type=rest, uri = https://catalog.example.com/v1 ,credential=id:a=b,,"
    monkeypatch.setenv(Variable.CATALOG_CONF, text)
    properties = configured_catalog(Path("/data"))
    assert properties == {"type": "rest", "uri": "https://catalog.example.com/v1", "credential": "id:a=b"}
    conf = catalog_conf(properties)
    assert conf["spark.sql.catalog.rewindow"] == "org.apache.iceberg.spark.SparkCatalog"
    assert conf["spark.sql.catalog.rewindow.uri"] == "https://catalog.example.com/v1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("type=hive,thrift://host:9083", "part 2 is not a catalog property"),
        ("=hive,type=hive", "a property has no name"),
        ("type=rest,credential=id:se,cret", "part 3 is not a catalog property"),
        ("uri=thrift://host:9083", "the catalog's type is missing"),
    ],
)
def test_a_catalog_that_is_not_configured_right_is_refused(text: str, message: str) -> None:
    with pytest.raises(EnvironmentSetupError, match=message) as refused:
        parse_catalog_conf(text)
    assert refused.value.where == "REWINDOW_CATALOG_CONF"
    assert "cret" not in str(refused.value)


def test_a_description_shows_no_password() -> None:
    properties = {"type": "jdbc", "uri": "jdbc:postgresql://host/db?password=secret"}
    assert describe_catalog(properties) == "jdbc at jdbc:postgresql://host/db"


def test_the_catalogs_tables_are_made_once_and_kept(tmp_path: Path) -> None:
    properties = embedded_catalog(tmp_path)
    prepare_catalog(tmp_path, properties)
    with sqlite3.connect(catalog_file(tmp_path)) as connection:
        connection.execute("INSERT INTO iceberg_namespace_properties VALUES ('rewindow', 'a', 'exists', 'true')")
    prepare_catalog(tmp_path, properties)
    with sqlite3.connect(catalog_file(tmp_path)) as connection:
        assert connection.execute("SELECT count(*) FROM iceberg_namespace_properties").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM iceberg_tables").fetchone() == (0,)


def test_many_can_make_the_same_catalog_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(prepare_catalog, tmp_path, embedded_catalog(tmp_path)) for _ in range(32)]:
            done.result()


def test_another_catalog_gets_no_sqlite_file(tmp_path: Path) -> None:
    prepare_catalog(tmp_path, {"type": "rest", "uri": "https://catalog.example.com"})
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_catalog_is_a_catalog_error_with_its_path(tmp_path: Path) -> None:
    catalog_file(tmp_path).write_text("not a database, but longer than SQLite's header of a hundred bytes" * 3)
    with pytest.raises(CatalogError, match=r"the catalog cannot be written.*catalog\.db") as refused:
        prepare_catalog(tmp_path, embedded_catalog(tmp_path))
    assert refused.value.exit_code == 7
