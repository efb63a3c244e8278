"""The Docker engine: connecting, refusing unsuitable ones, explaining errors, removing orphaned containers.

An accepted engine runs on this machine's kernel, since descriptors are passed over unix sockets.
"""

from __future__ import annotations

import fnmatch
import json
import os
import posixpath
import shutil
import socket
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, cast

import docker
import docker.errors

from harness.errors import SandboxError
from harness.files import directory_atomically
from harness.locks import locked
from sandboxes.job import RoleName
from sandboxes.orphans import Owner

_MARK: Final = "org.liftbench.job"
_OWNER: Final = "org.liftbench.owner"

_DEFAULT_SOCKET: Final = "unix:///var/run/docker.sock"
_CALL_S: Final = 120.0  # starting a container took 8 s on a machine with a load of 8
_CONNECTIONS: Final = 64  # each live container holds one in wait(); room for 32 containers and as many calls
_BRIDGES: Final = "descriptors cannot be passed to processes of another machine"
_SILENT: Final = "the Docker engine at {} does not answer ({}): is it running?"
_INSTEAD: Final = "use an engine on this machine, or --sandbox bubblewrap"
# An APIError is both; broken connections and timeouts of `requests` are OSErrors.
ENGINE_ERRORS: Final = (docker.errors.DockerException, OSError)


@dataclass(frozen=True)
class DockerEngine:
    client: docker.DockerClient
    address: Path
    info: Mapping[str, Any]

    @classmethod
    def connect(cls, environment: Mapping[str, str]) -> DockerEngine:
        """The engine that `environment` (DOCKER_HOST) names. Raises SandboxError, with advice."""
        address = environment.get("DOCKER_HOST") or _DEFAULT_SOCKET
        if not address.startswith("unix://"):
            raise SandboxError(f"DOCKER_HOST is {address}: {_BRIDGES}; {_INSTEAD}")
        path = Path(address.removeprefix("unix://"))
        _check_reachable(path)
        try:
            client = docker.DockerClient(
                base_url=address, version="auto", timeout=_CALL_S, max_pool_size=_CONNECTIONS
            )
            info = client.info()
        except ENGINE_ERRORS as error:
            raise SandboxError(_SILENT.format(path, error)) from error
        refused = refusal(info)
        if refused is not None:
            client.close()
            raise SandboxError(f"the Docker engine at {path} {refused}")
        return cls(client, path, info)

    @property
    def api(self) -> docker.APIClient:
        return self.client.api

    def facts(self) -> dict[str, str]:
        info = self.info
        return {
            "engine": f"docker {info.get('ServerVersion', '?')}",
            "engine_cgroups": f"version {info.get('CgroupVersion', '1')}, {info.get('CgroupDriver', '?')}",
            "engine_security": ", ".join(_security(info)),
            "engine_runtime": str(info.get("DefaultRuntime", "?")),
        }

    def close(self) -> None:
        self.client.close()


def _check_reachable(path: Path) -> None:
    try:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.settimeout(_CALL_S)
            tried.connect(str(path))
    except PermissionError as error:
        raise SandboxError(
            f"no permission to use the Docker engine at {path}: add yourself to the group docker "
            "(sudo usermod -aG docker $USER, then log in again); that group is as powerful as root"
        ) from error
    except FileNotFoundError as error:
        raise SandboxError(
            f"there is no Docker engine at {path}: apt-get install docker.io and start it, "
            "or set DOCKER_HOST to the socket of one"
        ) from error
    except OSError as error:
        raise SandboxError(_SILENT.format(path, error.strerror or error)) from error


def refusal(info: Mapping[str, Any]) -> str | None:
    """Why an engine with this `info` cannot be used, or None."""
    kernel, security = info.get("KernelVersion"), _security(info)
    if kernel != os.uname().release:
        return f"runs on another kernel ({kernel}), as Docker Desktop does: {_BRIDGES}; {_INSTEAD}"
    if "rootless" in security:
        return (
            "is rootless: its users are not those of this machine, so a job's files could not be filled "
            "or read. --sandbox bubblewrap isolates as well without root"
        )
    if "userns" in security:
        return (
            "maps users (userns-remap): its users are not those of this machine, so the user that "
            "connects could not be checked. Start a second engine without userns-remap and set DOCKER_HOST"
        )
    if "seccomp" not in security:
        return f"has no seccomp: it cannot refuse system calls; {_INSTEAD}"
    if not info.get("MemoryLimit", True) or not info.get("PidsLimit", True):
        return f"cannot limit memory or processes (no control groups); {_INSTEAD}"
    return None


def _security(info: Mapping[str, Any]) -> list[str]:
    options = [str(option) for option in info.get("SecurityOptions") or []]
    return [option.removeprefix("name=").partition(",")[0] for option in options]


@contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Turn the engine's failures into SandboxError, with advice."""
    try:
        yield
    except ENGINE_ERRORS as error:
        raise SandboxError(f"the Docker engine failed to {what}: {explained(error)}") from error


def explained(error: Exception) -> str:
    text = " ".join(str(getattr(error, "explanation", None) or error).split())
    for sign, advice in _ADVICE.items():
        if sign in text.lower():
            return f"{text}: {advice}"
    return text


_ADVICE: Final = {
    "no space left": "its disk is full; docker system df shows on what, docker system prune makes room",
    "no such image": "make image",
    "could not select device driver": "install the NVIDIA Container Toolkit and restart the engine",
    "connection aborted": "it is gone; start it again, the trial will be repeated",
    "timed out": "restart it",
    "connection refused": "it is gone; start it again, the trial will be repeated",
}


def owner_labels(mark: str) -> dict[str, str]:
    return {_MARK: mark, _OWNER: str(Owner.current())}


def is_orphan(labels: Mapping[str, str]) -> bool:
    """Whether a container has outlived its owner. One whose owner is not visible is kept."""
    owner = Owner.parse(labels.get(_OWNER, ""))
    return owner is None or owner.is_dead()


def remove_orphan_containers(engine: DockerEngine) -> None:
    """Remove containers of dead harnesses. Raises SandboxError."""
    with engine_errors("list containers"):
        found = engine.api.containers(all=True, filters={"label": _MARK})
    for entry in found:
        if not is_orphan(entry.get("Labels") or {}):
            continue
        with engine_errors("remove a container of a dead harness"):
            try:
                engine.api.remove_container(entry["Id"], force=True, v=True)
            except docker.errors.APIError as error:
                if error.status_code not in (404, 409):  # somebody else has removed it, or is removing it
                    raise


DESCRIPTION: Final = "/opt/liftbench/toolchain.json"
_LABEL: Final = "org.liftbench.image"
_DESCRIPTION_BYTES: Final = 1 << 20
_VIEWS_KEPT: Final = 3
_PIECE: Final = 1 << 20


def reference(role: RoleName, version: str, name: str = "liftbench") -> str:
    """The name that `make image` gives to the image of `role`, such as liftbench/build:0.1.0."""
    return f"{name}/{role}:{version}"


class Image:
    def __init__(self, client: docker.DockerClient, reference: str) -> None:
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
        return [str(layer) for layer in self._attributes["RootFS"].get("Layers") or []]

    def provenance(self) -> dict[str, str]:
        labels: dict[str, str] = self._attributes["Config"].get("Labels") or {}
        facts = {
            "image": self.reference,
            "image_id": self.id,
            "layers": " ".join(self.layers),
            "created": str(self._attributes.get("Created", "")),
            "version": labels.get(f"{_LABEL}.version", ""),
            "role": labels.get(f"{_LABEL}.role", ""),
        }
        return {name: value for name, value in facts.items() if value}

    def description(self) -> bytes:
        """Its JSON description of the toolchain. Raises SandboxError."""
        with self._container() as container, _archive(container, DESCRIPTION) as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isreg() else None
                if stream is not None and member.size <= _DESCRIPTION_BYTES:
                    return stream.read()
        raise SandboxError(
            f"{DESCRIPTION} of {self.reference} is no file of at most {_DESCRIPTION_BYTES} bytes: make image"
        )

    def view(self, cache: Path) -> Path:
        """A directory with the files that its description lists; made once. Raises SandboxError."""
        place = cache / "images" / self.id.removeprefix("sha256:")[:12]
        place.parent.mkdir(parents=True, exist_ok=True)
        with locked(place.with_suffix(".lock"), f"the copy of files from image {self.reference}"):
            if not place.is_dir():
                try:
                    with directory_atomically(place) as fresh:
                        self._fill(fresh.resolve())
                        fresh.chmod(0o755)
                except OSError as error:
                    raise SandboxError(f"no copy of {self.reference} in {place.parent}: {error}") from error
            os.utime(place)
            _drop_old(place.parent)
        return place

    def _fill(self, folder: Path) -> None:
        trees, links = _listed(self.description(), self.reference)
        with self._container() as container:
            for tree in trees:
                with _archive(container, tree.path) as archive:
                    for member in archive:
                        _write(folder, member, archive, tree)
        for path, target in links.items():
            _link(folder, _inside(path), target)

    @contextmanager
    def _container(self) -> Iterator[Any]:
        with engine_errors(f"read files of {self.reference}"):
            container = self._client.containers.create(
                self.id, command=["/none"], network_disabled=True, labels=owner_labels("view")
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


def _write(folder: Path, member: tarfile.TarInfo, archive: tarfile.TarFile, tree: _Tree) -> None:
    """Write a file or link that `tree` includes. Raises SandboxError for an invalid member."""
    below = PurePosixPath(member.name).parts[1:]  # the first part is the tree's own name
    if ".." in below or PurePosixPath(member.name).is_absolute():
        raise SandboxError(f"an archive of the image has a member {member.name[:200]!r}")
    parts = (*_inside(tree.path), *below)
    if (len(below) > 1 and not tree.deep) or not fnmatch.fnmatchcase(parts[-1], tree.names):
        return
    if member.issym():
        _link(folder, parts, member.linkname)
    elif member.isreg():
        stream = archive.extractfile(member)
        assert stream is not None  # it is a regular file
        with _place(folder, parts).open("xb") as sink:
            shutil.copyfileobj(stream, sink, _PIECE)
            os.fchmod(sink.fileno(), 0o444)
    # Directories are made for their files; hard links are skipped.


def _link(folder: Path, parts: tuple[str, ...], target: str) -> None:
    """Write a link that resolves within this folder as it does in the image, unless the path exists."""
    # `..` stops at the top, as in a root directory.
    absolute = posixpath.normpath(posixpath.join("/", *parts[:-1], target)).lstrip("/")
    place = _place(folder, parts)
    if not os.path.lexists(place):
        place.symlink_to("../" * (len(parts) - 1) + absolute or ".")


def _place(folder: Path, parts: tuple[str, ...]) -> Path:
    """The path of a file; its directories are made, and must not be links."""
    place = folder.joinpath(*parts)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.parent.resolve() != place.parent:
        raise SandboxError(f"/{'/'.join(parts)} of the image lies behind a link")
    return place


@contextmanager
def _archive(container: Any, path: str) -> Iterator[tarfile.TarFile]:
    try:
        pieces, _ = container.get_archive(path, chunk_size=_PIECE)
        with tarfile.open(fileobj=cast(IO[bytes], _Stream(pieces)), mode="r|", bufsize=_PIECE) as archive:
            yield archive
    except (tarfile.TarError, EOFError) as error:
        raise SandboxError(f"the engine's archive of {path} cannot be read: {error}") from error


class _Stream:
    """An iterator of bytes as a file, which tarfile reads in blocks of _PIECE."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (piece := next(self._pieces, b"")):
            self._rest += piece
        found, self._rest = self._rest[:size], self._rest[size:]
        return found
