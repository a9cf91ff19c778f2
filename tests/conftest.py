"""What all tests share: one home folder, one Spark, and one real Hive metastore behind it where a test needs that."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from spark_jobs.settings import Variable
from spark_jobs.spark.jvm import SHORT_APPLICATIONS
from tests.conformance.formats import FEW_ROWS
from tests.tiers import Item, Stopwatch, Tests, changed_paths, in_short, longest_first, turn, whose_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services.hive_metastore import HiveMetastore
    from tests.services.kafka_broker import AdministeredBroker

KAFKA_PASSWORD = "correct-horse-battery"
"""Of the broker's user `alice`, on the listener that requires one."""

# Spark answers in seconds when the machine is busy: a slow example is not a failure.
settings.register_profile("rewindow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rewindow")


# At the end of a process py4j logs each closed connection, when pytest has closed the log's stream.
logging.getLogger("py4j").setLevel(logging.WARNING)


def _is_no_traceback_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a record may be written, since Python 3.11 parses source to write a traceback.

    py4j reports from finalizers that a connection is closed. Where one runs while source is parsed (by Hypothesis, by
    pytest), the inner parsing ends the outer one with a SystemError ("AST constructor recursion depth mismatch").
    """
    return not (record.module in ("java_gateway", "clientserver") and record.exc_info)


for _logger in (None, "py4j.java_gateway", "py4j.clientserver"):  # a filter holds for its own logger alone
    logging.getLogger(_logger).addFilter(_is_no_traceback_of_py4j)

ROOM = "-Xms1500m -Xmn600m -XX:MetaspaceSize=256m"
"""Java options of the Spark of all tests: a heap that grew from Java's small start cost a tenth of the time."""

STOPWATCH = Stopwatch()
LEFT_OUT = pytest.StashKey[int]()
"""How many tests wait for another turn."""

SHORT = "tests/golden/"
"""Here each test is quick and needs nothing of another one."""
OF_FEW_ROWS = (
    *(
        f"tests/{folder}/"
        for folder in ("comparison", "corrections", "erasure", "faults", "lakehouse", "operations", "runs", "whatif")
    ),
    "tests/project/test_flink_expressions.py",
    "tests/quality/test_nights.py",
    "tests/report/test_figures_agree.py",
)
"""Here many small queries run. The golden cases have a session of their own; the rest runs as users run it."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier that is asked for, in the order in which two processes end at about the same time."""
    chosen = Tests.chosen()
    if chosen is Tests.WHOLE:
        _keep(config, items, lambda test: not test.is_long)
    elif chosen in (Tests.SHORT, Tests.TURN):
        tests, changed = list(map(_test, items)), changed_paths()
        own, now = [test for test in tests if not test.is_long], in_short(tests, changed, turn())
        if chosen is Tests.TURN:
            own = [test for test in tests if test not in now]
            now = whose_turn(own, changed, float(os.environ["REWINDOW_TESTS_MINUTES"]), turn())
        config.stash[LEFT_OUT] = len(own) - len(now)
        _keep(config, items, lambda test: test in now)
    place = longest_first(map(_test, items), lambda file: file.startswith(SHORT))
    items.sort(key=lambda item: place(_test(item).file))


def _keep(config: pytest.Config, items: list[pytest.Item], wanted: Callable[[Item], bool]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not wanted(_test(item))])
    items[:] = [item for item in items if wanted(_test(item))]


def _test(item: pytest.Item) -> Item:
    file, _, name = item.nodeid.partition("::")
    return Item(file, name, is_long=item.get_closest_marker("long") is not None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of a turn for which no time is left: a busy machine takes longer than it took before."""
    if Tests.chosen() is Tests.TURN and STOPWATCH.minutes() > float(os.environ["REWINDOW_TESTS_MINUTES"]):
        pytest.skip("the time is used up")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a failure without collecting garbage.

    pytest parses the source of a failed test. Where finalizers of PySpark's objects run meanwhile, Python 3.11 ends
    that with a SystemError ("AST constructor recursion depth mismatch"), and the process of tests ends with it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    file, _, name = report.nodeid.partition("::")
    STOPWATCH.add(Item(file, name, is_long="long" in report.keywords), report.duration)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A process of xdist has ended: what it has left out is said by the one that started it."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)  # pyright: ignore
    elif Tests.chosen():
        STOPWATCH.keep()
        if Tests.chosen() is Tests.TURN and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    left_out = config.stash.get(LEFT_OUT, 0)
    if Tests.chosen() is Tests.SHORT:
        terminalreporter.line(f"{left_out} tests that take seconds wait for another turn (make test-whole runs all).")
    elif Tests.chosen() is Tests.TURN:
        terminalreporter.line(f"{left_out} tests wait for another turn (make test-long runs all).")


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
        patch.setenv(Variable.SPARK_IDLE_MINUTES, "0")  # a test that kills a process wants its JVM to end with it
        patch.setenv(Variable.JAVA_OPTIONS, f"{SHORT_APPLICATIONS} -XX:+UseSerialGC")
        yield home


@pytest.fixture(scope="session")
def hive_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    """A running Hive metastore; tests give their databases names of their own."""
    from tests.services.hive_metastore import HiveMetastore

    with HiveMetastore(tmp_path_factory.mktemp("metastore")) as service:
        yield service


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdministeredBroker]:
    """A running Kafka broker with the flights sample in topic `flights`; tests give their topics names of their own."""
    from spark_jobs.demo.kafka_sample import load_flights
    from tests.services.kafka_broker import AdministeredBroker

    sample = Path(__file__).parent / "data" / "flights" / "events.parquet"
    quick = {"log.cleaner.backoff.ms": "500"}  # of topics that are compacted
    folder, users = tmp_path_factory.mktemp("kafka"), {"alice": KAFKA_PASSWORD}
    with AdministeredBroker(folder, users=users, settings=quick) as broker:
        load_flights(broker, sample)
        yield broker


@pytest.fixture(scope="session")
def spark(rewindow_home: Path, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The Spark of all tests.

    A running Spark cannot be given a metastore or jars: it knows from the start those that a chosen test uses.
    """
    from spark_jobs.spark.session import spark_session

    metastore = None
    if any("hive_metastore" in getattr(item, "fixturenames", ()) for item in request.session.items):
        metastore = request.getfixturevalue("hive_metastore").uri
    named = {name for item in request.session.items for mark in item.iter_markers("packages") for name in mark.args}
    with pytest.MonkeyPatch.context() as patch:
        if named:
            patch.setenv(Variable.PACKAGES, ",".join(sorted(named)))
        patch.setenv(Variable.JAVA_OPTIONS, f"{os.environ[Variable.JAVA_OPTIONS]} {ROOM}")
        # Spark's workers import nothing from the folder that they run in, and some need the tests' own modules.
        patch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
        session = spark_session(
            "tests",
            home=rewindow_home,
            metastore=metastore,
            master="local[2]",
            conf={"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"},
        )
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def small_queries(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark's settings for a few rows, in the folders of `OF_FEW_ROWS`."""
    if "spark" not in request.fixturenames or not request.node.nodeid.startswith(OF_FEW_ROWS):
        yield
        return
    conf = request.getfixturevalue("spark").conf
    before = {name: conf.get(name) for name in FEW_ROWS}
    for name, value in FEW_ROWS.items():
        conf.set(name, value)
    yield
    for name, value in before.items():
        conf.set(name, value)
