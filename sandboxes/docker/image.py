"""The images that Docker jobs run in: provenance, and local copies of the files that the harness reads.

A copy (`view`) appears by one rename, holds regular files and links only, and no link leads out of it:

    <cache>/images/<first 12 digits of the image ID>/usr/lib/...
"""

from __future__ import annotations

import fnmatch
import io
import json
import os
import posixpath
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

import docker
import docker.errors

from harness.errors import SandboxError
from harness.locks import locked
from sandboxes.docker.engine import engine_errors, owner_labels

Role = Literal["build", "run", "run_jit"]

DESCRIPTION: Final = "/opt/liftbench/toolchain.json"
_LABEL: Final = "org.liftbench.image"
_DESCRIPTION_BYTES: Final = 1 << 20
# A CPU-only torch makes 12,000 files and 0.7 GB; the libraries of a CUDA torch have 5 GB.
_VIEW_FILES: Final = 200_000
_VIEW_BYTES: Final = 32 << 30
_VIEWS_KEPT: Final = 3
_PIECE: Final = 1 << 20
_COPYING_S: Final = 3600  # 7 s for 0.7 GB


def reference(role: Role, version: str, name: str = "liftbench") -> str:
    """The name that `make image` gives to the image of `role`, such as liftbench/build:0.1.0."""
    return f"{name}/{role}:{version}"


class Image:
    """An image on this machine."""

    def __init__(self, client: docker.DockerClient, reference: str) -> None:
        """Raises SandboxError where the engine has no such image, or fails."""
        self.reference = reference
        self._client = client
        with engine_errors(f"inspect {reference}"):
            try:
                self._attributes: dict[str, Any] = client.images.get(reference).attrs
            except docker.errors.ImageNotFound:
                raise SandboxError(f"the engine has no image {reference}: make image") from None

    @property
    def id(self) -> str:
        return str(self._attributes["Id"])

    @property
    def layers(self) -> list[str]:
        """Layer digests, which do not depend on the time of the build."""
        return [str(layer) for layer in (self._attributes.get("RootFS") or {}).get("Layers") or []]

    def provenance(self) -> dict[str, str]:
        labels: dict[str, str] = (self._attributes.get("Config") or {}).get("Labels") or {}
        facts = {
            "image": self.reference,
            "image_id": self.id,
            "layers": " ".join(self.layers),
            "created": str(self._attributes.get("Created", "")),
            "version": labels.get(f"{_LABEL}.version", ""),
            "role": labels.get(f"{_LABEL}.role", ""),
        }
        return {name: value for name, value in facts.items() if value}

    def read(self, path: str, limit: int = _DESCRIPTION_BYTES) -> bytes:
        """One small file. Raises SandboxError."""
        with self._container() as container, _archive(container, path) as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isreg() else None
                if stream is not None and member.size <= limit:
                    return stream.read()
        raise SandboxError(f"{path} of {self.reference} is no file of at most {limit} bytes: make image")

    def description(self) -> bytes:
        """Its JSON description of the toolchain. Raises SandboxError."""
        return self.read(DESCRIPTION)

    def view(self, cache: Path) -> Path:
        """A directory with the files that its description lists; made once. Raises SandboxError."""
        place = cache / "images" / self.id.removeprefix("sha256:")[:12]
        place.parent.mkdir(parents=True, exist_ok=True)
        with locked(place.with_suffix(".lock"), f"the copy of files from image {self.reference}"):
            if not place.is_dir():
                fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
                try:
                    self._fill(fresh)
                    fresh.chmod(0o755)
                    fresh.rename(place)
                except OSError as error:
                    shutil.rmtree(fresh, ignore_errors=True)
                    raise SandboxError(f"no copy of {self.reference} in {place.parent}: {error}") from error
                except BaseException:
                    shutil.rmtree(fresh, ignore_errors=True)
                    raise
            os.utime(place)
            _drop_old(place.parent)
        return place

    def _fill(self, folder: Path) -> None:
        trees, links = _listed(self.description(), self.reference)
        writer = _Writer(folder)
        with self._container() as container:
            for tree in trees:
                with _archive(container, tree.path) as archive:
                    for member in archive:
                        writer.add(member, archive, tree)
        for path, target in links.items():
            writer.link(_inside(path), target)

    @contextmanager
    def _container(self) -> Iterator[Any]:
        """A container that is never started, to copy files out of it."""
        with engine_errors(f"read files of {self.reference}"):
            container = self._client.containers.create(
                self.id, command=["/none"], network_disabled=True, labels=owner_labels("view", _COPYING_S)
            )
            try:
                yield container
            finally:
                container.remove(force=True)


def _drop_old(folder: Path) -> None:
    """Keep only the views used last; one takes 0.7 GB and more."""
    views = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    views.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    for old in views[_VIEWS_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


@dataclass(frozen=True)
class _Tree:
    """A directory, or one file, of the image."""

    path: str
    names: str
    deep: bool


def _listed(description: bytes, name: str) -> tuple[list[_Tree], dict[str, str]]:
    """Trees and links (path -> target). Raises SandboxError for an invalid description."""
    try:
        view = json.loads(description)["view"]
        trees = [_Tree(str(t["path"]), str(t["names"]), bool(t["deep"])) for t in view["trees"]]
        links = {str(path): str(target) for path, target in view["links"].items()}
        for path in (*(tree.path for tree in trees), *links):
            _inside(path)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SandboxError(f"{DESCRIPTION} of {name} is invalid ({error!r}): make image") from None
    return trees, links


def _inside(path: str) -> tuple[str, ...]:
    """The parts of an absolute path. Raises ValueError for one that could lead elsewhere."""
    pure = PurePosixPath(path)
    if not pure.is_absolute() or ".." in pure.parts or "\0" in path or len(pure.parts) < 2:
        raise ValueError(f"path {path[:200]!r}")
    return pure.parts[1:]


class _Writer:
    """Writes members of archives below one folder, never through a link."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._directories: set[tuple[str, ...]] = {()}
        self._files = 0
        self._bytes = 0

    def add(self, member: tarfile.TarInfo, archive: tarfile.TarFile, tree: _Tree) -> None:
        """Write a file or link that `tree` includes. Raises SandboxError for an invalid member."""
        below = PurePosixPath(member.name).parts[1:]  # the first part is the tree's own name
        if ".." in below or PurePosixPath(member.name).is_absolute():
            raise SandboxError(f"an archive of the image has a member {member.name[:200]!r}")
        parts = (*_inside(tree.path), *below)
        if (len(below) > 1 and not tree.deep) or not fnmatch.fnmatchcase(parts[-1], tree.names):
            return
        if member.issym():
            self.link(parts, member.linkname)
        elif member.isreg():
            stream = archive.extractfile(member)
            assert stream is not None  # it is a regular file
            self._count(member.size)
            with self._target(parts).open("xb") as sink:
                shutil.copyfileobj(stream, sink, _PIECE)
                os.fchmod(sink.fileno(), 0o444)
        # Directories are made for their files; hard links are skipped.

    def link(self, parts: tuple[str, ...], target: str) -> None:
        """Write a link that resolves within this folder as it does in the image, unless the path exists."""
        # `..` stops at the top, as in a root directory.
        absolute = posixpath.normpath(posixpath.join("/", *parts[:-1], target)).lstrip("/")
        place = self._target(parts)
        if not os.path.lexists(place):
            self._count(0)
            place.symlink_to("../" * (len(parts) - 1) + absolute or ".")

    def _target(self, parts: tuple[str, ...]) -> Path:
        """The path of a file; its directories are made, and must not be links."""
        for depth in range(1, len(parts)):
            if parts[:depth] not in self._directories:
                directory = self._folder.joinpath(*parts[:depth])
                directory.mkdir(mode=0o755, exist_ok=True)
                if directory.is_symlink():
                    raise SandboxError(f"/{'/'.join(parts)} of the image lies behind a link")
                self._directories.add(parts[:depth])
        return self._folder.joinpath(*parts)

    def _count(self, size: int) -> None:
        self._files += 1
        self._bytes += size
        if self._files > _VIEW_FILES or self._bytes > _VIEW_BYTES:
            raise SandboxError(f"the image lists over {_VIEW_FILES} files or {_VIEW_BYTES} bytes to be read")


@contextmanager
def _archive(container: Any, path: str) -> Iterator[tarfile.TarFile]:
    try:
        pieces, _ = container.get_archive(path, chunk_size=_PIECE)
        with tarfile.open(fileobj=io.BufferedReader(_Stream(pieces), _PIECE), mode="r|") as archive:
            yield archive
    except (tarfile.TarError, EOFError) as error:
        raise SandboxError(f"the engine's archive of {path} cannot be read: {error}") from error


class _Stream(io.RawIOBase):
    """An iterator of bytes as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
