"""Prints the figures that pytest-benchmark's table leaves out."""

from __future__ import annotations

import json
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """`extra_info` of each benchmark, rounded."""
    session = getattr(terminalreporter.config, "_benchmarksession", None)
    told = [one for one in getattr(session, "benchmarks", ()) if one.extra_info]
    if told:
        terminalreporter.section("figures")
    for one in told:
        info = json.loads(
            json.dumps(one.extra_info, default=str), parse_float=lambda text: f"{float(text):.4g}"
        )
        terminalreporter.write_line(f"{one.name}: {json.dumps(info).replace(chr(34), '')}")
