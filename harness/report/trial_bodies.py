"""Trials of report.html as they open: what happened, and the transcript. Prompts stand once."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jinja2 import Environment
from markupsafe import Markup, escape

from harness.records import Diagnostic, ProjectFile
from harness.records.flags import FLAGS
from harness.report.schema import Summary, TrialRow
from harness.report.source import listing
from harness.report.transcripts import Said, Transcript

PLAIN_BYTES: Final = 2_000_000
"""Trials and prompts that take more are compressed, and then need JavaScript to be read."""
OF_A_TRIAL: Final = ("reply", "feedback")
"""What stands in its trial, and not among the prompts."""
_OTHER_FLAG: Final = "A flag of another version of liftbench."


@dataclass(frozen=True)
class Prompt:
    """A message that one or more trials were sent."""

    said: Said
    where: str
    """Task and arm of the first trial."""
    trials: int
    body: Markup


@dataclass(frozen=True)
class Bodies:
    trials: tuple[Markup, ...]
    """In the order of the summary."""
    prompts: tuple[Prompt, ...]
    packed: bool


@dataclass(frozen=True)
class _File:
    path: str
    listing: Markup
    errors: Mapping[str, Diagnostic]
    """By the id of the element that shows them."""


def bodies(
    environment: Environment,
    summary: Summary,
    transcripts: Mapping[str, Transcript],
    labels: Mapping[str, str],
) -> Bodies:
    """transcripts: by the trial's folder; labels: of arms."""
    template = environment.get_template("trial.html.j2")
    told = [transcripts.get(row.folder, Transcript()) for row in summary.trials]
    sent = _sent(told)
    numbers = {said: number for number, said in enumerate(sent)}
    shared = {"numbers": numbers, "meaning": lambda flag: FLAGS.get(flag, _OTHER_FLAG), "own": OF_A_TRIAL}
    trials = list[str]()
    for row, one in zip(summary.trials, told, strict=True):
        errors = {f"t{len(trials)}e{number}": error for number, error in enumerate(row.diagnostics)}
        files = _files(one.files, errors)
        shown = {name for file in files for name in file.errors}
        elsewhere = [error for name, error in errors.items() if name not in shown]
        trials.append(template.render(t=row, told=one, files=files, elsewhere=elsewhere, **shared))
    texts = [f"<pre>{escape(said.text)}</pre>" for said in sent]
    packed = sum(len(text) for text in (*trials, *texts)) > PLAIN_BYTES
    prompts = tuple(
        Prompt(said, _where(summary.trials[users[0]], labels), len(users), _body(text, packed))
        for (said, users), text in zip(sent.items(), texts, strict=True)
    )
    return Bodies(tuple(_body(text, packed) for text in trials), prompts, packed)


def _sent(told: Sequence[Transcript]) -> dict[Said, list[int]]:
    """What trials were sent, with the positions of the trials."""
    sent: dict[Said, list[int]] = {}
    for position, one in enumerate(told):
        for said in dict.fromkeys(one.exchange):
            if said.role not in OF_A_TRIAL:
                sent.setdefault(said, []).append(position)
    return sent


def _where(row: TrialRow, labels: Mapping[str, str]) -> str:
    return f"{row.task}, {labels[row.arm]}"


def _files(files: Iterable[ProjectFile], errors: Mapping[str, Diagnostic]) -> list[_File]:
    """Each with its errors at their lines."""
    made = []
    for file in files:
        own = {name: one for name, one in errors.items() if one.file == file.path and one.line is not None}
        made.append(_File(file.path, listing(file.path, file.text, own), own))
    return made


def _body(text: str, packed: bool) -> Markup:
    """The element; compressed by deflate (RFC 1950) and base64."""
    if not packed:
        return Markup(f'<div class="body">{text}</div>')
    data = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return Markup(f'<div class="body" data-z="{data}"></div>')
