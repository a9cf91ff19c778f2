"""What all tests share: one home folder, one Spark, and one real Hive metastore behind it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from spark_jobs.spark.jvm import JAVA_OPTIONS, SHORT_APPLICATIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.devtools.services.hive_metastore import HiveMetastore
    from spark_jobs.devtools.services.kafka_broker import KafkaBroker

KAFKA_PASSWORD = "correct-horse-battery"
"""Of the broker's user `alice`, on the listener that asks for one."""

# Spark answers in seconds when the machine is busy: a slow example is not a failure.
settings.register_profile("rewindow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rewindow")


# At a process's end py4j says goodbye for each connection, when pytest has closed what it would be written to.
logging.getLogger("py4j").setLevel(logging.WARNING)

SHORT = "tests/golden/"
"""Here each test is quick and needs nothing of another one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files come first, and last what can fill any gap: so two processes end at about the same time."""
    items.sort(key=lambda item: (item.nodeid.startswith(SHORT), item.get_closest_marker("long") is None))


class ByFile(LoadScopeScheduling):
    """Shares the tests out among processes file by file, the short ones one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(SHORT) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def rewindow_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of every test that names no other, also in processes that a test starts; never the user's own."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("REWINDOW_")]:
            patch.delenv(name)
        patch.setenv("REWINDOW_HOME", str(home))
        patch.setenv("REWINDOW_DRIVER_MEMORY", "1g")
        patch.setenv(JAVA_OPTIONS, f"{SHORT_APPLICATIONS} -XX:+UseSerialGC")
        yield home


@pytest.fixture(scope="session")
def hive_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    """A running Hive metastore; tests give their databases names of their own."""
    from spark_jobs.devtools.services.hive_metastore import HiveMetastore

    with HiveMetastore(tmp_path_factory.mktemp("metastore")) as service:
        yield service


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A running Kafka broker with the flights sample in topic `flights`; tests give their topics names of their own."""
    from spark_jobs.devtools.services.kafka_broker import KafkaBroker
    from spark_jobs.devtools.services.kafka_sample import load_flights

    sample = Path(__file__).parent / "data" / "flights" / "events.parquet"
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), users={"alice": KAFKA_PASSWORD}) as broker:
        load_flights(broker, sample)
        yield broker


@pytest.fixture(scope="session")
def spark(rewindow_home: Path, hive_metastore: HiveMetastore) -> Iterator[SparkSession]:
    """The Spark of all tests. It knows the metastore from the start, because a running Spark cannot be given one."""
    from spark_jobs.spark.session import spark_session

    session = spark_session(
        "tests",
        home=rewindow_home,
        metastore=hive_metastore.uri,
        master="local[2]",
        conf={"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"},
    )
    yield session
    session.stop()
