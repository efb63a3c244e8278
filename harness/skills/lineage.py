"""A skill's lineage: what it was refined on, and how often its test split was looked at.

The k-th look of a lineage is tested at alpha / 2^k, so that all looks together stay below alpha; going on
with a run is no new look, replies that are asked for anew are one.

Why: whoever refines until a test split says `helps` has refined on that split.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
"""Says that the skill did not beat no skill when it was chosen."""
_MOST_LOOKS: Final = 30


class Look(Record):
    """One look of a lineage at its test split."""

    lineage: str
    number: int
    """From 1."""
    run: str
    """Digest of the run's configuration and lock: the same run is the same look."""
    skill: str
    """Digest of the skill."""
    alpha: float
    at: str
    """UTC, ISO 8601."""


@dataclass(frozen=True)
class Lineage:
    """Where a skill comes from."""

    id: str
    seen: tuple[str, ...]
    """Families on which it, or a skill before it, was refined or chosen."""
    looks: int
    """Looks at a test split before this one was written, by its own account."""

    @property
    def metadata(self) -> dict[str, str]:
        """As it stands in the frontmatter."""
        return {ID_KEY: self.id, SEEN_KEY: " ".join(self.seen), LOOKS_KEY: str(self.looks)}


def new_lineage(order: str) -> Lineage:
    """The lineage of a skill that is written from nothing, named by its order's digest."""
    return Lineage(order[:12], (), 0)


def lineage_of(directory: Path) -> Lineage | None:
    """The lineage that a skill's frontmatter names; None for a skill that was not refined here."""
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
    """The level of the k-th look (from 1): 0.05 / 2^k. Raises UsageError when too little is left."""
    if look > _MOST_LOOKS:
        raise UsageError(f"look {look} of this skill's lineage at its test split: write the skill anew")
    return ALPHA / 2.0**look


class LookLog:
    """Every look that was made on this machine: one JSON line each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def number(self, lineage: Lineage, run: str, *, fresh: bool = False) -> int:
        """Which look this run is, or would be; `fresh`: new replies are asked for, so it is another one."""
        looks = [look for look in self._all() if look.lineage == lineage.id]
        same = [look.number for look in looks if look.run == run]
        return same[-1] if same and not fresh else max([lineage.looks, *(look.number for look in looks)]) + 1

    def add(self, look: Look) -> None:
        """Note a look before it is made; one that is gone on with is noted once."""
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
                    f"{self._path}:{number} is no look: mend or remove the line (a look that is not counted "
                    "makes the next decision too lenient)"
                ) from None
        return looks


def look_at(log: LookLog, lineage: Lineage, skill: str, design: str, at: str, *, fresh: bool = False) -> Look:
    """The look that a skill (by digest) in a design is; not noted yet. Raises UsageError after too many."""
    run = digest_of([skill, design])
    number = log.number(lineage, run, fresh=fresh)
    return Look(lineage=lineage.id, number=number, run=run, skill=skill, alpha=alpha_of(number), at=at)


def looks_file() -> Path:
    """Where this user's looks are noted."""
    import platformdirs

    return Path(platformdirs.user_data_dir("liftbench")) / "looks.jsonl"


def seen_tasks(families: Mapping[str, str], seen: Collection[str]) -> dict[str, str]:
    """Of tasks (id to family) those that a skill was refined on, with the reason to leave them out."""
    return {
        task: f"the skill was refined or chosen on family {family}"
        for task, family in families.items()
        if family in seen
    }
