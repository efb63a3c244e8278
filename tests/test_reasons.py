"""Why a file was not accepted is told in plain words, wherever a file is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field, ValidationError, model_validator

from harness.builder.check_build_toml import hints
from harness.cases.importing import load_cases
from harness.cases.running import CasesStore
from harness.errors import UsageError
from harness.grading.admission import Admitted
from harness.models.prices import find_price
from harness.models.recording import load
from harness.records import Record
from harness.records.reasons import reason_of
from harness.study.store import RunStore
from harness.suite.catalogue import load_task, select_tasks
from tools.gpu_results import Ledger
from tools.status import read_results

ROOT = Path(__file__).resolve().parents[1]
LEAKS = re.compile(
    r"Value error|Input should|Field required|Extra inputs|validation error|type=|pydantic|instance of"
    r"|object has no|keyword argument|\b[A-Z][a-z]+[A-Z][a-z]\w*"
)
"""Pydantic's words, Python's, and names of classes."""


class Made(Record):
    """All that can go wrong."""

    count: int
    share: float = Field(1.0, gt=0)
    names: tuple[str, ...] = ()
    kind: Literal["new", "old"] = "new"
    inner: Made | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Made:
        if self.count == 13:
            raise ValueError("13, of all numbers, is not counted")
        return self


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "count: is missing"),
        ({"count": "many"}, "count: must be an integer, not 'many'"),
        ({"count": 1, "share": 0}, "share: must be greater than 0, not 0"),
        ({"count": 1, "names": "a"}, "names: must be a list, not 'a'"),
        ({"count": 1, "kind": "odd"}, "kind: must be 'new' or 'old', not 'odd'"),
        ({"count": 1, "inner": {"count": 13}}, "inner: 13, of all numbers, is not counted"),
        ({"count": 1, "other": 1}, "other: is not known here"),
        (
            {"kind": "odd", "names": "a", "inner": 3, "count": 1, "share": -1},
            "share: must be greater than 0, not -1; names: must be a list, not 'a'; "
            "kind: must be 'new' or 'old', not 'odd'; and 1 more",
        ),
    ],
)
def test_a_fault_is_told_by_field_and_in_words(fields: dict[str, Any], said: str) -> None:
    """What it must be and what it is; three at most."""
    with pytest.raises(ValidationError) as caught:
        Made.model_validate(fields)
    assert reason_of(caught.value) == said


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _task(folder: Path, text: str) -> None:
    _write(folder / "t" / "one" / "reference.py", "")
    load_task(_write(folder / "t" / "one" / "task.toml", text).parent)


def _build_toml(folder: Path, text: str) -> None:
    raise UsageError("build.toml: " + "\n".join(hints(text)))


def _prices(folder: Path, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIFTBENCH_PRICES", str(_write(folder / "prices.toml", text)))
        find_price("a/b")


_TASK = (select_tasks(["l1/rms_norm"])[0].directory / "task.toml").read_text()
READERS: dict[str, tuple[Callable[[Path, str], object], str, list[str]]] = {
    "task": (
        _task,
        "task.toml",
        ["title = 5", "[", _TASK.replace("rows * cols", "rows * many"), _TASK.replace('["float32"]', "3")],
    ),
    "build.toml": (
        _build_toml,
        "build.toml",
        ["general = 3", "[general]\nname = 3\nversion = -1"],
    ),
    "run": (
        lambda folder, text: RunStore(_write(folder / "run.json", text).parent).run(),
        "run.json",
        ["[]", '{"schema_version": 1, "run_id": 3, "config": []}'],
    ),
    "cases' run": (
        lambda folder, text: CasesStore(_write(folder / "cases.json", text).parent).run(),
        "cases.json",
        ["[]", '{"run_id": 3}'],
    ),
    "cases": (
        lambda folder, text: load_cases(_write(folder / "cases.json", text)),
        "cases.json",
        ["3", '[{"prompt": 3}]', '[{"input": "", "expected": {"contains": ""}}]', '{"evals": [{"id": {}}]}'],
    ),
    "prices": (_prices, "prices.toml", ["x = 3", '["a/b"]\ninput_usd_per_mtok = "x"', "["]),
    "admissions": (
        lambda folder, text: Admitted(_write(folder / "a.json", text)),
        "a.json",
        ["[]", '{"entries": [3]}'],
    ),
    "results": (
        lambda folder, text: read_results(_write(folder / "r.json", text).parent),
        "r.json",
        ["[]", '{"results": [3]}', '{"results": [{"task": 3}]}'],
    ),
    "recording": (
        lambda folder, text: load(_write(folder / "recording.json", text).parent),
        "recording.json",
        ["[]", "{}", '{"model_label": 3}'],
    ),
    "ledger": (
        lambda folder, text: Ledger.open(
            _write(folder / "g-2026-01-02.json", text).parent, "g", "u", "2026-01-02", "1", {}
        ),
        "g-2026-01-02.json",
        ["[]", '{"entries": 3}'],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, (_, _, texts) in READERS.items() for text in texts]
)
def test_a_broken_file_is_told_in_plain_words(tmp_path: Path, name: str, text: str) -> None:
    """One UsageError with the file's name, and nothing of pydantic's or of our classes."""
    read, file, _ = READERS[name]
    with pytest.raises(UsageError, match=re.escape(file)) as caught:
        read(tmp_path, text)
    said = str(caught.value).replace(str(tmp_path), "")
    assert not LEAKS.search(said), said
