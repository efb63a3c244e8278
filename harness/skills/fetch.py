"""Fetches a skill at one commit of a git repository.

Files are read from git's objects, never checked out: no hook, filter, submodule or attribute of the
repository takes effect. Each skill lies below the digest of its content, which is compared when it is loaded
by its name.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from harness.errors import DownloadError, UsageError
from harness.files import directory_atomically, unsafe_path, write_atomically
from harness.records import Record
from harness.skills.frontmatter import FrontmatterError, decode, parse
from harness.skills.install import Contents, write_contents
from harness.skills.spec import FILE, SOURCE, LoadedSkill, fetched_root, read_skill
from harness.text import clean

_FORM: Final = "write URL@COMMIT or URL@TAG, with :FOLDER where the repository has several skills"
_URL: Final = re.compile(r"(?:https|ssh|file)://[^\s]+|[\w.-]+@[\w.-]+:(?!/)[^\s]+")
_REVISION: Final = re.compile(r"[A-Za-z0-9_][\w./+-]*")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_SIZE_LIMIT: Final = 64 << 20
_FILES_LIMIT: Final = 5_000
_TIMEOUT_S: Final = 600.0
_KEPT: Final = ("GIT_SSH", "GIT_SSL", "GIT_ASKPASS", "GIT_CONFIG", "GIT_PROXY")
_SAFE: Final = ("core.hooksPath=/dev/null", "submodule.recurse=false", "fetch.recurseSubmodules=false")


class Source(Record):
    """Where a fetched skill comes from."""

    url: str
    revision: str
    """As requested: a commit, tag or branch."""
    commit: str
    """40 hexadecimal digits."""
    folder: str
    """In the repository; empty for its root."""


@dataclass(frozen=True)
class Request:
    """`URL@REVISION[:FOLDER]`; folder is None where none is named."""

    url: str
    revision: str
    folder: str | None

    @classmethod
    def parse(cls, text: str) -> Request:
        """Raises UsageError for any other form, and for a URL with a password or of another protocol."""
        url, at, rest = text.rpartition("@")
        revision, colon, folder = rest.partition(":")
        if not at or not _URL.fullmatch(url) or not _REVISION.fullmatch(revision):
            raise UsageError(f"{clean(text)}: {_FORM} (https://, ssh://, file:// or git@host:path)")
        if re.match(r"(https|file)://[^/]*@|ssh://[^/]*:[^/]*@", url):
            raise UsageError("the URL holds a user name or password: let git's credential helper give it")
        folder = folder.strip("/")
        if colon and (not folder or unsafe_path(folder)):
            raise UsageError(f"{clean(text)}: {clean(folder) or 'the folder'} is no folder of a repository")
        return cls(url, revision, folder if colon else None)


class _Entry(NamedTuple):
    mode: str
    kind: str
    digest: str
    size_bytes: int


def source_of(directory: Path) -> Source:
    """Of a fetched skill."""
    return Source.model_validate_json((directory.parent / SOURCE).read_text())


def fetch(request: Request) -> LoadedSkill:
    """Fetch a skill into the user's cache; again, it is replaced.

    Raises UsageError for what is no skill or cannot be copied whole; DownloadError if git fails.
    """
    source, name, contents = read_repository(request)
    root = fetched_root()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=root) as made:
        write_contents(contents, Path(made) / name)
        skill = read_skill(Path(made) / name)
        with directory_atomically(root / skill.digest) as fresh:
            (Path(made) / name).rename(fresh / name)
            write_atomically(fresh / SOURCE, source.model_dump_json(indent=1) + "\n")
    return LoadedSkill(skill, root / skill.digest / name)


def read_repository(request: Request) -> tuple[Source, str, Contents]:
    """The source, the skill's name and its files: relative path -> (bytes, executable)."""
    if shutil.which("git") is None:
        raise UsageError("git is not installed, and fetching a skill needs it: install git, or pass a folder")
    with tempfile.TemporaryDirectory(prefix="liftbench-fetch-") as made:
        repository = Path(made)
        _git(repository, "init", "--quiet", "--bare", "--template=")
        commit = _commit_of(repository, request)
        _git(repository, "fetch", "--quiet", "--depth=1", "--no-tags", "--", request.url, commit)
        tree = _tree(repository, commit)
        folder = _skill_folder(request, tree)
        source = Source(url=request.url, revision=request.revision, commit=commit, folder=folder)
        contents = _contents(repository, folder, tree)
    try:
        field = parse(decode(contents[FILE][0])).fields.get("name")
    except FrontmatterError as fault:
        raise UsageError(f"{posixpath.join(folder, FILE)} of {request.url}: {fault.message}") from None
    name = posixpath.basename(folder) or (field.text if field is not None and field.text else "")
    if not re.fullmatch(r"[\w][\w.-]*", name):
        raise UsageError(f"{request.url}: the skill's name {clean(name)!r} is no folder's name")
    return source, name, contents


def _git(repository: Path, *arguments: str, given: bytes = b"") -> bytes:
    """Output of a git command that asks nothing and runs no hook. Raises DownloadError."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k.startswith(_KEPT)}
    safe = [word for setting in _SAFE for word in ("-c", setting)]
    try:
        done = subprocess.run(
            ["git", *safe, *arguments],
            cwd=repository,
            env=kept | {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:ssh:file", "LC_ALL": "C"},
            input=given,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DownloadError(f"git {arguments[0]} took longer than {_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        lines = clean(done.stderr.decode(errors="replace")).strip().splitlines()
        told = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines[-1:]
        raise DownloadError(f"git {arguments[0]} failed: {' '.join(told) or 'no message'}")
    return done.stdout


def _commit_of(repository: Path, request: Request) -> str:
    """The commit itself, or what a tag or branch of the remote names. Raises UsageError."""
    wanted = request.revision
    if _COMMIT.fullmatch(wanted):
        return wanted
    listed = _git(repository, "ls-remote", "--", request.url).decode(errors="replace")
    refs = {name: digest for digest, _, name in (line.partition("\t") for line in listed.splitlines())}
    tag = refs.get(f"refs/tags/{wanted}^{{}}", refs.get(f"refs/tags/{wanted}"))
    branch = refs.get("HEAD") if wanted == "HEAD" else refs.get(f"refs/heads/{wanted}")
    if tag and branch and tag != branch:
        raise UsageError(
            f"{wanted} is a tag ({tag}) and a branch ({branch}) of {request.url}: give the commit"
        )
    found = tag or branch
    if found is None:
        raise UsageError(
            f"{request.url} has no tag or branch {wanted}: give one, or a commit's 40 hexadecimal digits"
        )
    return found


def _tree(repository: Path, commit: str) -> dict[str, _Entry]:
    """Path -> entry, of the whole commit."""
    found = {}
    for record in _git(repository, "ls-tree", "-r", "-z", "-l", "--full-tree", commit).split(b"\0"):
        facts, tab, path = record.partition(b"\t")
        if tab:
            mode, kind, digest, size = facts.decode().split()
            found[path.decode(errors="surrogateescape")] = _Entry(
                mode, kind, digest, int(size.strip("-") or 0)
            )
    return found


def _skill_folder(request: Request, tree: Mapping[str, _Entry]) -> str:
    """The named folder, or the repository's only skill. Raises UsageError with the folders that there are."""
    folders = sorted(posixpath.dirname(path) for path in tree if posixpath.basename(path) == FILE)
    listed = ", ".join(map(clean, folders[:20])) + (" ..." if len(folders) > 20 else "")
    if request.folder is not None:
        if request.folder not in folders:
            raise UsageError(f"{request.folder} has no {FILE}; the skills are in: {listed or 'no folder'}")
        return request.folder
    if "" in folders:
        return ""
    if len(folders) != 1:
        how = f"several skills, name one with :FOLDER: {listed}" if folders else f"no {FILE}"
        raise UsageError(f"{request.url} has {how}")
    return folders[0]


def _contents(repository: Path, folder: str, tree: Mapping[str, _Entry]) -> Contents:
    """The files of a folder; a link becomes the file that it points at. Raises UsageError."""
    prefix = f"{folder}/" if folder else ""
    inside = {path.removeprefix(prefix): entry for path, entry in tree.items() if path.startswith(prefix)}
    if len(inside) > _FILES_LIMIT or sum(entry.size_bytes for entry in inside.values()) > _SIZE_LIMIT:
        raise UsageError(f"the skill is above {_FILES_LIMIT:,} files or {_SIZE_LIMIT >> 20} MiB")
    for path, entry in inside.items():
        why = "is a submodule" if entry.kind != "blob" else unsafe_path(path)
        if why is None and not path.isprintable():
            why = "has an unprintable name"
        if why is not None:
            raise UsageError(f"{clean(prefix + path)} {why}: the skill cannot be fetched whole")
    blobs = _blobs(repository, [entry.digest for entry in inside.values()])
    found: Contents = {}
    for path, entry in inside.items():
        if entry.mode == "120000":
            entry = inside[_linked(path, blobs[entry.digest], inside)]
        data = blobs[entry.digest]
        if data.startswith(_POINTER):
            raise UsageError(f"{prefix}{path} is a Git LFS pointer: its content is not in the repository")
        found[path] = data, entry.mode == "100755"
    return found


def _linked(path: str, target: bytes, inside: Mapping[str, _Entry]) -> str:
    """The file of the skill that a link points at. Raises UsageError for any other link."""
    text = target.decode(errors="replace")
    meant = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
    if text.startswith("/") or meant not in inside or inside[meant].mode == "120000":
        raise UsageError(f"{path} is a link to {clean(text)!r}, which is no file of the skill: refused")
    return meant


def _blobs(repository: Path, digests: Sequence[str]) -> dict[str, bytes]:
    """Contents by git digest."""
    wanted = list(dict.fromkeys(digests))
    output = _git(repository, "cat-file", "--batch", given="".join(f"{d}\n" for d in wanted).encode())
    found, at = {}, 0
    for digest in wanted:
        end = output.index(b"\n", at)
        size = int(output[at:end].split()[2])
        found[digest] = output[end + 1 : end + 1 + size]
        at = end + size + 2
    return found
