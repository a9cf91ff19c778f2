"""Which offsets a replay reads, decided once: from then on they are explicit, and what is not as they say is refused.

Nothing here talks to a broker: `resolve` and `confirm` are functions of the definition and of the topic's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.kafka import LogBound, Topic
from spark_jobs.errors import HistoryError
from spark_jobs.sources.kafka_admin import TopicState

OffsetsAt = Callable[[Iterable[int], int], Mapping[int, int | None]]
"""Per partition, the first offset that arrived at an instant or later; None where there is none."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets `[start, end)` of one partition, to be read from the topic; those before are a stitched past's."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PinnedTopic:
    """A topic as a plan pins it. `notes` say what is missing with the user's consent, for the run's fidelity."""

    topic: str
    topic_id: str
    arrival_kind: Literal["append_time", "producer_time"]
    ranges: tuple[OffsetRange, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Consent:
    """What the definition accepts, and what of it has come up."""

    topic: Topic
    notes: list[str] = field(default_factory=list)

    def needed(self, option: str, what: str, hint: str) -> None:
        """Raises HistoryError for `what` unless the definition accepts it, then notes it."""
        if option not in self.topic.accept:
            consent = f"or write `accept: [{option}]`, which the run's fidelity records."
            raise HistoryError(what, f"topic {self.topic.topic} at {self.topic.servers}", f"{hint}, {consent}")
        self.notes.append(f"{what} (accept: {option})")


def resolve(
    topic: Topic,
    state: TopicState,
    offsets_at: OffsetsAt,
    *,
    registered: Iterable[int] | None = None,
    as_of: Mapping[int, int] | None = None,
    past: Mapping[int, int] | None = None,
    past_topic_id: str | None = None,
) -> PinnedTopic:
    """The offsets to read. `as_of` gives end offsets in place of the definition's `end`.

    `registered` are the partitions that the live job reads, if the definition names them. `past` (partition to end
    offset) is what a Hive table holds already: the topic is read from there on, and a hole between the two is refused.
    Raises HistoryError for whatever would silently be missing.
    """
    consent = _Consent(topic)
    if state.unreachable:
        consent.needed(
            "unreachable_partitions",
            f"{_named(state.unreachable)} {_has(state.unreachable)} no leader: what it holds cannot be read",
            "Wait for its brokers",
        )
    if state.is_compacted:
        consent.needed(
            "compacted",
            "the topic is compacted: records that the live job saw are gone",
            "Replay a copy that keeps all records",
        )
    if past_topic_id not in (None, state.topic_id):
        consent.needed(
            "recreated_topic",
            "the topic was deleted and made again since its past was archived: its offsets began anew",
            "Archive the new topic into another table",
        )
    if registered is not None and (added := sorted(state.partitions.keys() - set(registered))):
        consent.needed(
            "new_partitions",
            f"the topic has {_named(added)}, which watermark.partitions does not register: nothing of it would be read",
            "Register it (a live job that saw it only later decided otherwise near its beginning)",
        )
        state = replace(state, partitions={p: bounds for p, bounds in state.partitions.items() if p not in added})
    starts = _starts(topic, state, offsets_at, consent) if past is None else _after(past, state, consent)
    ends = _as_of_ends(as_of, state, starts, consent) if as_of else _ends(topic, state, offsets_at, consent)
    ranges = []
    for partition in sorted(starts.keys() & ends.keys()):
        start, end = starts[partition], ends[partition]
        if end < start and past is None:
            raise _wrong(topic, f"partition {partition} would end at offset {end}, before it begins at {start}", "end")
        ranges.append(OffsetRange(partition, min(start, end), end))
    return PinnedTopic(topic.topic, state.topic_id, _arrival_kind(topic, state), tuple(ranges), tuple(consent.notes))


def confirm(topic: Topic, state: TopicState, pinned: PinnedTopic) -> PinnedTopic:
    """The same offsets again, for a run that comes later than its plan; with what had to be accepted since.

    Raises HistoryError where the topic no longer has exactly what the plan says.
    """
    consent = _Consent(topic, list(pinned.notes))
    again = "Plan again"
    if state.topic_id != pinned.topic_id:
        consent.needed("recreated_topic", "the topic was deleted and made again since the plan was made", again)
    added = sorted(state.partitions.keys() - {known.partition for known in pinned.ranges})
    if added and "new_partitions" not in topic.accept:
        consent.needed("new_partitions", f"{_named(added)} {_was(added)} added since the plan was made", again)
    elif added:
        consent.notes.append(f"{_named(added)} {_was(added)} not in the plan and not read (accept: new_partitions)")
    for known in pinned.ranges:
        if known.start == known.end:
            continue
        bounds = state.partitions.get(known.partition)
        if bounds is None:
            raise _wrong(topic, f"partition {known.partition} of the plan cannot be read: it has no leader", "plan")
        if bounds.earliest > known.start:
            lost = f"offsets [{known.start}, {min(bounds.earliest, known.end)}) of partition {known.partition}"
            raise _wrong(topic, f"{lost} are gone since the plan was made: retention has removed them", "plan")
        if bounds.latest < known.end:
            ends = f"partition {known.partition} ends at offset {bounds.latest}, and the plan reads to {known.end}"
            raise _wrong(topic, f"{ends}: the topic was made again or truncated", "plan")
    kept = tuple(dict.fromkeys(consent.notes))
    return PinnedTopic(pinned.topic, pinned.topic_id, pinned.arrival_kind, pinned.ranges, kept)


def _arrival_kind(topic: Topic, state: TopicState) -> Literal["append_time", "producer_time"]:
    if topic.timestamps != "auto":
        return topic.timestamps
    return "append_time" if state.has_append_time else "producer_time"


def _starts(topic: Topic, state: TopicState, offsets_at: OffsetsAt, consent: _Consent) -> dict[int, int]:
    starts: dict[int, int] = {}
    asked = _asked(topic.start, "start", topic, state, offsets_at, consent)
    for partition, bounds in state.partitions.items():
        if partition not in asked:
            continue
        start = asked[partition]
        if start is None:
            start = bounds.latest
        elif start == "earliest":
            start = 0
        if start > bounds.latest:
            what = f"offset {start} does not exist in partition {partition}, which ends at {bounds.latest}"
            raise _wrong(topic, what, "start")
        is_by_time = isinstance(topic.start, int)
        if start < bounds.earliest or (is_by_time and 0 < start == bounds.earliest):
            since = f" since {format_instant(topic.start)}" if is_by_time else ""
            consent.needed(
                "lost_start",
                f"partition {partition} begins at offset {bounds.earliest}: retention has removed what was before"
                + (f", perhaps records{since} too" if is_by_time else ""),
                "Stitch it to an archive (history.kind: stitched), begin later (history.start)",
            )
        elif start > 0:
            consent.notes.append(f"partition {partition} is read from offset {start} on, as history.start says")
        starts[partition] = max(start, bounds.earliest)
    return starts


def _ends(topic: Topic, state: TopicState, offsets_at: OffsetsAt, consent: _Consent) -> dict[int, int]:
    ends: dict[int, int] = {}
    asked = _asked(topic.end, "end", topic, state, offsets_at, consent)
    for partition, bounds in state.partitions.items():
        if partition not in asked:
            continue
        end = asked[partition]
        if end is None or end == "latest":
            end = bounds.latest
        if end > bounds.latest:
            what = f"offset {end - 1} does not exist in partition {partition}, which ends at {bounds.latest}"
            raise _wrong(topic, what, "end")
        ends[partition] = end
    return ends


def _as_of_ends(
    as_of: Mapping[int, int], state: TopicState, starts: Mapping[int, int], consent: _Consent
) -> dict[int, int]:
    topic = consent.topic
    unknown = sorted(as_of.keys() - starts.keys())
    if unknown:
        raise _wrong(topic, f"the as-of vector names {_named(unknown)}, which the topic does not have", "as-of")
    ends = {}
    for partition, start in starts.items():
        latest = max(start, state.partitions[partition].latest if partition in state.partitions else start)
        end = as_of.get(partition)
        if end is None:
            end = start
            consent.notes.append(f"partition {partition} is not in the as-of vector: nothing new of it is read")
        elif end > latest:
            what = f"the as-of vector ends partition {partition} at offset {end}, and it ends at {latest}"
            raise _wrong(topic, what, "as-of")
        ends[partition] = end
    return ends


def _asked(
    bound: LogBound, name: str, topic: Topic, state: TopicState, offsets_at: OffsetsAt, consent: _Consent
) -> Mapping[int, int | str | None]:
    """What the definition asks of each partition; one that explicit offsets do not name is left out, with consent."""
    if isinstance(bound, str):
        return dict.fromkeys(state.partitions, bound)
    if isinstance(bound, int):
        return offsets_at(state.partitions, bound)
    unknown = sorted(bound.keys() - state.partitions.keys() - set(state.unreachable))
    if unknown:
        raise _wrong(topic, f"the topic has no {_named(unknown)}", name)
    left = sorted(state.partitions.keys() - bound.keys())
    if left:
        consent.needed(
            "new_partitions",
            f"history.{name} does not name {_named(left)}: nothing of it would be read",
            "Name it (a partition that was added later begins at 0)",
        )
    return bound


def _after(past: Mapping[int, int], state: TopicState, consent: _Consent) -> dict[int, int]:
    """Where the topic begins behind the past."""
    starts: dict[int, int] = {}
    for partition, bounds in state.partitions.items():
        end = past.get(partition, 0)
        if end > bounds.latest:
            consent.needed(
                "recreated_topic",
                f"the table holds partition {partition} up to offset {end - 1}, and the topic ends at {bounds.latest}: "
                "it was deleted and made again, or truncated",
                "Correct history.recent.topic or history.past.table",
            )
        elif end < bounds.earliest:
            consent.needed(
                "holes",
                f"offsets {end} to {bounds.earliest - 1} of partition {partition} are missing: the table ends before "
                f"offset {end}, the topic begins at {bounds.earliest}",
                "Archive them from another copy of the log",
            )
            end = bounds.earliest
        starts[partition] = end
    for partition in past.keys() - state.partitions.keys() - set(state.unreachable):
        consent.needed(
            "recreated_topic",
            f"the table holds partition {partition}, which the topic does not have",
            "Correct history.recent.topic or history.past.table",
        )
        starts[partition] = past[partition]
    for partition in past.keys() & set(state.unreachable):
        starts[partition] = past[partition]
    return starts


def _wrong(topic: Topic, what: str, where: str) -> HistoryError:
    mends = {"plan": "Plan again.", "as-of": "Correct --as-of, or leave it out to read what is there."}
    hint = mends.get(where, f"Correct history.{where}.")
    return HistoryError(what, f"topic {topic.topic} at {topic.servers}", hint)


def _named(partitions: Iterable[int]) -> str:
    listed = [str(partition) for partition in partitions]
    return f"partition{'s' if len(listed) > 1 else ''} {', '.join(listed)}"


def _has(partitions: Iterable[int]) -> str:
    return "have" if len(list(partitions)) > 1 else "has"


def _was(partitions: Iterable[int]) -> str:
    return "were" if len(list(partitions)) > 1 else "was"
