"""The report as JUnit XML: a test case for each expectation, and one for how the run ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from spark_jobs.formatting import plain
from spark_jobs.lakehouse.verdict import UNEXPLAINED
from spark_jobs.quality.suites import Severity
from spark_jobs.report.model import Expectation, Live, Report
from spark_jobs.report.verdict import ENDED_BADLY, ENDED_WELL, UNKNOWN
from spark_jobs.runs.work.unmet import observed_in_words

_LONGEST = 2000
"""The most characters of a message."""


class _Outcome(StrEnum):
    """The element of a test case that did not pass."""

    ERROR = "error"
    FAILURE = "failure"
    SKIPPED = "skipped"


def junit_xml(report: Report) -> bytes:
    """JUnit XML of a report (see `report_of`). A day that failed on its own has a case of its own.

    An expectation that could not be evaluated is an error. A critical expectation that failed is a failure. Warnings
    and infos that failed count as skipped, with a message, since they do not stop publishing. So does a run that waits
    for approval, or that was discarded, and a verdict on the live job that the log does not explain.
    """
    suites = {"run": [_outcome(report)]}
    if report.live:
        suites["live job"] = list(_live(report.live))
    for number, result in enumerate(report.expectations.results if report.expectations else (), 1):
        suites.setdefault(result.suite or "expectations", []).extend(_cases(result, number))
    together = [case for cases in suites.values() for case in cases]
    xml = Element("testsuites", {"name": f"rewindow {report.run.run_id}", **_counts(together), "time": "0.0"})
    for name, cases in suites.items():
        xml.append(_suite(name, cases))
    return ElementTree.tostring(xml, encoding="utf-8")


def _counts(cases: Sequence[Element]) -> dict[str, str]:
    """The attributes of JUnit that count cases."""
    tags = [child.tag for case in cases for child in case]
    counted = {"errors": _Outcome.ERROR, "failures": _Outcome.FAILURE, "skipped": _Outcome.SKIPPED}
    return {"tests": str(len(cases))} | {name: str(tags.count(tag)) for name, tag in counted.items()}


# XML has no place for some characters that data have: all texts pass through these four.


def _suite(name: str, cases: Sequence[Element]) -> Element:
    suite = Element("testsuite", {"name": plain(name), **_counts(cases), "time": "0"})
    suite.extend(cases)
    return suite


def _test_case(name: str, of: str) -> Element:
    return Element("testcase", name=plain(name, _LONGEST), classname=plain(f"rewindow.{of}"))


def _did_not_pass(case: Element, outcome: _Outcome, message: str, kind: str) -> None:
    said = {"message": plain(message, _LONGEST), "type": plain(kind)}
    SubElement(case, outcome, {name: text for name, text in said.items() if text})


def _says(case: Element, output: str) -> None:
    SubElement(case, "system-out").text = plain(output, _LONGEST)


def _outcome(report: Report) -> Element:
    verdict, run = report.verdict, report.run
    case = _test_case(run.run_id, run.pipeline or "run")
    message = f"{verdict.title}: {verdict.sentence}"
    if verdict.status in ENDED_BADLY:
        _did_not_pass(case, _Outcome.FAILURE, message, verdict.status)
    elif verdict.status == UNKNOWN:
        _did_not_pass(case, _Outcome.ERROR, message, UNKNOWN)
    elif verdict.status not in ENDED_WELL:
        _did_not_pass(case, _Outcome.SKIPPED, message, verdict.status)
    _says(case, "\n".join(f"{step.text} {step.command or ''}".strip() for step in verdict.next))
    return case


def _live(live: Live) -> Iterator[Element]:
    """A case for each verdict on the live job's windows, and one for each of several deployments."""
    if live.problem:
        case = _test_case("compared", "live")
        _did_not_pass(case, _Outcome.SKIPPED, live.problem, "not compared")
        yield case
    for one in live.verdicts:
        kind = one.verdict if one.verdict in UNEXPLAINED else ""
        yield _compared(one.verdict, "live", f"{one.windows} windows. {one.sentence}", kind)
    for one in live.deployments:
        most_first = sorted(one.verdicts.items(), key=lambda item: (-item[1], item[0]))
        counts = ", ".join(f"{count} {plain(verdict)}" for verdict, count in most_first if count)
        message = f"{one.windows} windows: {counts or 'none compared'}"
        yield _compared(one.name, "live.deployments", message, "different" if one.different else "")


def _compared(name: str, of: str, message: str, kind: str) -> Element:
    """A case that counts as skipped where it has a `kind` of difference."""
    case = _test_case(name, of)
    if kind:
        _did_not_pass(case, _Outcome.SKIPPED, message, kind)
    else:
        _says(case, message)
    return case


def _cases(result: Expectation, number: int) -> Iterator[Element]:
    """One case; of an expectation by day, one for each day that failed and is named, and one for all others."""
    for day in result.failed_days:
        one = result.model_copy(
            update={**day.model_dump(exclude={"day"}), "days": None, "days_failed": 0, "failed_days": ()}
        )
        yield _case(one, number, f", {day.day}")
    if not result.failed_days or result.days_failed > len(result.failed_days):
        yield _case(result, number)
    elif result.days and result.days > result.days_failed:
        days = result.days - result.days_failed
        others = result.model_copy(update={"success": True, "days": days, "days_failed": 0, "failed_days": ()})
        yield _case(others, number, ", other days")


def _case(result: Expectation, number: int, day: str = "") -> Element:
    description = result.description or result.expectation or ""
    column = f" ({plain(result.column)})" if result.column else ""
    case = _test_case(f"{number}. {plain(description)}{column}{day}", result.suite or "expectations")
    found = plain(result.observed) if result.days is None else observed_in_words(result)
    observed = f"observed {found}, expected {plain(result.threshold)}"
    if result.error:
        _did_not_pass(case, _Outcome.ERROR, result.error, result.expectation or "")
    elif not result.success:
        outcome = _Outcome.FAILURE if result.severity == Severity.CRITICAL else _Outcome.SKIPPED
        _did_not_pass(case, outcome, f"{plain(result.severity)}: {observed}", result.expectation or "")
    else:
        _says(case, observed)
    return case
