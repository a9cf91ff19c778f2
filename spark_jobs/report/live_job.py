"""The report's part about the live job: what its windows are worth, from `verdicts.json`, in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.formatting import length, percent, plural
from spark_jobs.lakehouse.verdict import UNEXPLAINED, Verdict
from spark_jobs.report.model import Live, LiveDeployment, LiveVerdict
from spark_jobs.runs.life.verdicts import Compared, Stretch, Verdicts

_DIFFERENT = (*UNEXPLAINED, Verdict.UNDECIDED, Verdict.TIMING, Verdict.LATE_ARRIVALS, Verdict.ALL_LATE)


def live_job(found: Verdicts | None) -> Live | None:
    """The part `live` of the report; None where the run has compared nothing.

    `verdicts`: one entry for each verdict that occurs, with its windows, share of the closed ones, sentence and labels.
    `different_share`: mismatch, missing and extra, of the closed windows. `certainty`, `next`: sentences.
    """
    if found is None:
        return None
    counts, windows = found.counts, found.windows
    known = {verdict.value: verdict.meaning for verdict in Verdict}
    verdicts = tuple(
        LiveVerdict(
            verdict=verdict,
            windows=counts[verdict],
            share=counts[verdict] / windows if windows and verdict != Verdict.NOT_CLOSED else None,
            sentence=known.get(verdict, ""),
            labels=dict(sorted(found.labels.get(verdict, {}).items(), key=lambda item: -item[1])),
        )
        for verdict in (*(v for v in known if counts.get(v)), *(v for v in counts if v not in known))
    )
    deployments = tuple(
        LiveDeployment(**one.model_dump(), different=sum(one.verdicts.get(v, 0) for v in UNEXPLAINED))
        for one in found.deployments
    )
    said = found.model_dump(include=set(Compared.model_fields))
    return Live(
        **said,
        different=found.unexplained,
        different_share=found.share(*UNEXPLAINED),
        verdicts=verdicts,
        certainty=_certainty(found),
        next=_next(found),
        deployments=deployments,
    )


def different_in(stretches: Sequence[Stretch]) -> list[str]:
    """The verdicts other than `match` that occur, in the order in which charts stack them."""
    return [v.value for v in _DIFFERENT if any(one.counts.get(v) for one in stretches)]


def _certainty(found: Verdicts) -> tuple[str, ...]:
    """How sure the verdicts are, in sentences."""
    if not found.windows:
        return ()
    said = []
    if found.fidelity == "recorded":
        said.append("The live job recorded what decides its lateness: it is known, not concluded.")
    else:
        said.append(
            "The verdicts follow from the log alone: it does not show in what order the job saw records near a close."
        )
    if found.windows_in_doubt:
        said.append(
            f"{plural(found.windows_in_doubt, 'window')} ({percent(found.windows_in_doubt, found.windows)}) have "
            "records so near a close that a difference in them might not show."
        )
    said += [
        f"{plural(int(fit['window_ends']), 'window end')} are explained by one order of the records, each from at "
        f"least {plural(int(fit['fewest_keys']), 'key')} (half of them from {int(fit['median_keys'])} or more); a fit "
        "of few keys proves little."
        for fit in found.fits
    ]
    if found.contradicted:
        said.append(
            f"In {plural(found.contradicted, 'window')} what the job recorded contradicts the log, far from any close."
        )
    undecided = found.counts.get("undecided", 0)
    if pending := found.labels.get("undecided", {}).get("batch_not_committed", 0):
        said.append(
            f"{plural(pending, 'window')} may have come out with a micro-batch that was planned and not committed: the "
            "query's next start runs it again."
        )
    if undecided > pending:
        said.append(f"{plural(undecided - pending, 'window')} stay undecided: `last_offsets` on each row decides them.")
    lag = found.lag
    if lag.windows and lag.mean is not None and lag.largest is not None:
        said.append(
            "Each window came out at its close: the job was never behind."
            if lag.largest <= 0
            else f"On average a window came out {length(round(lag.mean))} after its close, the last one "
            f"{length(lag.largest)} after it."
        )
    return tuple(said)


def _next(found: Verdicts) -> tuple[str, ...]:
    steps = [found.next_step] if found.next_step else []
    table = found.tables.get("verdicts")
    if table and any(found.counts.get(verdict) for verdict in _DIFFERENT):
        steps.append(f"All windows that are not `match` are in the table {table}, where valid_to is null.")
    return tuple(steps)
