"""The report as JUnit XML: a test case for each expectation, and one for how the run ended."""

from __future__ import annotations

from collections.abc import Iterator

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from spark_jobs.formatting import plain
from spark_jobs.lakehouse.verdict import UNEXPLAINED
from spark_jobs.quality.suites import Severity
from spark_jobs.report.model import Expectation, Live, Report
from spark_jobs.report.verdict import ENDED_BADLY, ENDED_WELL, UNKNOWN
from spark_jobs.runs.unmet import observed_in_words


def junit_xml(report: Report) -> bytes:
    """JUnit XML of a report (see `report_of`). A day that failed on its own has a case of its own.

    An expectation that could not be evaluated is an error. A critical expectation that failed is a failure. Warnings
    and infos that failed count as skipped, with a message, since they do not stop publishing. So does a run that waits
    for approval, or that was discarded, and a verdict on the live job that the log does not explain.
    """
    xml = JUnitXml(name=f"rewindow {report.run.run_id}")
    xml.add_testsuite(_outcome(report))
    if report.live:
        xml.add_testsuite(_live(report.live))
    suites: dict[str, TestSuite] = {}
    for number, result in enumerate(report.expectations.results if report.expectations else (), 1):
        name = plain(result.suite or "expectations")
        for case in _cases(result, number):
            suites.setdefault(name, TestSuite(name)).add_testcase(case)
    for suite in suites.values():
        xml.add_testsuite(suite)
    xml.update_statistics()
    return xml.tostring()


def _outcome(report: Report) -> TestSuite:
    verdict, run = report.verdict, report.run
    case = TestCase(plain(run.run_id), classname=f"rewindow.{plain(run.pipeline or 'run')}")
    message = f"{verdict.title}: {verdict.sentence}"
    if verdict.status in ENDED_BADLY:
        case.result = [Failure(message, verdict.status)]
    elif verdict.status == UNKNOWN:
        case.result = [Error(message, UNKNOWN)]
    elif verdict.status not in ENDED_WELL:
        case.result = [Skipped(message, verdict.status)]
    case.system_out = "\n".join(f"{step.text} {step.command or ''}".strip() for step in verdict.next)
    suite = TestSuite("run")
    suite.add_testcase(case)
    return suite


def _live(live: Live) -> TestSuite:
    """A case for each verdict on the live job's windows, and one for each of several deployments."""
    suite = TestSuite("live job")
    if live.problem:
        case = TestCase("compared", classname="rewindow.live")
        case.result = [Skipped(plain(live.problem, 2000), "not compared")]
        suite.add_testcase(case)
    for one in live.verdicts:
        case = TestCase(plain(one.verdict), classname="rewindow.live")
        message = f"{one.windows} windows. {one.sentence}"
        if one.verdict in UNEXPLAINED:
            case.result = [Skipped(message, plain(one.verdict))]
        else:
            case.system_out = message
        suite.add_testcase(case)
    for one in live.deployments:
        case = TestCase(plain(one.name), classname="rewindow.live.deployments")
        most_first = sorted(one.verdicts.items(), key=lambda item: (-item[1], item[0]))
        counts = ", ".join(f"{count} {plain(verdict)}" for verdict, count in most_first if count)
        message = f"{one.windows} windows: {counts or 'none compared'}"
        if one.different:
            case.result = [Skipped(message, "different")]
        else:
            case.system_out = message
        suite.add_testcase(case)
    return suite


def _cases(result: Expectation, number: int) -> Iterator[TestCase]:
    """One case; of an expectation by day, one for each day that failed and is named, and one for all others."""
    for day in result.failed_days:
        one = result.model_copy(
            update={**day.model_dump(exclude={"day"}), "days": None, "days_failed": 0, "failed_days": ()}
        )
        yield _case(one, number, f", {plain(day.day)}")
    if not result.failed_days or result.days_failed > len(result.failed_days):
        yield _case(result, number)
    elif result.days and result.days > result.days_failed:
        days = result.days - result.days_failed
        others = result.model_copy(update={"success": True, "days": days, "days_failed": 0, "failed_days": ()})
        yield _case(others, number, ", other days")


def _case(result: Expectation, number: int, day: str = "") -> TestCase:
    description = result.description or result.expectation or ""
    column = f" ({plain(result.column)})" if result.column else ""
    case = TestCase(
        f"{number}. {plain(description)}{column}{day}", classname=f"rewindow.{plain(result.suite or 'expectations')}"
    )
    found = plain(result.observed) if result.days is None else observed_in_words(result)
    observed = f"observed {found}, expected {plain(result.threshold)}"
    if result.error:
        case.result = [Error(plain(result.error, 2000), plain(result.expectation))]
    elif not result.success:
        kind = Failure if result.severity == Severity.CRITICAL else Skipped
        case.result = [kind(f"{plain(result.severity)}: {observed}", plain(result.expectation))]
    else:
        case.system_out = observed
    return case
