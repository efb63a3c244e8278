"""What all records share: the base class, the schema's version, and digests."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION: Final = 1


Target = Literal["cuda", "cpu"]


Protocol = Literal["quick", "full"]


Role = Literal["in", "out", "inout", "partial"]


def digest_of(value: Any) -> str:
    """SHA-256 (hex) of a JSON-able value in canonical form: sorted keys, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Record(BaseModel):
    """Base of all records: frozen, unknown fields refused, infinities and NaN refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
