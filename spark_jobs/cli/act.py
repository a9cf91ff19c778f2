"""Commands that act: run, reconcile, archive, and a broker to try things with."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from spark_jobs.cli.app import app
from spark_jobs.cli.corrections import end_of_corrections, print_corrections
from spark_jobs.cli.options import (
    AnotherLogOption,
    AsOfOption,
    BeyondLimitsOption,
    ChunksOption,
    DryRunOption,
    FromOption,
    GateOption,
    JsonOption,
    ModeOption,
    PipelineArgument,
    PolicyOption,
    ReasonOption,
    RunArgument,
    RunIdOption,
    ToOption,
    asked_for,
    console,
    end_policy_of,
    errors,
    load,
    requested_of,
    session,
)
from spark_jobs.cli.output import (
    Stopwatch,
    columns_to_query,
    print_night,
    print_plan,
    print_result,
    print_verdicts,
    print_warnings,
    result_record,
)
from spark_jobs.errors import DefinitionError, noted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.definition import Pipeline
    from spark_jobs.definition.mode import Mode
    from spark_jobs.runs.life.store import RunFolder
    from spark_jobs.runs.work.evaluation import EndPolicy
    from spark_jobs.runs.work.job import RunResult


@app.command()
def run(
    pipeline: PipelineArgument,
    start: FromOption = None,
    end: ToOption = None,
    as_of: AsOfOption = None,
    mode: ModeOption = None,
    chunks: ChunksOption = None,
    panes: Annotated[str | None, typer.Option(help="last or all; default as the definition says.")] = None,
    plan_file: Annotated[Path | None, typer.Option("--plan", help="Carry out this plan (from `plan --json`).")] = None,
    dry_run: DryRunOption = None,
    reason: ReasonOption = "",
    run_id: RunIdOption = None,
    publish: PolicyOption = None,
    gate: GateOption = True,
    beyond_limits: BeyondLimitsOption = False,
    another_log: AnotherLogOption = False,
    as_json: JsonOption = False,
) -> None:
    """Replay the history and publish windows, late records and quarantine to the catalog `rewindow`.

    A run can be repeated: what comes out the same changes nothing, what differs becomes a new revision. One that is
    killed leaves the published tables as they were.
    """
    from spark_jobs.definition.mode import Mode
    from spark_jobs.replay.spec import Panes
    from spark_jobs.runs.life.documents import DryRun
    from spark_jobs.runs.life.start import refuse_known_run_of_another, refuse_run_of_another
    from spark_jobs.runs.life.store import RunStore
    from spark_jobs.runs.planning.definition_change import with_change
    from spark_jobs.runs.planning.plan import allowed_now, make_plan, plan_from_json, planned_records
    from spark_jobs.runs.planning.requesting import check_order, check_range
    from spark_jobs.runs.work.backfill import execute
    from spark_jobs.runs.work.progress import progress_for
    from spark_jobs.runs.work.stages import chunk_stages, stages_of
    from spark_jobs.sources import names_of

    loaded = load(pipeline)
    requested = requested_of(
        loaded, start=start, end=end, as_of=as_of, mode=mode, chunks=chunks, panes=panes, dry_run=dry_run,
        beyond_limits=beyond_limits or None, another_log=another_log or None, publish=publish,
    )  # fmt: skip
    options = requested.plan_options(loaded)
    if run_id is not None:
        refuse_run_of_another(RunStore.configured().folder(run_id), loaded)
    planned = None
    if plan_file is not None:
        _refuse_beside_plan(
            plan_file, {"--from": start, "--to": end, "--as-of": as_of, "--mode": mode, "--chunks": chunks}
        )
        planned = plan_from_json(plan_file.read_text(errors="replace"))
    else:
        check_range(loaded, options["start"], options["end"])
        check_order(loaded, options["mode"])
    stopwatch = Stopwatch()
    end_policy = None if requested.dry_run is DryRun.PLAN else end_policy_of(loaded, requested, gate)
    with stopwatch.timed("start"):
        spark = session(loaded, "run", has_gate=end_policy is not None and end_policy.gate is not None)
    progress = progress_for(errors)
    if run_id is not None:
        refuse_known_run_of_another(spark, RunStore.configured().folder(run_id), loaded)
    if planned is not None:
        planned = allowed_now(spark, loaded, planned, beyond_limits=beyond_limits, another_log=another_log)
    if end_policy is None:
        planned = with_change(spark, loaded, planned or make_plan(spark, loaded, **options))
        if as_json:
            print(planned.to_json())
        else:
            print_plan(planned, stages_of(loaded, chunk_stages(planned.chunks)), names_of(loaded))
        return
    if end_policy.prepare is not None:
        end_policy.prepare()
    with ExitStack() as open_records:
        where = noted(f"stage plan of {loaded.name}")
        with where, progress.stage("plan", loaded.name), stopwatch.timed("plan"):
            planned, records = open_records.enter_context(planned_records(spark, loaded, planned, **options))
            if requested.dry_run is not None:
                planned = with_change(spark, loaded, planned)
        print_warnings(planned.warnings, errors)
        result = execute(
            spark,
            loaded,
            planned,
            progress,
            panes=Panes(requested.panes) if requested.panes else None,
            records=records,
            run_id=run_id,
            asked=asked_for(reason, requested),
            end_policy=end_policy,
        )
    _end(loaded, result, as_json, end_policy, stopwatch, Mode(planned.mode))


def _refuse_beside_plan(plan_file: Path, options: Mapping[str, object]) -> None:
    """Raises DefinitionError where options are given that a plan has decided on."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise DefinitionError(
            f"--plan is given with {', '.join(given)}, and the plan has decided on that",
            str(plan_file),
            f"Leave out what the plan says, or plan again: `rewindow plan ... {given[0]} ... --json`.",
        )


app.command("backfill", help="The same as `run`.", short_help="The same as `run`.")(run)


@app.command()
def reconcile(
    pipeline: PipelineArgument,
    until: Annotated[
        str | None, typer.Option(help="Take what arrived before this instant, with a zone. Default: all.")
    ] = None,
    dry_run: DryRunOption = None,
    reason: ReasonOption = "",
    run_id: RunIdOption = None,
    publish: PolicyOption = None,
    gate: GateOption = True,
    as_json: JsonOption = False,
) -> None:
    """Bring the published windows up to date: read what arrived since the last run, recompute what it touches.

    The tables are then those of a full run. A first run and a changed definition are full runs.
    """
    from spark_jobs.runs.life.documents import DryRun, instant_of
    from spark_jobs.runs.life.start import refuse_run_of_another
    from spark_jobs.runs.life.store import RunStore
    from spark_jobs.runs.night.nightly import planned_night
    from spark_jobs.runs.night.nightly import reconcile as reconcile_run
    from spark_jobs.runs.planning.requesting import check_order, check_until
    from spark_jobs.runs.work.progress import progress_for

    loaded = load(pipeline)
    requested = requested_of(loaded, until=until, dry_run=dry_run, publish=publish)
    until_ms = instant_of(requested.until)
    check_until(loaded, until_ms)
    check_order(loaded, loaded.mode)
    if run_id is not None:
        refuse_run_of_another(RunStore.configured().folder(run_id), loaded)
    stopwatch = Stopwatch()
    end_policy = end_policy_of(loaded, requested, gate)
    with stopwatch.timed("start"):
        spark = session(loaded, "reconcile")
    if requested.dry_run is DryRun.PLAN:
        with planned_night(spark, loaded, progress_for(errors), until=until_ms, end_policy=end_policy) as night:
            print_night(loaded, night, as_json)
        return
    result = reconcile_run(
        spark,
        loaded,
        progress_for(errors),
        until=until_ms,
        run_id=run_id,
        asked=asked_for(reason, requested),
        end_policy=end_policy,
    )
    _end(loaded, result, as_json, end_policy, stopwatch, loaded.mode)


def _end(
    pipeline: Pipeline,
    result: RunResult,
    as_json: bool,
    end_policy: EndPolicy,
    stopwatch: Stopwatch,
    mode: Mode,
) -> None:
    """Print a run's outcome, write its report; exit code 3 where it waits for a person."""
    from spark_jobs.report.build import build_report
    from spark_jobs.runs.life.documents import Outcome
    from spark_jobs.runs.life.permission import Action
    from spark_jobs.runs.life.store import PAGE, RunStore
    from spark_jobs.runs.life.verdicts import Verdicts
    from spark_jobs.runs.planning.last_run import remember

    folder = RunStore.configured().folder(result.run_id)
    outcome = Outcome.read(folder)
    has_page = folder.read_bytes(PAGE) is not None
    if outcome is not None and (result.timings or result.corrections is not None or not has_page):
        with stopwatch.timed("report"):
            build_report(folder)
        has_page = True
        remember(folder)
    if result.timings:
        result.timings = stopwatch.around(result.timings)
    if as_json:
        print(json.dumps(result_record(result, outcome and outcome.status), default=str))
    else:
        print_result(result, columns_to_query(pipeline, mode), outcome and outcome.status)
        if (verdicts := Verdicts.read(folder)) is not None:
            print_verdicts(verdicts)
        print_corrections(result.corrections)
        if has_page:
            _say_report(folder)
    if result.decision is not None and result.decision.action is not Action.PUBLISH and not end_policy.ends_as:
        hint = outcome.hint if outcome else ""
        errors.print(f"[bold yellow]not published[/]: {escape(result.decision.why)}. {escape(hint)}")
        raise typer.Exit(3)
    end_of_corrections(result.corrections)


@app.command("publish")
def publish_run(
    run_id: RunArgument,
    reason: Annotated[str, typer.Option(help="Why it is published all the same; kept with the run.")],
) -> None:
    """Publish what a run has staged: one that waits for approval, or whose gate is closed."""
    from spark_jobs.corrections.stage import bring_corrections
    from spark_jobs.runs.life.reopening import publish_staged
    from spark_jobs.runs.life.store import RunStore
    from spark_jobs.runs.work.evaluation import EndPolicy
    from spark_jobs.runs.work.progress import progress_for

    ends = EndPolicy(deliver=bring_corrections)
    result = publish_staged(_spark_of, run_id, progress_for(errors), reason, end_policy=ends)
    print_result(result)
    print_corrections(result.corrections)
    _rebuild_report(RunStore.configured().folder(run_id))
    end_of_corrections(result.corrections)


@app.command("discard")
def discard_run(run_id: RunArgument, reason: ReasonOption = "") -> None:
    """Drop what a run has staged. The published windows stay as they are."""
    from spark_jobs.runs.life.reopening import discard_staged
    from spark_jobs.runs.life.store import RunStore
    from spark_jobs.runs.work.progress import progress_for

    person = getpass.getuser() if reason else ""
    discard_staged(_spark_of, run_id, progress_for(errors), reason or "discarded by hand", person=person)
    console.print(f"Run {escape(run_id)} is discarded; the published windows are as they were.")
    _rebuild_report(RunStore.configured().folder(run_id))


def _rebuild_report(folder: RunFolder) -> None:
    """Let the report, where there is one, say how the run has ended now."""
    from spark_jobs.report.build import build_report
    from spark_jobs.runs.life.store import PAGE

    if folder.read_bytes(PAGE) is not None:
        build_report(folder)
        _say_report(folder)


def _say_report(folder: RunFolder) -> None:
    from spark_jobs.runs.life.store import PAGE

    console.print(f"Report: {folder.address(PAGE)}")


def _spark_of(pipeline: Pipeline) -> SparkSession:
    return session(pipeline, "publish")


@app.command("maintain")
def maintain_tables(
    pipeline: PipelineArgument,
    keep_snapshots: Annotated[str, typer.Option(help="Iceberg snapshots younger than this stay.")] = "7 d",
    keep_revisions: Annotated[
        str | None, typer.Option(help="Values that were superseded longer ago are deleted. Default: none.")
    ] = None,
    keep_runs: Annotated[
        str, typer.Option(help="Documents and ledger rows of runs that ended longer ago are deleted; `forever`: none.")
    ] = "400 d",
    as_json: JsonOption = False,
) -> None:
    """Tidy a pipeline's tables and runs: killed ones, old snapshots, states, files. The current windows stay."""
    from dataclasses import asdict
    from datetime import UTC, datetime

    from spark_jobs.operations.maintain import maintain
    from spark_jobs.operations.periods import retention, retention_or_forever
    from spark_jobs.runs.work.progress import progress_for

    loaded = load(pipeline)
    snapshots = retention(keep_snapshots, "--keep-snapshots")
    revisions = retention_or_forever(keep_revisions, "--keep-revisions")
    runs = retention_or_forever(keep_runs, "--keep-runs")
    done = maintain(
        session(loaded, "maintain", short=True),
        loaded,
        progress_for(errors),
        now=datetime.now(UTC),
        keep_snapshots=snapshots,
        keep_revisions=revisions,
        keep_runs=runs,
    )
    if as_json:
        print(json.dumps(asdict(done)))
        return
    console.print(
        f"{len(done.abandoned)} killed runs cleared, {sum(done.snapshots_expired.values())} snapshots expired, "
        f"{sum(done.files_compacted.values())} files compacted, {sum(done.orphans_removed.values())} orphans removed, "
        f"{done.revisions_deleted} revisions, {done.states_deleted} states, {done.runs_forgotten} rows of the ledger, "
        f"{done.folders_deleted} folders of runs and {done.replaced_deleted} of corrected partitions deleted"
    )


@app.command("archive")
def archive_topic(
    pipeline: PipelineArgument,
    as_of: AsOfOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be appended, write nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Append what is new in the topic to the Iceberg table of a stitched history, exactly once.

    Partition, offset and append time are kept. A run can be repeated or killed at any moment. Of a Structured Streaming
    query it keeps the batches of the checkpoint, which itself has the last 100 only.
    """
    from dataclasses import asdict

    from spark_jobs.operations import archive

    loaded = load(pipeline)
    if loaded.records_what_it_read and not loaded.history.is_stitched:
        console.print(archive.archived(session(loaded, "archive"), loaded))
        return
    spark = session(loaded, "archive")
    result = archive.archive(spark, loaded, as_of=requested_of(loaded, as_of=as_of).as_of, dry_run=dry_run)
    if as_json:
        print(json.dumps(asdict(result)))
        return
    for chosen in result.ranges:
        console.print(f"partition {chosen.partition}: offsets [{chosen.start}, {chosen.end})")
    for note in result.notes:
        console.print(f"[yellow]note[/]: {escape(note)}")
    if dry_run and result.ranges:
        console.print(f"would be appended to {result.table}; nothing was written")
    else:
        console.print(result.sentence())


kafka_app = typer.Typer(help="A Kafka broker for trying things out.", no_args_is_help=True)
app.add_typer(kafka_app, name="kafka")


@kafka_app.command("up")
def kafka_up(
    directory: Annotated[
        Path | None, typer.Option(help="Where it keeps its log. Default: $REWINDOW_HOME/kafka.")
    ] = None,
    port: Annotated[int, typer.Option(help="On 127.0.0.1; 0 takes a free one.")] = 9092,
    sample: Annotated[
        bool,
        typer.Option(
            help="Load the flights sample into topic `flights`, and what Flink emitted into `flights_hourly`."
        ),
    ] = True,
) -> None:
    """Start a real broker (KRaft) on this machine, with the flights sample in a topic, until Ctrl-C."""
    import signal

    from spark_jobs.demo.kafka_broker import KafkaBroker
    from spark_jobs.demo.kafka_sample import LIVE_TOPIC, TOPIC, load_sample
    from spark_jobs.spark.session import rewindow_home

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with KafkaBroker(directory or rewindow_home() / "kafka", port=port) as broker:
        print(f"Kafka at {broker.servers}, its log under {broker.directory}. Ctrl-C stops it.", flush=True)
        if sample:
            count = load_sample(broker)
            print(f"Topic {TOPIC}: {count:,} records, with the append times of a broker of 2013.", flush=True)
            print(f"Topic {LIVE_TOPIC}: the windows that Flink emitted for them.", flush=True)
            print(f"Try: REWINDOW_KAFKA={broker.servers} rewindow run departures_kafka", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopping", flush=True)
