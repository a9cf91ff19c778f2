"""Why a window has the value that it has, in words: what the causes of `docs/tables.md` mean on the page."""

from __future__ import annotations

CAUSES = {
    "live": "no run had published this window before, and the live job has emitted this value",
    "backfill": "no run had published this range before",
    "late_arrivals": "more records of the window have arrived since the run before",
    "logic_change": "the definition has changed since the run before",
    "source_repair": "the same records have other values in the source now",
    "erasure": "a person was forgotten, and the values are without that person's records",
    "retraction": "the records no longer give this window",
    "closed": "the window was still open in the run before, and has closed since",
    "open": "the window was open in the run before and is open still, with more records",
}

CAUSE_MEANINGS = {
    ("inserted", "backfill"): "a new window",
    ("updated", "backfill"): "the run before had read records that this one has not",
    ("inserted", "late_arrivals"): "a new window of a time that was published before: its records have arrived since",
}
"""What a cause means for one kind of change, where that is not what it means for all."""
