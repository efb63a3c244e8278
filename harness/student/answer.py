"""One turn of the student: the project in a reply, and the exchange that leads to it.

Paths of a project are relative, without `..`, and unique; no reply raises an exception. A turn has at most
READS_LIMIT + LATE_LIMIT requests, whatever the model replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from harness.files import unsafe_path
from harness.outcome import Cause
from harness.records import Finding, Message, Project, ProjectFile, Reply, Request, Skill, Step
from harness.student.fences import FileNames, fenced_blocks
from harness.student.skill_tool import LATE_LIMIT, Reader

MAX_FILES = 64
MAX_BYTES = 1 << 20
MAX_REPLY_CHARS = 2 * MAX_BYTES
"""Of the whole reply: parsing Markdown takes up to 4 CPU-seconds per MiB."""
KEEP: Final = "KEEP"
"""A reply of only this line keeps the project of the turn before."""
_NO_WORDS: Final = "(no text)"
"""Providers refuse an empty assistant message."""
# A path has a known suffix; directories and words are no paths.
_PATH = r"[\w.+@~\\/-]*[\w+-]\.(?:toml|cpp|cc|cxx|c|cu|cuh|h|hpp|hxx|py|pyi|md|txt|nix|lock|inl)"
_NAMES = FileNames(_PATH)


def parse_reply(reply: Reply) -> Project | Finding:
    """The project in a reply, or why there is none. Of blocks with one path the last counts."""
    if reply.stop == "overflow":
        message = "the prompt does not fit into the model's context"
        return Finding(cause=Cause.CONTEXT_OVERFLOW, message=message)
    if len(reply.text) > MAX_REPLY_CHARS:
        return _too_large(f"{len(reply.text)} characters of text; at most {MAX_REPLY_CHARS} are read")
    found: dict[str, str] = {}
    for block in fenced_blocks(reply.text):
        named = _NAMES.find(block)
        if named is None:
            continue
        path, text = named
        reason = unsafe_path(path)
        if reason:
            message = f"the path {path!r} (line {block.line}) {reason}"
            return Finding(cause=Cause.UNSAFE_PATH, message=message)
        found[PurePosixPath(path).as_posix()] = text
    found = _strip_common_root(found)
    return project_of(found) if "build.toml" in found else _no_files(reply)


def project_of(found: Mapping[str, str]) -> Project | Finding:
    """The project with these files (path -> text), or that it is too large."""
    size = sum(len(text.encode()) for text in found.values())
    if len(found) > MAX_FILES:
        return _too_large(f"{len(found)} files; at most {MAX_FILES} are allowed")
    if size > MAX_BYTES:
        return _too_large(f"{size} bytes of files; at most {MAX_BYTES} are allowed")
    return Project(files=tuple(ProjectFile(path=p, text=found[p]) for p in sorted(found)))


def _too_large(message: str) -> Finding:
    return Finding(cause=Cause.TOO_LARGE, message=message)


def _no_files(reply: Reply) -> Finding:
    cause, message = Cause.NO_FILES, "the reply holds no fenced file named build.toml"
    if reply.stop == "refusal":
        cause, message = Cause.REFUSAL, "the model refused"
    elif reply.stop == "length":
        cause = Cause.TRUNCATED
        message = "the reply was cut at the output limit before a project was complete"
    elif not reply.text.strip():
        cause, message = Cause.EMPTY_REPLY, "the reply is empty"
    return Finding(cause=cause, message=message)


def _strip_common_root(found: dict[str, str]) -> dict[str, str]:
    """The project one level up, if all of it is in one folder, as in `my-kernel/build.toml`."""
    roots = {PurePosixPath(p).parts[0] for p in found}
    if "build.toml" in found or len(roots) != 1 or f"{next(iter(roots))}/build.toml" not in found:
        return found
    return {p.split("/", 1)[1]: text for p, text in found.items()}


Ask = Callable[[Request], Reply]


@dataclass(frozen=True)
class Answer:
    """The last reply of a turn, with its project or the reason why there is none."""

    request: Request
    reply: Reply
    project: Project | Finding
    steps: tuple[Step, ...] = ()
    results: tuple[Message, ...] = ()

    @property
    def keeps(self) -> bool:
        """Whether it keeps the project of the turn before."""
        return self.reply.text.strip() == KEEP

    @property
    def messages(self) -> tuple[Message, ...]:
        """The exchange, this answer included."""
        said = _said(self.reply, calls=bool(self.results))
        return (*self.request.messages, said, *self.results)


def answer(request: Request, skills: Sequence[Skill], ask: Ask) -> Answer:
    """One turn: send the request, and again with each file that is asked for. `skills`: the arm's."""
    reader, steps, late = Reader(skills), list[Step](), 0
    while True:
        reply = ask(request)
        found, given_all = parse_reply(reply), reader.exhausted
        wants_files = request.tools and reply.tool_calls and reply.stop not in ("refusal", "overflow")
        if not wants_files:
            return Answer(request, reply, found, tuple(steps))
        results, reads = reader.answer(reply.tool_calls)
        if given_all and isinstance(found, Project):
            return Answer(request, reply, found, tuple(steps), results)
        late += given_all
        if late == LATE_LIMIT:
            message = f"{late} replies did nothing but call tools after there were no more files to read"
            loop = Finding(cause=Cause.TOOL_LOOP, message=message)
            return Answer(request, reply, loop, tuple(steps), results)
        steps.append(Step(prompt_digest=request.prompt_digest, reply=reply, reads=reads))
        messages = (*request.messages, _said(reply, calls=True), *results)
        request = request.model_copy(update={"messages": messages, "step": request.step + 1})


def _said(reply: Reply, *, calls: bool) -> Message:
    """The reply as a message of the exchange."""
    content = reply.text if reply.text.strip() or calls else _NO_WORDS
    made = reply.tool_calls if calls else ()
    # Truncated thinking has no signature and is refused; thinking before a call is complete.
    whole = reply.stop in ("end", "tool")
    thinking = tuple(part for part in reply.thinking if whole or part.after_calls < len(made))
    return Message(role="assistant", content=content, tool_calls=made, thinking=thinking)
