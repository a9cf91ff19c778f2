"""The report's part about the live job: what its windows are worth, from `verdicts.json`, in plain sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_jobs.formatting import length, percent, plural
from spark_jobs.runs.verdicts import in_todays_words

_SENTENCES = {
    "match": "The live job emitted what its rules give, and late records do not change it.",
    "late_arrivals": "The live job was right when it emitted the window; records that came later would change it.",
    "timing": "The live job's own clock decided: one order of the records near the close explains all keys.",
    "mismatch": "The live job emitted another value than its rules give for this log.",
    "missing": "The live job should have emitted the window, and did not.",
    "extra": "The live job emitted a window that its rules do not give for this log.",
    "all_late": "Every record of the window was late: as its rules say, the live job emitted none.",
    "undecided": "The value differs, and the log does not show whether by timing.",
    "not_closed": "The window is still open at the end offsets, and is not counted.",
}
"""In the order in which the report has them: what is right, what differs, what is open."""
UNEXPLAINED = ("mismatch", "missing", "extra")
_DIFFERENT = (*UNEXPLAINED, "undecided", "timing", "late_arrivals", "all_late")


def live_job(document: Mapping[str, Any] | None, pipeline: str) -> dict[str, Any] | None:
    """The part `live` of `report.json`; None where the run has compared nothing.

    `verdicts`: one entry for each verdict that occurs, with its windows, share of the closed ones, sentence and labels.
    `different_share`: mismatch, missing and extra, of the closed windows. `certainty`, `next`: sentences.
    """
    if document is None:
        return None
    verdicts: Mapping[str, Any] = in_todays_words(dict(document))
    counts, windows = _counts(verdicts.get("counts")), int(verdicts.get("windows") or 0)
    labels = verdicts.get("labels") or {}
    different = sum(counts.get(verdict, 0) for verdict in UNEXPLAINED)
    known = [verdict for verdict in _SENTENCES if counts.get(verdict)]
    others = [verdict for verdict in counts if verdict not in _SENTENCES]
    return {
        "problem": verdicts.get("problem"),
        "emitted": verdicts.get("emitted"),
        "whole_range": bool(verdicts.get("whole_range", True)),
        "fidelity": verdicts.get("fidelity"),
        "windows": windows,
        "different": different,
        "different_share": different / windows if windows else None,
        "late_records": verdicts.get("late_records"),
        "verdicts": [
            {
                "verdict": verdict,
                "windows": counts[verdict],
                "share": counts[verdict] / windows if windows and verdict != "not_closed" else None,
                "sentence": _SENTENCES.get(verdict, ""),
                "labels": dict(sorted(_counts(labels.get(verdict)).items(), key=lambda item: -item[1])),
            }
            for verdict in (*known, *others)
        ],
        "keys": list(verdicts.get("keys") or []),
        "values": list(verdicts.get("values") or []),
        "top": list(verdicts.get("top") or []),
        "late_record_samples": list(verdicts.get("late_record_samples") or []),
        "width": verdicts.get("width"),
        "stretches": list(verdicts.get("stretches") or []),
        "lag": verdicts.get("lag") or {},
        "lags": list(verdicts.get("lags") or []),
        "certainty": _certainty(verdicts, counts, windows),
        "notes": list(verdicts.get("notes") or []),
        "next": _next(verdicts, counts, pipeline),
        "tables": verdicts.get("tables") or {},
        "deployments": [
            {
                "name": one.get("name"),
                "from": one.get("from"),
                "to": one.get("to"),
                "emitted": one.get("emitted"),
                "own_rules": bool(one.get("own_rules")),
                "windows": int(one.get("windows") or 0),
                "different": sum(_counts(one.get("verdicts")).get(verdict, 0) for verdict in UNEXPLAINED),
                "verdicts": _counts(one.get("verdicts")),
            }
            for one in verdicts.get("deployments") or []
        ],
    }


def different_in(stretches: Sequence[Mapping[str, Any]]) -> list[str]:
    """The verdicts other than `match` that occur, in the order in which charts stack them."""
    return [v for v in _DIFFERENT if any(_counts(one.get("counts")).get(v) for one in stretches)]


def _counts(value: Any) -> dict[str, int]:
    return {str(k): int(n) for k, n in value.items()} if isinstance(value, Mapping) else {}


def _certainty(verdicts: Mapping[str, Any], counts: Mapping[str, int], windows: int) -> list[str]:
    """How sure the verdicts are, in sentences."""
    if not windows:
        return []
    said = []
    if verdicts.get("fidelity") == "recorded":
        said.append("The live job recorded which records are in each row: its lateness is known, not concluded.")
    else:
        said.append(
            "The verdicts follow from the log alone: it does not show in what order the job saw records near a close."
        )
    in_doubt = int(verdicts.get("windows_in_doubt") or 0)
    if in_doubt:
        said.append(
            f"{plural(in_doubt, 'window')} ({percent(in_doubt, windows)}) have records so near a close that a "
            "difference in them might not show."
        )
    said += [
        f"{plural(int(fit['window_ends']), 'window end')} are explained by one order of the records, each from at "
        f"least {plural(int(fit['fewest_keys']), 'key')} (half of them from {int(fit['median_keys'])} or more); a fit "
        "of few keys proves little."
        for fit in verdicts.get("fits") or []
    ]
    if verdicts.get("contradicted"):
        said.append(
            f"In {plural(int(verdicts['contradicted']), 'window')} what the job recorded contradicts the log, far from "
            "any close."
        )
    if counts.get("undecided"):
        said.append(f"{plural(counts['undecided'], 'window')} stay undecided: `last_offsets` on each row decides them.")
    lag = verdicts.get("lag") or {}
    if lag.get("windows") and lag["largest"] <= 0:
        said.append("Each window came out at its close: the job was never behind.")
    elif lag.get("windows"):
        said.append(
            f"On average a window came out {length(round(lag['mean']))} after its close, the last one "
            f"{length(lag['largest'])} after it."
        )
    return said


def _next(verdicts: Mapping[str, Any], counts: Mapping[str, int], pipeline: str) -> list[str]:
    steps = [str(verdicts["next_step"])] if verdicts.get("next_step") else []
    tables = verdicts.get("tables") or {}
    if tables.get("verdicts") and any(counts.get(verdict) for verdict in _DIFFERENT):
        steps.append(f"All windows that are not `match` are in the table {tables['verdicts']}, where valid_to is null.")
    return steps
