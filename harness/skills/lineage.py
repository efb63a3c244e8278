"""A skill's lineage: the families it was refined on, and its looks at a test split.

The k-th look of a lineage is tested at alpha / 2^k, so all looks together stay below alpha: repeating
refine-and-test until the split says `helps` would fit the skill to that split. Resuming a run is no new look;
new replies are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs
from pydantic import ValidationError

from harness.errors import UsageError
from harness.files import append_line
from harness.locks import locked
from harness.records import Record, digest_of
from harness.skills import frontmatter
from harness.skills.spec import FILE

ALPHA: Final = 0.05
ID_KEY: Final = "liftbench-lineage"
SEEN_KEY: Final = "liftbench-refined-on"
LOOKS_KEY: Final = "liftbench-looks"
SHORT_KEY: Final = "liftbench-not-better"
"""Marks a skill that did not beat no skill when it was chosen."""
_MOST_LOOKS: Final = 30


class Look(Record):
    """One evaluation of a lineage on its test split."""

    lineage: str
    number: int
    run: str
    skill: str
    alpha: float
    at: str


@dataclass(frozen=True)
class Lineage:
    """The origin of a skill."""

    id: str
    seen: tuple[str, ...]
    """Families on which it or its predecessors were refined or chosen."""
    looks: int

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata entries of the frontmatter."""
        return {ID_KEY: self.id, SEEN_KEY: " ".join(self.seen), LOOKS_KEY: str(self.looks)}


def lineage_of(directory: Path) -> Lineage | None:
    """The lineage in a skill's frontmatter; None for a skill that was not refined here."""
    try:
        fields = frontmatter.parse(frontmatter.decode((directory / FILE).read_bytes())).fields
    except (OSError, frontmatter.FrontmatterError):
        return None
    entries = fields["metadata"].entries if "metadata" in fields else None
    marks = {name: entry.text or "" for name, entry in (entries or {}).items()}
    if not marks.get(ID_KEY):
        return None
    looks = marks.get(LOOKS_KEY, "0")
    return Lineage(
        marks[ID_KEY], tuple(marks.get(SEEN_KEY, "").split()), int(looks) if looks.isdigit() else 0
    )


def alpha_of(look: int) -> float:
    """The level of the k-th look (from 1): 0.05 / 2^k. Raises UsageError after 30 looks."""
    if look > _MOST_LOOKS:
        raise UsageError(f"look {look} of this skill's lineage at its test split: write the skill anew")
    return ALPHA / 2.0**look


class LookLog:
    """All looks made on this machine, one JSON line each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def number(self, lineage: Lineage, run: str, *, fresh: bool = False) -> int:
        """The number of this run's look; `fresh` runs, which ask for new replies, are another look."""
        looks = [look for look in self._all() if look.lineage == lineage.id]
        same = [look.number for look in looks if look.run == run]
        return same[-1] if same and not fresh else max([lineage.looks, *(look.number for look in looks)]) + 1

    def add(self, look: Look) -> None:
        """Record a look before it is made; a resumed one is recorded once."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with locked(Path(f"{self._path}.lock"), "the log of looks"):
            noted = {(known.lineage, known.run, known.number) for known in self._all()}
            if (look.lineage, look.run, look.number) not in noted:
                append_line(self._path, look.model_dump_json())

    def _all(self) -> list[Look]:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        looks = []
        for number, line in enumerate(lines, 1):
            try:
                looks.append(Look.model_validate_json(line))
            except ValidationError:
                raise UsageError(
                    f"{self._path}:{number} is no look: repair or remove the line (an uncounted look makes "
                    "the next decision too lenient)"
                ) from None
        return looks


def look_at(log: LookLog, lineage: Lineage, skill: str, design: str, at: str, *, fresh: bool = False) -> Look:
    """The look of a skill (by digest) in a design, not yet recorded. Raises UsageError after 30 looks."""
    run = digest_of([skill, design])
    number = log.number(lineage, run, fresh=fresh)
    return Look(lineage=lineage.id, number=number, run=run, skill=skill, alpha=alpha_of(number), at=at)


def looks_file() -> Path:
    return Path(platformdirs.user_data_dir("liftbench")) / "looks.jsonl"
