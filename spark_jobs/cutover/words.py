"""A cutover in sentences. No Spark in this module."""

from __future__ import annotations

from spark_jobs.cutover.document import CutoverPlan, Differing


def said(planned: CutoverPlan, name: str) -> list[str]:
    """What an exact plan means for the pipeline of this name."""
    lines = [
        f"Windows that start before {planned.at} come from the backfill: rewindow run {name} --to {planned.at}",
        f"Windows from {planned.at} on come from the new job; its sink takes no others (see sink-filter.sql).",
        f"It reads {planned.read_again:,} records again, {planned.earlier:,} of them from before the cutover.",
    ]
    kept = min((one.kept_until for one in planned.offsets if one.kept_until), default=None)
    keeping = "The history has to be kept from these offsets on until the new job has read it"
    lines.append(f"{keeping}" + (f"; the topic removes the first of these records at {kept}." if kept else "."))
    if planned.backfill_waits:
        lines.append(f"Windows before {planned.at} are still open: run the backfill once they have closed.")
    if planned.windows:
        lines.append(f"Exact: {planned.windows:,} windows from there on came out of both replays the same.")
    else:
        lines.append("Exact: no record from there on has come yet, so the new job reads all of them.")
    if planned.late and planned.doubts:
        lines.append(f"{planned.late:,} of these windows have late records already; they can differ by what follows.")
    return lines + [f"Can differ: {doubt}." for doubt in planned.doubts]


def refused(planned: CutoverPlan, name: str) -> list[str]:
    """Why a plan is refused, and from when on it is exact."""
    lines = [
        f"of {planned.windows:,} windows from {planned.at} on, {planned.differing:,} would come out otherwise; the "
        f"first is {_window(planned.samples[0])}",
        *(f"Can differ: {doubt}." for doubt in planned.doubts),
    ]
    if planned.exact_from is None:
        return [*lines, "No later time of this history is exact: plan again when more of it is there."]
    return [*lines, f"Exact from then on: rewindow cutover {name} --at {planned.exact_from}"]


def _window(one: Differing) -> str:
    keys = ", ".join(f"{key}={value}" for key, value in one.key.items())
    return f"{one.start} to {one.end} ({keys}): {_values(one.old)} by the whole history, {_values(one.new)} from there"


def _values(values: dict[str, str | None] | None) -> str:
    return "no row" if values is None else ", ".join(f"{name}={value}" for name, value in values.items())
