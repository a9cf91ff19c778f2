"""The report as one self-contained HTML page: no script, no network, charts as inline SVG.

Without the part `report` of the package the page has no charts, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from spark_jobs import formatting
from spark_jobs.definition.union import partition_in_words
from spark_jobs.parts import Part, install_command, missing_modules
from spark_jobs.report.causes import CAUSE_MEANINGS, CAUSES
from spark_jobs.report.counted import Changes, Facts
from spark_jobs.report.model import Report
from spark_jobs.report.normal import points, shown
from spark_jobs.report.pages import look_page, window_page
from spark_jobs.report.scales import CHARTS, VERDICT_COLOURS, bin_name, shown_tolerances
from spark_jobs.runs.life.status import RunKind
from spark_jobs.runs.work.figures import bookkeeping_in_words, changes_in_words, failed_in_words
from spark_jobs.runs.work.unmet import allowed_in_words, day_in_words, observed_in_words

_FIDELITIES = {
    "recorded": "decided by what the live job recorded",
    "log_order": "lateness follows the order of the log",
    "approximate": "the arrival times are only approximate",
    "complete_only": "no order of arrival, so no lateness",
}

COUNTED_AT_MOST = 3_000_000
"""About so many records the facts count at most; `spark_jobs.report.lateness_probe.MAX_COUNTED`, which needs Spark."""


def render(report: Report, facts: Facts | None) -> str:
    """The page of a report. `facts` holds the points of its charts."""
    template = _environment().get_template("report.html.j2")
    missing = missing_modules(Part.REPORT)
    return template.render(
        r=report,
        charts=dict.fromkeys(CHARTS) if missing else _charts(report, facts),
        charts_need=install_command(Part.REPORT) if missing else None,
        causes=CAUSES,
        fidelities=_FIDELITIES,
    )


def _charts(report: Report, facts: Facts | None) -> Mapping[str, Markup | None]:
    from spark_jobs.report.drawn import charts_of  # imports the chart library

    return charts_of(report, facts)


def looked_at(report: Report) -> str:
    """Which records the page's shares and the advisor count, and why those; empty where there is no advisor."""
    advisor, plan = report.advisor, report.plan
    if advisor is None:
        return ""
    start, end = (formatting.moment(at, seconds=False) for at in (advisor.event_times.start, advisor.event_times.end))
    those = f"those with event times from {start} to {end}"
    known = [reach.start for reach in (plan.event_times, plan.span) if reach] if plan else []
    if advisor.event_times.start <= max(known, default=0):
        return f"{those}, all of the run's range"
    if report.run.kind == RunKind.RECONCILE and advisor.records < COUNTED_AT_MOST:
        return f"{those}, the last week, so that a reconciliation costs the same however long the history is"
    return f"{those}, the latest, because to count all would cost more than the replay"


_COLUMNS_AT_MOST = 6
_CHARACTERS_AT_MOST = 100
"""How wide the table of the largest changes may be. A4 paper has room for about so many characters."""


def is_too_wide(changes: Changes) -> bool:
    """Whether the largest changes are shown one below the other: as a table they would lose columns on paper."""
    names = [*changes.keys, *changes.aggregates]
    if len(names) > _COLUMNS_AT_MOST:
        return True

    def longest(name: str) -> int:
        """The words of a column that are not broken: its name, and numbers."""
        cells = [side.get(name) for window in changes.top for side in (window.before, window.after) if side]
        return max(len(formatting.plain(word)) for word in (name, *cells) if word is name or not isinstance(word, str))

    return sum(longest(name) + _PADDING for name in names) > _CHARACTERS_AT_MOST - _OTHERS


_PADDING = 3
_OTHERS = 35
"""Characters beside a column's text, and those of the columns that every such table has: window, change, dropped."""


def _ticked(text: str) -> Markup:
    """A text with what stands between two backticks as code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return escape(text)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(piece) if i % 2 else escape(piece) for i, piece in enumerate(pieces))


def templates_of(package: str) -> Environment:
    """The templates of a package, with the filters and functions that all pages use."""
    environment = Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        count=formatting.count, plural=formatting.plural, plain=formatting.plain, written=formatting.written_time
    )
    environment.globals.update(percent=formatting.percent, changes_in_words=changes_in_words)
    return environment


@cache
def _environment() -> Environment:
    environment = templates_of("spark_jobs.report")
    environment.filters.update(
        duration=formatting.length,
        exact=formatting.exact_length,
        moment=formatting.moment,
        iso=formatting.iso,
        tojson_text=formatting.pretty,
        ticked=_ticked,
    )
    environment.globals.update(
        span=formatting.span,
        partition_in_words=partition_in_words,
        difference=formatting.difference,
        bin_name=bin_name,
        shown_tolerances=shown_tolerances,
        bookkeeping_in_words=bookkeeping_in_words,
        failed_in_words=failed_in_words,
        observed_in_words=observed_in_words,
        day_in_words=day_in_words,
        allowed_in_words=allowed_in_words,
        cause_meanings=CAUSE_MEANINGS,
        looked_at=looked_at,
        look_page=look_page,
        window_page=window_page,
        is_too_wide=is_too_wide,
        signed=formatting.signed,
        points=points,
        shown=shown,
        words=WORDS,
        anchor=anchor,
        complete=lambda name: f"{name}__complete",
        emitted=lambda name: f"{name}__emitted",
        verdict_colours=VERDICT_COLOURS,
    )
    return environment


WORDS: dict[str, str] = {
    "advisor": "how many records another bound or allowed lateness would have had on time in this history",
    "allowed lateness": "how long after its end, in event time, a window still accepts records; each fires it again",
    "behind the watermark": "the record came when the watermark had passed its event time. It is late only if its "
    "window had closed, too",
    "bookkeeping": "only the window's closed_at differs from what was published: values, counts and state stay",
    "bound": "the out-of-orderness bound: how far the watermark stays behind the latest event time",
    "cause": "why a window has its value: live, backfill, late_arrivals, logic_change, source_repair, erasure, "
    "retraction",
    "chunk": "a part of the range, along the grid of the windows. One task replays it",
    "close": "the watermark passes a window's last millisecond, and the window fires. With an allowed lateness it "
    "accepts records until the watermark has passed that, too",
    "complete value": "the value of a window over all records that have arrived, late ones too",
    "correction": "a changed window that was delivered to the readers of the live job's output",
    "decision": "why the run was published, or waits: by the policy of its definition, by the gate, or by a person",
    "definition": "the pipeline's YAML file; the hash stands for its content",
    "deployment": "a time in which the live job ran with the same rules and the same output",
    "emitted value": "the value of a window that the live job wrote to its output",
    "end offsets": "the offset of each partition at which the run stopped reading, and the processing time up to which "
    "timers have run. Every result is a function of the definition and of these",
    "event time, processing time": "when something happened, according to the record; the clock of the machine that "
    "processes it, here the time at which the record was appended to the log (its arrival)",
    "expectation": "a rule about the input, the windows or the changes, from the files in the folder expectations",
    "faithful value": "the value of a window by the live job's own rules, which drop late records",
    "fidelity": "how exactly the history lets lateness be decided: log_order (partition, offset and append time are "
    "known), approximate (only within a partition), complete_only (no order), recorded (the live job's own decisions)",
    "gate": "the expectations that decide whether a run may be published; it is closed if a critical one fails",
    "idle": "after a time without records a partition no longer holds the watermark back",
    "inserted, updated, retracted": "a window that readers did not see before; one with another value, count or state; "
    "one that goes",
    "late record": "a record that came after its window had closed. Within the allowed lateness it is counted and the "
    "window fires again; after that it is dropped",
    "late share": "the share of (record, window) pairs in which the record came after the window's close, counted or "
    "dropped, of all pairs of the windows that the run computed",
    "live job": "the streaming job whose event-time rules the run replays over the history",
    "log_order": "the fidelity at which lateness follows from partition, offset and append time of each record",
    "mismatch": "the live job emitted another value than its own rules give, and the log has no reason for it",
    "mode": "which values the run computed: faithful, complete, or both",
    "pair": "one record in one window: a record of overlapping windows is in several pairs",
    "pane": "the value of one firing of a window: 0 is the first, later ones come with late records",
    "partition, offset": "a part of the log; the number of a record in it",
    "quarantine": "the table of records that cannot be used, with the reason, their bytes and their position",
    "reconciliation": "a run that reads what arrived since the run before, and recomputes what it touches",
    "revision": "one version of one window in the published table; earlier ones stay on its branch revisions",
    "severity": "of an expectation: a critical one that fails closes the gate; warning and info are only shown",
    "size of a change": "the average, over the numeric columns, of a window's change relative to the largest change of "
    "that column in this run",
    "state": "closed: the window fired; open: not yet, where the run stopped reading; all_late: all its records were "
    "dropped; not_emitted: a session that the live job emitted in other pieces; history_gone: it keeps its value, as "
    "records that it was made of are not in the history any more",
    "timeline": "the watermark as a function of the position in the log. By inversion: for each window end the first "
    "position at which the watermark has passed it, found without sorting",
    "undecided record": "it came so close to its window's close that the log alone does not say whether it was in time",
    "watermark": "the job's statement that no record with an event time at or below it is expected any more",
    "window": "a stretch of event time [start, end) whose records are aggregated together, for one key",
}
"""Each word that the page uses and that is not plain English, in the order of the alphabet."""


def anchor(word: str) -> str:
    """The id of a word's explanation on the page."""
    return "word-" + "".join(c if c.isalnum() else "-" for c in word.lower())
