"""Reads Agent Skills and validates them against the specification.

Reading is lenient, so that any skill can be measured; validation is strict.
"""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote

import platformdirs
from markdown_it import MarkdownIt

from harness.errors import UsageError, did_you_mean, refuse_url
from harness.files import data_directory
from harness.records import Record, Skill, digest_of
from harness.skills import frontmatter
from harness.skills.frontmatter import Field, Frontmatter, FrontmatterError
from harness.text import estimate_tokens

FILE: Final = "SKILL.md"
SOURCE: Final = "source.json"
"""Beside a fetched skill: where it comes from."""
FIELDS: Final = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
CLIENT_FIELDS: Final = (
    *("when_to_use", "argument-hint", "arguments", "disable-model-invocation", "user-invocable", "model"),
    *("effort", "context", "agent", "hooks", "paths", "shell"),
)
"""Not in the specification, but documented by Claude Code."""
_LINEAGE_LINES: Final = re.compile(r"^[ \t]+liftbench-[\w-]+:.*\n", re.M)
"""Lineage metadata, which is removed before a student or teacher reads SKILL.md."""
_CASES: Final = ("evals/", "skill_meta.json")
"""Test cases of a skill, which a student must not read."""
DOCUMENT_LIMIT: Final = 256 << 10
NAME_LIMIT: Final = 64
DESCRIPTION_LIMIT: Final = 1024
COMPATIBILITY_LIMIT: Final = 500
BODY_LINES_ADVISED: Final = 500
BODY_TOKENS_ADVISED: Final = 5_000
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")
_PLACEHOLDER = re.compile(r"[*<>{}$|]|\.\.\.|\bpath/to\b", re.IGNORECASE)
_FRONTMATTER = re.compile(r"\A---\n.*?^---$", re.S | re.M)
_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")
Severity = Literal["error", "warning", "note"]


class SkillFinding(Record):
    """One fault of a skill. Only errors, which are certain, make a skill invalid."""

    file: str
    """Relative to the skill's directory, POSIX."""
    line: int | None
    """1-based; None for the whole file."""
    severity: Severity
    """A warning is likely, or advice; a note says what could not be judged."""
    message: str

    def __str__(self) -> str:
        """`SKILL.md:3: error: ...`, the format of compilers."""
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.severity}: {self.message}"


def error(file: str, line: int | None, message: str) -> SkillFinding:
    """A finding that makes the skill invalid."""
    return SkillFinding(file=file, line=line, severity="error", message=message)


def warning(file: str, line: int | None, message: str) -> SkillFinding:
    """A finding that is advice."""
    return SkillFinding(file=file, line=line, severity="warning", message=message)


def skill_files(directory: Path) -> list[str]:
    """Relative POSIX paths of a skill's files, sorted, without hidden files, caches and links."""
    found = []
    for path in directory.rglob("*"):
        relative = path.relative_to(directory)
        skipped = any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
        linked = any((directory / parent).is_symlink() for parent in (relative, *relative.parents[:-1]))
        if not skipped and not linked and path.is_file():
            found.append(relative.as_posix())
    return sorted(found)


def read_skill(directory: Path) -> Skill:
    """The skill in `directory`. Raises UsageError with file and line if it has no usable SKILL.md."""
    path = directory / FILE
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise UsageError(f"{path} is no file")
    try:
        parsed = frontmatter.parse(frontmatter.decode(path.read_bytes()))
    except OSError as fault:
        raise UsageError(f"{path} cannot be read: {fault.strerror}") from fault
    except FrontmatterError as fault:
        raise UsageError(f"{path}{f':{fault.line}' if fault.line else ''} {fault.message}") from fault
    files = skill_files(directory)
    hashes = [[name, hashlib.sha256((directory / name).read_bytes()).hexdigest()] for name in files]
    return Skill(
        name=_needed(parsed, "name", path),
        description=_needed(parsed, "description", path),
        body=parsed.body,
        files=tuple(files),
        digest=digest_of(hashes),
        documents=_documents(directory, files),
    )


def _documents(directory: Path, files: list[str]) -> dict[str, str]:
    """The UTF-8 text files that are small enough for a prompt, without the skill's own test cases."""
    found = {}
    for name in files:
        if name.startswith(_CASES):
            continue
        data = (directory / name).read_bytes()
        if len(data) <= DOCUMENT_LIMIT and b"\0" not in data:
            with contextlib.suppress(FrontmatterError):
                found[name] = frontmatter.decode(data)
    if FILE in found:
        found[FILE] = _LINEAGE_LINES.sub("", found[FILE])
    return found


def _needed(parsed: Frontmatter, name: str, path: Path) -> str:
    entry = parsed.fields.get(name)
    text = entry.text.strip() if entry is not None and entry.text is not None else ""
    if not text:
        raise UsageError(f"{path} has no {name}: add `{name}: ...` to its frontmatter")
    return text


class ListedSkill(NamedTuple):
    """A folder with a SKILL.md: its skill, or why it cannot be read."""

    directory: Path
    skill: Skill | None
    problem: str | None


def list_skills(root: Path) -> list[ListedSkill]:
    """All skills directly below `root`, readable or not, sorted by folder name."""
    found = []
    for path in sorted(root.glob(f"*/{FILE}")):
        try:
            found.append(ListedSkill(path.parent, read_skill(path.parent), None))
        except UsageError as fault:
            found.append(ListedSkill(path.parent, None, str(fault)))
    return found


@dataclass(frozen=True)
class LoadedSkill:
    skill: Skill
    directory: Path


def fetched_root() -> Path:
    """Folder of fetched skills: DIGEST/NAME/SKILL.md, with DIGEST/source.json beside."""
    return Path(platformdirs.user_cache_dir("liftbench")) / "skills"


def fetched_folders() -> list[Path]:
    """Folders of fetched skills, by name and digest."""
    found = [path.parent for path in fetched_root().glob(f"[!.]*/*/{FILE}")]
    return sorted(found, key=lambda path: (path.name, path.parent.name))


def find_skill(name_or_path: str) -> Path:
    """Folder of a skill: given as such, or by the name of a shipped or fetched one. Raises UsageError."""
    refuse_url(name_or_path, "fetch it first (liftbench skills fetch URL@COMMIT), or pass a folder")
    shipped = data_directory("skills")
    for path in (Path(name_or_path), shipped / name_or_path):
        if (path / FILE).is_file():
            return path
    fetched = fetched_folders()
    found = [path for path in fetched if path.name == name_or_path]
    if len(found) > 1:
        folders = ", ".join(map(str, found))
        raise UsageError(f"{len(found)} fetched skills are named {name_or_path}: give one of {folders}")
    if not found:
        names = sorted({path.parent.name for path in shipped.glob(f"*/{FILE}")} | {p.name for p in fetched})
        raise UsageError(
            f"no skill {name_or_path!r}: neither a folder with SKILL.md nor one of {', '.join(names)}"
            f"{did_you_mean(name_or_path, names)}"
        )
    if read_skill(found[0]).digest != found[0].parent.name:
        raise UsageError(f"{found[0]} was changed since it was fetched: fetch it again, or pass the folder")
    return found[0]


def load_skill(name_or_path: str) -> LoadedSkill:
    """A skill by folder, or by the name of a shipped or fetched one. Raises UsageError if there is none."""
    path = find_skill(name_or_path)
    return LoadedSkill(read_skill(path), path)


def validate_skill(directory: Path) -> list[SkillFinding]:
    """Every violation of the specification (errors) and of its advice (warnings), by file and line."""
    path = directory / FILE
    if not directory.is_dir():
        return [error(FILE, None, f"{directory} is not a directory")]
    if FILE not in {p.name for p in directory.iterdir()}:  # a case-blind file system would find skill.md
        return [error(FILE, None, "the directory has no SKILL.md (in capitals)")]
    if not path.is_file():
        return [error(FILE, None, "SKILL.md is no file")]
    found = skill_md_findings(path.read_bytes(), directory.resolve().name)
    found += link_findings(directory, skill_files(directory))
    return sorted(found, key=lambda f: (f.file != FILE, f.file, f.line or 0))


def skill_md_findings(data: bytes, folder: str) -> list[SkillFinding]:
    """The findings on a SKILL.md in a folder of that name, without its links."""
    try:
        parsed = frontmatter.parse(frontmatter.decode(data))
    except FrontmatterError as fault:
        return [error(FILE, fault.line, f"SKILL.md {fault.message}")]
    found = [error(FILE, line, message) for line, message in parsed.faults]
    if data.startswith(frontmatter.BOM.encode()):
        found.append(error(FILE, 1, "a byte order mark stands before `---`: save the file without one"))
    return [*found, *_field_findings(parsed.fields, folder), *_body_findings(parsed)]


def _field_findings(fields: dict[str, Field], folder: str) -> Iterator[SkillFinding]:
    for name, entry in fields.items():
        if name in CLIENT_FIELDS:
            yield warning(
                FILE, entry.line, f"{name} is a field of Claude Code's: other clients ignore or refuse it"
            )
        elif name not in FIELDS:
            yield error(FILE, entry.line, f"unknown field {name!r}; there are only {', '.join(FIELDS)}")
        elif name != "metadata" and entry.text is None:
            yield error(FILE, entry.line, f"{name} must be text, not a list or map")
        elif not entry.is_text and entry.text:
            yield warning(FILE, entry.line, f"{name}: YAML reads {entry.text!r} as no text; put it in quotes")
    for name, rule in (("name", _name_faults), ("description", _description_faults)):
        if name not in fields:
            yield error(FILE, None, f"the frontmatter has no {name}")
        elif fields[name].text is not None:
            for message in rule(fields[name].text or "", folder):
                yield error(FILE, fields[name].line, message)
    compatibility = fields.get("compatibility")
    if compatibility is not None and compatibility.text is not None:
        length = len(compatibility.text)
        if not compatibility.text.strip() or length > COMPATIBILITY_LIMIT:
            message = f"compatibility has {length} characters; 1 to {COMPATIBILITY_LIMIT} are allowed"
            yield error(FILE, compatibility.line, message)
    if "metadata" in fields:
        yield from _metadata_findings(fields["metadata"])


def _name_faults(text: str, folder: str) -> Iterator[str]:
    name = unicodedata.normalize("NFKC", text.strip())
    if not name:
        yield "name is empty"
        return
    if len(name) > NAME_LIMIT:
        yield f"name has {len(name)} characters; at most {NAME_LIMIT} are allowed"
    if name != name.lower() or not all(c.isalnum() or c == "-" for c in name):
        yield f"name {name!r} must be of lowercase letters, digits and hyphens"
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield f"name {name!r} may not begin or end with a hyphen, nor have two in a row"
    if name != unicodedata.normalize("NFKC", folder):
        yield f"name {name!r} differs from the directory's name {folder!r}"


def _description_faults(text: str, _folder: str) -> Iterator[str]:
    if not text.strip():
        yield "description is empty: say what the skill does and when to use it"
    elif len(text) > DESCRIPTION_LIMIT:
        yield f"description has {len(text)} characters; at most {DESCRIPTION_LIMIT} are allowed"


def _metadata_findings(entry: Field) -> Iterator[SkillFinding]:
    if entry.entries is None:
        yield error(FILE, entry.line, "metadata must be a map of text to text")
        return
    for name, value in entry.entries.items():
        if value.text is None:
            yield error(FILE, value.line, f"metadata.{name} must be text, not a list or map")
        elif not value.is_text:
            message = f"metadata.{name}: YAML reads {value.text!r} as no text; put it in quotes"
            yield warning(FILE, value.line, message)


def _body_findings(parsed: Frontmatter) -> Iterator[SkillFinding]:
    body = parsed.body.strip()
    if not body:
        yield warning(FILE, parsed.body_line, "the body is empty: the student would be given nothing")
    sizes = (
        (body.count("\n") + 1, BODY_LINES_ADVISED, "{} lines"),
        (estimate_tokens(body), BODY_TOKENS_ADVISED, "about {} tokens (estimated)"),
    )
    for size, advised, words in sizes:
        if size > advised:
            message = f"the body has {words.format(size)}; {advised} are advised at most"
            yield warning(FILE, parsed.body_line, f"{message}: move details to references/")


def link_findings(directory: Path, files: Sequence[str]) -> list[SkillFinding]:
    """Dead, absolute and escaping links in all of a skill's Markdown files.

    A path may be relative to its file or to the skill's root. Web links are never fetched; code and HTML
    comments contain no links.
    """
    present = {str(path) for name in files for path in (PurePosixPath(name), *PurePosixPath(name).parents)}
    found: list[SkillFinding] = []
    for name in files:
        if name.endswith(".md"):
            text = (directory / name).read_bytes().decode("utf-8", errors="replace").replace("\r\n", "\n")
            for line, target in sorted(set(_links(text))):
                found += _link_findings(name, line, target, present)
    return found


def _links(text: str) -> Iterator[tuple[int, str]]:
    """1-based line and target of links and images."""
    env: dict[str, dict[str, dict[str, object]]] = {}
    blank = _FRONTMATTER.sub(lambda match: "\n" * match[0].count("\n"), text)
    line = 1
    for block in _MARKDOWN.parse(blank, env):
        line = block.map[0] + 1 if block.map else line
        at = line
        for token in block.children or ():
            if token.type in ("softbreak", "hardbreak"):
                at += 1
            elif token.type in ("link_open", "image"):
                yield at, str(token.attrs.get("href", token.attrs.get("src")))
    for definition in env.get("references", {}).values():
        lines = definition["map"]
        assert isinstance(lines, list)
        yield lines[0] + 1, str(definition["href"])


def _link_findings(file: str, line: int, target: str, present: Collection[str]) -> Iterator[SkillFinding]:
    path = unquote(target.partition("#")[0].partition("?")[0])
    if not path or _SCHEME.match(target) or target.startswith("//") or _PLACEHOLDER.search(path):
        return
    if path.startswith(("/", "~")):
        yield warning(file, line, f"the link {target!r} is absolute: use a path relative to this file")
        return
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
    resolved = next((place for place in (beside, posixpath.normpath(path)) if place in present), None)
    if resolved is not None:
        if resolved.count("/") > 1:
            yield warning(file, line, f"the link {target!r} is more than one level deep")
    elif beside.startswith(".."):
        message = f"the link {target!r} leaves the skill's directory: the skill alone lacks it"
        yield warning(file, line, message)
    else:
        yield error(file, line, f"the link {target!r} points at nothing in the skill")
