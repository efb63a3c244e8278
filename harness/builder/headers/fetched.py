"""Header files that were fetched from PyPI wheels: where they lie and what they are.

A folder with a manifest is whole (it appeared by one rename) and is never changed.

    <user data>/liftbench/headers/     or LIFTBENCH_HEADERS
      cuda-13.0/manifest.json include/     what the nvcc wheels lack: cuBLAS, cuSPARSE and others
      torch-2.13.0/manifest.json include/  what a CPU-only torch lacks of its CUDA build
      cutlass_3_6/manifest.json include/ tools/util/include/
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from harness.records import Record, digest_of

HEADERS_VARIABLE: Final = "LIFTBENCH_HEADERS"
INCLUDE: Final = "include"
UTIL_INCLUDE: Final = "tools/util/include"
"""Of CUTLASS, as in its repository."""
_MANIFEST: Final = "manifest.json"


class Source(Record):
    """A wheel from which files were taken."""

    name: str
    version: str
    url: str
    sha256: str | None
    """Of the whole wheel, as the index gives it; checked only where the wheel was read whole."""


class Manifest(Record):
    """What a folder of headers holds and where it came from."""

    schema_version: Literal[1] = 1
    name: str
    """The folder's, such as cuda-13.0."""
    wheels: tuple[Source, ...]
    files: dict[str, str]
    """Path in the folder -> SHA-256."""

    @property
    def digest(self) -> str:
        """Over the files alone: the mirror that they came from does not matter."""
        return digest_of(self.files)


class HeaderSet(Record):
    """A folder of fetched headers."""

    name: str
    root: Path
    include: tuple[Path, ...]
    """Directories for the compilers, in order."""
    digest: str
    sources: str
    """Wheels and versions, for people."""


def headers_root(env: Mapping[str, str]) -> Path:
    """Where fetched headers are kept."""
    if env.get(HEADERS_VARIABLE):
        return Path(env[HEADERS_VARIABLE]).absolute()
    import platformdirs

    return Path(platformdirs.user_data_path("liftbench")) / "headers"


def cuda_set(release: tuple[int, int]) -> str:
    """Folder of the headers that belong to a release of nvcc."""
    return f"cuda-{release[0]}.{release[1]}"


def torch_set(version: str) -> str:
    """Folder of the headers that a CPU-only torch lacks; its local part (+cpu) does not matter."""
    return f"torch-{version.partition('+')[0]}"


def load_headers(root: Path, name: str) -> HeaderSet | None:
    """The set `name`, or None where it was not fetched (or by a version that wrote another manifest)."""
    folder = root / name
    try:
        manifest = Manifest.model_validate_json((folder / _MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return None
    return HeaderSet(
        name=name,
        root=folder,
        include=tuple(d for d in (folder / INCLUDE, folder / UTIL_INCLUDE) if d.is_dir()),
        digest=manifest.digest,
        sources=", ".join(f"{source.name} {source.version}" for source in manifest.wheels),
    )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """The last file that goes into a new folder."""
    (folder / _MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n")
