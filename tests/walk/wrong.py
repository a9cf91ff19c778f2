"""The known walks that still go wrong. `SEEN` did when they were tried; `LIKELY` were not tried, and have one cause."""

from __future__ import annotations

from tests.walk.known import KNOWN

_PINNED = "a snapshot that was pinned is taken for one that was read: what the run's end left out is never read"
_AHEAD_LAST = "an arrival in front of the clock, last of its partition, is quarantined and counts as read"
_AHEAD = "an arrival in front of the clock goes to quarantine, and counts as good once the clock has come so far"
_SAME_COUNT = "rows that are deleted and inserted with other values are as many: counts by partition show nothing"
_MOVED = (
    "a record that moved to another window is taken for one that is gone: its old window is kept beside the new one"
)
_LOOKUP = "after a loss, a window of a key that has moved to another region is kept: its records count twice"
_DECIDED = "windows and late rows that records decided which are gone now are computed again without them"
_OTHER_LOG = "another log in the same table or files is not told from the one that was read"
_COLUMN = "a column is known by its name: another one of the name is read in its place for new rows alone"
_ROLLED = "with the snapshots gone, counts alone are compared: other values at the same offsets are not seen"
_PART = "a run of a part deletes the timeline of the whole one: the next night is a full run"
_NO_PLACE = "records without a position are never read by a night"
_BACK = "the running maximum of arrivals begins anew with each night over a topic"
_QUARANTINE = "a full run deletes quarantined rows whose records are gone"
_VIEW = "a view is compared by the files of its table: another query of it is not seen"
_LIFE = "the archive of a checkpoint keeps the batches of a life that was given up"

SEEN: dict[str, str] = {
    "iceberg: nights with an end each": _PINNED,
    "iceberg: nights that are planned after their end": _PINNED,
    "iceberg: a run up to end offsets, then a night": _PINNED,
    "iceberg: an arrival in front of the clock, last of its partition": _AHEAD_LAST,
    "iceberg: an arrival in front of the clock, then others": _AHEAD,
    "iceberg: a partition of the table is deleted, and inserted with other values": _SAME_COUNT,
    "files: a key is put right where only complete values are computed": _MOVED,
    "files: a key moves to another region after records were lost": _LOOKUP,
    "files: what moved the watermark is gone, and sessions are computed again": _DECIDED,
    "files: the first copies are gone, and their duplicates are there": _DECIDED,
    "files: records without a position arrive": _NO_PLACE,
    "query: a checkpoint is restored from a copy, and goes on in smaller batches": _LIFE,
}

_BY_STORY = {
    "nights with an end each": _PINNED,
    "nights that are planned after their end": _PINNED,
    "a run up to end offsets, then a night": _PINNED,
    "an arrival in front of the clock, last of its partition": _AHEAD_LAST,
    "an arrival in front of the clock, then others": _AHEAD,
    "rows are deleted, and inserted with other values": _SAME_COUNT,
    "a partition of the table is deleted, and inserted with other values": _SAME_COUNT,
    "a key is put right": _MOVED,
    "an event time is put right": _MOVED,
    "a key is put right where only complete values are computed": _MOVED,
    "a key moves to another region after records were lost": _LOOKUP,
    "a key moves to another region after rows were lost": _LOOKUP,
    "what moved the watermark is gone, and sessions are computed again": _DECIDED,
    "the first copies are gone, and their duplicates are there": _DECIDED,
    "quarantined records are gone": _QUARANTINE,
    "another log after the table was emptied": _OTHER_LOG,
    "another log is written over the table": _OTHER_LOG,
    "another log in a table that is created again": _OTHER_LOG,
    "another log with more records in other files": _OTHER_LOG,
    "the column of values is renamed and another one added": _COLUMN,
    "the column of values is dropped and added": _COLUMN,
    "rolled back, filled with other values, and its snapshots are gone": _ROLLED,
    "the view of the history is another one": _VIEW,
    "a checkpoint is restored from a copy, and goes on in smaller batches": _LIFE,
    "a run of a part after records were lost, then one of the whole": _DECIDED,
    "a run of a part, then a night": _PART,
    "records without a position arrive": _NO_PLACE,
    "arrivals go back over the end of a night": _BACK,
}
LIKELY: dict[str, str] = {
    name: _BY_STORY[story] for name in KNOWN if name not in SEEN and (story := name.partition(": ")[2]) in _BY_STORY
}
WRONG = {**SEEN, **LIKELY}
