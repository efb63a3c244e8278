"""Records of one session of the GPU check: results/*.json."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.records.base import Record

Fact = str | int | float | bool | None
Status = Literal["passed", "failed", "not_here"]


class Entry(Record):
    """Result of one item."""

    name: str
    proves: str
    status: Status
    facts: dict[str, Fact]
    error: str | None
    """Why it failed, or why it cannot run on this machine."""
    wall_s: float
    measured_at: str
    """UTC, to the second."""

    @property
    def finished(self) -> bool:
        """Whether the item need not run again; a missing sandbox may have been installed since."""
        return self.status != "not_here"


class Contents(Record):
    """The JSON file."""

    schema_version: Literal[1] = 1
    liftbench: str
    gpu: str
    gpu_uuid: str
    software: dict[str, str] = Field(default_factory=dict)
    """Versions of driver, torch and nvcc at the last item."""
    entries: tuple[Entry, ...] = ()
