"""The kernel-builder schema: build.toml of editions 4 and 5 as frozen records.

Owns: the shape of a build.toml, reading it, and the decision whether it is valid. Upstream's own
parser decides, in a child process; our records are what the rest of the builder works with.
Does not own: whether the files exist, and capability or flag spelling (layout.py, allowed_flags.py).
Invariant: a file that upstream accepts is representable here, or HarnessBug is raised.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from harness.build_toml_hints import hints
from harness.errors import HarnessBug, SandboxError
from harness.outcome import Cause
from harness.records import Finding, Record

Backend = Literal["cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu"]
Dependency = Literal[
    "torch",
    "cutlass_2_10",
    "cutlass_3_5",
    "cutlass_3_6",
    "cutlass_3_8",
    "cutlass_3_9",
    "cutlass_4_0",
    "cutlass_4_4",
    "cutlass_4_5",
    "sycl_tla",
    "metal-cpp",
]
VALIDATOR_TIMEOUT_S: Final = 20.0
ABSENT: Final = "validity by our records: the kernels package is absent"
_MESSAGE_LIMIT: Final = 2_000  # upstream quotes whole source lines; a student may write long ones
_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_VERSION = re.compile(r"\s*\+?[0-9]{1,9}(\.\+?[0-9]{1,9})+\s*")
_GIT_URL = re.compile(r"((git\+)?(https?|ssh)|git)://[^/\s]+.*|(?!\w+://)[^:\s]+:[^/\s].*")


def _matching(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise ValueError(f"{what}: {text!r}")
        return text

    return AfterValidator(check)


KernelName = Annotated[StrictStr, _matching(_NAME, "name: lowercase letters, digits and dashes")]
Version = Annotated[StrictStr, _matching(_VERSION, "expected a version such as 12.8")]
GitUrl = Annotated[StrictStr, _matching(_GIT_URL, "expected a git URL")]
Strings = tuple[StrictStr, ...]


def version_parts(version: str) -> tuple[int, ...]:
    """`12.8` -> (12, 8)."""
    return tuple(int(part) for part in version.strip().split("."))


class Table(Record):
    """Base of all TOML tables: keys in kebab-case, unknown keys refused."""

    model_config = ConfigDict(
        alias_generator=lambda name: name.replace("_", "-"), serialize_by_alias=True
    )


# --- [general] -------------------------------------------------------------------------------


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


class BackendGeneral(Table):
    """[general.neuron] and [general.xpu]"""

    kernel_depends: tuple[KernelDependency, ...] = ()
    python_depends: Strings = ()


class TpuGeneral(Table):
    """[general.tpu]"""

    python_depends: Strings = ()


class Hub(Table):
    """[general.hub]"""

    repo_id: StrictStr | None = None
    branch: StrictStr | None = None


class General(Table):
    """[general]"""

    name: KernelName
    version: Annotated[StrictInt, Field(ge=0)]
    edition: Literal[4, 5] = 4
    """4 stands for a file without the key; upstream then reads the legacy format."""
    license: StrictStr
    backends: tuple[Backend, ...]
    upstream: GitUrl | None = None
    source: GitUrl | None = None
    python_depends: Strings = ()
    kernel_depends: tuple[KernelDependency, ...] = ()
    hub: Hub | None = None
    cuda: CudaGeneral | None = None
    neuron: BackendGeneral | None = None
    tpu: TpuGeneral | None = None
    xpu: BackendGeneral | None = None

    @property
    def module(self) -> str:
        """The Python package: the name with `_` for `-`."""
        return self.name.replace("-", "_")


# --- frameworks ------------------------------------------------------------------------------


class Torch(Table):
    """[torch]: a compiled extension."""

    src: Strings = ()
    include: Strings = ()
    pyext: Strings | None = None
    """Suffixes of the Python-side files; None is upstream's default, py and pyi."""
    cxx_flags: Strings = ()
    minver: Version | None = None
    maxver: Version | None = None
    stable_abi: Version | dict[Backend, Version] | None = None

    def stable_abi_for(self, backend: Backend) -> tuple[int, int] | None:
        """Stable ABI to target, as (major, minor); None builds without it."""
        abi = self.stable_abi
        version = abi.get(backend) if isinstance(abi, dict) else abi
        if version is None:
            return None
        major, minor = (*version_parts(version), 0)[:2]
        return major, minor


class TorchNoarch(Table):
    """[torch-noarch]: Python only (Triton and the like); two keys are snake_case upstream."""

    pyext: Strings | None = None
    cuda_capabilities: Strings = Field((), alias="cuda_capabilities")
    rocm_archs: Strings = Field((), alias="rocm_archs")


class TvmFfi(Table):
    """[tvm-ffi]"""

    src: Strings
    include: Strings = ()
    pyext: Strings | None = None
    cxx_flags: Strings = ()


# --- [kernel.NAME] ---------------------------------------------------------------------------


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


class MetalKernel(_Kernel):
    """backend = "metal" """

    backend: Literal["metal"]


class RocmKernel(_Kernel):
    """backend = "rocm" """

    backend: Literal["rocm"]
    rocm_archs: Strings = ()
    hip_flags: Strings = ()


class XpuKernel(_Kernel):
    """backend = "xpu" """

    backend: Literal["xpu"]
    sycl_flags: Strings = ()


Kernel = Annotated[
    CpuKernel | CudaKernel | MetalKernel | RocmKernel | XpuKernel, Field(discriminator="backend")
]


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

    @model_validator(mode="after")
    def _edition_4_has_fewer_keys(self) -> Self:
        general = self.general
        if general.edition == 5:
            return self
        tables = (general, general.cuda, general.neuron, general.xpu)
        if general.tpu is not None or any(
            "kernel_depends" in t.model_fields_set for t in tables if t is not None
        ):
            raise ValueError("kernel-depends and [general.tpu] need edition = 5")
        if self.torch is not None and isinstance(self.torch.stable_abi, dict):
            raise ValueError("a table for stable-abi needs edition = 5")
        return self


# --- reading and validity --------------------------------------------------------------------


def _parse(data: bytes) -> BuildToml:
    """Raises ValueError (which ValidationError and TOMLDecodeError are) or RecursionError."""
    text = data.decode("utf-8-sig").replace("\r\n", "\n")
    fields: dict[str, Any] = tomllib.loads(text)
    general = fields.get("general")
    edition = general.get("edition", 5) if isinstance(general, dict) else 5
    # Edition 4 is the absence of the key, so upstream refuses a written 4 too.
    if type(edition) is not int or edition != 5:
        raise ValueError(f"unsupported build edition {edition!r}: general.edition is the integer 5")
    return BuildToml.model_validate(fields)


def read_build_toml(data: bytes) -> BuildToml:
    """The records of a file that `validate` accepted; HarnessBug if they cannot hold it."""
    try:
        return _parse(data)
    except (ValueError, RecursionError) as error:
        raise HarnessBug(f"a valid build.toml does not fit our records: {error}") from error


class Validity(NamedTuple):
    """Whether a build.toml is valid, and what weakens that statement."""

    finding: Finding | None
    warnings: tuple[str, ...] = ()


_CHILD = """
import json, sys
try:
    from kernels._rust import Build
except ImportError as error:
    print(json.dumps({"absent": str(error)}))
    raise SystemExit
try:
    Build.open(sys.argv[1])
except BaseException as error:
    print(json.dumps({"error": str(error)}))
else:
    print(json.dumps({}))
"""


def validate(directory: Path) -> Finding | None:
    """Why `directory`/build.toml is not valid, or None. See `check` for warnings."""
    return check(directory).finding


def check(directory: Path) -> Validity:
    """Ask upstream's parser, or our records where the kernels package cannot be imported."""
    path = directory / "build.toml"
    if not path.is_file():
        return Validity(_finding("build.toml is missing from the top of the project", ""))
    data = path.read_bytes()
    text = data.decode("utf-8", errors="replace")
    answer = _ask_upstream(directory)
    if "absent" in answer:
        return Validity(_judge_ourselves(data, text), (ABSENT,))
    if "error" in answer:
        return Validity(_finding(_cleaned(answer["error"], directory), text))
    return Validity(None)


def _ask_upstream(directory: Path) -> dict[str, str]:
    """In a child: the parser is native code that reads untrusted bytes."""
    command = [sys.executable, "-I", "-c", _CHILD, str(directory)]
    try:
        done = subprocess.run(
            command,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VALIDATOR_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"the build.toml validator gave no answer in {error.timeout} s") from error
    if done.returncode < 0:
        return {"error": f"upstream's parser died of signal {-done.returncode} on this file"}
    try:
        answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError) as error:
        tail = done.stderr.decode(errors="replace")[-500:]
        raise HarnessBug(f"the build.toml validator did not answer: {tail}") from error
    return answer


def _judge_ourselves(data: bytes, text: str) -> Finding | None:
    try:
        _parse(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        return _finding(f"{where}: {first['msg']}", text)
    except (ValueError, RecursionError) as error:
        return _finding(str(error), text)
    return None


def _cleaned(message: str, directory: Path) -> str:
    """Upstream's message without our paths and its fixed preamble."""
    where = re.escape(str(directory))
    message = re.sub(rf"Cannot parse build configuration in `{where}/?`:\s*", "", message)
    message = re.sub(rf"Cannot parse TOML in {where}/build\.toml:\s*", "", message)
    return message.replace(f"{directory}/", "").replace(str(directory), "the project").strip()


def _finding(message: str, text: str) -> Finding:
    if len(message) > _MESSAGE_LIMIT:
        message = message[:_MESSAGE_LIMIT] + " ..."
    lines = [f"build.toml is not valid: {message}", *hints(text)]
    return Finding(cause=Cause.BAD_BUILD_TOML, message="\n".join(lines))
