"""Commands that start services: the demo, and an Airflow to click in."""

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
    """Backfill and reconcile real flights through a real Airflow, and compare with what Flink emitted for them."""
    from spark_jobs.devtools.demo import run_demo

    run_demo(console, errors)


@app.command()
def up(
    port: Annotated[int, typer.Option(help="Of Airflow's page, on 127.0.0.1; 0 takes a free one.")] = 0,
    sample: Annotated[
        bool, typer.Option(help="Also backfill and reconcile the flights, so that there is to see.")
    ] = True,
) -> None:
    """Start an Airflow with the pipelines of this checkout and a Kafka broker with the flights, until Ctrl-C."""
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
            f"  user viewer, password {airflow.password('viewer')}    (looks only)\n"
            "Trigger backfill__departures_kafka, fill its form, look at Reports. Ctrl-C stops everything; the tables "
            f"stay under {home}.",
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
                console.print("\nAll three runs are in the UI, with their reports; the last one is not published.")
            signal.pause()
        except KeyboardInterrupt:
            console.print("stopping")
