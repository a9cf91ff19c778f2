"""What a night does, decided from what is known. No Spark: the facts are looked up when they are asked for.

| what is known | what the night does |
| --- | --- |
| a published run has read more than this one may | compute all windows, to be compared only |
| no published run can be gone on from | compute all windows |
| the definition's records cannot be told window by window | compute all windows |
| nothing proves that the records are those that were read | compute all windows |
| a record that was read is ahead of one behind it | compute all windows |
| a partition is new | compute all windows |
| nothing has arrived, and the live job has emitted nothing new | nothing |
| a new record is older than the saved watermark | compute all windows |
| else | compute the windows that new records touch |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

from spark_jobs.identities import Evidence, Sign


class Facts(ABC):
    """What a night is decided by. A text says why something stands in the way; empty: nothing does."""

    @cached_property
    @abstractmethod
    def rival(self) -> str | None:
        """A published run that has read more than this night may."""

    @cached_property
    @abstractmethod
    def no_start(self) -> str:
        """Why there is no published run to go on from."""

    @cached_property
    @abstractmethod
    def whole_only(self) -> str:
        """Why nights of this definition read the whole history."""

    @cached_property
    @abstractmethod
    def evidence(self) -> Evidence:
        """What is proven of the records that were read before: SAME, GONE or UNPROVEN."""

    @cached_property
    @abstractmethod
    def behind(self) -> str:
        """Why a record that was read is ahead of a new one behind it."""

    @cached_property
    @abstractmethod
    def has_new_partition(self) -> bool:
        """Whether a record is in a partition of which nothing was read."""

    @cached_property
    @abstractmethod
    def has_new(self) -> bool:
        """Whether records have come since, or the live job has gone on by itself."""

    @cached_property
    @abstractmethod
    def has_live_news(self) -> bool:
        """Whether the live job may have emitted something that no run has compared."""

    @cached_property
    @abstractmethod
    def ahead(self) -> str:
        """Why the watermark cannot go on from the saved state with the new records."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """Compute the windows that new records touch. `lacks`: windows that were made of gone records keep their values."""

    lacks: bool


@dataclass(frozen=True, slots=True)
class ReadAll:
    """Compute all windows: why; `rival`: a run that has read more, beside which nothing is published."""

    why: str
    rival: str | None = None


NightDecision = Nothing | GoOn | ReadAll


def decide(facts: Facts) -> NightDecision:
    """The decision, by the first row of the table that fits."""
    if facts.rival is not None:
        return ReadAll(f"run {facts.rival} has read more than this one", facts.rival)
    if why := facts.no_start or facts.whole_only:
        return ReadAll(why)
    if facts.evidence.sign is Sign.UNPROVEN:
        return ReadAll(facts.evidence.why)
    if facts.behind:
        return ReadAll(facts.behind)
    if facts.has_new_partition:
        return ReadAll("there is a new partition")
    if not facts.has_new and not facts.has_live_news:
        return Nothing()
    if facts.ahead:
        return ReadAll(facts.ahead)
    return GoOn(lacks=facts.evidence.sign is Sign.GONE)
