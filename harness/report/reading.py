"""What students asked for where a skill was disclosed rather than given.

Shares are of scored trials; a file that nobody read is absent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from harness.records import Reply, RunRecord, TrialRecord, Turn
from harness.report.arms import rate_of
from harness.report.records import ReadFile, Reading
from harness.report.scoring import total, usage_of_reply
from harness.text import clean


def _added(turn: Turn) -> Iterable[tuple[str, int]]:
    """A file that was read alone in its step, and by how many tokens the next prompt grew beyond the call."""
    for step, then in zip(turn.steps, turn.replies[1:], strict=True):
        if len(step.reads) == 1 and (grown := _growth(step.reply, then)) is not None:
            yield step.reads[0], grown


def _growth(reply: Reply, then: Reply) -> int | None:
    said, usage = then.usage.input_tokens, reply.usage
    if said is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    # What a model thought to itself is not part of the next prompt.
    grown = said - usage.input_tokens - usage.output_tokens + (usage.reasoning_tokens or 0)
    return grown if grown > 0 else None


def reading(model: str, arm: str, label: str, trials: Sequence[TrialRecord]) -> Reading | None:
    """What one model read in one arm; None where no trial was scored."""
    scored = [trial for trial in trials if not trial.infra and trial.grade is not None]
    if not scored:
        return None
    read = [{f for turn in t.turns for step in turn.steps for f in step.reads} for t in scored]
    added: dict[str, list[int]] = {}
    for trial in scored:
        for turn in trial.turns:
            for file, tokens in _added(turn):
                added.setdefault(file, []).append(tokens)
    steps = [[step.reply for turn in t.turns for step in turn.steps] for t in scored]
    spent = [total(map(usage_of_reply, replies)).tokens for replies in steps]
    known = [tokens for tokens in spent if tokens is not None]
    skills = [{file.partition("/")[0] for file in files} for files in read]
    return Reading(
        model=model,
        arm=arm,
        label=label,
        skills=tuple(_counted(skills, {})),
        files=tuple(_counted(read, added)),
        tokens=math.fsum(known) / len(known) if len(known) == len(spent) else None,
    )


def unread_warnings(run: RunRecord, readings: Iterable[Reading]) -> Iterable[str]:
    """Disclosed skills that no trial of a model, or fewer than half of them, ever read."""
    names = {digest: clean(name) for name, digest in run.lock.skills.items()}
    arms = {arm.id: arm for arm in run.config.arms if arm.kind in ("with_skill", "old_skill")}
    for one in readings:
        for digest in arms[one.arm].skills if one.arm in arms else ():
            name = names.get(digest, f"skill {digest[:8]}")
            rates = [skill.trials for skill in one.skills if skill.file == name]
            old = "the old " if arms[one.arm].kind == "old_skill" else ""
            if not rates:
                yield (
                    f"{old}{name} was never read in any trial of {clean(one.model)} (disclosed): "
                    "its lift says nothing of its content"
                )
            elif 2 * rates[0].count < rates[0].n:
                yield (
                    f"{old}{name} was read in {rates[0].count} of {rates[0].n} trials of {clean(one.model)} "
                    "(disclosed): the others knew its description alone"
                )


def _counted(read: Sequence[set[str]], added: dict[str, list[int]]) -> list[ReadFile]:
    made = [
        ReadFile(
            file=clean(name),
            trials=rate_of([name in files for files in read]),
            tokens=median(added[name]) if name in added else None,
        )
        for name in sorted(set().union(*read))
    ]
    return sorted(made, key=lambda one: -one.trials.count)
