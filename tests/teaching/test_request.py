"""What is refused before a generation begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UsageError
from harness.teaching.request import GenerationRequest


def refuse(device_bytes: int | None, **wanted: object) -> None:
    request: Any = SimpleNamespace(**({"target": "cuda", "metric": "deployed", "students": ("m",)} | wanted))
    GenerationRequest.refuse_unmeasured(request, device_bytes)


@pytest.mark.parametrize("metric", ["deployed", "correct"])
def test_where_kernels_are_only_built_nothing_else_chooses_a_version(metric: str) -> None:
    """Only failed projects would have a score there, so that the worst version would win."""
    with pytest.raises(UsageError, match="--metric compiles"):
        refuse(None, metric=metric)


def test_what_can_be_measured_is_accepted() -> None:
    """A GPU, the CPU target, builds alone, or nothing to measure at all."""
    refuse(80 << 30)
    refuse(None, target="cpu")
    refuse(None, metric="compiles")
    refuse(None, students=())
