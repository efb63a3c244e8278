"""Fetches header files from PyPI wheels: a few hundred kB instead of gigabytes of libraries.

Nothing is overwritten, and no path leaves the set's folder.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from harness.builder.cuda_toolkit import CudaToolkit
from harness.builder.headers.cutlass import ON_PYPI, WHEEL_SOURCE
from harness.builder.headers.fetched import (
    INCLUDE,
    UTIL_INCLUDE,
    HeaderSet,
    Manifest,
    Source,
    cuda_set,
    load_headers,
    torch_set,
    write_manifest,
)
from harness.builder.headers.wheels import Wheel, list_wheels, open_wheel
from harness.builder.toolchain import CUDA_EXTRA, Toolchain
from harness.errors import DownloadError, UsageError

Say = Callable[[str], None]
# What torch's headers and public kernels include that the wheels of nvcc do not bring, with a header
# of each that tells whether it is there already.
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
# The largest header seen was nvml.h with 0.7 MB, the largest set CUTLASS 4.2 with 1,000 files and 30 MB.
_FILE_LIMIT: Final = 8 << 20
_SET_LIMIT: Final = 128 << 20
_MEMBER = re.compile(r"[\w.+/-]+", re.A)


class _Part(NamedTuple):
    """Files of one wheel."""

    wheel: Wheel
    places: Mapping[str, str]
    """Prefix in the wheel (`*` is one folder) -> folder in the set."""
    skip: Path | None = None
    """What this folder has already is left out."""


class Fetcher:
    """Fetches sets into `root` from the index `index`; progress goes to `say`."""

    def __init__(self, root: Path, index: str, say: Say) -> None:
        self._root = root
        self._index = index
        self._say = say

    def cuda(self, toolchain: Toolchain) -> list[HeaderSet]:
        """What `toolchain` lacks for CUDA builds: headers of CUDA's libraries, and torch's own.

        Raises UsageError where there is no nvcc or torch to match, and DownloadError.
        """
        if toolchain.cuda is None or toolchain.torch_root is None:
            raise UsageError(
                "headers cuda: there is no nvcc or no torch whose version could be matched: "
                f"pip install torch; {CUDA_EXTRA}"
            )
        found = [self._libraries(toolchain.cuda, _machine(toolchain)), self._torch(toolchain)]
        return [headers for headers in found if headers is not None]

    def cutlass(self, name: str) -> HeaderSet:
        """CUTLASS for `depends = [name]`. Raises UsageError for what PyPI does not have, DownloadError."""
        if name not in ON_PYPI:
            known = ", ".join(ON_PYPI)
            raise UsageError(
                f"headers {name}: PyPI has {known}; for others set CUTLASS_SRC_DIR to a checkout"
            )
        present = self._present(name)
        if present is not None:
            return present
        wheel = _exactly(list_wheels(self._index, "nvidia-cutlass"), ON_PYPI[name])
        places = {f"{WHEEL_SOURCE}/{place}/": place for place in (INCLUDE, UTIL_INCLUDE)}
        return self._store(name, [_Part(wheel, places)])

    # --- sets ----------------------------------------------------------------------------------

    def _libraries(self, cuda: CudaToolkit, machine: str) -> HeaderSet | None:
        name = cuda_set(cuda.release)
        present = self._present(name)
        if present is not None:
            return present
        places = [p for p in (cuda.include, cuda.math_include) if p is not None]
        wanted = [n for n, header in LIBRARIES.items() if not any((p / header).is_file() for p in places)]
        if not wanted:
            self._say(f"{name}: the toolkit has all headers, nothing to fetch")
            return None
        versions = self._versions(cuda)
        parts = []
        for package in wanted:
            wheels = [w for w in list_wheels(self._index, package) if w.fits(machine)]
            wheel = _oldest(package, wheels, versions[package])
            parts.append(_Part(wheel, {"nvidia/*/include/": INCLUDE}))
        return self._store(name, parts)

    def _versions(self, cuda: CudaToolkit) -> dict[str, str]:
        """Package -> specifier, of the newest cuda-toolkit that names this very nvcc (or its release)."""
        meta = [w for w in list_wheels(self._index, _META) if (w.release or ())[:2] == cuda.release]
        near: dict[str, str] | None = None
        for wheel in sorted(meta, key=lambda w: w.release or (), reverse=True):
            with open_wheel(wheel) as archive:
                text = next((_text(archive, n) for n in archive.namelist() if n.endswith("METADATA")), "")
            table = dict(re.findall(r"^Requires-Dist: ([\w-]+)\s*([<>=!~][^;\s]*)", text, re.M))
            if not set(LIBRARIES) <= set(table):
                continue
            if _satisfies(_numbers(cuda.version), table.get("nvidia-cuda-nvcc", "")):
                return table
            near = near or table
        if near is None:
            raise DownloadError(
                f"{self._index} has no {_META} that names the libraries of CUDA {cuda.version} "
                "(there are some since 13.0): put a whole CUDA toolkit on this machine"
            )
        return near

    def _torch(self, toolchain: Toolchain) -> HeaderSet | None:
        """From the CUDA wheel of the same torch: every header that the one in use lacks."""
        assert toolchain.torch_root is not None and toolchain.torch_version is not None
        name = torch_set(toolchain.torch_version)
        if not toolchain.torch_is_cpu_only:
            self._say(f"{name}: torch {toolchain.torch_version} has its own CUDA headers, nothing to fetch")
            return None
        present = self._present(name)
        if present is not None:
            return present
        version = toolchain.torch_version.partition("+")[0]
        wheels = list_wheels(self._index, "torch")
        wheels = [w for w in wheels if w.version == version and w.fits(_machine(toolchain))]
        python = "cp" + "".join(toolchain.python_version.split(".")[:2])
        wheels.sort(key=lambda w: not w.tags.startswith(f"{python}-{python}-"))
        if not wheels:
            raise DownloadError(f"{self._index} has no wheel of torch {version} for {toolchain.platform}")
        with open_wheel(wheels[0]) as archive:
            theirs = _text(archive, "torch/version.py")
        ours = (toolchain.torch_root / "version.py").read_text()
        if _commit(theirs) is None or _commit(theirs) != _commit(ours):
            raise DownloadError(f"torch {version} of {self._index} was made from other sources than this one")
        skip = toolchain.torch_root / "include"
        return self._store(name, [_Part(wheels[0], {"torch/include/": INCLUDE}, skip)])

    # --- storing -------------------------------------------------------------------------------

    def _present(self, name: str) -> HeaderSet | None:
        present = load_headers(self._root, name)
        if present is not None:
            self._say(f"{name}: already there ({present.root}); delete the folder to fetch it again")
        return present

    def _store(self, name: str, parts: Sequence[_Part]) -> HeaderSet:
        self._root.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=self._root))
        try:
            manifest = self._fill(fresh, name, parts)
            write_manifest(fresh, manifest)
            for path in (fresh, *fresh.rglob("*")):  # a sandbox's user must be able to read them
                path.chmod(0o755 if path.is_dir() else 0o644)
            final = self._root / name
            if final.exists() and load_headers(self._root, name) is None:
                shutil.rmtree(final)  # without a manifest that we understand it is not a set
            if not final.exists():  # else another process was faster, with the same files
                fresh.rename(final)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        stored = load_headers(self._root, name)
        assert stored is not None, "a manifest was just written"
        self._say(f"{name}: {len(manifest.files)} files in {stored.root}")
        return stored

    def _fill(self, folder: Path, name: str, parts: Sequence[_Part]) -> Manifest:
        files: dict[str, str] = {}
        total = 0
        for part in parts:
            self._say(f"{name}: {part.wheel.name} {part.wheel.version}")
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
        sources = (Source(name=w.name, version=w.version, url=w.url, sha256=w.sha256) for w in wheels)
        return Manifest(name=name, wheels=tuple(sources), files=dict(sorted(files.items())))


def _machine(toolchain: Toolchain) -> str:
    return toolchain.platform.partition("-")[0]


# --- wheels ----------------------------------------------------------------------------------


def _members(archive: zipfile.ZipFile, part: _Part) -> Iterator[tuple[zipfile.ZipInfo, str]]:
    """(member, path in the set); names that are not plain relative paths are not headers."""
    for prefix, place in part.places.items():
        pattern = re.compile("[^/]+".join(re.escape(piece) for piece in prefix.split("*")) + "(.+)")
        for info in archive.infolist():
            found = pattern.fullmatch(info.filename)
            if found is None or info.is_dir() or _MEMBER.fullmatch(found[1]) is None:
                continue
            name = PurePosixPath(found[1])
            if name.is_absolute() or ".." in name.parts:
                continue
            if part.skip is None or not (part.skip / name).exists():
                yield info, f"{place}/{name}"


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.file_size > _FILE_LIMIT:
        raise DownloadError(f"{info.filename} has {info.file_size >> 20} MiB: that is no header")
    try:
        return archive.read(info)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"{info.filename}: the wheel is damaged: {error}") from error


def _text(archive: zipfile.ZipFile, name: str) -> str:
    try:
        return _content(archive, archive.getinfo(name)).decode(errors="replace")
    except KeyError as error:
        raise DownloadError(f"a wheel without {name}") from error


def _commit(version_py: str) -> str | None:
    found = re.search(r"^git_version = ['\"]([0-9a-f]+)['\"]", version_py, re.M)
    return found[1] if found else None


# --- versions --------------------------------------------------------------------------------


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _satisfies(version: tuple[int, ...], specifier: str) -> bool:
    """`==13.0.85.*` or `<14,>=13.0.88`: all that the metadata of cuda-toolkit uses."""
    for clause in specifier.split(","):
        parts = re.fullmatch(r"(==|>=|<)(\d+(?:\.\d+)*)(\.\*)?", clause)
        if parts is None:
            return False
        bound = _numbers(parts[2])
        if parts[1] == "==":
            # Trailing zeros say nothing: 13.0.88.* holds 13.0.88.
            fits = version[: len(bound)] == bound if parts[3] else version == bound
        else:
            fits = version >= bound if parts[1] == ">=" else version < bound
        if not fits:
            return False
    return True


def _oldest(package: str, wheels: Sequence[Wheel], specifier: str) -> Wheel:
    """The oldest that satisfies: what is uploaded later does not change what is fetched."""
    fitting = [(w.release, w) for w in wheels if w.release and _satisfies(w.release, specifier)]
    if not fitting:
        raise DownloadError(f"the index has no wheel of {package}{specifier} for this platform")
    return min(fitting, key=lambda pair: pair[0])[1]


def _exactly(wheels: Sequence[Wheel], version: str) -> Wheel:
    found = next((wheel for wheel in wheels if wheel.version == version), None)
    if found is None:
        raise DownloadError(f"the index has no nvidia-cutlass {version}")
    return found
