"""Commands about services: the demo, an Airflow to try Rewindow in, the local Spark that waits for the next command."""

from __future__ import annotations

import logging
import select
import signal
import sys
import termios
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from spark_jobs.cli.app import app
from spark_jobs.cli.options import console, errors
from spark_jobs.errors import first_line
from spark_jobs.parts import Part, require

if TYPE_CHECKING:
    from spark_jobs.demo.airflow import Airflow
    from spark_jobs.demo.kafka_broker import KafkaBroker

spark_app = typer.Typer(help="The local Spark that waits for the next command.", no_args_is_help=True)
app.add_typer(spark_app, name="spark")


@spark_app.command("stop")
def stop_spark() -> None:
    """End the local Spark that waits for the next command, and free its memory. One that works is left alone.

    It ends by itself after REWINDOW_SPARK_IDLE_MINUTES (10) without a command.
    """
    from spark_jobs.spark.warm import stop_warm_spark

    console.print(stop_warm_spark().sentence)


@app.command()
def demo() -> None:
    """Backfill and reconcile real flights in a real Airflow beside what Flink emitted, and put that right.

    The live job's windows are in a topic. Each run compares them with the log; the demo approves it as a person would,
    the topic gets the corrections, and the comparison at the end finds that all windows match.
    """
    require(Part.AIRFLOW, "`rewindow demo`")
    from spark_jobs.demo.run import run_demo

    run_demo(console, errors)


@app.command()
def up(
    port: Annotated[
        int,
        typer.Option(help="The port of Airflow's pages on 127.0.0.1. Default: that of the last start, if it is free."),
    ] = 0,
    sample: Annotated[
        bool, typer.Option(help="Also backfill and reconcile the flights, so that there are runs to look at.")
    ] = True,
) -> None:
    """Start Airflow with the pipelines of this checkout, and a Kafka broker with the flights. Ctrl-C stops both."""
    require(Part.AIRFLOW, "`rewindow up`")
    from spark_jobs.demo.ports import kept_port
    from spark_jobs.demo.run import FIRST_NIGHT, sample_services
    from spark_jobs.demo.site import served_site
    from spark_jobs.runs.work.progress import progress_for
    from spark_jobs.spark.session import rewindow_home

    stop = stop_on_signals()
    home = rewindow_home()
    is_new = not (home / "runs").exists()
    first: datetime | None = FIRST_NIGHT if sample and is_new else None
    chosen = kept_port(home / "airflow.port", port)
    try:
        services = sample_services(home, progress_for(errors), port=chosen, before=first)
        with services as (broker, airflow), served_site(port=kept_port(home / "docs.port")) as site:
            _say_where(broker, airflow, home, site)
            if first is not None:
                _load_samples(broker, airflow, stop)
            elif not is_new:
                console.print("The runs of an earlier start are there: see Browse > Rewindow reports.")
            signal.pause()
    except (KeyboardInterrupt, Exception):
        if not stop.is_set():  # what is interrupted may end with an error of its own
            raise
        console.print("stopped")


def stop_on_signals() -> threading.Event:
    """Let SIGTERM interrupt this process as Ctrl-C does; the event says that one of them has come."""
    stop = threading.Event()

    def interrupt(*_: object) -> None:
        stop.set()
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it reports each connection that ends now
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    return stop


def _say_where(broker: KafkaBroker, airflow: Airflow, home: Path, site: str | None) -> None:
    from spark_jobs.demo.kafka_sample import LIVE_TOPIC, TOPIC
    from spark_jobs.demo.run import BROKERS_VARIABLE
    from spark_jobs.settings import Variable

    console.print(
        f"\nAirflow is at [bold]{airflow.url}[/]\n"
        f"  user admin, password {airflow.password('admin')}     (all rights)\n"
        f"  user viewer, password {airflow.password('viewer')}    (may only read)\n"
        "  reports: menu Browse > Rewindow reports, and the tab Rewindow report of a DAG run\n"
        "  try: trigger backfill__departures_kafka with a reason, From 2013/02/01 and 00:00, To 2013/02/08 and 00:00\n"
        f"Kafka is at [bold]{broker.servers}[/], topics {TOPIC} and {LIVE_TOPIC}; "
        f"pipelines take the address from {BROKERS_VARIABLE}\n"
        f"In another terminal: {Variable.HOME}={home} {BROKERS_VARIABLE}={broker.servers} .venv/bin/rewindow status\n"
        f"The documents are {f'at [bold]{site}[/]' if site else 'in docs/; `make docs` makes a site of them'}\n"
        f"Ctrl-C stops everything; the tables stay under {home}.\n"
    )


_IDLE_SECONDS = 120
"""So long nothing has to run and nobody to use the pages before the next sample: who tries something has both cores."""


def _load_samples(broker: KafkaBroker, airflow: Airflow, stop: threading.Event) -> None:
    """A backfill, a night with late arrivals, both judged and put right, a query's, and one that its gate stops.

    Each begins when nothing else runs. What goes wrong ends the samples, not Airflow.
    """
    from spark_jobs.demo.kafka_sample import load_sample
    from spark_jobs.demo.run import FIRST_NIGHT, PIPELINE, STREAMING, night, trigger

    console.print("Four runs follow as samples, one after the other. The last one is meant to fail: its gate closes.")
    try:
        trigger(console, airflow, f"backfill__{PIPELINE.stem}", {"reason": "all that had arrived by 25 March"})
        console.print("\nThe first sample is in the UI: Browse > Rewindow reports. Now try your own.")
        _await_turn(airflow)
        load_sample(broker, since=FIRST_NIGHT)
        night(console, airflow, f"reconcile__{PIPELINE.stem}")
        _await_turn(airflow)
        trigger(console, airflow, f"backfill__{STREAMING.stem}", {"reason": "a query of Structured Streaming"})
        _await_turn(airflow)
        form = {"reason": "a watermark that waits 1 minute: its gate closes"}
        trigger(console, airflow, "backfill__departures_hasty", form, ends_as="failed")
    except Exception as problem:
        console.print(f"\n[yellow]The samples end here[/]: {escape(first_line(problem))}. Airflow goes on.")
        return
    console.print("\nAll four runs are in the UI, with their reports. The gate stopped the last one, as it should.")


def _await_turn(airflow: Airflow) -> None:
    """Wait until Airflow and its pages have been idle for a while, or until somebody presses Enter."""
    keys = sys.stdin if sys.stdin is not None and sys.stdin.isatty() else None
    key = ", or when you press Enter" if keys else ""
    minutes = _IDLE_SECONDS // 60
    console.print(f"The next sample starts when nobody has used the pages for {minutes} minutes{key}.")
    if keys is not None:
        termios.tcflush(keys, termios.TCIFLUSH)  # a key that was pressed before was not meant for this wait
    idle_since, requests = time.monotonic(), airflow.page_requests()
    while time.monotonic() - idle_since < _IDLE_SECONDS:
        if keys is None:
            time.sleep(5)
        elif select.select([keys], [], [], 5)[0]:
            keys.readline()
            return
        before, requests = requests, airflow.page_requests()
        runs = airflow.get("/dags/~/dagRuns?state=running&state=queued&limit=1")["dag_runs"]
        if runs or requests > before:
            idle_since = time.monotonic()
