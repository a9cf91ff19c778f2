"""What Airflow shows of a pipeline and of a run: descriptions of DAGs, a form's range, what is to be approved."""

from __future__ import annotations

import logging
import shlex
from typing import Any

from spark_jobs.definition import Pipeline
from spark_jobs.definition.output import Policy
from spark_jobs.formatting import iso, moment, told
from spark_jobs.lakehouse.change import VISIBLE
from spark_jobs.orchestration.links import report_path
from spark_jobs.runs.life.documents import Changes, Gate, Outcome, Request
from spark_jobs.runs.life.store import RunFolder
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.planning.last_run import LastRun, last_run
from spark_jobs.runs.work.corrected import DeliveredCorrections
from spark_jobs.runs.work.figures import failed_in_words
from spark_jobs.spark.catalog import CATALOG

POLICIES = {
    Policy.ALWAYS: "published as soon as the gate is open",
    Policy.WITHIN_TOLERANCE: "published if few published windows change, else a person decides",
    Policy.ON_APPROVAL: "a person decides",
    Policy.NEVER: "nothing is published, only compared",
}
"""What a policy means, in a few words."""

log = logging.getLogger(__name__)


def known_last_run(pipeline: Pipeline) -> LastRun | None:
    """The pipeline's last run. A store that does not answer must not keep the DAGs away: None."""
    try:
        return last_run(pipeline.name)
    except Exception as problem:
        log.warning("the last run of %s is not known: %s", pipeline.name, problem)
        return None


def described(pipeline: Pipeline, what: str, last: LastRun | None = None) -> str:
    """The description of a DAG, as Markdown."""
    table = f"{CATALOG}.{pipeline.output.namespace}.{pipeline.output.table}"
    policy = pipeline.publish.policy
    lines = [what, ""]
    if pipeline.description:
        lines += [escaped(pipeline.description), ""]
    lines += ["| | |", "| --- | --- |", f"| table | `{table}` |"]
    lines.append(f"| publishing | `{policy.value}`: {policy_in_words(policy, pipeline.publish.tolerance.in_words())} |")
    if pipeline.owner:
        lines.append(f"| owner | {escaped(pipeline.owner)} |")
    lines.append(f"| definition | `{pipeline.file}`, `{pipeline.definition_hash[:12]}` |")
    if last is not None:
        lines.append(f"| last run | {last.status.replace('_', ' ')}: [report]({report_path(last.run_id)}) |")
        if last.start is not None and last.end is not None:
            lines.append(f"| its range | {moment(last.start)} to {moment(last.end)} UTC |")
        if last.as_of:
            lines.append(f"| its as-of | `{as_of_text(last)}` |")
        if last.first is not None and last.last is not None:
            lines.append(f"| history | event times {moment(last.first)} to {moment(last.last - 1)} UTC |")
    links = [f"[{escaped(title)}]({address})" for title, address in pipeline.links.items()]
    query = f"rewindow status {shlex.quote(pipeline.name)}"
    home = report_path("").removesuffix("runs/")
    own = {
        "where it stands": f"{home}pipelines/{pipeline.name}",
        "last report": f"{home}last/{pipeline.name}",
        "all runs": f"{home}?pipeline={pipeline.name}",
    }
    links += [f"[{title}]({address})" for title, address in own.items()]
    lines += ["", " · ".join([*links, f"`{query}`"])]
    return "\n".join(lines)


def policy_in_words(policy: Policy, tolerance: str) -> str:
    """What a policy means; `tolerance`: what may change without an approval, in words."""
    return POLICIES[policy] + (f" ({tolerance})" if policy is Policy.WITHIN_TOLERANCE and tolerance else "")


def as_of_text(last: LastRun) -> str:
    """End offsets as the form takes them."""
    return ",".join(f"{partition}={end}" for partition, end in sorted(last.as_of.items()))


def history_range(last: LastRun | None) -> str:
    """A sentence about the range of the history; empty where no run has seen it."""
    if last is None or last.first is None or last.last is None:
        return ""
    return f"The history has event times from `{iso(last.first)}` to `{iso(last.last)}` (UTC), as the last run saw it. "


def approval_body(folder: RunFolder) -> str:
    """What changes, what the gate said, and where the report is."""
    from spark_jobs.report.verdict import live_in_words  # not where each DAG is parsed

    request, changes = Request.read(folder), Changes.read(folder) or Changes()
    gate, outcome = Gate.read(folder), Outcome.read(folder)
    counts, causes = changes.counts, changes.causes
    corrections, verdicts = DeliveredCorrections.read(folder), Verdicts.read(folder)
    said = [changes.of_readers.in_words(), live_in_words(verdicts) if verdicts else ""]
    decision = (outcome and outcome.decision) or {}
    rule = decision.get("rule") or (outcome and outcome.message)
    asked = f"Asked because: {rule}." if rule else ""
    readers = f"Readers of the live job's output: {corrections.sentence()}." if corrections else ""
    checked = f"Gate: {gate.verdict}; failed: {failed_in_words(gate.failed)}." if gate else ""
    reason = f"Reason given: {request.reason}" if request and request.reason else ""
    why = f"Causes: {', '.join(f'{name} {count:,}' for name, count in sorted(causes.items())) or 'none'}."
    lines = [
        f"**{escaped(' '.join(filter(None, said)))}**",
        "",
        "| change | windows |",
        "| --- | ---: |",
        *(f"| {escaped(name.value.replace('_', ' '))} | {counts.get(name, 0):,} |" for name in VISIBLE),
        "",
        *(f"- {escaped(line)}" for line in (f"{asked} {why}".strip(), readers, f"{checked} {reason}".strip()) if line),
        "",
        f"[Read the report]({report_path(folder.run_id)}) before you answer. Run `{folder.run_id}`",
    ]
    return "\n".join(lines)


def escaped(text: Any) -> str:
    """Text of a person or of data as Markdown that is only text."""
    return "".join(f"\\{c}" if c in r"\`*_{}[]()<>#+!|~" else c for c in told(text))
