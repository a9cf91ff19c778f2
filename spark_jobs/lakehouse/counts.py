"""What a run counts, each count once: its field here is a column of the ledger, of the documents and of the report."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0, lt=2**63)]


class RunCounts(BaseModel):
    """What a run counted. A pair is one record in one of its windows."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    records_read: Count = Field(default=0, description="records that the run read")
    records_quarantined: Count = Field(default=0, description="of them, those that cannot be used")
    windows: Count = Field(default=0, description="windows that the run computed")
    windows_open: Count = Field(default=0, description="windows that are still open")
    windows_all_late: Count = Field(default=0, description="windows with late records only")
    pairs_on_time: Count = Field(default=0, description="pairs in which the record was on time")
    pairs_late: Count = Field(default=0, description="pairs in which it was late and counted")
    pairs_dropped: Count = Field(default=0, description="pairs in which it was dropped")
    records_late: Count = Field(default=0, description="records that a window dropped; rows of the late table")
    records_duplicate: Count = Field(
        default=0, description="records that the live job drops as duplicates before its windows; in none of the others"
    )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(RunCounts.model_fields)

    def known(self) -> dict[str, int | None]:
        """The counts by name; None for those that a document does not have."""
        return {name: getattr(self, name) if name in self.model_fields_set else None for name in RunCounts.names()}

    def counted(self) -> dict[str, int]:
        """The counts alone, by name."""
        return {name: getattr(self, name) for name in self.names()}
