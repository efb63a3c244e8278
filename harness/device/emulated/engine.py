"""The emulated GPU: its libraries and a project's kernels, compiled in a sandbox and cached."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from harness.builder.compiler_slots import CompilerSlots
from harness.builder.elf import SharedLibrary
from harness.builder.run_ninja import run_job
from harness.builder.toolchain import Toolchain
from harness.device.emulated.ptx import CannotEmulate
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
_SHOWN: Final = 1500


@dataclass(frozen=True)
class Prepared:
    """What a worker gets: folders to copy into its scratch directory, by name, and its environment."""

    inputs: dict[str, Path]
    environment: dict[str, str]


@dataclass(frozen=True)
class Engine:
    """Prepares projects for the emulated GPU. Thread-safe; processes share `cache`."""

    cache: Path
    sandbox: Sandbox
    toolchain: Toolchain

    def prepare(self, library: Path, ptx: Path, key: str) -> Prepared:
        """The libraries, and the kernels of `library`, whose PTX is in folder `ptx`; `key` names the build.

        Raises CannotEmulate where the kernels cannot be compiled for it, and InfraError.
        """
        assert self.toolchain.torch_root is not None
        refused = refusal(library)
        if refused is not None:
            raise CannotEmulate(refused)
        runtime = self._compiled("runtime", ())
        kernels = self._compiled("kernels", (key,), ptx)
        libraries = load_order(Path("{scratch}/runtime"), self.toolchain.torch_root)
        environment = {
            "LIFTBENCH_EMULATED_GPU": ":".join(map(str, libraries)),
            "LIFTBENCH_EMULATED_KERNELS": "{scratch}/kernels",
            "LIFTBENCH_EMULATED_CORES": str(min(os.cpu_count() or 1, _JOBS)),
            "LIFTBENCH_EMULATED_REPORT": f"{{scratch}}/{REPORT}",
        }
        return Prepared({"runtime": runtime, "kernels": kernels}, environment)

    def _compiled(
        self, what: Literal["runtime", "kernels"], key: Sequence[str], ptx: Path | None = None
    ) -> Path:
        """A folder in the cache, compiled now unless it is there."""
        digest = digest_of([sources_digest(), self.toolchain.facts("cuda"), cpu_facts(), what, *key])
        final = self.cache / what / digest
        if final.is_dir():
            return final
        final.parent.mkdir(parents=True, exist_ok=True)
        with locked(final.with_suffix(".lock"), f"{what} of the emulated GPU, compiled by another process"):
            if not final.is_dir():
                with directory_atomically(final) as fresh:
                    self._compile(what, fresh, ptx)
                    fresh.chmod(0o755)
        return final

    def _compile(self, what: str, out: Path, ptx: Path | None) -> None:
        chain = self.toolchain
        assert chain.cuda is not None and chain.cuda.include is not None and chain.cuda.cudart is not None
        words = (
            ["{scratch}/ptx"]
            if ptx is not None
            else [chain.cuda.include, chain.cuda.cudart, chain.torch_root]
        )
        inputs = {_PACKAGE: _HERE, _STAND_INS: _HERE.parents[1] / "builder/templates/stubs"}
        inputs |= {} if ptx is None else {"ptx": ptx}
        with (
            CompilerSlots(self.cache.parent / "builds" / "locks").taken(_JOBS) as jobs,
            owned_folder("emulated") as name,
        ):
            program = [
                str(chain.python),
                "-I",
                "-S",
                f"{{scratch}}/{_PACKAGE}/compile_job.py",
                what,
                f"{{scratch}}/{_OUT}",
            ]
            job = Job(
                role="build",
                argv=[*program, str(jobs), str(chain.gxx), *map(str, words)],
                limits=_LIMITS,
                inputs=inputs,
                readable=chain.readable("cuda"),
                environment={
                    "PATH": f"{chain.gxx.parent}:/usr/bin:/bin" if chain.gxx else "/usr/bin:/bin",
                    "LC_ALL": "C",
                },
            )
            ran = run_job(self.sandbox, job, [f"{_OUT}/*"], Path(name))
            raise_if_infra(ran.facts, "compiling for the emulated GPU")
            if ran.facts.status != "ok" or ran.problem is not None:
                why = ran.problem or f"{ran.facts.status}: {ran.facts.output.strip()[-_SHOWN:]}"
                if ptx is None:
                    raise SandboxError(f"the emulated GPU could not be compiled: {why}")
                raise CannotEmulate(why)
            for path in ran.files:
                shutil.copyfile(path, out / path.name)


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
    files = sorted(path for path in _HERE.rglob("*") if path.suffix in {".py", ".h", ".cpp"})
    return digest_of([hashlib.sha256(path.read_bytes()).hexdigest() for path in files])


@cache
def cpu_facts() -> str:
    """The instructions of this processor, for code that is compiled with -march=native."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
