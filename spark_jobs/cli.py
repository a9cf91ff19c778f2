"""The command line: one command a stage. `rewindow COMMAND --help` explains each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spark_jobs.errors import DefinitionError, RewindowError

app = typer.Typer(
    name="rewindow",
    help="Replays bounded history through the event-time logic of the live streaming job.\n\n"
    "Start with `rewindow check PIPELINE`, then `rewindow plan PIPELINE`, then `rewindow run PIPELINE`.\n\n"
    "Exit codes: 0 done, 1 unexpected or failed conformance, 2 definition or command line, 3 gate closed, "
    "4 source, 5 history breaks a rule, 6 nothing in the range, 7 catalog, 8 environment.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
console = Console()
errors = Console(stderr=True)

PIPELINES = Path("dags/pipelines")

PipelineArgument = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="A YAML file, or the name of one in dags/pipelines.")
]
FromOption = Annotated[
    str | None, typer.Option("--from", help="First window start, with a zone: 2013-02-01T00:00:00Z. Default: all.")
]
ToOption = Annotated[str | None, typer.Option("--to", help="Windows start before this instant, with a zone.")]
AsOfOption = Annotated[
    str | None,
    typer.Option(help="Cut the history here: end offsets (exclusive) by partition, as 0=120,1=95. Default: all."),
]
ModeOption = Annotated[str, typer.Option(help="faithful, complete or both (one aggregation).")]
ChunksOption = Annotated[
    int | None, typer.Option(min=1, help="Slices of the range to work through. Never changes a result.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="For machines.")]


def main() -> None:
    """Entry point of the console script: errors become short messages and documented exit codes."""
    debug = "--debug" in sys.argv
    argv = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        app(args=argv, standalone_mode=True)
    except RewindowError as problem:
        if debug:
            raise
        errors.print(f"[bold red]error[/]: {escape(str(problem))}", highlight=False, soft_wrap=True)
        raise SystemExit(problem.exit_code) from None
    except KeyboardInterrupt:
        errors.print("interrupted: nothing was published")
        raise SystemExit(130) from None
    except Exception as problem:
        if debug:
            raise
        told = _known_failure(problem)
        errors.print(f"[bold red]error[/]: {escape(told)}", highlight=False, soft_wrap=True)
        raise SystemExit(1) from None


def _known_failure(problem: BaseException) -> str:
    text = str(problem)
    if "No space left on device" in text:
        return "the disk is full. Free space under REWINDOW_HOME and the temporary folder, and run again"
    first = next((line for line in text.splitlines() if line.strip()), type(problem).__name__)
    return f"{first.strip()[:400]}. Add --debug for the whole story"


def find_pipeline(name: str) -> Path:
    """The YAML file that a person means: a path, or a name in dags/pipelines."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return path
    for suffix in (".yaml", ".yml"):
        candidate = PIPELINES / f"{name}{suffix}"
        if candidate.exists():
            return candidate
    known = sorted(p.stem for p in PIPELINES.glob("*.y*ml")) if PIPELINES.is_dir() else []
    mend = f"Known here: {', '.join(known)}." if known else "Give the path of a YAML file."
    raise DefinitionError(f"there is no pipeline {name!r}", str(PIPELINES), mend)


def _load(name: str):
    from spark_jobs.definition import load_pipeline

    return load_pipeline(find_pipeline(name))


def _instant(text: str | None, option: str) -> int | None:
    from spark_jobs.definition.instants import InstantError, parse_instant

    if text is None:
        return None
    try:
        return parse_instant(text)
    except InstantError as problem:
        raise DefinitionError(f"{option}: {problem.what}", mend=problem.mend) from None


def _as_of(text: str | None) -> dict[int, int] | None:
    if text is None:
        return None
    try:
        pairs = [item.split("=") for item in text.split(",") if item.strip()]
        return {int(partition): int(end) for partition, end in pairs}
    except ValueError:
        raise DefinitionError(
            f"--as-of: {text!r} is not a list of end offsets", mend="Write partition=offset pairs: 0=120,1=95."
        ) from None


def _mode(text: str):
    from spark_jobs.replay.spec import Mode

    try:
        return Mode(text)
    except ValueError:
        raise DefinitionError(f"--mode: {text!r}", mend="Use faithful, complete or both.") from None


def _session(pipeline, app_name: str):
    from spark_jobs.session import spark_session

    metastore = getattr(pipeline.history, "metastore", None) if pipeline is not None else None
    return spark_session(f"rewindow {app_name}", metastore=metastore)


@app.command()
def check(pipeline: PipelineArgument) -> None:
    """Check a definition without reading data: fields, durations, expressions, columns."""
    from spark_jobs.sources import check_expressions

    loaded = _load(pipeline)
    spark = _session(loaded, "check")
    problems = check_expressions(spark, loaded)
    if problems:
        raise DefinitionError.listing(problems)
    console.print(f"[green]ok[/] {loaded.name} ({loaded.file}), definition {loaded.definition_hash[:12]}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of pipeline files, for editors."""
    from spark_jobs.definition import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command()
def plan(
    pipeline: PipelineArgument,
    start: FromOption = None,
    end: ToOption = None,
    as_of: AsOfOption = None,
    mode: ModeOption = "both",
    chunks: ChunksOption = None,
    as_json: JsonOption = False,
    quarantined: Annotated[bool, typer.Option(help="List some of the records that go to quarantine, and why.")] = False,
) -> None:
    """Say everything a run would do: source, as-of vector, chunks, fidelity. Writes nothing."""
    from spark_jobs.plan import make_plan, read_planned

    loaded = _load(pipeline)
    spark = _session(loaded, "plan")
    made = make_plan(
        spark, loaded, start=_instant(start, "--from"), end=_instant(end, "--to"), as_of=_as_of(as_of),
        mode=_mode(mode), chunks=chunks,
    )  # fmt: skip
    if as_json:
        print(made.to_json())
        return
    print_plan(made)
    if quarantined:
        from spark_jobs.sources import quarantined as quarantine_of

        for row in quarantine_of(read_planned(spark, loaded, made)).limit(20).collect():
            console.print(escape(str(row.asDict())))


def print_plan(made) -> None:
    """The plan for people."""
    from spark_jobs.definition.instants import format_instant
    from spark_jobs.plan import describe_span

    table = Table(title=f"Plan of {made.pipeline}", show_header=False, title_justify="left")
    table.add_row("source", escape(made.source))
    if made.partition_columns:
        table.add_row("partitioned by", f"{', '.join(made.partition_columns)}: filters on these prune what is read")
    table.add_row("windows that start in", describe_span(made.span))
    table.add_row("event times", describe_span(made.event_times))
    table.add_row("mode", made.mode)
    table.add_row("chunks", str(len(made.chunks)))
    if made.window_ends is not None:
        table.add_row("window ends", f"at most {made.window_ends:,}, times the keys")
    table.add_row("records", f"{made.records:,} ({made.quarantined:,} to quarantine)")
    table.add_row("watermark", made.watermark)
    table.add_row(
        "fidelity", f"{made.fidelity}" + (f": {'; '.join(made.fidelity_reasons)}" if made.fidelity_reasons else "")
    )
    table.add_row("timer runs to", format_instant(made.processing_time_end))
    table.add_row("definition", made.definition_hash[:12])
    console.print(table)
    ranges = Table("partition", "offsets", "records", "first arrival", "last arrival")
    for p in made.partitions:
        ranges.add_row(
            str(p.partition), f"[{p.first_offset}, {p.end_offset})", f"{p.records:,}",
            *("unknown" if t is None else format_instant(t) for t in (p.first_arrival, p.last_arrival)),
        )  # fmt: skip
    console.print(ranges)
    for warning in made.warnings:
        console.print(f"[yellow]note[/]: {escape(warning)}", soft_wrap=True)


@app.command()
def run(
    pipeline: PipelineArgument,
    start: FromOption = None,
    end: ToOption = None,
    as_of: AsOfOption = None,
    mode: ModeOption = "both",
    chunks: ChunksOption = None,
    panes: Annotated[str | None, typer.Option(help="last or all; default as the definition says.")] = None,
    plan_file: Annotated[Path | None, typer.Option("--plan", help="Carry out this plan (from `plan --json`).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan only, write nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Replay the history and publish windows, late records and quarantine to the catalog `rewindow`.

    A run can be repeated: it replaces its range of windows and gives the same tables. One that is killed
    leaves the tables as they were.
    """
    from spark_jobs.plan import make_plan, plan_from_json, planned_records
    from spark_jobs.progress import progress_for
    from spark_jobs.replay.spec import Panes
    from spark_jobs.run import execute

    loaded = _load(pipeline)
    try:
        chosen_panes = Panes(panes) if panes else None
    except ValueError:
        raise DefinitionError(f"--panes: {panes!r}", mend="Use last or all.") from None
    chosen_mode, from_ms, to_ms, cut = _mode(mode), _instant(start, "--from"), _instant(end, "--to"), _as_of(as_of)
    planned = plan_from_json(plan_file.read_text()) if plan_file else None
    spark = _session(loaded, "run")
    progress = progress_for(errors)
    asked = {"start": from_ms, "end": to_ms, "as_of": cut, "mode": chosen_mode, "chunks": chunks}
    if dry_run:
        planned = planned or make_plan(spark, loaded, **asked)
        print(planned.to_json()) if as_json else print_plan(planned)
        return
    with ExitStack() as open_records:
        with progress.stage("plan", loaded.name):
            planned, records = open_records.enter_context(planned_records(spark, loaded, planned, **asked))
        result = execute(spark, loaded, planned, progress, panes=chosen_panes, records=records)
    if as_json:
        print(json.dumps(result_record(result)))
    else:
        print_result(result)


def result_record(result) -> dict[str, Any]:
    """A run's outcome as plain values."""
    from dataclasses import asdict

    return asdict(result)


def print_result(result) -> None:
    """What happened, for people, and where to look."""
    table = Table(title=f"Run {result.run_id}", show_header=False, title_justify="left")
    table.add_row("records read", f"{result.records_read:,} ({result.records_quarantined:,} in quarantine)")
    table.add_row(
        "windows",
        f"{result.windows:,} ({result.windows_open:,} still open, {result.windows_all_late:,} only late records)",
    )
    table.add_row("on time", f"{result.pairs_on_time:,} (record, window) pairs")
    table.add_row("late, counted", f"{result.pairs_late:,} pairs within the allowed lateness")
    table.add_row("late, dropped", f"{result.pairs_dropped:,} pairs; {result.records_late:,} late records")
    table.add_row(
        "tables", f"{result.tables.windows}\n{result.tables.late}\n{result.tables.quarantine}\n{result.tables.runs}"
    )
    if result.watermark_note:
        table.add_row("watermark", result.watermark_note)
    if result.continued_from:
        table.add_row("timeline", f"continues that of run {result.continued_from}")
    table.add_row("seconds", ", ".join(f"{k} {v:.1f}" for k, v in result.timings.items()))
    console.print(table)
    console.print(
        f'Query it: rewindow sql "SELECT * FROM {result.tables.windows} ORDER BY window_start LIMIT 10"',
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def compare(
    pipeline: PipelineArgument,
    start: FromOption = None,
    end: ToOption = None,
    as_of: AsOfOption = None,
    limit: Annotated[int, typer.Option(min=1, help="The most windows to list.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Compare what the live job emitted with its replay, window by window. Writes nothing.

    Exit code 3 where a window differs without a reason in the log: drift, missing or unexpected.
    """
    from spark_jobs.progress import progress_for
    from spark_jobs.reconcile.command import print_report, run_compare

    loaded = _load(pipeline)
    from_ms, to_ms, cut = _instant(start, "--from"), _instant(end, "--to"), _as_of(as_of)
    spark = _session(loaded, "compare")
    report = run_compare(spark, loaded, progress_for(errors), start=from_ms, end=to_ms, as_of=cut, limit=limit)
    if as_json:
        print(json.dumps(report.to_dict()))
    else:
        print_report(report, console)
    raise typer.Exit(report.exit_code)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="A SELECT over the tables of the catalog `rewindow`.")],
    limit: Annotated[int, typer.Option(help="The most rows to print.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Query the tables with Spark SQL."""
    from pyspark.errors import AnalysisException, ParseException

    spark = _session(None, "sql")
    try:
        rows = spark.sql(query).limit(limit).collect()
    except (AnalysisException, ParseException) as problem:
        raise DefinitionError(
            str(problem).split("\n")[0], "the query", "Tables are named rewindow.<namespace>.<table>."
        ) from None
    if as_json:
        for row in rows:
            print(json.dumps(row.asDict(recursive=True), default=str))
        return
    if rows:
        table = Table(*rows[0].__fields__)
        for row in rows:
            table.add_row(*(escape(str(value)) for value in row))
        console.print(table)
    console.print(f"{len(rows)} rows")


@app.command()
def conformance(
    folder: Annotated[
        Path, typer.Argument(exists=True, help="A folder of case files (flink-oracle-case/1), or one file.")
    ],
    engine: Annotated[str, typer.Option(help="sequential or spark.")] = "sequential",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="A line for passing cases too.")] = False,
) -> None:
    """Hold an engine to recorded cases: what real Flink did. One line a failing case, exit code 1 if any."""
    from spark_jobs.conformance.runner import run_cases

    if engine not in ("sequential", "spark"):
        raise DefinitionError(f"--engine: {engine!r}", mend="Use sequential or spark.")
    passed, failed = run_cases(folder, engine, verbose=verbose, say=lambda line: print(line, flush=True))
    print(f"{passed} passed, {failed} failed")
    raise typer.Exit(1 if failed else 0)


@app.command()
def doctor(pipeline: Annotated[str | None, typer.Argument(help="Also check this pipeline's source.")] = None) -> None:
    """Check Java, Spark, jars, catalog and, for a pipeline, its source; says what to do about each problem."""
    from spark_jobs.doctor import run_doctor

    checks = run_doctor(_load(pipeline) if pipeline else None)
    marks = {"ok": "[green]ok[/]  ", "warn": "[yellow]warn[/]", "fail": "[red]fail[/]"}
    for item in checks:
        mend = f" {item.mend}" if item.mend else ""
        console.print(f"{marks[item.status]} {item.name}: {escape(item.what)}{escape(mend)}", soft_wrap=True)
    raise typer.Exit(8 if any(item.status == "fail" for item in checks) else 0)


@app.command("archive")
def archive_topic(
    pipeline: PipelineArgument,
    as_of: AsOfOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be appended, write nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Append what is new in the topic to the Hive table of a stitched history, exactly once.

    Partition, offset and append time are kept. A run can be repeated or killed at any moment.
    """
    from dataclasses import asdict

    from spark_jobs.archive import archive

    loaded = _load(pipeline)
    result = archive(_session(loaded, "archive"), loaded, as_of=_as_of(as_of), dry_run=dry_run)
    if as_json:
        print(json.dumps(asdict(result)))
        return
    for chosen in result.ranges:
        console.print(f"partition {chosen.partition}: offsets [{chosen.start}, {chosen.end})", highlight=False)
    for note in result.notes:
        console.print(f"[yellow]note[/]: {escape(note)}", soft_wrap=True)
    if dry_run:
        console.print(f"would be appended to {result.table}; nothing was written")
    elif result.batch is None:
        console.print(f"nothing new: {result.table} holds all of the topic")
    else:
        console.print(f"{result.records:,} records appended to {result.table} as batch {result.batch}")


kafka_app = typer.Typer(help="A Kafka broker for trying things out.", no_args_is_help=True)
app.add_typer(kafka_app, name="kafka")


@kafka_app.command("up")
def kafka_up(
    directory: Annotated[
        Path | None, typer.Option(help="Where it keeps its log. Default: $REWINDOW_HOME/kafka.")
    ] = None,
    port: Annotated[int, typer.Option(help="On 127.0.0.1; 0 takes a free one.")] = 9092,
    sample: Annotated[bool, typer.Option(help="Load the flights sample into topic `flights`.")] = True,
) -> None:
    """Start a real broker (KRaft) on this machine, with the flights sample in a topic, until Ctrl-C."""
    import signal

    from spark_jobs.services.kafka_broker import KafkaBroker
    from spark_jobs.services.kafka_sample import TOPIC, load_flights
    from spark_jobs.session import rewindow_home

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with KafkaBroker(directory or rewindow_home() / "kafka", port=port) as broker:
        print(f"Kafka at {broker.servers}, its log under {broker.directory}. Ctrl-C stops it.", flush=True)
        if sample:
            count = load_flights(broker)
            print(f"Topic {TOPIC}: {count:,} records, with the append times of a broker of 2013.", flush=True)
            print(f"Try: REWINDOW_KAFKA={broker.servers} rewindow run departures_kafka", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopping", flush=True)


def _lazily(module: str, name: str) -> Callable[..., Any]:
    import importlib

    return getattr(importlib.import_module(module), name)


@app.command()
def demo() -> None:
    """Replay the flights sample through `departures_hourly` and compare with what Flink emitted for it."""
    _lazily("spark_jobs.demo", "run_demo")(console, errors)


@app.command()
def bench(
    quick: Annotated[bool, typer.Option(help="A tenth of the records, to see that it works.")] = False,
    section: Annotated[str | None, typer.Option(help="Only this section.")] = None,
) -> None:
    """Measure the engine against plain Spark on the same data in the same run, and print ratios."""
    _lazily("spark_jobs.bench", "run_bench")(console, quick=quick, section=section)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
