"""The section `flink_sql` of an imported query: by which of Flink SQL's operators its windows are computed."""

from __future__ import annotations

from spark_jobs.definition.flink_sql import has_two_phases
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.durations import parse_duration
from spark_jobs.project.flink_script import Located, Script
from spark_jobs.project.flink_source import Lines

PHASES = "table.optimizer.agg-phase-strategy"
CHECKPOINTS = "execution.checkpointing.interval"


def add_flink_sql(
    lines: Lines, script: Script, function: str, *, is_group_window: bool, is_union: bool, shown: Located | None
) -> None:
    """Add `flink_sql`. `shown`: the zone in whose wall clock the windows lie."""
    phases, checkpoints = script.settings.get(PHASES), script.settings.get(CHECKPOINTS)
    lines.add("flink_sql:", None, "a query of Flink SQL; a DataStream job has no such section")
    windows = "group_by" if is_group_window else "table_function"
    lines.add(f"  windows: {windows}")
    strategy = "auto" if phases is None else phases.text.lower()
    in_two_phases = has_two_phases(windows, strategy, is_session=function == "SESSION")
    if in_two_phases and is_union:
        why = (
            "CHECK: two phases behind UNION ALL are not replayed: records behind their own subtask may be late in Flink"
        )
        lines.remark(phases.line if phases else 1, f"SET '{PHASES}'", why)
        strategy = "one_phase"
    lines.add(f"  aggregation: {strategy}", phases, "" if phases else "Flink's default")
    if checkpoints is not None and windows == "table_function" and function != "SESSION":
        if _is_duration(checkpoints.text):
            lines.add(f"  checkpoint_interval: {checkpoints.text}", checkpoints)
        else:
            what = f"SET '{CHECKPOINTS}' = '{checkpoints.text}'"
            lines.remark(checkpoints.line, what, "CHECK: write it as `flink_sql.checkpoint_interval: 1 min`")
    if shown is not None:
        lines.add(f"  time_zone: {shown.text}", shown, "windows lie in its wall clock")


def _is_duration(text: str) -> bool:
    try:
        return parse_duration(text) > 0
    except (DefinitionError, ValueError):
        return False
