"""What every field of `report.json` means, for the page `docs/report-fields.md`; a test compares it with real reports.

`[]` is each entry of a list, a name in braces one that the pipeline or the run gives, `...` whatever lies below.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_jobs.lakehouse.counts import RunCounts
from spark_jobs.report.model import COUNTS


def _below(place: str, fields: Mapping[str, str]) -> dict[str, str]:
    return {f"{place}.{name}": meaning for name, meaning in fields.items()}


_SETTING = {
    "tolerance": "bound + allowed lateness, ms",
    "behind": "records behind the watermark with it",
    "closed": "records whose window had closed with it: dropped",
    "wait": "how much later than its end a window comes out, ms, median; null: unknown",
    "on_time_share": "the share of records on time",
    "allowed_lateness": "the lateness if the bound stays, ms; null: less than the bound",
    "refires": "records that would make their window fire again then",
}
_QUANTILES = {
    f"{what}.{level}": f"{meaning}, ms: {words}"
    for what, meaning in (
        ("missed_by", "from the final close of the window to the arrival"),
        ("delay", "from the event time to the arrival"),
    )
    for level, words in (("p50", "half"), ("p90", "90 %"), ("p99", "99 %"), ("max", "all"))
}
_VIEW = {
    "from": "begin of the chart's processing time",
    "to": "its end",
    "one_in": "one of so many records is shown",
    "shown.line": "points of the watermark's line",
    "shown.closes": "windows that closed",
    "shown.on_time": "records on time that are shown",
    "shown.behind": "records behind the watermark that are shown",
    "shown.late": "late records that are shown",
}

RUN = {
    "format": "`rewindow-report/1`",
    "damaged[]": "documents of the run that are damaged, and left out",
    "run.run_id": "the run's id",
    "run.pipeline": "the pipeline's name",
    "run.kind": "`backfill` or `reconcile`",
    "run.requested.{field}": "what the form or the command line requested: `from`, `to`, `as_of`, `mode`, ...",
    "run.asked.{field}": "the same under its older name",
    "run.reason": "the reason that a person gave",
    "run.requested_by": "who started it",
    "run.requested_at": "when it was requested",
    "run.started_at": "when it began",
    "run.finished_at": "when it ended; null: not yet",
    "run.at_work": "whether the run has not ended",
    "run.output_table": "the table of the windows",
    "run.dag_id": "the DAG that carried it out; null: the command line",
}
VERDICT = {
    "verdict.status": "as in `outcome.json`; `unknown` while there is none",
    "verdict.level": "`good`, `note`, `waiting` or `bad`",
    "verdict.title": "two or three words",
    "verdict.sentence": "what happened, in a sentence",
    "verdict.next[].text": "what to do next",
    "verdict.next[].command": "the command for it, or null",
    "verdict.next[].page": "the address below Rewindow's pages in Airflow where it is done, or null",
    "verdict.next[].label": "the text of the link to it, or null",
    "approval.decision": "`approved` or `rejected`; `approval` is null where nobody had to decide",
    "approval.by": "who decided",
    "approval.at": "when",
    "approval.comment": "why",
    "decision": "why the run was published, or was not",
    "unchecked": "why no expectation was checked; null where some were",
}
CHANGES = {
    **{
        f"changes.counts.{kind}": f"windows {words}"
        for kind, words in (
            ("inserted", "that are new"),
            ("updated", "with another value, count or state"),
            ("retracted", "that do not exist any more"),
            ("bookkeeping", "of which only `closed_at` differs; no restatement"),
        )
    },
    "changes.changed": "windows that change, without bookkeeping",
    "changes.published": "whether readers see the changes; false: they would change",
    "changes.causes.{cause}": "windows by [cause](tables.md)",
    "changes.causes_by_change.{change}.{cause}": "windows by change and cause",
    **{f"changes.{name}": str(RunCounts.model_fields[name].description) for name in COUNTS},
    "changes.windows_recomputed": "published windows that the run computed again, with those that it retracts",
    "changes.unchanged": "of them, those whose numbers stay",
    "changes.match_share": "`unchanged`, as a share of `windows_recomputed`; null: there were none",
    "changes.late_share": "the share of pairs (record, window) in which the record was late, dropped or not",
    "changes.dropped_share": "the share of pairs that were dropped",
    "changes.in_words.{figure}": "the figures as the page words them",
    "changes.strip.width": "one bar of the chart is so long, ms",
    "changes.strip.buckets[].start": "begin of a bar; bars without a change are left out",
    "changes.strip.buckets[].{change}": "windows of that kind of change",
    "changes.keys[]": "names of the keys",
    "changes.aggregates[]": "names of the aggregates",
    "changes.columns[].name": "a column",
    "changes.columns[].windows": "updated windows in which it differs",
    "changes.columns[].from_null": "of these, windows in which it had no value before",
    "changes.columns[].to_null": "of these, windows in which it has no value any more",
    "changes.columns[].total": "of the other ones, the sum of the differences; null: not a count or a sum",
    "changes.columns[].least": "the smallest difference; null: not a number",
    "changes.columns[].most": "the largest difference",
    **_below(
        "changes.top[]",
        {
            "change": "`inserted`, `updated` or `retracted`; at most twenty windows, the largest changes first",
            "cause": "why",
            "size": "from 0 to 1, against the largest change of the run",
            "revision": "the number of the new revision",
            "start": "start of the window",
            "end": "end of the window",
            "key.{key}": "values of the keys",
            "pane...": "which firing, where a window has several rows",
            "before.{column}": "values before; `before` is null for a new window",
            "after.{column}": "values after; texts are cut after 200 characters",
        },
    ),
}
WATERMARK = {
    "watermark.resolution": "steps of the line are at least so long, ms",
    **_below("watermark.overview", _VIEW),
    **_below("watermark.zoom", _VIEW),
    "watermark.standstills[].from": "begin of a time in which the watermark did not move",
    "watermark.standstills[].to": "its end",
    "watermark.standstills[].watermark": "where it stood",
    "watermark.idle.count": "idle times of partitions; `idle` is null without `idleness` in the definition",
    "watermark.idle.longest[][]": "partition, from, to of the longest ones",
}
LATE = {
    "late.records": "late records of the run",
    **_below(
        "late.latest[]",
        {
            "partition": "of a record that missed its window by the most",
            "number": "its offset, or its place in the sequence",
            "arrival": "its arrival, epoch ms",
            "event_time": "its event time, epoch ms",
            "missed_by": "from the close to the arrival, ms",
        },
    ),
    "late.partitions": "partitions with records",
    "late.edges[]": "lower bounds of the bins, ms after the close",
    "late.bins[]": "late records in each bin",
    **_below("late.quantiles", _QUANTILES),
    "late.by_partition[].partition": "a partition",
    "late.by_hour[].hour": "an hour of the day of the event time, UTC",
    **{
        f"late.{by}[].{name}": meaning
        for by in ("by_partition", "by_hour")
        for name, meaning in (
            ("records", "records that were looked at"),
            ("late", "late records of the run"),
            ("late_in_basis", "late records among those that were looked at"),
            ("bins[]", "late records in each bin"),
        )
    },
    **_below("late.by_partition[].quantiles", _QUANTILES),
}
LIVE = {
    "live.problem": "why nothing could be compared; null: it was",
    "live.emitted": "where the live job's rows were read",
    "live.whole_range": "whether the comparison was about the run's whole range",
    "live.fidelity": "`recorded`: the job recorded its records; else how exact the replay is",
    "live.windows": "closed windows that were compared",
    "live.different": "mismatch, missing and extra windows",
    "live.different_share": "their share",
    "live.late_records": "late records of these windows",
    "live.verdicts[].verdict": "a [verdict](three-truths.md#verdicts)",
    "live.verdicts[].windows": "windows with it",
    "live.verdicts[].share": "their share; null for `not_closed`",
    "live.verdicts[].sentence": "what it means",
    "live.verdicts[].labels.{label}": "windows by nearest explanation",
    "live.keys[]": "names of the keys",
    "live.values[]": "names of the values that were compared",
    "live.top[].{column}": "windows that differ most: key, window, three values of each, verdict, label, basis",
    "live.top[].differs[]": "names of the values that differ",
    "live.late_record_samples...": "some late records of windows that differ",
    "live.width": "length of a stretch, ms",
    "live.stretches[].start": "begin of a stretch of time",
    "live.stretches[].counts.{verdict}": "windows by verdict",
    "live.stretches[].lag.windows": "windows with a delay in this stretch",
    "live.stretches[].lag.mean": "their mean delay, ms",
    "live.stretches[].lag.largest": "their largest delay, ms",
    "live.lag.windows": "windows for which the job's delay is known",
    "live.lag.mean": "mean time from a close to the window's first row, ms",
    "live.lag.largest": "the longest, ms",
    "live.lags...": "the delays by bin",
    "live.certainty[]": "how sure the verdicts are, in sentences",
    "live.notes[]": "what else to know",
    "live.next[]": "what to do next",
    "live.tables.{table}": "the tables with all verdicts",
    "live.deployments[].name": "a deployment of the live job; the list is empty where it had only one",
    "live.deployments[].from": "the first start of its windows; null: from the first on",
    "live.deployments[].to": "its windows start before this time; null: up to now",
    "live.deployments[].emitted": "where its rows were read",
    "live.deployments[].own_rules": "whether it was judged by other rules than those of the definition",
    "live.deployments[].windows": "closed windows of it that were compared",
    "live.deployments[].different": "mismatch, missing and extra windows of it",
    "live.deployments[].verdicts.{verdict}": "windows by verdict",
}
CORRECTIONS = {
    "corrections.destination": "where the corrections go; `corrections` is null where the run delivers nothing",
    "corrections.value": "which value is delivered",
    "corrections.is_delivered": "whether they are delivered; false: an approval would deliver them",
    "corrections.rows.{action}": "rows by `upsert` and `delete`",
    "corrections.sentence": "what became of them, in a sentence",
    "corrections.problem": "why they could not be delivered; null: they could",
    "corrections.notes[]": "what else to know",
    "corrections.next[]": "what to do next",
    "corrections.steps[].{field}": "the same with `command`, or `page` and `label`, as in `verdict.next`",
}
EXPECTATIONS = {
    "expectations.verdict": "`passed`, `warned`, `failed`",
    "expectations.blocks": "whether the gate is closed",
    "expectations.met": "expectations that were met; those with nothing to count are not among them",
    "expectations.not_counted": "expectations with nothing to count in this run: no row, or no such figure",
    "expectations.failed.{severity}": "expectations that failed, by severity",
    "expectations.suites[]...": "the suites that were read",
    "expectations.left_out[].{field}": "what did not apply: `suite`, `data`, `expectation`, `name`, `reason`",
    "expectations.seconds": "how long the check took",
    "expectations.spark_jobs": "Spark jobs of the check",
    **_below(
        "expectations.results[]",
        {
            "suite": "the suite",
            "data": "the data that it checks",
            "expectation": "Great Expectations' type",
            "name": "its name in the suite",
            "counted": "whether there was something to count",
            "description": "why it must hold",
            "severity": "`critical`, `warning` or `info`",
            "success": "whether it was met; the list begins with those that were not",
            "column": "its column",
            "observed": "the observed value",
            "threshold.{argument}": "the allowed values",
            "checked": "values that were checked",
            "unexpected_count": "values that were not as expected",
            "unexpected_percent": "their share, in percent",
            "samples...": "at most five rows",
            "error": "why it could not be computed",
        },
    ),
}
QUARANTINE = {
    "quarantine[].reason": "why records cannot be used; the most frequent reason first",
    "quarantine[].records": "how many",
    "quarantine[].partition": "where the first of them is",
    "quarantine[].offset": "its offset",
    "quarantine[].arrival": "its arrival, epoch ms",
    "quarantine[].value": "its value as text; of bytes that are no text their hexadecimal digits",
}
ADVISOR = {
    "advisor.parameter": "`bound` or `lag`: the setting that the table varies",
    "advisor.generator": "the definition's generator",
    "advisor.configured": "the definition's bound, ms",
    "advisor.lateness": "its allowed lateness, ms; null: for ever",
    "advisor.resolution": "the settings are exact to so many ms",
    "advisor.exact": "whether the counts are exact",
    "advisor.sessions": "whether windows are sessions: then the counts are an upper bound",
    "advisor.records": "records that were looked at",
    "advisor.event_times.from": "their first event time",
    "advisor.event_times.to": "their last event time",
    **_below("advisor.tolerances[]", _SETTING),
    **_below("advisor.now", _SETTING),
    **_below("advisor.bound_only", _SETTING),
    "advisor.recommended[].on_time": "a share of records on time",
    **_below("advisor.recommended[].setting", _SETTING),
}
PLAN = {
    "plan.source": "the history, in words",
    "plan.definition_hash": "hash of what in the definition decides results",
    "plan.definition...": "the definition, with all defaults",
    "plan.mode": "`faithful`, `complete` or `both`",
    "plan.span.start": "first window start",
    "plan.span.end": "windows start before it",
    "plan.is_whole": "whether the range covers all windows of the history",
    "plan.event_times.start": "first event time of the history",
    "plan.event_times.end": "after its last event time",
    "plan.processing_time_end": "the processing time up to which timers ran",
    "plan.records": "records up to the end offsets",
    "plan.quarantined": "records that cannot be used",
    "plan.missing_event_times": "usable records without event time",
    "plan.window_ends": "ends of windows in the range",
    "plan.watermark": "how the watermark was computed, in words",
    "plan.partition_columns[]": "columns of the log's partition",
    **_below(
        "plan.partitions[]",
        {
            "partition": "a partition of the log",
            "records": "its records",
            "first_offset": "its first offset",
            "end_offset": "its end offset, exclusive",
            "first_arrival": "its first arrival",
            "last_arrival": "its last arrival",
        },
    ),
    "plan.files[].path": "a file that was read",
    "plan.files[].size": "its size in bytes",
    "plan.warnings[]": "what the plan warns of",
    "plan.fidelity": "how exact lateness is: see [sources](sources.md)",
    "plan.fidelity_reasons[]": "why it is not more exact",
    "plan.version": "Rewindow's version",
    "plan.chunks[].{field}": "chunks that were computed: `chunk`, `start`, `end`, `seconds`, `counts`",
    "plan.planned_chunks": "chunks of the plan",
    "plan.timings.{stage}": "seconds by stage",
    "plan.applications[].stage": "the stage of a Spark application",
    "plan.applications[].chunk": "its chunk, or null",
    "plan.applications[].application_id": "Spark's id of it",
    "plan.applications[].seconds": "how long it took",
    "plan.tables.{table}": "the tables of the run",
}
NORMAL = {
    "normal.runs": "published runs of the same kind before, thirty at most; `normal` is null where there are none",
    "normal.by_length": "of a backfill: only those over a range of about the same length count",
    "normal.since": "when the first of them was requested",
    **_below(
        "normal.figures[]",
        {
            "name": "a figure",
            "is_share": "whether it is a share",
            "now": "its value in this run",
            "low": "the lowest before",
            "median": "the median before",
            "high": "the highest before",
            "values[]": "the values before, the oldest first",
            "place": "where this run stands among them, in words",
            "is_unusual": "outside all of them, and they are five or more",
        },
    ),
}
LINKS = {
    "links.run_before": "id of the run before",
    "links.definition": "version of the definition in git",
    "links.late_rows": "the command that lists the run's late records",
}

PARTS: dict[str, Mapping[str, str]] = {
    "The run": RUN,
    "Verdict and approval": VERDICT,
    "What changed": CHANGES,
    "The watermark": WATERMARK,
    "Late records": LATE,
    "The live job": LIVE,
    "Corrections": CORRECTIONS,
    "Expectations": EXPECTATIONS,
    "Advisor": ADVISOR,
    "Plan": PLAN,
    "Records that cannot be used": QUARANTINE,
    "Is this normal?": NORMAL,
    "Links": LINKS,
}
"""The fields by part of the page."""
