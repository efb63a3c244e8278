"""The folder of a run of test cases: what is kept, and how it survives a crash.

A line of cases.jsonl is whole or it is owed again; the last one of an answer counts.
"""

from __future__ import annotations

import contextlib
import re
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from harness import __version__
from harness.cases.records import AnswerKey, CaseAnswer, CasesConfig, CasesRun
from harness.errors import UsageError
from harness.files import append_line, write_atomically
from harness.records import digest_of
from harness.records.reasons import reason_of
from harness.study.store import sole_writer

_HEAD = "cases.json"
_ANSWERS = "cases.jsonl"


class CasesStore:
    """One run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls, config: CasesConfig, root: Path) -> CasesStore:
        """The folder below `root` of the run that `config` describes: an earlier one, or a new one."""
        digest = digest_of(config.model_dump(mode="json"))[:8]
        earlier = sorted(path.parent for path in root.glob(f"*-{digest}/{_HEAD}"))
        if earlier:
            return cls(earlier[-1])
        created = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        stamp = created.replace("-", "").replace(":", "")
        # A skill in the wild may be called anything.
        skill = re.sub(r"[^\w.-]", "-", config.skill, flags=re.A)[:64]
        name = f"{stamp}-cases-{skill}-{digest}"
        head = CasesRun(run_id=name, created=created, liftbench=__version__, config=config)
        write_atomically(root / name / _HEAD, head.model_dump_json(indent=1) + "\n")
        return cls(root / name)

    def run(self) -> CasesRun:
        """cases.json. Raises UsageError when it is missing or damaged."""
        path = self.folder / _HEAD
        try:
            return CasesRun.model_validate_json(path.read_text())
        except (OSError, ValidationError) as error:
            raise UsageError(f"{path} is missing or damaged: {reason_of(error)}") from None

    def writer(self) -> AbstractContextManager[None]:
        """Be the one writer. Raises UsageError when another process is."""
        return sole_writer(self.folder)

    def append(self, answer: CaseAnswer) -> None:
        """Add an answer; on disk when this returns."""
        append_line(self.folder / _ANSWERS, answer.model_dump_json())

    def load(self) -> dict[AnswerKey, CaseAnswer]:
        """Every whole answer. A line that is none is owed again."""
        path = self.folder / _ANSWERS
        found: dict[AnswerKey, CaseAnswer] = {}
        for line in path.read_bytes().splitlines() if path.exists() else []:
            with contextlib.suppress(ValidationError):
                answer = CaseAnswer.model_validate_json(line)
                found[answer.key] = answer
        return found
