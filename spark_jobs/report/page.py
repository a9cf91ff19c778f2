"""The report as one self-contained HTML page: no script, no network, charts as inline SVG.

Without the part `report` of the package the page has no charts, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from spark_jobs import formatting
from spark_jobs.definition.union import partition_in_words
from spark_jobs.parts import Part, install_command, missing_modules
from spark_jobs.report.counted import Changes
from spark_jobs.report.model import Report
from spark_jobs.report.normal import points, shown
from spark_jobs.report.pages import look_page, window_page
from spark_jobs.report.scales import CHARTS, VERDICT_COLOURS, bin_name, shown_tolerances
from spark_jobs.report.words import WORDS, anchor
from spark_jobs.runs.documents import Facts
from spark_jobs.runs.figures import bookkeeping_in_words, changes_in_words, failed_in_words
from spark_jobs.runs.status import RunKind
from spark_jobs.runs.unmet import allowed_in_words, day_in_words, observed_in_words

_CAUSES = {
    "live": "no run had published this window before, and the live job has emitted this value",
    "backfill": "no run had published this range before",
    "late_arrivals": "more records have arrived since the last run",
    "logic_change": "the definition has changed",
    "source_repair": "the values of the same records have changed in the source",
    "retraction": "the records no longer give this window",
}

_CAUSE_MEANINGS = {
    ("inserted", "backfill"): "a new window: no run before had published a window of its time, or one that had read "
    "other records",
    ("updated", "backfill"): "the run before had read records that this one has not",
    ("inserted", "late_arrivals"): "the range was published before; records that have arrived since make a new window",
    ("updated", "late_arrivals"): "more records of the window have arrived since the run before",
}
"""What a cause means for one kind of change, where that is not what it means for all."""

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
        charts=dict.fromkeys(CHARTS) if missing else _charts(report, facts.to_dict() if facts else {}),
        charts_need=install_command(Part.REPORT) if missing else None,
        causes=_CAUSES,
        fidelities=_FIDELITIES,
    )


def _charts(report: Report, facts: Mapping[str, Any]) -> Mapping[str, Markup | None]:
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
        cause_meanings=_CAUSE_MEANINGS,
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
