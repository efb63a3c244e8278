"""What the user asked of a generation, what identifies it, and its three splits of tasks by family."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from harness.errors import UsageError
from harness.models import Model
from harness.models.meter import Meter
from harness.records import Briefing, Delivery, Metric, ModelSpec, Protocol, Sampling, Target, digest_of
from harness.skills.lineage import Lineage
from harness.skills.spec import FILE, read_skill
from harness.suite.catalogue import LoadedTask
from harness.teaching.record import wrote
from harness.text import slug

Split = Literal["development", "selection", "test"]
SPLITS: Final[tuple[Split, ...]] = ("development", "selection", "test")
_TEST_SHARE: Final = 0.4
"""Of the families; the rest is halved."""
_SALT: Final = "liftbench splits 1"


@dataclass(frozen=True)
class Splits:
    """What the teacher sees, what chooses a version, and what is reported: no family is in two of them."""

    development: tuple[LoadedTask, ...]
    selection: tuple[LoadedTask, ...]
    test: tuple[LoadedTask, ...]

    def tasks(self, split: Split) -> tuple[LoadedTask, ...]:
        """The tasks of a split."""
        return {"development": self.development, "selection": self.selection, "test": self.test}[split]

    def families(self, split: Split) -> tuple[str, ...]:
        """The families of a split, sorted."""
        return tuple(sorted({t.task.family for t in self.tasks(split)}))

    @property
    def seen(self) -> tuple[str, ...]:
        """Families on which the skill is refined or chosen: they never test it again."""
        return tuple(sorted({*self.families("development"), *self.families("selection")}))


def split_tasks(tasks: Sequence[LoadedTask], seen: Collection[str] = ()) -> Splits:
    """Split by family; the same families give the same splits.

    `seen`: families on which this lineage was refined before; none is in the test split. Raises UsageError
    with fewer than three families, or none that is unseen.
    """
    families = sorted(
        {t.task.family for t in tasks}, key=lambda one: hashlib.sha256(f"{_SALT}:{one}".encode()).digest()
    )
    fresh = [family for family in families if family not in seen]
    if len(families) < 3 or not fresh:
        raise UsageError(
            f"{len(families)} families of tasks, {len(fresh)} of them new to this skill: refining needs "
            "three, one per split, and one that the skill was not refined on. Use more --tasks, or --no-eval"
        )
    test = set(fresh[: min(math.ceil(_TEST_SHARE * len(families)), len(families) - 2)])
    rest = [family for family in families if family not in test]

    def of(chosen: Collection[str]) -> tuple[LoadedTask, ...]:
        return tuple(t for t in tasks if t.task.family in chosen)

    return Splits(of(rest[::2]), of(rest[1::2]), of(test))


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """What the user asked for."""

    description: str
    source: Path | None = None
    examples: tuple[tuple[str, str], ...] = ()
    output: Path | None = None
    tasks: Sequence[LoadedTask]
    teacher: Model
    students: tuple[ModelSpec, ...]
    models: Mapping[str, Model]
    meter: Meter
    metric: Metric
    target: Target
    protocol: Protocol
    sampling: Sampling
    briefing: Briefing
    rounds: int
    repeats: int
    turns: int = 1
    delivery: Delivery = "body"
    with_placebo: bool = False
    replace: bool = False
    cases: int = 0
    """Test cases that the teacher writes for the skill."""

    @property
    def old(self) -> Path | None:
        """The skill to start from, if that is what `--from` names."""
        return self.source if self.source is not None and (self.source / FILE).is_file() else None

    @property
    def digest(self) -> str:
        """Of everything that decides which versions there are; rounds and repeats may grow."""
        tasks = [t.task.digest for t in self.tasks]
        examples = [list(example) for example in self.examples]
        students = [spec.model_dump(mode="json") for spec in self.students]
        order = [self.description, self._source_digest(), examples, self.teacher.name]
        return digest_of([*order, students, tasks, self.target, self.metric, *self._other_briefing])

    def new_lineage(self) -> Lineage:
        """For a skill that is written from nothing: the same request has the same lineage everywhere."""
        order = digest_of([self.description, self._source_digest(), self.teacher.name])
        return Lineage(order[:12], (), 0)

    def _source_digest(self) -> str | None:
        if self.source is None:
            return None
        if self.old is not None:
            return read_skill(self.old).digest
        try:
            with self.source.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        except IsADirectoryError:
            raise UsageError(
                f"{self.source} has no SKILL.md: name a skill's folder, or a trace's file"
            ) from None
        except OSError as error:
            raise UsageError(f"{self.source} cannot be read: {error.strerror}") from None

    def design(self, splits: Splits | None) -> str:
        """Digest of the test: two looks with the same design are one."""
        tasks = [] if splits is None else [t.task.digest for t in splits.test]
        students = [spec.model_dump(mode="json") for spec in self.students]
        how = [self.target, self.protocol, self.metric, self.repeats, self.turns]
        return digest_of([tasks, students, *how, self.delivery, self.with_placebo, *self._other_briefing])

    @property
    def _other_briefing(self) -> tuple[str, ...]:
        """For digests, which were made without a briefing when all were `full`."""
        return () if self.briefing == "full" else (self.briefing,)

    def refuse_unmeasured(self, device_bytes: int | None) -> None:
        """Raise UsageError where kernels are only built: only failed ones would have a score.

        `device_bytes`: memory of the GPU in use, None without one.
        """
        only_built = self.target == "cuda" and device_bytes is None
        if self.students and only_built and self.metric != "compiles":
            raise UsageError(
                f"--metric {self.metric}: kernels are built here and not run (no usable GPU). Use --metric "
                "compiles, --target cpu or --no-eval"
            )

    def output_folder(self, folder: Path) -> Path:
        """The parent of the folder that the skill is written to; `folder` is the generation's own.

        Raises UsageError if the place holds another skill or the name is not a skill's name.
        """
        old, out = self.old, self.output
        if old is not None:
            out = self._beside(old, folder)
        if out is None:
            return Path("skills")
        if old is None and out.name != slug(out.name):
            raise UsageError(f"-o {out}: {out.name!r} is not a skill name; {slug(out.name)!r} would be one")
        if out.exists() and not self.replace and not wrote(folder, out):
            raise UsageError(f"{out} exists already: use --force to replace it, or another -o")
        return out.parent

    def _beside(self, old: Path, folder: Path) -> Path:
        """Where the new version of an old skill goes."""
        name = read_skill(old).name
        if name != slug(name):
            raise UsageError(f"{old / FILE}: {name!r} is not a skill name; {slug(name)!r} would be one")
        if self.output is not None and self.output.name != name:
            raise UsageError(f"-o {self.output}: a refined skill keeps its name, {name}")
        out = self.output or Path("skills") / name
        if out.resolve() == old.resolve():
            raise UsageError(
                f"{out} is the skill that --from names, and is not changed: name another place with -o"
            )
        if folder.resolve().is_relative_to(old.resolve()):
            raise UsageError(f"{folder} lies in the skill that --from names: use another --runs-dir")
        return out
