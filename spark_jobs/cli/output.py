"""What the commands print for people, and the seconds that they take."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spark_jobs.cli.options import console
from spark_jobs.errors import DefinitionError, Problem
from spark_jobs.runs.life.status import RunStatus

if TYPE_CHECKING:
    from spark_jobs.definition import Pipeline
    from spark_jobs.definition.mode import Mode
    from spark_jobs.runs.life.documents import QuarantineReason
    from spark_jobs.runs.life.verdicts import Verdicts
    from spark_jobs.runs.night.nightly import Night
    from spark_jobs.runs.work.stages import RunStage

TOTAL = "total"
_LAST = "report"


class Stopwatch:
    """The seconds of a command, from when it is made: the stages that its run does not count itself, and the total."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the seconds of the block as those of a stage."""
        began = time.monotonic()
        yield
        self._seconds[stage] = round(time.monotonic() - began, 3)

    def around(self, timings: Mapping[str, float]) -> dict[str, float]:
        """The seconds of all stages in their order, those of the run among them, and of all together as `total`."""
        before = {stage: seconds for stage, seconds in self._seconds.items() if stage != _LAST}
        after = {stage: seconds for stage, seconds in self._seconds.items() if stage == _LAST}
        return {**before, **timings, **after, TOTAL: round(time.monotonic() - self._began, 3)}


_FIRST_AGGREGATES = 3


def print_plan(made, stages: Sequence[RunStage], inputs: Sequence[str] = ()) -> None:
    """The plan for people, with the stages of a run that carries it out."""
    from spark_jobs.definition.instants import format_instant
    from spark_jobs.definition.mode import Mode
    from spark_jobs.runs.planning.plan import describe_span

    table = Table(title=f"Plan of {made.pipeline}", show_header=False, title_justify="left")
    table.add_row("source", escape(made.source))
    if made.schemas is not None:
        table.add_row("schemas", escape(made.schemas.description))
    if made.lookup is not None:
        table.add_row("lookup", f"{escape(made.lookup.table)}, snapshot {made.lookup.snapshot}")
    if made.partition_columns:
        table.add_row("partitioned by", f"{', '.join(made.partition_columns)}: filters on these prune what is read")
    table.add_row("windows that start in", describe_span(made.span))
    first, last = (format_instant(time) for time in (made.event_times.start, made.event_times.end - 1))
    table.add_row("event times", f"from {first} to {last}")
    table.add_row("mode", made.mode)
    table.add_row("chunks", str(len(made.chunks)))
    if made.window_ends is not None:
        table.add_row("window ends", f"at most {made.window_ends:,}, times the keys")
    table.add_row("records", f"{made.records:,} ({made.quarantined:,} to quarantine)")
    table.add_row("results stand on", made.reading.in_words())
    if made.cost is not None:
        table.add_row("cost", made.cost.in_words())
    has_watermark = made.mode != Mode.COMPLETE
    if has_watermark:
        table.add_row("watermark", made.watermark)
    table.add_row(
        "fidelity", f"{made.fidelity}" + (f": {'; '.join(made.fidelity_reasons)}" if made.fidelity_reasons else "")
    )
    if has_watermark:
        table.add_row("timer runs to", format_instant(made.processing_time_end))
    table.add_row("definition", made.definition_hash[:12])
    console.print(table, soft_wrap=False)
    from spark_jobs.definition.union import partition_in_words

    ranges = Table("partition", "offsets", "records", "first arrival", "last arrival")
    for p in made.partitions:
        ranges.add_row(
            partition_in_words(p.partition, inputs),
            f"[{p.first_offset}, {p.end_offset})",
            f"{p.records:,}",
            *("unknown" if t is None else format_instant(t) for t in (p.first_arrival, p.last_arrival)),
        )
    if made.partitions:
        console.print(ranges, soft_wrap=False)
    print_stages(stages)
    print_warnings(made.warnings, console)


def print_stages(stages: Sequence[RunStage]) -> None:
    """What a run does, one line a stage."""
    from spark_jobs.runs.work.stages import in_words

    for number, line in enumerate(in_words(stages), 1):
        console.print(f"{number:>3}. {line}")


def print_night(pipeline: Pipeline, night: Night, as_json: bool) -> None:
    """What a night would do; for machines the plan of its records, or null where nothing is new."""
    from spark_jobs.runs.night.nightly import NothingNew
    from spark_jobs.runs.work.stages import stages_of
    from spark_jobs.sources import names_of

    if as_json:
        print("null" if isinstance(night, NothingNew) else night.plan.to_json())
    elif isinstance(night, NothingNew):
        console.print(f"{night.note}: nothing would be done")
    else:
        print_plan(night.plan, stages_of(pipeline, night.replay_stages), names_of(pipeline))
        console.print(night.note)


def print_warnings(warnings: Sequence[str], to: Console) -> None:
    """What a person should know of a plan before it is carried out."""
    for warning in warnings:
        to.print(f"[yellow]note[/]: {escape(warning)}")


def print_reasons(reasons: Sequence[QuarantineReason], inputs: Sequence[str] = ()) -> None:
    """Why records go to quarantine: how many for each reason, and the first of them.

    `inputs`: the names of a union's inputs.
    """
    from spark_jobs.definition.union import partition_in_words
    from spark_jobs.formatting import moment, plain

    if not reasons:
        console.print("no record goes to quarantine")
    for one in reasons:
        console.print(f"[bold]{one.records:,}[/] {escape(plain(one.reason, 500))}")
        at = "no position"
        if one.partition is not None:
            at = f"partition {partition_in_words(one.partition, inputs)}, offset {one.offset}"
        arrived = "" if one.arrival is None else f", arrived {moment(one.arrival)}"
        value = escape(plain(one.value)) if one.value else "[dim]no value[/]"
        console.print(f"  first: {at}{arrived}: {value}")


def result_record(result, status: RunStatus | None = None) -> dict[str, Any]:
    """A run's outcome as plain values. `status`: where it stands; None where it has not begun."""
    from dataclasses import asdict

    record = {name: value for name, value in asdict(result).items() if name not in ("counts", "corrections")}
    return {**result.counts.counted(), **record, "status": status and status.value}


def program() -> str:
    """How this program was called, for lines that can be pasted."""
    return sys.argv[0] if sys.argv[0].endswith("rewindow") else "rewindow"


def print_result(result, columns: str = "*", status: RunStatus | None = None) -> None:
    """Print what a run did, and where to look, with the `columns` to query.

    Where its `status` says that it published nothing, print what it would change.
    """
    from spark_jobs.runs.life.documents import Changes
    from spark_jobs.runs.work.figures import RunFigures, bookkeeping_in_words, changes_in_words

    is_published = status is None or status.is_published
    if result.note:
        console.print(f"[yellow]note[/]: {escape(result.note)}")
    if not result.timings:
        return
    table = Table(title=f"Run {result.run_id}", show_header=False, title_justify="left")
    counts = result.counts
    table.add_row("new records", f"{counts.records_read:,} ({counts.records_quarantined:,} in quarantine)")
    changed = {"counts": result.changes, "windows_recomputed": result.windows_recomputed}
    figures = RunFigures.of(Changes.model_validate(counts.counted() | changed))
    states = f" ({counts.windows_open:,} still open, {counts.windows_all_late:,} only late records)"
    table.add_row("windows", f"{counts.windows:,}{states if figures.is_judged else ''}")
    for name, text in figures.in_words().items():
        table.add_row(name.lower(), text)
    changes = changes_in_words(result.changes)
    if is_published:
        table.add_row("published", changes)
    else:
        stands = "" if status is None else status.in_words
        table.add_row("published", f"nothing: {stands if status is RunStatus.DRY_RUN else f'the run is {stands}'}")
        table.add_row("would change", changes)
    if figures.bookkeeping:
        table.add_row("bookkeeping", bookkeeping_in_words(figures.bookkeeping, would=not is_published))
    table.add_row(
        "tables", f"{result.tables.windows}\n{result.tables.late}\n{result.tables.quarantine}\n{result.tables.runs}"
    )
    if result.watermark_note:
        table.add_row("watermark", result.watermark_note)
    if result.continued_from:
        table.add_row("timeline", f"continues that of run {result.continued_from}")
    table.add_row("seconds", ", ".join(f"{k} {v:.1f}" for k, v in result.timings.items()))
    console.print(table, soft_wrap=False)
    if not is_published:
        return
    console.print(
        f'Query it: {program()} sql "SELECT {columns} FROM {result.tables.windows} ORDER BY window_start LIMIT 10"'
    )


def print_verdicts(verdicts: Verdicts) -> None:
    """What the run has found about the live job, in a line."""
    if verdicts.problem:
        console.print(f"Live job: not compared: {escape(verdicts.problem)}")
    elif verdicts.windows:
        counts = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.counts.items())
        console.print(f"Live job: {verdicts.windows:,} windows compared: {counts}")


def columns_to_query(pipeline: Pipeline | None, mode: Mode | None = None) -> str:
    """The columns of a published table that a first look needs: keys, window, the first values that `mode` computes."""
    from spark_jobs.definition.mode import Mode
    from spark_jobs.replay.spec import complete_name

    if pipeline is None:
        return "*"
    is_complete = (mode or pipeline.mode) is Mode.COMPLETE
    values = [complete_name(name) if is_complete else name for name in list(pipeline.aggregates)[:_FIRST_AGGREGATES]]
    return ", ".join([*pipeline.keys, "window_start", *values])


def print_checked(pipeline: Pipeline, as_json: bool, thorough: bool) -> None:
    """A definition without problems, with what its users should know. `thorough`: Spark has checked it too."""
    notes = notes_of(pipeline)
    if as_json:
        record = {"pipeline": pipeline.name, "file": pipeline.file, "definition_hash": pipeline.definition_hash}
        print(
            json.dumps(
                {"ok": True, **record, "thorough": thorough, "problems": [], "notes": [asdict(note) for note in notes]}
            )
        )
        return
    console.print(f"[green]ok[/] {pipeline.name} ({escape(pipeline.file)}), definition {pipeline.definition_hash[:12]}")
    if not thorough:
        console.print("[dim]Expressions and columns are checked by `plan`, or here with --thorough.[/]")
    for note in notes:
        console.print(f"[yellow]note[/] {escape(str(note))}")


def print_refused(error: DefinitionError) -> None:
    """The problems of a definition for machines; one that concerns the whole file has line 1 and no field."""
    problems = error.problems or (Problem(error.where, 1, "", error.what, error.hint),)
    print(json.dumps({"ok": False, "problems": [asdict(problem) for problem in problems], "notes": []}))


def notes_of(pipeline: Pipeline) -> list[Problem]:
    """What is allowed, and refused later for some uses; what the definition does to what an earlier one published."""
    from spark_jobs.definition.mode import Mode
    from spark_jobs.replay.defined_windows import lost_by_flink, without_effect
    from spark_jobs.runs.planning.definition_change import since_last_run
    from spark_jobs.runs.planning.requesting import WITHOUT_ORDER

    notes = [Problem(pipeline.file, 1, "", said, "see `rewindow plan`") for said in since_last_run(pipeline)]
    notes += [pipeline.problem(("live",), what, mend) for what, mend in without_effect(pipeline)]
    if lost := lost_by_flink(pipeline):
        notes.append(
            pipeline.problem(
                ("flink_sql",), lost, "`aggregation: one_phase` in Flink does not mend it; see docs/flink.md"
            )
        )
    missing = pipeline.missing_positions
    if not missing or pipeline.mode is Mode.COMPLETE:
        return notes
    what = f"there is no {', no '.join(missing)}: which records were late cannot be known, so that runs refuse"
    return [pipeline.problem(("history", "position"), f"{what} faithful values", WITHOUT_ORDER), *notes]
