"""What `make gpu-check` leaves in `results/`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.records import Record

Fact = str | int | float | bool | None
Status = Literal["passed", "failed", "not_here"]


class Entry(Record):
    """The result of one check."""

    name: str
    proves: str
    status: Status
    facts: dict[str, Fact]
    error: str | None
    wall_s: float
    measured_at: str

    @property
    def finished(self) -> bool:
        """Whether the item need not run again; a missing sandbox may have been installed since."""
        return self.status != "not_here"


class Contents(Record):
    """One GPU's file in `results/`."""

    schema_version: Literal[1] = 1
    liftbench: str
    gpu: str
    gpu_uuid: str
    software: dict[str, str] = Field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
