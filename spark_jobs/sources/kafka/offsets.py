"""The offsets that a replay reads. They are resolved once, when the plan is made, and confirmed by each later run.

Nothing here talks to a broker: `resolve` and `confirm` are functions of the definition and of the topic's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.kafka import LogBound, Topic
from spark_jobs.errors import HistoryError
from spark_jobs.pins import OffsetRange, PinnedTopic
from spark_jobs.sources.kafka.admin import TopicState

OffsetsAt = Callable[[Iterable[int], int], Mapping[int, int | None]]
"""From partitions and an instant (epoch ms) to the first offset that arrived at the instant or later, by partition.

None: no such record is there.
"""


@dataclass(slots=True)
class _Consent:
    """The options under `history.accept`, and a note for each one that was needed."""

    topic: Topic
    notes: list[str] = field(default_factory=list)

    def require(self, option: str, what: str, hint: str) -> None:
        """Note `what` where the definition accepts `option`; raise HistoryError where it does not."""
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
    """Decide which offsets are read.

    Args:
        topic: The topic as the definition has it.
        state: The topic as it is now.
        offsets_at: Looks up offsets by arrival time.
        registered: The partitions that the live job reads, if the definition names them.
        as_of: End offsets by partition, in place of the definition's `end`.
        past: End offsets by partition of the Hive table of a stitched history. The topic is read from there on.
        past_topic_id: The topic from which that table was archived, if it is known.

    Raises:
        HistoryError: Records would be missing, or an offset does not exist.
    """
    consent = _Consent(topic)
    if state.unreachable:
        consent.require(
            "unreachable_partitions",
            f"{_partitions(state.unreachable)} {_has(state.unreachable)} no leader: its records cannot be read",
            "Wait for its brokers",
        )
    if state.is_compacted:
        consent.require(
            "compacted",
            "the topic is compacted: records that the live job saw are gone",
            "Replay a copy that keeps all records",
        )
    if past_topic_id not in (None, state.topic_id):
        consent.require(
            "recreated_topic",
            "the topic was deleted and created again since it was archived: its offsets start at 0 again",
            "Archive the new topic into another table",
        )
    if registered is not None and (added := sorted(state.partitions.keys() - set(registered))):
        consent.require(
            "new_partitions",
            f"the topic has {_partitions(added)}, which watermark.partitions does not name, so it would not be read",
            "Add it there, and to watermark.discovered with the time at which the live job noticed it",
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
    """Check that the topic still has the offsets of a plan, and return them.

    Returns:
        The plan's offsets, with notes for what was accepted since the plan was made.

    Raises:
        HistoryError: The topic no longer has exactly these offsets.
    """
    consent = _Consent(topic, list(pinned.notes))
    again = "Plan again"
    if state.topic_id != pinned.topic_id:
        consent.require("recreated_topic", "the topic was deleted and created again since the plan was made", again)
    if state.is_compacted and not any("(accept: compacted)" in note for note in pinned.notes):
        consent.require("compacted", "the topic is compacted now: records that the plan counts may be gone", again)
    added = sorted(state.partitions.keys() - {known.partition for known in pinned.ranges})
    if added and "new_partitions" not in topic.accept:
        consent.require("new_partitions", f"{_partitions(added)} {_was(added)} added since the plan was made", again)
    elif added:
        consent.notes.append(
            f"{_partitions(added)} {_was(added)} not in the plan and not read (accept: new_partitions)"
        )
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
            raise _wrong(topic, f"{ends}: the topic was created again or truncated", "plan")
    return replace(pinned, notes=tuple(dict.fromkeys(consent.notes)))


def _arrival_kind(topic: Topic, state: TopicState) -> Literal["append_time", "producer_time"]:
    if topic.timestamps != "auto":
        return topic.timestamps
    return "append_time" if state.has_append_time else "producer_time"


KEEP_REPARTITION = (
    "Raise the application's repartition.purge.interval.ms (30 s by default) and archive the topic with `rewindow "
    "archive` before it is purged, or name the source topic, where the key is the record's own."
)


def is_repartition(name: str) -> bool:
    """Whether a topic is one that a Kafka Streams application writes for itself, and purges as it reads (KIP-811)."""
    return name.endswith("-repartition")


def _remover(topic: Topic) -> str:
    own = is_repartition(topic.topic)
    return "its application purges what it has read, and has removed" if own else "retention has removed"


def _starts(topic: Topic, state: TopicState, offsets_at: OffsetsAt, consent: _Consent) -> dict[int, int]:
    """Start offsets by partition, as `history.start` says."""
    starts: dict[int, int] = {}
    since = topic.start if isinstance(topic.start, int) else None
    requested = _requested(topic.start, "start", topic, state, offsets_at, consent)
    for partition, bounds in state.partitions.items():
        if partition not in requested:
            continue
        start = requested[partition]
        if start is None:
            start = bounds.latest
        if start > bounds.latest:
            what = f"offset {start} does not exist in partition {partition}, which ends at {bounds.latest}"
            raise _wrong(topic, what, "start")
        if start < bounds.earliest or (since is not None and 0 < start == bounds.earliest):
            consent.require(
                "lost_start",
                f"partition {partition} begins at offset {bounds.earliest}: {_remover(topic)} the records before"
                + (f", perhaps some since {format_instant(since)} too" if since is not None else ""),
                (f"{KEEP_REPARTITION} " if is_repartition(topic.topic) else "")
                + "Stitch it to an archive (history.kind: stitched), begin later (history.start)",
            )
        elif start > 0:
            consent.notes.append(f"partition {partition} is read from offset {start} on, as history.start says")
        starts[partition] = max(start, bounds.earliest)
    return starts


def _ends(topic: Topic, state: TopicState, offsets_at: OffsetsAt, consent: _Consent) -> dict[int, int]:
    """End offsets by partition, as `history.end` says."""
    ends: dict[int, int] = {}
    requested = _requested(topic.end, "end", topic, state, offsets_at, consent)
    for partition, bounds in state.partitions.items():
        if partition not in requested:
            continue
        end = requested[partition]
        if end is None:
            end = bounds.latest
        if end > bounds.latest:
            what = f"offset {end - 1} does not exist in partition {partition}, which ends at {bounds.latest}"
            raise _wrong(topic, what, "end")
        ends[partition] = end
    return ends


def _as_of_ends(
    as_of: Mapping[int, int], state: TopicState, starts: Mapping[int, int], consent: _Consent
) -> dict[int, int]:
    """End offsets by partition, as the run's own say. A partition that it lacks ends where it starts."""
    topic = consent.topic
    unknown = sorted(as_of.keys() - starts.keys())
    if unknown:
        raise _wrong(topic, f"the end offsets name {_partitions(unknown)}, which the topic does not have", "as-of")
    ends = {}
    for partition, start in starts.items():
        latest = max(start, state.partitions[partition].latest if partition in state.partitions else start)
        end = as_of.get(partition)
        if end is None:
            end = start
            consent.notes.append(f"partition {partition} is not among the end offsets: its new records are not read")
        elif end > latest:
            what = f"the end offset of partition {partition} is {end}, and it ends at {latest}"
            raise _wrong(topic, what, "as-of")
        ends[partition] = end
    return ends


def _requested(
    bound: LogBound, name: str, topic: Topic, state: TopicState, offsets_at: OffsetsAt, consent: _Consent
) -> Mapping[int, int | None]:
    """The offset that `history.start` or `history.end` gives for each partition; None: the end of the partition.

    A partition that explicit offsets do not name is left out where the definition accepts that.
    """
    if isinstance(bound, str):
        return dict.fromkeys(state.partitions, 0 if bound == "earliest" else None)
    if isinstance(bound, int):
        return offsets_at(state.partitions, bound)
    unknown = sorted(bound.keys() - state.partitions.keys() - set(state.unreachable))
    if unknown:
        raise _wrong(topic, f"the topic has no {_partitions(unknown)}", name)
    left = sorted(state.partitions.keys() - bound.keys())
    if left:
        consent.require(
            "new_partitions",
            f"history.{name} does not name {_partitions(left)}: its records would not be read",
            "Name it (a partition that was added later begins at 0)",
        )
    return bound


def _after(past: Mapping[int, int], state: TopicState, consent: _Consent) -> dict[int, int]:
    """Start offsets by partition where the Hive table ends at the offsets `past`."""
    starts: dict[int, int] = {}
    for partition, bounds in state.partitions.items():
        end = past.get(partition, 0)
        if end > bounds.latest:
            consent.require(
                "recreated_topic",
                f"the table holds partition {partition} up to offset {end - 1}, and the topic ends at {bounds.latest}: "
                "it was deleted and created again, or truncated",
                "Correct history.recent.topic or history.past.table",
            )
        elif end < bounds.earliest:
            consent.require(
                "holes",
                f"offsets {end} to {bounds.earliest - 1} of partition {partition} are missing: the table ends before "
                f"offset {end}, the topic begins at {bounds.earliest}",
                "Archive them from another copy of the log",
            )
            end = bounds.earliest
        starts[partition] = end
    for partition in past.keys() - state.partitions.keys() - set(state.unreachable):
        consent.require(
            "recreated_topic",
            f"the table holds partition {partition}, which the topic does not have",
            "Correct history.recent.topic or history.past.table",
        )
        starts[partition] = past[partition]
    for partition in past.keys() & set(state.unreachable):
        starts[partition] = past[partition]
    return starts


def _wrong(topic: Topic, what: str, where: str) -> HistoryError:
    """The error for an offset that a plan, an end offset or the definition's field `where` names wrongly."""
    hints = {"plan": "Plan again.", "as-of": "Correct --as-of, or leave it out to read to the end of the topic."}
    hint = hints.get(where, f"Correct history.{where}.")
    return HistoryError(what, f"topic {topic.topic} at {topic.servers}", hint)


def _partitions(partitions: Iterable[int]) -> str:
    listed = [str(partition) for partition in partitions]
    return f"partition{'s' if len(listed) > 1 else ''} {', '.join(listed)}"


def _has(partitions: Iterable[int]) -> str:
    return "have" if len(list(partitions)) > 1 else "has"


def _was(partitions: Iterable[int]) -> str:
    return "were" if len(list(partitions)) > 1 else "was"
