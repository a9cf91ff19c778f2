"""The account of a run: what became of every record that it read, and of every pair of a record and a window.

    source = read_before + left_unread + unplaced + filtered_before + quarantined + erased_unusable + good
    good   = filtered_after + erased + set_aside + without_window + entered
    pairs of the records that entered = pairs of the windows: on time, late and dropped

Each term is counted by itself, and none is made as the difference of others. Both sides come through one decoder: the
account proves that nothing is lost or twice, not what a record means.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from spark_jobs.runs.life.documents import Document


class AccountTerms(BaseModel):
    """The terms of an account, in its document and in the report alike.

    A term that nobody can say is None, and `unknown` says why.
    """

    source: int | None = Field(default=None, description="records of the source, by its own numbers")
    read_before: int = Field(default=0, description="of them, those that runs before have read; of a night alone")
    left_unread: int = Field(default=0, description="those beyond the end offsets")
    unplaced: int = Field(default=0, description="those without a position; they are in quarantine")
    filtered_before: int = Field(default=0, description="those that `filter.before_watermark` or a rule leaves out")
    quarantined: int = Field(default=0, description="those with a position that cannot be used")
    good: int = Field(default=0, description="those that can be used")
    filtered_after: int = Field(default=0, description="of the good ones, those that `filter.after_watermark` rejects")
    erased: int = Field(default=0, description="those of people who were forgotten (`rewindow forget`)")
    erased_unusable: int = Field(
        default=0, description="those that cannot be used, and are in no quarantine either: they were forgotten"
    )
    set_aside: int = Field(default=0, description="those that the live job drops as duplicates")
    without_window: int = Field(
        default=0, description="those that lie in no window, have no event time, or that the live job ignores"
    )
    entered: int = Field(default=0, description="those that came to a window")
    pairs: int | None = Field(default=None, description="pairs of these records and their windows")
    pairs_of_windows: int | None = Field(default=None, description="pairs that the windows count, less those before")
    unknown: tuple[str, ...] = Field(default=(), description="what cannot be said, and why")

    @property
    def unaccounted_records(self) -> int:
        """Records that are missing on one side of the first two equations, or there twice."""
        after = self.filtered_after + self.erased + self.set_aside + self.without_window + self.entered
        return self.unaccounted_source + abs(self.good - after)

    @property
    def unaccounted_source(self) -> int:
        """Records that are missing on one side of the first equation, or there twice; 0 where nobody knows."""
        read = self.read_before + self.left_unread + self.unplaced + self.filtered_before + self.quarantined
        return 0 if self.source is None else abs(self.source - read - self.erased_unusable - self.good)

    @property
    def unaccounted_pairs(self) -> int | None:
        """Pairs that are missing on one side of the third equation, or there twice; None: nobody can say."""
        if self.pairs is None or self.pairs_of_windows is None:
            return None
        return abs(self.pairs - self.pairs_of_windows)


class Account(AccountTerms, Document):
    """`account.json`: the account of a run."""

    FILE: ClassVar[str] = "account.json"


def joined(records: Account, pairs: Account, of_windows: int | None, set_aside: int, *, why: str) -> Account:
    """One account of the terms that were counted side by side. `why`: what `of_windows` is None for."""
    unsaid = (why,) if of_windows is None and pairs.pairs is not None else ()
    update = {
        "filtered_after": pairs.filtered_after,
        "erased": pairs.erased,
        "without_window": pairs.without_window,
        "entered": pairs.entered,
        "pairs": pairs.pairs,
        "pairs_of_windows": of_windows,
        "set_aside": set_aside,
        "unknown": tuple(dict.fromkeys((*records.unknown, *pairs.unknown, *unsaid))),
    }
    return records.model_copy(update=update)
