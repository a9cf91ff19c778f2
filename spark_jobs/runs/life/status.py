"""The fixed sets of values of a run: its status, its kind and its stages. No Spark in this module."""

from __future__ import annotations

from enum import StrEnum


class RunKind(StrEnum):
    """What started a run: a backfill of a range, or a reconciliation with what has arrived since."""

    BACKFILL = "backfill"
    RECONCILE = "reconcile"


class Stage(StrEnum):
    """The steps of a run that can be processes of their own, in the order in which they run."""

    PLAN = "plan"
    RECONCILE = "reconcile"
    TIMELINE = "timeline"
    REPLAY = "replay"
    COMPARE = "compare"
    VERIFY = "verify"
    PUBLISH = "publish"
    CORRECT = "correct"
    REPEAT = "repeat"
    REVERT = "revert"
    DISCARD = "discard"

    @property
    def follows_the_end(self) -> bool:
        """The stage works on a run that is published: readers of the live job's output get something."""
        return self in (Stage.CORRECT, Stage.REPEAT, Stage.REVERT)


class Level(StrEnum):
    """How good or bad a status is. Pages give each level a colour."""

    GOOD = "good"
    NOTE = "note"
    WAITING = "waiting"
    BAD = "bad"


class RunStatus(StrEnum):
    """Where a run stands. The table `runs` (the ledger) and `outcome.json` use the same words.

    `unchanged` is in `outcome.json` only: the ledger calls such a run `published`, with no changes.
    """

    RUNNING = "running"
    STAGED = "staged"
    AWAITING_APPROVAL = "awaiting_approval"
    GATE_FAILED = "gate_failed"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    UNCHANGED = "unchanged"
    DRY_RUN = "dry_run"
    COMPARED_ONLY = "compared_only"
    REJECTED = "rejected"
    DISCARDED = "discarded"
    FAILED = "failed"
    ABANDONED = "abandoned"

    @property
    def in_words(self) -> str:
        """The status as people read it."""
        return _IN_WORDS.get(self, self.value.replace("_", " "))

    @property
    def title(self) -> str:
        """The status as the heading of a report."""
        return _SHOWN[self][1]

    @property
    def level(self) -> Level:
        return _SHOWN[self][0]

    @property
    def is_published(self) -> bool:
        """The published table holds the run's windows."""
        return self in (RunStatus.PUBLISHED, RunStatus.UNCHANGED)

    @property
    def waits(self) -> bool:
        """The run is verified, and its windows are staged: it can be published or discarded."""
        return self in (RunStatus.STAGED, RunStatus.AWAITING_APPROVAL, RunStatus.GATE_FAILED)

    @property
    def has_work(self) -> bool:
        """A process works on the run, or was killed while it did."""
        return self in (RunStatus.RUNNING, RunStatus.PUBLISHING)

    @property
    def has_ended(self) -> bool:
        """Nothing more happens to the run unless somebody starts it again."""
        return not self.waits and not self.has_work

    @property
    def is_final(self) -> bool:
        """Later stages of the run have nothing to do, and no stage may be repeated."""
        return self.is_published or self in (RunStatus.REJECTED, RunStatus.DISCARDED)

    @property
    def is_success(self) -> bool:
        """The run did what was requested."""
        return self.is_published or self in (RunStatus.DRY_RUN, RunStatus.COMPARED_ONLY)

    @property
    def is_failure(self) -> bool:
        """The run did not do what was requested. A person's "no" is none."""
        return self.level is Level.BAD

    @property
    def is_refused(self) -> bool:
        """A person has said no to what the run had staged."""
        return self in (RunStatus.REJECTED, RunStatus.DISCARDED)


_SHOWN = {
    RunStatus.RUNNING: (Level.WAITING, "At work"),
    RunStatus.PUBLISHING: (Level.WAITING, "Publishing"),
    RunStatus.PUBLISHED: (Level.GOOD, "Published"),
    RunStatus.UNCHANGED: (Level.GOOD, "Nothing to publish"),
    RunStatus.AWAITING_APPROVAL: (Level.WAITING, "Waiting for approval"),
    RunStatus.STAGED: (Level.WAITING, "Verified, not yet published"),
    RunStatus.GATE_FAILED: (Level.BAD, "Stopped by the gate"),
    RunStatus.REJECTED: (Level.NOTE, "Rejected"),
    RunStatus.DRY_RUN: (Level.NOTE, "Dry run"),
    RunStatus.COMPARED_ONLY: (Level.NOTE, "Compared only"),
    RunStatus.DISCARDED: (Level.NOTE, "Discarded"),
    RunStatus.FAILED: (Level.BAD, "Failed"),
    RunStatus.ABANDONED: (Level.BAD, "Given up"),
}

_IN_WORDS = {
    RunStatus.AWAITING_APPROVAL: "waiting for an approval",
    RunStatus.GATE_FAILED: "stopped by its gate",
    RunStatus.STAGED: "staged",
    RunStatus.DRY_RUN: "a dry run",
}
