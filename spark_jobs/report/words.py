"""The words of a report, explained on the report itself."""

from __future__ import annotations

WORDS: dict[str, str] = {
    "advisor": "how many records another bound or allowed lateness would have had on time in this history",
    "allowed lateness": "how long after its end, in event time, a window still accepts records; each fires it again",
    "behind the watermark": "the record came when the watermark had passed its event time. It is late only if its "
    "window had closed, too",
    "bookkeeping": "only the window's closed_at differs from what was published: values, counts and state stay",
    "bound": "the out-of-orderness bound: how far the watermark stays behind the latest event time",
    "cause": "why a window has its value: live, backfill, late_arrivals, logic_change, source_repair, retraction",
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
