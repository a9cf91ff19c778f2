"""The report as data: `report.json`, from the documents of a run, any of which may be missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.formatting import written_time
from spark_jobs.lakehouse.change import WindowChange
from spark_jobs.lakehouse.counts import RunCounts
from spark_jobs.quality.suites import Severity
from spark_jobs.report.advice import advise
from spark_jobs.report.corrections import corrections_of
from spark_jobs.report.live_job import live_job
from spark_jobs.report.normal import normal_of
from spark_jobs.report.verdict import Origin, verdict_of
from spark_jobs.runs.documents import Application
from spark_jobs.runs.figures import RunFigures
from spark_jobs.runs.status import RunStatus, Stage
from spark_jobs.runs.store import (
    APPROVAL,
    CHANGES,
    CORRECTIONS,
    FACTS,
    GATE,
    OUTCOME,
    PLAN,
    QUARANTINE,
    REQUEST,
    VERDICTS,
    RunFolder,
)
from spark_jobs.runs.unfinished import stage_at_work
from spark_jobs.runs.unmet import is_counted

FORMAT = "rewindow-report/1"

_SEVERITIES = tuple(severity.value for severity in Severity)
"""The worst first."""
_RESULT = dict.fromkeys(
    (
        "suite",
        "data",
        "expectation",
        "name",
        "description",
        "severity",
        "column",
        "observed",
        "threshold",
        "checked",
        "unexpected_count",
        "unexpected_percent",
        "error",
    )
) | {"success": False, "samples": []}
_REASON = dict.fromkeys(("reason", "records", "partition", "offset", "arrival", "value"))
_LEFT_OUT = dict.fromkeys(("suite", "data", "expectation", "name", "reason"))
_APPLICATION = dict.fromkeys(("stage", "chunk", "application_id", "seconds"))
_STAGES = (
    Stage.PLAN,
    Stage.RECONCILE,
    Stage.TIMELINE,
    Stage.REPLAY,
    Stage.COMPARE,
    Stage.VERIFY,
    Stage.PUBLISH,
    Stage.CORRECT,
    Stage.REPEAT,
    Stage.REVERT,
    Stage.DISCARD,
)
"""In the order in which they run."""
_APPROVAL = dict.fromkeys(("decision", "by", "at", "comment"))
_FIGURES = ("changed", "windows_recomputed", "unchanged", "match_share", "late_share", "dropped_share")
COUNTS = tuple(name for name in RunCounts.names() if not name.startswith(("records_read", "records_quarantined")))
"""What the section `changes` says of the run's counts; the records that it read are in other sections."""

_FILES = {"applications": f"{Application.PREFIX}*.json", "chunks": "chunk-*.json"}
"""The files of a field of `Documents` that are not named as it is."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of a run; None where the run has not written one.

    They are kept as JSON values, not as the models of `spark_jobs.runs.documents`: a report is drawn of whatever a run
    of any version has left, also of a status that this version does not know. `damaged`: the files that are there and
    cannot be used; they count as not written, and the report names them.
    """

    run_id: str
    request: Mapping[str, Any] | None = None
    plan: Mapping[str, Any] | None = None
    chunks: tuple[Mapping[str, Any], ...] = ()
    applications: tuple[Mapping[str, Any], ...] = ()
    changes: Mapping[str, Any] | None = None
    gate: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] | None = None
    approval: Mapping[str, Any] | None = None
    outcome: Mapping[str, Any] | None = None
    verdicts: Mapping[str, Any] | None = None
    corrections: Mapping[str, Any] | None = None
    quarantine: Mapping[str, Any] | None = None
    damaged: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: RunFolder) -> Documents:
        """Read all documents of a folder."""
        damaged: list[str] = []

        def of_file(name: str) -> Mapping[str, Any] | None:
            data = folder.read_bytes(name)
            try:
                found = None if data is None else json.loads(data)
            except (ValueError, RecursionError):
                found = ()
            if found is None or isinstance(found, Mapping):
                return found
            damaged.append(name)
            return None

        def each(beginning: str) -> tuple[Mapping[str, Any], ...]:
            names = [n for n in folder.documents() if n.startswith(beginning) and n.endswith(".json")]
            return tuple(filter(None, map(of_file, names)))

        names = (REQUEST, PLAN, CHANGES, GATE, FACTS, APPROVAL, OUTCOME, VERDICTS, CORRECTIONS, QUARANTINE)
        read = {name: of_file(name) for name in names}
        return cls(
            folder.run_id,
            read[REQUEST],
            read[PLAN],
            each("chunk-"),
            each(Application.PREFIX),
            read[CHANGES],
            read[GATE],
            read[FACTS],
            read[APPROVAL],
            read[OUTCOME],
            read[VERDICTS],
            read[CORRECTIONS],
            read[QUARANTINE],
            tuple(damaged),
        )

    def parts(self) -> tuple[str, ...]:
        """The names of the fields that hold documents, the most telling ones first."""
        return ("request", "outcome", "plan", "changes", "gate", "approval", "verdicts", "corrections", "quarantine",
                "applications",                 "chunks", "facts")  # fmt: skip

    def without(self, part: str) -> Documents:
        """The same without the documents of one field, which are damaged."""
        empty: Any = () if isinstance(getattr(self, part), tuple) else None
        return replace(self, **{part: empty, "damaged": (*self.damaged, _FILES.get(part, f"{part}.json"))})


def report_of(documents: Documents) -> dict[str, Any]:
    """The report as JSON values; see docs/report.md. A part is None where the run did not get that far."""
    request, outcome = documents.request or {}, documents.outcome or {}
    changes = _changes(documents)
    expectations = _expectations(documents.gate)
    requested = {"from": None, "to": None} | (request.get("requested") or request.get("asked") or {})
    pipeline = request.get("pipeline") or (documents.plan or {}).get("pipeline") or ""
    table = request.get("output_table") or (outcome.get("tables") or {}).get("windows")
    failing = [r for r in expectations["results"] if not r["success"]] if expectations else []
    counts = changes["counts"] if changes else outcome.get("changes") or {}
    return {
        "format": FORMAT,
        "damaged": list(documents.damaged),
        "run": {
            "run_id": documents.run_id,
            "pipeline": pipeline,
            "kind": request.get("kind"),
            "asked": requested,
            "requested": requested,
            "reason": request.get("reason") or None,
            "requested_by": request.get("requested_by"),
            "requested_at": request.get("requested_at"),
            "started_at": outcome.get("started_at"),
            "finished_at": outcome.get("finished_at"),
            "at_work": documents.outcome is None,
            "output_table": table,
            "dag_id": request.get("dag_id"),
        },
        "verdict": verdict_of(
            documents.outcome,
            counts,
            failing,
            documents.approval,
            table,
            pipeline,
            changes["top"] if changes else (),
            reader=Origin(documents.run_id, request.get("dag_id")),
            at_work=_work_of(documents),
        ).to_dict(),
        "approval": _APPROVAL | dict(documents.approval) if documents.approval else None,
        "changes": changes,
        "watermark": _watermark(documents.facts),
        "late": (documents.facts or {}).get("late"),
        "quarantine": [_REASON | dict(one) for one in (documents.quarantine or {}).get("reasons") or []],
        "live": live_job(documents.verdicts, pipeline),
        "corrections": corrections_of(
            documents.corrections, pipeline, documents.run_id, in_airflow=bool(request.get("dag_id"))
        ),
        "expectations": expectations,
        "advisor": advise((documents.facts or {}).get("advisor")),
        "plan": _plan(documents),
        "normal": normal_of(documents.changes, request.get("kind"), _span(documents.plan)),
        "unchecked": (documents.changes or {}).get("unchecked") or None,
        "decision": (outcome.get("decision") or {}).get("why"),
        "links": {
            "run_before": (documents.changes or {}).get("run_before"),
            "definition": request.get("definition_version") or None,
            "late_rows": _late_rows(documents, outcome),
        },
    }


def _work_of(documents: Documents) -> str:
    """Where a run without an outcome is, in words: since when, and in which stage."""
    request, stage = documents.request or {}, stage_at_work(documents.applications)
    since = f" since {written_time(request['requested_at'])} UTC" if request.get("requested_at") else ""
    done, planned = len(documents.chunks), len((documents.plan or {}).get("chunks") or [])
    chunks = f" ({done} of {planned} chunks are done)" if stage is Stage.REPLAY and planned > 1 else ""
    return f"{since}, in the stage {stage}{chunks}" if stage else f"{since}, between two stages" if since else ""


def _late_rows(documents: Documents, outcome: Mapping[str, Any]) -> str | None:
    """The command that lists the run's late records; None where the run has published none."""
    late = (outcome.get("tables") or {}).get("late")
    if (documents.request or {}).get("dag_id"):
        return None  # in Airflow nobody has a command line: the page shows some of them, and leads to the others
    if not late or outcome.get("status") not in (RunStatus.PUBLISHED, RunStatus.UNCHANGED):
        return None
    query = f"SELECT * FROM {late} WHERE run_id = '{documents.run_id}' ORDER BY missed_by DESC"
    return f'rewindow sql "{query}"'


def _changes(documents: Documents) -> dict[str, Any] | None:
    facts = (documents.facts or {}).get("changes")
    changes = documents.changes
    if changes is None and facts is None:
        return None
    found = (changes or {}).get("counts") or (facts or {}).get("counts") or {}
    figures = RunFigures.of({**(changes or {}), "counts": found}, documents.outcome)
    status = (documents.outcome or {}).get("status")
    return {
        "counts": {kind.value: found.get(kind, 0) for kind in WindowChange},
        "causes": (changes or {}).get("causes") or (facts or {}).get("causes") or {},
        "causes_by_change": (changes or {}).get("causes_by_change") or {},
        "published": status in (RunStatus.PUBLISHED, RunStatus.UNCHANGED),
        **{name: getattr(figures, name) for name in _FIGURES},
        **{name: figures.counts[name] for name in COUNTS},
        "in_words": figures.in_words(),
        "strip": facts["strip"] if facts else None,
        "keys": facts["keys"] if facts else [],
        "aggregates": facts["aggregates"] if facts else [],
        "columns": [{"from_null": 0, "to_null": 0, **c} for c in facts.get("columns", [])] if facts else [],
        "top": facts["top"] if facts else [],
    }


def _span(plan: Mapping[str, Any] | None) -> TimeRange | None:
    """The range of windows of a plan; None where there is no plan, or it does not say it."""
    span = (plan or {}).get("span")
    if not isinstance(span, Mapping) or not all(isinstance(span.get(name), int) for name in ("start", "end")):
        return None
    return TimeRange(span["start"], span["end"])


def _expectations(gate: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The results of the gate, the worst first: failed before met, then critical, warning, info."""
    if gate is None:
        return None

    def rank(result: Mapping[str, Any]) -> tuple[bool, int]:
        severity = result.get("severity")
        return bool(result["success"]), _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)

    results = sorted(
        (_RESULT | dict(result) | {"counted": is_counted(result)} for result in gate.get("results") or []), key=rank
    )
    failed = [r for r in results if not r["success"]]
    not_counted = sum(1 for r in results if r["success"] and not r["counted"])
    return {
        "verdict": gate.get("verdict"),
        "blocks": bool(gate.get("blocks")),
        "met": len(results) - len(failed) - not_counted,
        "not_counted": not_counted,
        "failed": {s: sum(r.get("severity") == s for r in failed) for s in _SEVERITIES},
        "suites": gate.get("suites") or [],
        "left_out": [_LEFT_OUT | dict(one) for one in gate.get("left_out") or []],
        "results": results,
        "seconds": gate.get("seconds"),
        "spark_jobs": gate.get("spark_jobs"),
    }


def _watermark(facts: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The numbers of the watermark charts. Their points are in `facts.json` only."""
    picture = (facts or {}).get("watermark")
    if picture is None:
        return None

    def view(shown: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if shown is None:
            return None
        sizes = {name: len(shown[name]) for name in ("line", "closes", "on_time", "behind", "late")}
        return {"from": shown["from"], "to": shown["to"], "one_in": shown["one_in"], "shown": sizes}

    return {
        "resolution": picture["resolution"],
        "overview": view(picture["overview"]),
        "zoom": view(picture["zoom"]),
        "standstills": picture["standstills"],
        "idle": picture.get("idle"),
    }


def _plan(documents: Documents) -> dict[str, Any] | None:
    request, plan, outcome = documents.request or {}, documents.plan, documents.outcome or {}
    if plan is None and not request and not outcome:
        return None
    plan = plan or {}
    named = (
        "source",
        "definition_hash",
        "mode",
        "span",
        "is_whole",
        "event_times",
        "processing_time_end",
        "records",
        "quarantined",
        "missing_event_times",
        "window_ends",
        "watermark",
        "partition_columns",
    )
    return {
        **{name: plan.get(name) for name in named},
        "partitions": plan.get("partitions") or [],
        "files": plan.get("pinned") or [],
        "warnings": list(plan.get("warnings") or []),
        "fidelity": outcome.get("fidelity") or plan.get("fidelity"),
        "fidelity_reasons": list(outcome.get("fidelity_reasons") or plan.get("fidelity_reasons") or []),
        "version": outcome.get("version") or plan.get("version"),
        "chunks": [dict(chunk) for chunk in documents.chunks],
        "planned_chunks": len(plan.get("chunks") or []),
        "timings": outcome.get("timings") or {},
        "applications": sorted(
            (_APPLICATION | dict(a) for a in documents.applications or outcome.get("applications") or []), key=_order
        ),
        "tables": outcome.get("tables") or {},
        "definition": request.get("definition"),
    }


def _order(application: Mapping[str, Any]) -> tuple[int, str, int]:
    """A sort key: the order in which the stages run, then the chunk."""
    stage = application["stage"]
    at = _STAGES.index(stage) if stage in _STAGES else len(_STAGES)
    return at, str(stage), application["chunk"] or 0
