"""The emulated GPU: its libraries and a project's kernels, compiled in a sandbox and cached."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from harness.builder.compiler_slots import CompilerSlots
from harness.builder.elf import SharedLibrary
from harness.builder.run_ninja import run_job
from harness.builder.toolchain import CUDA_EXTRA, Toolchain
from harness.device.emulated.kernels import MISSING, Index, first_index, read_index, write_index
from harness.device.emulated.runtime import load_order
from harness.errors import SandboxError
from harness.files import directory_atomically
from harness.locks import locked
from harness.records import digest_of
from sandboxes.job import Job, Limits, Sandbox, raise_if_infra
from sandboxes.orphans import owned_folder

_PACKAGE: Final = "harness/device/emulated"
_HERE: Final = Path(__file__).parent
_STAND_INS: Final = "harness/builder/templates/stubs"
_OUT: Final = "out"
_LIMITS: Final = Limits(wall_s=900.0, memory_bytes=6 << 30)
_JOBS: Final = 8
REPORT: Final = "emulated.jsonl"
"""In the worker's scratch directory: what the emulated GPU saw."""


class Refused(Exception):
    """A project that the emulated GPU cannot run; the message says why."""


@dataclass(frozen=True)
class Prepared:
    """What a worker gets: folders to copy into its scratch directory, by name, and its environment."""

    inputs: dict[str, Path]
    environment: dict[str, str]
    missing: frozenset[str]
    """Kernels that are not compiled yet: their launches do nothing but report it."""
    any_compiled: bool
    """Kernels were compiled for this build before."""


@dataclass(frozen=True)
class Engine:
    """Prepares projects for the emulated GPU. Thread-safe; processes share `cache`."""

    cache: Path
    sandbox: Sandbox
    toolchain: Toolchain

    def prepare(self, library: Path, ptx: Path, key: str, wanted: Set[str] = frozenset()) -> Prepared:
        """The libraries, and of the kernels of `library`, whose PTX is in folder `ptx`, those that are
        `wanted` or were before; `key` names the build.

        Raises Refused where the kernels cannot be compiled for it, and InfraError.
        """
        refused = lacks(self.toolchain) or refusal(library)
        if refused is not None:
            raise Refused(refused)
        cuda, torch_root = self.toolchain.cuda, self.toolchain.torch_root
        assert cuda is not None and torch_root is not None
        texts = (path.read_text() for path in sorted(ptx.rglob("*.ptx")))
        with self._cached("kernels", lambda fresh: write_index(first_index(texts), fresh), key) as kernels:
            index = read_index(kernels)
            every = {name: record for module in index.values() for name, record in module.items()}
            if lacking := {name for name in wanted if every.get(name) == MISSING}:
                self._add(kernels, index, ptx, lacking)
        missing = frozenset(name for module in index.values() for name in module if module[name] == MISSING)
        environment = {
            "LIFTBENCH_EMULATED_GPU": ":".join(map(str, load_order(Path("{scratch}/runtime"), torch_root))),
            "LIFTBENCH_EMULATED_KERNELS": "{scratch}/kernels",
            "LIFTBENCH_EMULATED_CORES": str(min(os.cpu_count() or 1, _JOBS)),
            "LIFTBENCH_EMULATED_REPORT": f"{{scratch}}/{REPORT}",
        }
        inputs = {"runtime": self._own("runtime", cuda.include, cuda.cudart, torch_root), "kernels": kernels}
        return Prepared(inputs, environment, missing, any_compiled=len(missing) < len(every))

    def _own(self, what: Literal["runtime", "headers"], *words: object) -> Path:
        """A part of the emulated GPU, compiled now unless it is in the cache."""
        try:
            with self._cached(what, lambda fresh: self._compile(what, fresh, words, {})) as folder:
                return folder
        except Refused as error:
            raise SandboxError(f"the emulated GPU could not be compiled: {error}") from error

    def _add(self, kernels: Path, index: Index, ptx: Path, lacking: Set[str]) -> None:
        """Compile kernels into a folder that has others. Raises Refused, InfraError."""
        with owned_folder("kernels") as scratch:
            names, made = Path(scratch) / "names", Path(scratch) / "made"
            names.write_text("\n".join(sorted(lacking)))
            made.mkdir()
            inputs = {"ptx": ptx, "headers": self._own("headers"), "names": names}
            self._compile("kernels", made, [f"{{scratch}}/{one}" for one in inputs], inputs)
            for key, records in read_index(made).items():
                index[key] |= {name: record for name, record in records.items() if record != MISSING}
            for path in made.glob("*.so"):
                shutil.copyfile(path, kernels / path.name)
            write_index(index, kernels)

    @contextmanager
    def _cached(self, what: str, fill: Callable[[Path], None], *key: str) -> Iterator[Path]:
        """A folder of the cache, locked; a new one is filled first."""
        digest = digest_of([sources_digest(), self.toolchain.facts("cuda"), cpu_facts(), what, *key])
        final = self.cache / what / digest
        final.parent.mkdir(parents=True, exist_ok=True)
        with locked(final.with_suffix(".lock"), f"{what} of the emulated GPU, compiled by another process"):
            if not final.is_dir():
                with directory_atomically(final) as fresh:
                    fill(fresh)
                    fresh.chmod(0o755)
            yield final

    def _compile(self, what: str, out: Path, words: Sequence[object], inputs: Mapping[str, Path]) -> None:
        """Run the compile job in the sandbox. Raises Refused where it failed, and InfraError."""
        chain = self.toolchain
        sources = {_PACKAGE: _HERE, _STAND_INS: _HERE.parents[1] / "builder/templates/stubs"}
        program = [chain.python, "-I", "-S", f"{{scratch}}/{_PACKAGE}/compile_job.py", what]
        path = f"{chain.gxx.parent}:/usr/bin:/bin" if chain.gxx else "/usr/bin:/bin"
        slots = CompilerSlots(self.cache.parent / "builds" / "locks")
        with slots.taken(_JOBS) as jobs, owned_folder("emulated") as name:
            job = Job(
                role="build",
                argv=[str(one) for one in (*program, f"{{scratch}}/{_OUT}", jobs, chain.gxx, *words)],
                limits=_LIMITS,
                inputs={**sources, **inputs},
                readable=chain.readable("cuda"),
                environment={"PATH": path, "LC_ALL": "C"},
            )
            ran = run_job(self.sandbox, job, [f"{_OUT}/*"], Path(name))
            raise_if_infra(ran.facts, "compiling for the emulated GPU")
            if ran.facts.status != "ok" or ran.problem is not None:
                shown = ran.facts.output.strip()[-1500:]
                raise Refused(ran.problem or f"{ran.facts.status}: {shown}")
            for made in ran.files:
                shutil.copyfile(made, out / made.name)


def lacks(toolchain: Toolchain) -> str | None:
    """What this machine lacks to emulate a GPU; None if nothing."""
    if platform.machine() != "x86_64":
        return f"the emulated GPU needs an x86-64 processor, not {platform.machine()}"
    cuda = toolchain.cuda
    if cuda is None or cuda.include is None or cuda.cudart is None:
        return f"the emulated GPU needs CUDA's headers and libcudart: {CUDA_EXTRA}"
    return None


def refusal(library: Path) -> str | None:
    """Why a project's library cannot run on the emulated GPU, as far as its ELF tables show; None if it may.

    Raises ElfError and OSError.
    """
    wanted = {symbol.name for symbol in SharedLibrary.open(library).symbols() if not symbol.defined}
    if b"\0.nv_fatbin\0" not in library.read_bytes() or "__cudaRegisterFatBinary" in wanted:
        return None
    return "the CUDA runtime is linked statically (cudart_static)"


@cache
def sources_digest() -> str:
    """Of the emulator itself."""
    files = sorted(path for path in _HERE.rglob("*") if path.suffix in {".py", ".txt", ".h", ".cpp"})
    return digest_of([hashlib.sha256(path.read_bytes()).hexdigest() for path in files])


@cache
def cpu_facts() -> str:
    """The instructions of this processor, for code that is compiled with -march=native."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
