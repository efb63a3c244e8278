"""What one session of the GPU check found, item by item: results/*.json."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.records.base import Record

Fact = str | int | float | bool | None
Status = Literal["passed", "failed", "not_here"]


class Entry(Record):
    """What one item found."""

    name: str
    proves: str
    status: Status
    facts: dict[str, Fact]
    error: str | None
    """Why it failed, or why it cannot be asked here."""
    wall_s: float
    measured_at: str
    """UTC, to the second."""

    @property
    def finished(self) -> bool:
        """Asking again would find the same; a sandbox that was missing may have been installed since."""
        return self.status != "not_here"


class Contents(Record):
    """The JSON file."""

    schema_version: Literal[1] = 1
    liftbench: str
    gpu: str
    gpu_uuid: str
    software: dict[str, str] = Field(default_factory=dict)
    """Versions of driver, torch and nvcc when an item was last asked."""
    entries: tuple[Entry, ...] = ()
