"""Base class, schema version, digests and shared literal types of all records."""

from __future__ import annotations

import datetime
import hashlib
import json
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION: Final = 1

Target = Literal["cuda", "cpu"]
Protocol = Literal["quick", "full"]
Role = Literal["in", "out", "inout", "partial"]
ArmKind = Literal["without_skill", "with_skill", "placebo", "old_skill"]
Delivery = Literal["body", "disclosed"]
"""`body`: SKILL.md is part of the prompt; `disclosed`: the student reads skill files through a tool."""
Briefing = Literal["contract", "full"]
"""`contract`: the prompt names kernel-builder; `full`: it describes kernel-builder's format too."""
Metric = Literal["deployed", "correct", "compiles", "correct_emulated"]
Precision = Literal["strict", "tf32"]
LaneName = Literal["call", "batch"]
"""`call`: one reveal per call; `batch`: K input sets revealed at once."""
ClockName = Literal["inside", "outside"]


def digest_of(value: Any) -> str:
    """SHA-256 (hex) of a JSON-able value in canonical form: sorted keys, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def utc_now() -> str:
    """The time as records hold it: UTC, ISO 8601, to the second."""
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"


class Record(BaseModel):
    """Base of all records: frozen; unknown fields, infinities and NaN are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
