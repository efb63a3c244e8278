"""What a model reads when it is asked a test case.

The arms differ in the skill's text alone.
"""

from __future__ import annotations

import re
from typing import Final

from harness.cases.records import AnswerKey, CasesConfig, TestCase
from harness.records import Message, Request

SYSTEM: Final = """\
You are an expert who is given one request and answers it with one message. You cannot run, look up or save \
anything. Every file that you are asked to write or change stands whole in your message, as a fenced code \
block whose info string is the language and the file's path."""


def case_text(case: TestCase) -> str:
    """The prompt and the files that go with it, each as a fenced block that names it."""
    blocks = [f"\n\n{_fenced(path, text)}" for path, text in case.files.items()]
    return case.prompt + "".join(blocks)


def _fenced(path: str, text: str) -> str:
    """A fence longer than any in the text, so that the block ends where the file does."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{path}\n{text.removesuffix(chr(10))}\n{marks}"


def request_for(key: AnswerKey, config: CasesConfig) -> Request:
    """The request of one answer."""
    case = next(case for case in config.cases if case.id == key.case)
    arm = next(arm for arm in config.arms if arm.id == key.arm)
    skill = config.skill_text if arm.skills else ""
    return Request(
        messages=(
            Message(role="system", content=config.system),
            Message(role="user", content=skill + case_text(case)),
        ),
        sampling=config.sampling,
        task=key.case,
        arm=key.arm,
        repeat=key.repeat,
    )
