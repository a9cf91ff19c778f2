"""Commands that start services: the demo, and an Airflow to try Rewindow in."""

from __future__ import annotations

import signal
import sys
from datetime import datetime
from typing import Annotated

import typer

from spark_jobs.cli.app import app
from spark_jobs.cli.options import console, errors


@app.command()
def demo() -> None:
    """Backfill and reconcile real flights in a real Airflow, and compare the result with what Flink emitted."""
    from spark_jobs.devtools.demo import run_demo

    run_demo(console, errors)


@app.command()
def up(
    port: Annotated[int, typer.Option(help="The port of Airflow's pages on 127.0.0.1; 0: any free port.")] = 0,
    sample: Annotated[
        bool, typer.Option(help="Also backfill and reconcile the flights, so that there are runs to look at.")
    ] = True,
) -> None:
    """Start Airflow with the pipelines of this checkout, and a Kafka broker with the flights. Ctrl-C stops both."""
    from spark_jobs.devtools.demo import FIRST_NIGHT, night, sample_services, trigger
    from spark_jobs.devtools.services.kafka_sample import load_flights
    from spark_jobs.runs.progress import progress_for
    from spark_jobs.spark.session import rewindow_home

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    home = rewindow_home()
    first: datetime | None = FIRST_NIGHT if sample and not (home / "runs").exists() else None
    with sample_services(home, progress_for(errors), port=port, before=first) as (broker, airflow):
        console.print(
            f"\nAirflow is at [bold]{airflow.url}[/]\n"
            f"  user admin, password {airflow.password('admin')}     (all rights)\n"
            f"  user viewer, password {airflow.password('viewer')}    (may only read)\n"
            "Trigger backfill__departures_kafka and fill its form; its report is under Browse > Rewindow reports. "
            f"Ctrl-C stops everything; the tables stay under {home}.",
            soft_wrap=True,
            highlight=False,
        )
        try:
            if first is not None:
                trigger(console, airflow, "backfill__departures_kafka", {"reason": "all that had arrived by 25 March"})
                load_flights(broker)
                night(console, airflow, "reconcile__departures_kafka")
                form = {"reason": "a watermark that waits 1 minute: its gate closes"}
                trigger(console, airflow, "backfill__departures_hasty", form, ends_as="failed")
                console.print("\nAll three runs are in the UI, with their reports. The gate stopped the last one.")
            signal.pause()
        except KeyboardInterrupt:
            console.print("stopping")
