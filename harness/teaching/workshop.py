"""Versions of a skill: asks the teacher for one, reads its reply, writes and checks the folder.

Every version is a valid skill whose code builds, except one that was taken over from the user. A reply is on
disk before it is used, and the same brief is paid for once.
"""

from __future__ import annotations

import json
import re
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import UsageError
from harness.files import unsafe_path, write_atomically
from harness.models import Model
from harness.records import Message, Reply, Request, Sampling, Skill, TrialRecord
from harness.skills import frontmatter
from harness.skills.lineage import Lineage
from harness.skills.spec import FILE, SkillFinding, read_skill
from harness.skills.write_skill import SkillDraft, derive, write_skill
from harness.teaching.brief import Order, faulty_brief, first_brief, refining_brief
from harness.teaching.record import CandidateRecord
from harness.text import estimate_tokens, slug

ATTEMPTS: Final = 3
"""Replies for one version: the first, and two that correct its faults."""
MAX_FILES: Final = 40
MAX_BYTES: Final = 1 << 20
_FAULTS_TOLD: Final = 20
_FILE = re.compile(r'<file path="(?P<path>[^"]+)">[ \t]*')
_FILE_END = re.compile(r"</file>[ \t]*")
_DELETE = re.compile(r'<delete path="(?P<path>[^"]+)"\s*/>[ \t]*')
_UNUSABLE: Final = {
    "length": "the reply was cut at the output limit: write less",
    "refusal": "the model refused",
    "overflow": "the brief does not fit into the model's context",
}

Check = Callable[[Path], Sequence[SkillFinding]]


class NoSkill(UsageError):
    """The teacher wrote no usable skill; the message says what was wrong with the last reply."""


class DraftError(Exception):
    """A reply is not a skill; its arguments say what is wrong, in words that the teacher can act on."""


@dataclass(frozen=True)
class Evaluated:
    """Trials of arms on a split."""

    trials: tuple[TrialRecord, ...]
    stopped: str | None


@dataclass(frozen=True)
class Version:
    """A version of the skill."""

    index: int
    parent: int | None
    folder: Path
    skill: Skill
    warnings: int
    development: Evaluated | None = None
    selection: float | None = None

    def record(self, root: Path) -> CandidateRecord:
        """The entry of generation.json, which lies in `root`."""
        verdicts = None
        if self.development is not None:
            verdicts = dict(Counter(t.verdict.value for t in self.development.trials))
        return CandidateRecord(
            index=self.index,
            parent=self.parent,
            folder=self.folder.relative_to(root).as_posix(),
            digest=self.skill.digest,
            body_tokens_estimate=estimate_tokens(self.skill.body.strip()),
            warnings=self.warnings,
            development=verdicts,
            selection=self.selection,
        )


@dataclass
class Teacher:
    """A model that is asked for skills, with a folder for its replies."""

    model: Model
    sampling: Sampling
    folder: Path
    waiting: Callable[[str], AbstractContextManager[None]] = lambda what: nullcontext()
    """Entered, with a sentence, while the model writes."""
    _asked: int = 0

    def ask(self, brief: Sequence[Message]) -> Reply:
        """The reply to a brief, kept or new. Raises ProviderError and BudgetSpent."""
        request = Request(
            messages=tuple(brief), sampling=self.sampling, task="skill", arm="teacher", repeat=self._asked
        )
        self._asked += 1
        path = self.folder / f"{request.prompt_digest[:16]}.json"
        try:
            return Reply.model_validate(json.loads(path.read_text(encoding="utf-8"))["reply"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        with self.waiting(f"teacher {self.model.name} writes"):
            reply = self.model.complete(request)
        kept = {"prompt": [m.model_dump() for m in brief], "reply": reply.model_dump(mode="json")}
        write_atomically(path, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        return reply


@dataclass
class Workshop:
    """Writes versions, each into a folder of its own."""

    teacher: Teacher
    check: Check
    folder: Path
    lineage: Lineage
    _count: int = 0

    def adopt(self, directory: Path) -> Version:
        """The user's skill as version 0: byte for byte, whatever is wrong with it."""
        skill = read_skill(directory)
        folder = self._next_folder() / skill.name
        shutil.copytree(directory, folder, symlinks=True)
        return Version(0, None, folder, read_skill(folder), 0)

    def first(self, order: Order, parent: Version | None = None) -> Version:
        """A first version, or one of `parent` without evidence.

        Raises NoSkill, ProviderError and BudgetSpent.
        """
        return self._write(first_brief(order), parent, order.name)

    def next(self, order: Order, parent: Version, measured: str, rejected: int) -> Version:
        """A version after `parent`, from the evidence. Raises NoSkill, ProviderError and BudgetSpent."""
        current = tuple(sorted(parent.skill.documents.items(), key=lambda item: (item[0] != FILE, item)))
        return self._write(
            refining_brief(order, current, measured, parent.index, rejected), parent, order.name
        )

    def _next_folder(self) -> Path:
        """An empty folder: a resumed generation writes its versions again, from the kept replies."""
        place = self.folder / f"version-{self._count}"
        self._count += 1
        if place.exists():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        return place

    def _write(self, brief: tuple[Message, ...], parent: Version | None, name: str | None) -> Version:
        index, folder = self._count, self._next_folder()
        base = parent.folder if parent else None
        faults: tuple[str, ...] = ()
        for attempt in range(ATTEMPTS):
            reply = self.teacher.ask(brief)
            try:
                place = folder / f"attempt-{attempt}"
                base = write_draft(read_changes(reply), base, place, self.lineage, name)
                findings = self.check(base)
                faults = tuple(str(one) for one in findings if one.severity == "error")[:_FAULTS_TOLD]
                if not faults:
                    warnings = sum(one.severity == "warning" for one in findings)
                    return Version(index, parent.index if parent else None, base, read_skill(base), warnings)
            except DraftError as error:
                faults = error.args
            brief = faulty_brief(brief, reply.text, faults)
        raise NoSkill(
            f"{self.teacher.model.name} wrote no usable skill in {ATTEMPTS} replies: {'; '.join(faults)}. "
            "Its replies are kept: describe the task in other words, or use another teacher"
        )


@dataclass(frozen=True)
class Changes:
    """The files that a reply gives whole, and those that it removes."""

    files: Mapping[str, str]
    removed: tuple[str, ...] = ()


def read_changes(reply: Reply) -> Changes:
    """What a teacher's reply changes; a reply that is itself a SKILL.md counts. Raises DraftError."""
    if reply.stop in _UNUSABLE:
        raise DraftError(_UNUSABLE[reply.stop])
    text = reply.text.replace("\r\n", "\n")
    files, removed = _marked(text.split("\n"))
    if not files and text.lstrip().startswith("---\n"):
        files = {FILE: text.lstrip()}
    reasons = [(path, unsafe_path(path)) for path in (*files, *removed)]
    faults = [f"the path {path!r} {reason}" for path, reason in reasons if reason is not None]
    if not files:
        faults.append('no file was given: write <file path="SKILL.md">, its lines, then </file>')
    if FILE in removed:
        faults.append(f"{FILE} cannot be removed")
    size = sum(len(content.encode()) for content in files.values())
    if len(files) > MAX_FILES or size > MAX_BYTES:
        faults.append(f"{len(files)} files of {size} bytes: at most {MAX_FILES} and {MAX_BYTES} are allowed")
    if faults:
        raise DraftError(*faults)
    return Changes(files, removed)


def _marked(lines: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The files between their marks, and the paths to delete outside of those; in linear time."""
    ends = [number for number, line in enumerate(lines) if _FILE_END.fullmatch(line)]
    files: dict[str, str] = {}
    removed: list[str] = []
    after = 0
    for number, line in enumerate(lines):
        if number < after:
            continue
        end = bisect_right(ends, number)
        if (opening := _FILE.fullmatch(line)) is not None and end < len(ends):
            after = ends[end] + 1
            files[opening["path"].strip()] = "".join(f"{text}\n" for text in lines[number + 1 : ends[end]])
        elif (deletion := _DELETE.fullmatch(line)) is not None:
            removed.append(deletion["path"].strip())
    return files, tuple(removed)


def write_draft(
    changes: Changes, base: Path | None, parent: Path, lineage: Lineage, name: str | None = None
) -> Path:
    """Write a skill into `parent`, in a folder with the skill's name; returns that folder.

    From `base` everything that was not given is kept byte for byte. Raises DraftError.
    """
    if base is None and FILE not in changes.files:
        raise DraftError(f"{FILE} is missing")
    others = {path: text for path, text in changes.files.items() if path != FILE}
    body: str | None = None
    texts: dict[str, str] = {}
    try:
        if FILE in changes.files:
            parsed = frontmatter.parse(changes.files[FILE])
            body = parsed.body
            texts = {field: (entry.text or "").strip() for field, entry in parsed.fields.items()}
        if base is not None:
            return derive(
                base,
                parent / base.name,
                body=body,
                changed=others,
                removed=changes.removed,
                metadata_updates=lineage.metadata,
                description=texts.get("description") or None,
            )
        if not texts.get("description"):
            raise DraftError(f"{FILE} has no description in its frontmatter")
        draft = SkillDraft(
            name=name or slug(texts.get("name", "")),
            description=texts["description"],
            body=body or "",
            metadata=lineage.metadata,
            files={path: text.encode() for path, text in others.items()},
        )
        return write_skill(draft, parent / draft.name)
    except frontmatter.FrontmatterError as fault:
        raise DraftError(f"{FILE} {fault.message}") from fault
    except UsageError as fault:
        raise DraftError(str(fault)) from fault
