"""What the user asked of a generation, and what identifies it.

Nothing is written here; a place that holds another's skill is refused before anything is asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.models import Model
from harness.models.meter import Meter
from harness.records import ModelSpec, Protocol, Sampling, Target, digest_of
from harness.skills.lineage import Lineage, new_lineage
from harness.skills.spec import FILE, read_skill
from harness.study.arms import Delivery
from harness.study.run import Budget
from harness.study.study import Metric
from harness.teaching.brief import Example
from harness.teaching.generation import wrote
from harness.teaching.splits import Splits
from harness.text import slug

if TYPE_CHECKING:
    from harness.cli.setup import Bench
    from harness.suite.catalogue import LoadedTask


@dataclass(frozen=True)
class Grounds:
    """What the user asked for."""

    description: str
    source: Path | None
    examples: tuple[Example, ...]
    output: Path | None
    tasks: Sequence[LoadedTask]
    teacher: Model
    students: tuple[ModelSpec, ...]
    """Empty: nothing is evaluated."""
    models: Mapping[str, Model]
    meter: Meter
    metric: Metric
    target: Target
    protocol: Protocol
    sampling: Sampling
    rounds: int
    repeats: int
    turns: int
    delivery: Delivery
    with_placebo: bool
    budget: Budget
    connections: int
    runs: Path
    cache: Path | None
    replace: bool
    json_output: bool

    @property
    def old(self) -> Path | None:
        """The skill that it starts from, if that is what `--from` names."""
        return self.source if self.source is not None and (self.source / FILE).is_file() else None


def lineage_for(grounds: Grounds) -> Lineage:
    """Of a skill that is written from nothing: the same order is the same lineage, on every machine."""
    return new_lineage(digest_of([grounds.description, _source_digest(grounds), grounds.teacher.name]))


def generation_digest(grounds: Grounds) -> str:
    """Of what decides which versions there are; more rounds or runs go on with the same generation."""
    tasks = [t.task.digest for t in grounds.tasks]
    examples = [[e.wanted_for, e.output] for e in grounds.examples]
    students = [spec.model_dump(mode="json") for spec in grounds.students]
    order = [grounds.description, _source_digest(grounds), examples, grounds.teacher.name]
    return digest_of([*order, students, tasks, grounds.target, grounds.metric])


def _source_digest(grounds: Grounds) -> str | None:
    if grounds.source is None:
        return None
    if grounds.old is not None:
        return read_skill(grounds.old).digest
    if grounds.source.is_file():
        with grounds.source.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    return str(grounds.source.resolve())


def design_of(grounds: Grounds, splits: Splits | None) -> str:
    """Of the test: what makes two looks the same one."""
    tasks = [] if splits is None else [t.task.digest for t in splits.test]
    students = [spec.model_dump(mode="json") for spec in grounds.students]
    how = [grounds.target, grounds.protocol, grounds.metric, grounds.repeats, grounds.turns]
    return digest_of([tasks, students, *how, grounds.delivery, grounds.with_placebo])


def refuse_unmeasured(grounds: Grounds, bench: Bench) -> None:
    """Where kernels are only built, failed ones alone would have a score: the worst version would win."""
    only_built = grounds.target == "cuda" and bench.grader.device_bytes is None
    if grounds.students and only_built and grounds.metric != "compiles":
        raise UsageError(
            f"--metric {grounds.metric}: kernels are built here and not run (no usable GPU). Take --metric "
            "compiles, --target cpu or --no-eval"
        )


def output_folder(grounds: Grounds, folder: Path) -> Path:
    """The folder in which the skill's own folder is to lie; `folder`: the generation's. Raises UsageError."""
    old, out = grounds.old, grounds.output
    if old is not None:
        name = read_skill(old).name
        if name != slug(name):
            raise UsageError(f"{old / FILE}: {name!r} is no skill's name; {slug(name)!r} would be one")
        if out is not None and out.name != name:
            raise UsageError(f"-o {out}: a refined skill keeps its name, {name}")
        out = out or Path("skills") / name
        if out.resolve() == old.resolve():
            raise UsageError(f"{out} is the skill that --from names, and stays: name another place with -o")
        if folder.resolve().is_relative_to(old.resolve()):
            raise UsageError(f"{folder} lies in the skill that --from names: use another --runs-dir")
    if out is None:
        return Path("skills")
    if old is None and out.name != slug(out.name):
        raise UsageError(f"-o {out}: {out.name!r} is no skill's name; {slug(out.name)!r} would be one")
    if out.exists() and not grounds.replace and not wrote(folder, out):
        raise UsageError(f"{out} is there already: use --force to replace it, or another -o")
    return out.parent
