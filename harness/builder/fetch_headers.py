"""Fetches header files out of PyPI wheels by HTTP range requests: a few MB instead of gigabytes of libraries.

Everything that the network returns is limited before it is read. zipfile checks every file's CRC, and the
SHA-256 of a wheel is checked if it was read whole.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import re
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from harness.builder.headers import (
    INCLUDE,
    MANIFEST,
    ON_PYPI,
    UTIL_INCLUDE,
    WHEEL_SOURCE,
    HeaderSet,
    Manifest,
    Source,
    cuda_set,
    load_headers,
    torch_set,
)
from harness.builder.toolchain import CUDA_EXTRA, CudaToolkit, Toolchain
from harness.errors import DownloadError, UsageError
from harness.files import directory_atomically

# Libraries whose headers torch and public kernels include and nvcc's wheels lack, each with a header that
# tells whether it is there already.
LIBRARIES: Final = {
    "nvidia-cublas": "cublas_v2.h",
    "nvidia-cusparse": "cusparse.h",
    "nvidia-cusolver": "cusolverDn.h",
    "nvidia-curand": "curand_kernel.h",
    "nvidia-cufft": "cufft.h",
    "nvidia-nvjitlink": "nvJitLink.h",
    "nvidia-cuda-nvrtc": "nvrtc.h",
    "nvidia-nvtx": "nvtx3/nvToolsExt.h",
    "nvidia-nvml-dev": "nvml.h",
    "nvidia-cuda-profiler-api": "cuda_profiler_api.h",
}
_META: Final = "cuda-toolkit"
"""Its releases name the version of each library that belongs to a release of nvcc."""
# The largest known header is nvml.h with 0.7 MB, the largest set CUTLASS 4.2 with 1,000 files and 30 MB.
_FILE_LIMIT: Final = 8 << 20
_SET_LIMIT: Final = 128 << 20


class _Part(NamedTuple):
    """Files of one wheel."""

    wheel: Wheel
    places: Mapping[str, str]
    """Prefix in the wheel (`*` is one folder) -> folder in the set."""
    skip: Path | None = None
    """Files that this folder already has are left out."""


@dataclass(frozen=True)
class Fetcher:
    """Fetches header sets into `root` from the index `index`; `say` receives progress messages."""

    root: Path
    index: str
    say: Callable[[str], None]

    def cuda(self, toolchain: Toolchain) -> list[HeaderSet]:
        """The headers that `toolchain` lacks for CUDA builds: those of CUDA's libraries, and torch's own.

        Raises UsageError without nvcc or torch, whose versions must be matched, and DownloadError.
        """
        if toolchain.cuda is None or toolchain.torch_root is None:
            raise UsageError(
                "headers cuda: there is no nvcc or no torch whose version could be matched: "
                f"pip install torch; {CUDA_EXTRA}"
            )
        machine = toolchain.platform.partition("-")[0]
        found = [self._libraries(toolchain.cuda, machine), self._torch(toolchain, machine)]
        return [headers for headers in found if headers is not None]

    def cutlass(self, name: str) -> HeaderSet:
        """CUTLASS for `depends = [name]`. Raises UsageError for what PyPI does not have, DownloadError."""
        if name not in ON_PYPI:
            known = ", ".join(ON_PYPI)
            raise UsageError(
                f"headers {name}: PyPI has {known}; for others set CUTLASS_SRC_DIR to a checkout"
            )
        places = {f"{WHEEL_SOURCE}/{place}/": place for place in (INCLUDE, UTIL_INCLUDE)}

        def parts() -> list[_Part]:
            package = f"nvidia-cutlass=={ON_PYPI[name]}"
            return [_Part(self._wheels(package)[0], places)]

        return self._load_or_store(name, parts)

    def _libraries(self, cuda: CudaToolkit, machine: str) -> HeaderSet | None:
        name = cuda_set(cuda.release)
        folders = [p for p in (cuda.include, cuda.math_include) if p is not None]
        wanted = [n for n, header in LIBRARIES.items() if not any((p / header).is_file() for p in folders)]
        if not wanted:
            self.say(f"{name}: the toolkit has all headers, nothing to fetch")
            return None

        def parts() -> list[_Part]:
            versions = self._versions(cuda)
            # The oldest that fit, so that later uploads do not change what is fetched.
            wheels = (self._wheels(f"{package}{versions[package]}", machine)[0] for package in wanted)
            return [_Part(wheel, {"nvidia/*/include/": INCLUDE}) for wheel in wheels]

        return self._load_or_store(name, parts)

    def _versions(self, cuda: CudaToolkit) -> dict[str, SpecifierSet]:
        """Package -> version, from the newest cuda-toolkit of this release of nvcc."""
        release = f"{cuda.release[0]}.{cuda.release[1]}"
        for wheel in reversed(self._wheels(f"{_META}=={release}.*")):
            with open_wheel(wheel) as archive:
                infos = [i for i in archive.infolist() if i.filename.endswith("METADATA")]
                text = "".join(_content(archive, info).decode(errors="replace") for info in infos)
            try:
                needed = [Requirement(line) for line in re.findall(r"^Requires-Dist: (.+)$", text, re.M)]
            except InvalidRequirement as error:
                raise DownloadError(f"{wheel.url}: {error}") from error
            versions = {one.name: one.specifier for one in needed}
            if set(LIBRARIES) <= set(versions):
                return versions
        raise DownloadError(
            f"{self.index} has no {_META} that names the libraries of CUDA {release} (there are some since "
            "13.0): put a whole CUDA toolkit on this machine"
        )

    def _torch(self, toolchain: Toolchain, machine: str) -> HeaderSet | None:
        """From the CUDA wheel of the same torch: every header that the installed one lacks."""
        assert toolchain.torch_root is not None and toolchain.torch_version is not None
        name = torch_set(toolchain.torch_version)
        if toolchain.torch_cuda is not None:
            self.say(f"{name}: torch {toolchain.torch_version} has its own CUDA headers, nothing to fetch")
            return None
        version = toolchain.torch_version.partition("+")[0]
        python = "cp" + "".join(toolchain.python_version.split(".")[:2])
        skip = toolchain.torch_root / "include"

        def parts() -> list[_Part]:
            wheels = self._wheels(f"torch==={version}", machine)  # not 2.13.0+cpu
            wheel = next((w for w in wheels if any(t.abi == python for t in w.tags)), wheels[0])
            return [_Part(wheel, {"torch/include/": INCLUDE}, skip)]

        return self._load_or_store(name, parts)

    def _wheels(self, requirement: str, machine: str = "") -> list[Wheel]:
        """The wheels that meet a requirement such as torch==2.13.0, oldest first; at least one."""
        wanted = Requirement(requirement)
        found = [w for w in list_wheels(self.index, wanted.name) if w.version in wanted.specifier]
        found = [w for w in found if w.fits(machine)]
        if not found:
            raise DownloadError(f"{self.index} has no wheel of {requirement} for {machine or 'any'} Linux")
        return sorted(found, key=lambda w: w.version)

    def _load_or_store(self, name: str, parts: Callable[[], Sequence[_Part]]) -> HeaderSet:
        """The set `name`, fetched unless it is there; `parts` asks the index."""
        present = load_headers(self.root, name)
        if present is not None:
            self.say(f"{name}: already there ({present.root}); delete the folder to fetch it again")
            return present
        wanted = parts()
        self.root.mkdir(parents=True, exist_ok=True)
        with directory_atomically(self.root / name) as fresh:
            manifest = self._fill(fresh, name, wanted)
            (fresh / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n")
            for path in (fresh, *fresh.rglob("*")):  # a sandbox's user must be able to read them
                path.chmod(0o755 if path.is_dir() else 0o644)
        stored = load_headers(self.root, name)
        assert stored is not None, "a manifest was just written"
        self.say(f"{name}: {len(manifest.files)} files in {stored.root}")
        return stored

    def _fill(self, folder: Path, name: str, parts: Sequence[_Part]) -> Manifest:
        files: dict[str, str] = {}
        total = 0
        for part in parts:
            self.say(f"{name}: {part.wheel.name} {part.wheel.version}")
            with open_wheel(part.wheel) as archive:
                members = list(_members(archive, part))
                if not members:
                    raise DownloadError(f"{part.wheel.url} has no headers below {' or '.join(part.places)}")
                for info, path in members:
                    total += info.file_size
                    if total > _SET_LIMIT:
                        raise DownloadError(f"{part.wheel.url}: more than {_SET_LIMIT >> 20} MiB of headers")
                    content = _content(archive, info)
                    target = folder / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content)
                    files[path] = hashlib.sha256(content).hexdigest()
        wheels = [part.wheel for part in parts]
        sources = (Source(name=w.name, version=str(w.version), url=w.url, sha256=w.sha256) for w in wheels)
        return Manifest(name=name, wheels=tuple(sources), files=dict(sorted(files.items())))


def _members(archive: zipfile.ZipFile, part: _Part) -> Iterator[tuple[zipfile.ZipInfo, str]]:
    """(member, path in the set); members whose names are not plain relative paths are left out."""
    for prefix, place in part.places.items():
        folder = "[^/]+".join(re.escape(piece) for piece in prefix.split("*"))
        pattern = re.compile(folder + r"([\w.+/-]+)", re.A)
        for info in archive.infolist():
            found = pattern.fullmatch(info.filename)
            if found is None or info.is_dir() or found[1].startswith("/") or ".." in found[1].split("/"):
                continue
            if part.skip is None or not (part.skip / found[1]).exists():
                yield info, f"{place}/{found[1]}"


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.file_size > _FILE_LIMIT:
        raise DownloadError(f"{info.filename} has {info.file_size >> 20} MiB: that is no header")
    try:
        return archive.read(info)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"{info.filename}: the wheel is damaged: {error}") from error


PYPI: Final = "https://pypi.org/simple"
_ACCEPT: Final = "application/vnd.pypi.simple.v1+json"
_PAGE_LIMIT: Final = 32 << 20  # torch's page had 365 kB in 2026


class Wheel(NamedTuple):
    name: str
    version: Version
    tags: frozenset[Tag]
    url: str
    sha256: str | None
    """From the index, if it gives one."""

    def fits(self, machine: str) -> bool:
        """Whether its files are for Linux on `machine`, such as x86_64, or for any platform."""
        platforms = (tag.platform for tag in self.tags)
        return any(p == "any" or ("linux" in p and p.endswith(machine)) for p in platforms)


def index_url(env: Mapping[str, str]) -> str:
    """The index in the environment variables of pip and uv, or PyPI. Raises UsageError."""
    for variable in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        given = env.get(variable)
        if not given:
            continue
        parts = urlsplit(given)
        if parts.scheme not in ("http", "https") or parts.username is not None:
            # Not printed, because it may contain a password.
            raise UsageError(f"{variable}: only http(s) indexes without a user name can be asked for headers")
        return given.rstrip("/")
    return PYPI


def list_wheels(index: str, package: str) -> list[Wheel]:
    """All wheels of `package`, from the index's JSON page (PEP 691). Raises DownloadError."""
    response, page = _get(f"{index}/{package}/", _PAGE_LIMIT, {"Accept": _ACCEPT})
    base = str(response.geturl())
    try:
        links = [(urljoin(base, f["url"]), f["hashes"].get("sha256")) for f in json.loads(page)["files"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DownloadError(f"{base} is no package index with JSON pages (PEP 691)") from error
    wheels = []
    for url, sha256 in links:
        try:
            name, version, _, tags = parse_wheel_filename(unquote(urlsplit(url).path.rpartition("/")[2]))
        except InvalidWheelFilename:
            continue
        if urlsplit(url).scheme in ("http", "https"):
            wheels.append(Wheel(name, version, tags, url, sha256))
    return wheels


_TIMEOUT_S: Final = 60.0
_BLOCK: Final = 64 << 10
_WHOLE: Final = 16 << 20
"""Wheels up to this size are read whole, in one request, so that their SHA-256 can be checked."""


def open_wheel(wheel: Wheel) -> zipfile.ZipFile:
    """The wheel as a zip file that is read as needed. This and reading from it raise DownloadError."""
    response, content = _get(wheel.url, _WHOLE, {"Range": "bytes=0-0"})
    stream: IO[bytes] | None = None
    if response.status == 206:
        total = re.fullmatch(r"bytes 0-0/(\d{1,15})", response.headers.get("Content-Range", ""))
        if total is None:
            raise DownloadError(f"{wheel.url}: a part of a file without its total size")
        remote = _RemoteFile(wheel.url, int(total[1]))
        if int(total[1]) > _WHOLE:
            stream = io.BufferedReader(remote, _BLOCK)
        else:
            content = remote.readall()
    if stream is None:
        if wheel.sha256 is not None and hashlib.sha256(content).hexdigest() != wheel.sha256:
            raise DownloadError(f"{wheel.url}: the SHA-256 is not the index's: try again, or another mirror")
        stream = io.BytesIO(content)
    try:
        return zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, ValueError) as error:
        raise DownloadError(f"{wheel.url} is no wheel: {error}") from error


class _RemoteFile(io.RawIOBase):
    """A file whose every read is one range request."""

    def __init__(self, url: str, size_bytes: int) -> None:
        self._url = url
        self._size = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def readall(self) -> bytes:
        content = bytearray(self._size - self._position)
        self.readinto(content)
        return bytes(content)

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._size - self._position)
        if count <= 0:
            return 0
        span = f"bytes={self._position}-{self._position + count - 1}"
        response, content = _get(self._url, count, {"Range": span})
        if response.status != 206 or len(content) != count:
            raise DownloadError(f"{self._url}: asked for {count} bytes, got {len(content)}")
        buffer[:count] = content
        self._position += count
        return count


def _get(url: str, limit_bytes: int, headers: Mapping[str, str]) -> tuple[Any, bytes]:
    """The response and its body. Raises DownloadError, also for a body of over `limit_bytes`."""
    request = urllib.request.Request(url, headers={"User-Agent": "liftbench", **headers})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            content: bytes = response.read(limit_bytes + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"{url}: HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason, host = getattr(error, "reason", error), urlsplit(url).netloc
        raise DownloadError(f"cannot read from {host}: {reason} (is this machine offline?)") from error
    if len(content) > limit_bytes:
        raise DownloadError(
            f"{url}: more than the {limit_bytes} bytes that were expected: use PyPI or another mirror if "
            "this one does not serve parts of files (HTTP ranges)"
        )
    return response, content
