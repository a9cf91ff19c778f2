"""What a run counts, each count once: its field here is a column of the ledger, of the documents and of the report."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class RunCounts(BaseModel):
    """What a run counted. A pair is one record in one of its windows."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    records_read: int = Field(default=0, description="records that the run read")
    records_quarantined: int = Field(default=0, description="of them, those that cannot be used")
    windows: int = Field(default=0, description="windows that the run computed")
    windows_open: int = Field(default=0, description="windows that are still open")
    windows_all_late: int = Field(default=0, description="windows with late records only")
    pairs_on_time: int = Field(default=0, description="pairs in which the record was on time")
    pairs_late: int = Field(default=0, description="pairs in which it was late and counted")
    pairs_dropped: int = Field(default=0, description="pairs in which it was dropped")
    records_late: int = Field(default=0, description="records that a window dropped; rows of the late table")

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(RunCounts.model_fields)

    def counted(self) -> dict[str, int]:
        """The counts alone, by name."""
        return {name: getattr(self, name) for name in self.names()}
