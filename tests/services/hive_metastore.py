"""A real Hive metastore service from the jars that pyspark brings.

    with HiveMetastore(Path("metastore")) as service:
        spark = spark_session("trial", metastore=service.uri)

It serves what Hive's own launcher serves (the same handler, processor and transports over Derby), but on the loopback
interface only: the launcher listens on every interface and knows no setting against it.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from py4j.protocol import Py4JError, Py4JJavaError

from spark_jobs.demo.kafka_broker import JARS, launched
from spark_jobs.demo.supervised import becomes_true
from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.spark.gateway import JavaObject
from spark_jobs.spark.java import java_reason

_START_SECONDS = 60
_STOP_SECONDS = 10


class HiveMetastore:
    """A metastore with its database, its warehouse and its log in `directory`, and listens on 127.0.0.1.

    `port` 0 takes a free one. It serves from `start()` (or `with`) to `stop()`, and never longer than this process
    lives: the JVM ends when the pipe to its standard input closes, even after a SIGKILL. What it holds stays in
    `directory` and is served again by the next one; two at once in the same directory are refused.
    """

    def __init__(self, directory: Path, *, port: int = 0, heap: str = "512m") -> None:
        self.directory = directory.absolute()
        self.warehouse = self.directory / "warehouse"
        self.log = self.directory / "metastore.log"
        self._port = port
        self._heap = heap
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: JavaObject | None = None
        self._server: JavaObject | None = None
        self._output: IO[str] | None = None

    @property
    def port(self) -> int:
        """The port it listens on; 0 before the start when a free one was requested."""
        return self._port

    @property
    def uri(self) -> str:
        """The address to give to Spark: `thrift://127.0.0.1:<port>`."""
        return f"thrift://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process id of the service's JVM; None when it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> HiveMetastore:
        """Start and wait until it serves. Raises EnvironmentSetupError when it cannot (Java, port taken, directory)."""
        if self._process is not None:
            raise EnvironmentSetupError("the metastore already runs", self.uri, "Use it, or stop it first.")
        try:
            self.warehouse.mkdir(parents=True, exist_ok=True)
            self._output = self.log.open("a")
            gateway = self._launch(self._output)
            self._serve(gateway)
        except (Py4JError, OSError, ValueError) as error:
            # Before stop(), because the reason comes from the JVM. py4j raises ValueError when the JVM printed no port.
            reason = "its JVM ended at once" if isinstance(error, ValueError) else java_reason(error)
            self.stop()
            raise EnvironmentSetupError(
                f"the Hive metastore did not start: {reason}",
                str(self.directory),
                f"Look for another metastore in this directory or on this port; its log is {self.log}.",
            ) from error
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop it and wait until its process has ended; harmless when it does not run."""
        if self._gateway is not None:
            with suppress(Py4JError):  # the JVM may be gone already
                if self._server is not None:
                    self._server.stop()
            self._gateway.shutdown()
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._output is not None:
            self._output.close()
        self._process = self._gateway = self._server = self._output = None

    def __enter__(self) -> HiveMetastore:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, output: IO[str]) -> JavaObject:
        """Start the JVM with pyspark's jars; it is driven over py4j."""
        options = [
            f"-Xmx{self._heap}",
            "-XX:TieredStopAtLevel=1",  # saves a quarter of the start; nothing here runs long enough to be compiled
            f"-Dderby.stream.error.file={self.directory / 'derby.log'}",
        ]
        self._gateway, self._process = launched([f"{JARS}/*"], options, output)
        return self._gateway

    def _serve(self, gateway: JavaObject) -> None:
        """What Hive 2.3's `HiveMetaStore.startMetaStore` does without SASL and SSL, on a loopback socket."""
        jvm = gateway.jvm
        conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
        for key, value in self._hive_conf().items():
            conf.set(key, value)
        address = jvm.java.net.InetSocketAddress("127.0.0.1", self._port)
        socket = jvm.org.apache.thrift.transport.TServerSocket(address)
        hive = jvm.org.apache.hadoop.hive.metastore
        self._make_lock_tables(jvm, conf)
        base = hive.HiveMetaStore.HMSHandler("metastore", conf, False)
        handler = hive.HiveMetaStore.newRetryingHMSHandler(base, conf, True)
        arguments = jvm.org.apache.thrift.server.TThreadPoolServer.Args(socket)
        arguments.processor(hive.TUGIBasedProcessor(handler))
        arguments.transportFactory(jvm.org.apache.hadoop.hive.thrift.TUGIContainingTransport.Factory())
        arguments.protocolFactory(jvm.org.apache.thrift.protocol.TBinaryProtocol.Factory())
        server = jvm.org.apache.thrift.server.TThreadPoolServer(arguments)
        self._server = server
        self._port = socket.getServerSocket().getLocalPort()
        # serve() blocks until the server stops, so it runs in a thread of the JVM; this makes a Runnable of it.
        runnable, made = jvm.java.lang.Class.forName("java.lang.Runnable"), jvm.java.beans.EventHandler.create
        jvm.java.lang.Thread(made(runnable, self._server, "serve")).start()
        clean_up = made(runnable, hive.txn.TxnUtils.getTxnStore(conf), "performTimeOuts")  # as Hive's house keeper does
        times = jvm.java.util.concurrent
        times.Executors.newScheduledThreadPool(1).scheduleWithFixedDelay(clean_up, 5, 10, times.TimeUnit.SECONDS)
        if not becomes_true(server.isServing, within=_START_SECONDS, every=0.02):
            raise TimeoutError(f"not serving after {_START_SECONDS} s")

    def _make_lock_tables(self, jvm: JavaObject, conf: JavaObject) -> None:
        """The tables of locks and transactions, which Hive's schematool makes and DataNucleus does not.

        Iceberg takes a lock for each commit. Where the database cannot be opened, `prepDb` has no reason but a null
        pointer: so it is opened first.
        """
        jvm.java.sql.DriverManager.getConnection(conf.get("javax.jdo.option.ConnectionURL")).close()
        try:
            jvm.org.apache.hadoop.hive.metastore.txn.TxnDbUtil.prepDb(conf)
        except Py4JJavaError as problem:
            if "already exists" not in str(problem):  # an earlier service in this directory has made them
                raise

    def _hive_conf(self) -> dict[str, str]:
        return {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self.directory / 'metastore_db'};create=true",
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.connectionPoolingType": "HikariCP",  # pyspark does not bring the default's jar (BoneCP)
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": self.warehouse.as_uri(),
            "hive.async.log.enabled": "false",
            "hive.txn.timeout": "60s",  # a lock of a process that is gone goes then
            "hive.hmshandler.retry.interval": "200ms",  # ten tries: 2 s, not Hive's 20, until a start gives up
        }
