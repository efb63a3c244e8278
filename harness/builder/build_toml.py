"""build.toml of kernel-builder, editions 4 and 5, as frozen records; and its text, parsed in bounded time.

The records hold every file that kernel-builder's own parser accepts. Tables for other backends than CPU and
CUDA are kept as they are.
"""

from __future__ import annotations

import re
import tomllib
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StrictInt, StrictStr, field_validator, model_validator

from harness.records import Record

Backend = Literal["cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu"]
Dependency = Literal[
    "torch", "cutlass_2_10", "cutlass_3_5", "cutlass_3_6", "cutlass_3_8", "cutlass_3_9", "cutlass_4_0",
    "cutlass_4_4", "cutlass_4_5", "sycl_tla", "metal-cpp"
]  # fmt: skip
FRAMEWORKS = ("torch", "torch-noarch", "tvm-ffi")
"""A file has exactly one of these tables."""
_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_VERSION = re.compile(r"\s*\+?[0-9]+\.\+?[0-9]+\s*")
_LARGEST_PART = 2**64 - 1  # usize


def _kernel_name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise ValueError(f"at least two lowercase letters, digits and dashes, a letter first: {text!r}")
    return text


def _version(text: str) -> str:
    short = len(text) <= 100
    if not (short and _VERSION.fullmatch(text) and max(version_parts(text)) <= _LARGEST_PART):
        raise ValueError(f"expected a version of two numbers, such as 12.8: {text[:80]!r}")
    return text


KernelName = Annotated[StrictStr, AfterValidator(_kernel_name)]
Version = Annotated[StrictStr, AfterValidator(_version)]
Strings = tuple[StrictStr, ...]


def version_parts(version: str) -> tuple[int, ...]:
    """`12.8` -> (12, 8)."""
    return tuple(int(part) for part in version.strip().split("."))


class Table(Record):
    """Base class: keys in kebab-case, unknown keys refused."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"), serialize_by_alias=True)


class KernelDependency(Table):
    """Another kernel on the Hub, by version or by revision."""

    repo_id: StrictStr
    version: Annotated[StrictInt, Field(ge=0)] | None = None
    revision: StrictStr | None = None

    @model_validator(mode="after")
    def _version_or_revision(self) -> Self:
        if (self.version is None) == (self.revision is None):
            raise ValueError("exactly one of version and revision is needed")
        return self


class CudaGeneral(Table):
    """[general.cuda]"""

    minver: Version | None = None
    maxver: Version | None = None
    kernel_depends: tuple[KernelDependency, ...] = ()
    python_depends: Strings = ()


class General(Table):
    """[general]"""

    name: KernelName
    version: Annotated[StrictInt, Field(ge=0)]
    edition: Literal[4, 5] = 4
    """4 for a file without the key, which kernel-builder reads in its legacy format."""
    license: StrictStr
    backends: tuple[Backend, ...]
    upstream: StrictStr | None = None
    source: StrictStr | None = None
    python_depends: Strings = ()
    kernel_depends: tuple[KernelDependency, ...] = ()
    cuda: CudaGeneral | None = None
    hub: dict[str, Any] | None = None
    neuron: dict[str, Any] | None = None
    tpu: dict[str, Any] | None = None
    xpu: dict[str, Any] | None = None

    @field_validator("edition", mode="before")
    @classmethod
    def _written_edition(cls, edition: object) -> object:
        # kernel-builder refuses a written 4.
        if type(edition) is not int or edition != 5:
            raise ValueError("the only edition that can be written is the integer 5")
        return edition

    @property
    def module(self) -> str:
        """Name of the Python package."""
        return self.name.replace("-", "_")


class Torch(Table):
    """[torch]: a compiled extension."""

    src: Strings = ()
    include: Strings = ()
    pyext: Strings | None = None
    """Suffixes of the files to copy; None means py and pyi."""
    cxx_flags: Strings = ()
    minver: Version | None = None
    maxver: Version | None = None
    stable_abi: Version | dict[Backend, Version] | None = None

    def stable_abi_for(self, backend: Backend) -> tuple[int, int] | None:
        """(major, minor) of the stable ABI to build against, if any."""
        abi = self.stable_abi
        version = abi.get(backend) if isinstance(abi, dict) else abi
        if version is None:
            return None
        major, minor = (*version_parts(version), 0)[:2]
        return major, minor


class TorchNoarch(Table):
    """[torch-noarch]: Python only, such as Triton. Two of its keys are in snake_case."""

    pyext: Strings | None = None
    cuda_capabilities: Strings = Field((), alias="cuda_capabilities")
    rocm_archs: Strings = Field((), alias="rocm_archs")


class TvmFfi(Table):
    """[tvm-ffi]"""

    src: Strings
    include: Strings = ()
    pyext: Strings | None = None
    cxx_flags: Strings = ()


class _Kernel(Table):
    depends: tuple[Dependency, ...]
    src: Strings
    include: Strings = ()
    cxx_flags: Strings = ()


class CpuKernel(_Kernel):
    """backend = "cpu" """

    backend: Literal["cpu"]


class CudaKernel(_Kernel):
    """backend = "cuda" """

    backend: Literal["cuda"]
    cuda_capabilities: Strings = ()
    cuda_flags: Strings = ()
    cuda_minver: Version | None = None


class OtherKernel(_Kernel):
    """A kernel for a backend that liftbench does not build."""

    model_config = ConfigDict(extra="ignore")
    backend: Literal["metal", "rocm", "xpu"]


Kernel = Annotated[CpuKernel | CudaKernel | OtherKernel, Field(discriminator="backend")]


class BuildToml(Table):
    """A whole build.toml."""

    general: General
    torch: Torch | None = None
    torch_noarch: TorchNoarch | None = None
    tvm_ffi: TvmFfi | None = None
    kernel: dict[StrictStr, Kernel] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_framework(self) -> Self:
        given = [t for t in (self.torch, self.torch_noarch, self.tvm_ffi) if t is not None]
        if len(given) != 1:
            raise ValueError("exactly one of [torch], [torch-noarch] and [tvm-ffi] is needed")
        return self


Path = tuple[str | int, ...]
"""Of a key or table in a TOML file, such as ("kernel", "a", "src")."""
# tomllib keeps a record for every prefix of a dotted key: 100 kB of `a.a.a...` take gigabytes.
_MOST_PARTS: Final = 20  # keys of a build.toml have at most four
# Python refuses to print what tomllib reads from a long hexadecimal, octal or binary integer.
_LONG_INTEGER = re.compile(r"\b0[xob][0-9A-Fa-f_]{1000}")
# Possessive quantifiers throughout: a hostile text is never scanned twice.
_PART: Final = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?:^|[{{,])[ \t]*+\[{{0,2}}+(?:[ \t]*+{_PART}[ \t]*+\.){{{_MOST_PARTS}}}", re.M)
_KEY_LINE = re.compile(
    rf"[ \t]*+(\[{{0,2}}+)[ \t]*+({_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+)[ \t]*+(?:=|\]{{1,2}}+[ \t]*+(?:#|$))"
)


class NoToml(ValueError):
    """The text is not TOML, or nests deeper than any build.toml does."""


def toml_fields(text: str) -> dict[str, Any]:
    """Parse TOML. Raises NoToml, with `(at line N, ...)` if Python's parser gives the line."""
    text = normalized(text)
    deep = _DEEP_KEY.search(text)
    if deep is not None:
        line = text.count("\n", 0, deep.end()) + 1
        raise NoToml(f"a key has more than {_MOST_PARTS} parts (at line {line})")
    if _LONG_INTEGER.search(text):
        raise NoToml("an integer has more than 1,000 digits")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise NoToml("values are nested too deeply") from error
    except ValueError as error:  # also raised for an integer of over 4,300 digits
        raise NoToml(str(error)) from error


def normalized(text: str) -> str:
    """Remove a byte order mark and carriage returns, as kernel-builder's parser does."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def key_lines(text: str) -> dict[Path, int]:
    """The 1-based line of each table and of each key that begins a line; never raises."""
    found: dict[Path, int] = {}
    table: Path = ()
    tables: dict[Path, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        match = _KEY_LINE.match(line)
        if match is None or bool(match[1]) == match[0].endswith("="):
            continue
        path = tuple(part.strip("\"'") for part in re.findall(_PART, match[2]))
        if match[1] == "[[":
            tables[path] = tables.get(path, -1) + 1
            path = (*path, tables[path])
        if match[1]:
            table = path
        else:
            path = (*table, *path)
        found.setdefault(path, number)
    return found
