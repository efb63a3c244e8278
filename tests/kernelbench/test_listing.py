"""KernelBench problems on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli.tasks import chosen_tasks, list_problems
from harness.errors import UsageError
from harness.kernelbench.admission import Admission
from harness.kernelbench.conversion import Converted

pytestmark = pytest.mark.slow
Judged = dict[str, tuple[Converted, Admission]]


def test_the_table_says_what_is_admitted_and_why_not(
    judged: Judged, bench_checkout: Path, bench_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each problem, and the count at the end."""
    list_problems([f"kernelbench:{bench_checkout}/level1/[14]_*"], "cpu", bench_cache, json_output=False)
    text = capsys.readouterr().out
    assert "level1/1_scaled_linear" in text and "0.0 GiB" in text
    assert "2 of 2 admitted on cpu" in text


def test_the_list_as_json_has_reasons_and_scaled_rows(
    judged: Judged, bench_checkout: Path, bench_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The records as they are, and whether each is admitted."""
    list_problems([f"kernelbench:{bench_checkout}/level1/[36]_*"], "cpu", bench_cache, json_output=True)
    dropout, scaled = json.loads(capsys.readouterr().out)
    assert not dropout["admitted"] and "random" in dropout["reasons"][0]
    assert scaled["admitted"] and scaled["scaled"][1] == 65536 and scaled["by"] == "whole"


def test_only_what_is_admitted_is_chosen(
    judged: Judged, bench_checkout: Path, bench_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are told on stderr."""
    pattern = f"kernelbench:{bench_checkout}/level1/[13]_*"
    found = chosen_tasks([pattern], None, "cpu", bench_cache)
    assert [loaded.task.name for loaded in found] == ["1_scaled_linear"]
    assert "not admitted: kernelbench_level1/3_dropout" in capsys.readouterr().err


def test_a_problem_that_is_not_admitted_cannot_be_named(
    judged: Judged, bench_checkout: Path, bench_cache: Path
) -> None:
    """Nothing is left: a usage error with the reason."""
    with pytest.raises(UsageError, match="x as it is"):
        chosen_tasks([f"kernelbench:{bench_checkout}/level1/2_Copy.py"], None, "cpu", bench_cache)
