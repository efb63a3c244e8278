"""Turns a student's reply into a project, or a finding that says why there is none.

Paths of a project are relative, without `..`, and unique. No reply raises an exception.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from harness.files import unsafe_path
from harness.outcome import Cause
from harness.records import Finding, Project, ProjectFile, Reply
from harness.student.fences import FileNames, fenced_blocks

MAX_FILES = 64
MAX_BYTES = 1 << 20
MAX_REPLY_CHARS = 2 * MAX_BYTES
"""Of the whole reply: parsing Markdown takes up to 4 CPU-seconds per MiB."""
# A path has a known suffix; directories and words are no paths.
_PATH = r"[\w.+@~\\/-]*[\w+-]\.(?:toml|cpp|cc|cxx|c|cu|cuh|h|hpp|hxx|py|pyi|md|txt|nix|lock|inl)"
_NAMES = FileNames(_PATH)


def _refused(cause: Cause, message: str) -> Finding:
    return Finding(cause=cause, message=message)


def _no_files(reply: Reply) -> Finding:
    if reply.stop == "refusal":
        return _refused(Cause.REFUSAL, "the model refused")
    if reply.stop == "length":
        return _refused(
            Cause.TRUNCATED, "the reply was cut at the output limit before a project was complete"
        )
    if not reply.text.strip():
        return _refused(Cause.EMPTY_REPLY, "the reply is empty")
    return _refused(Cause.NO_FILES, "the reply holds no fenced file named build.toml")


def parse_reply(reply: Reply) -> Project | Finding:
    """The project in a reply; a later block with the same path replaces an earlier one."""
    if len(reply.text) > MAX_REPLY_CHARS:
        return _refused(
            Cause.TOO_LARGE, f"{len(reply.text)} characters of text; at most {MAX_REPLY_CHARS} are read"
        )
    found: dict[str, str] = {}
    for block in fenced_blocks(reply.text):
        named = _NAMES.find(block)
        if named is None:
            continue
        path, text = named
        reason = unsafe_path(path)
        if reason:
            return _refused(Cause.UNSAFE_PATH, f"the path {path!r} (line {block.line}) {reason}")
        found[PurePosixPath(path).as_posix()] = text
    found = _strip_common_root(found)
    if "build.toml" not in found:
        return _no_files(reply)
    size = sum(len(text.encode()) for text in found.values())
    if len(found) > MAX_FILES:
        return _refused(Cause.TOO_LARGE, f"{len(found)} files; at most {MAX_FILES} are allowed")
    if size > MAX_BYTES:
        return _refused(Cause.TOO_LARGE, f"{size} bytes of files; at most {MAX_BYTES} are allowed")
    return Project(files=tuple(ProjectFile(path=p, text=found[p]) for p in sorted(found)))


def _strip_common_root(found: dict[str, str]) -> dict[str, str]:
    """The project one level up, if all of it is in one folder, as in `my-kernel/build.toml`."""
    roots = {PurePosixPath(p).parts[0] for p in found}
    if "build.toml" in found or len(roots) != 1 or f"{next(iter(roots))}/build.toml" not in found:
        return found
    return {p.split("/", 1)[1]: text for p, text in found.items()}
