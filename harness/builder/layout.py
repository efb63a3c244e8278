"""Which files of a project are built, and where: strict staging and the checks that need no compiler.

Owns: the build tree, the package of the variant, and every refusal about files and names.
Does not own: flags and capabilities (units.py), build.toml's validity (build_toml.py), running.
Invariant: the build tree holds what kernel-builder would copy plus what it generates, nothing else.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from importlib import resources
from pathlib import PurePosixPath
from typing import Final

from harness.builder.includes import unlisted_include
from harness.builder.python_side import python_problems
from harness.builder.schema import BuildToml, Torch, version_parts
from harness.builder.toolchain import Toolchain
from harness.builder.units import HEADER_SUFFIXES, Units, normalised, plan_units
from harness.outcome import Cause
from harness.records import Finding, Project, ProjectFile, Record, Target

SOURCE: Final = "source"
"""Folder of the build tree that holds the project."""
STUBS: Final = "stubs"
_SAFE_PATH = re.compile(r"[\w.+@,=/-]+", re.A)  # nvcc runs its steps through a shell of its own
_GENERATED_HEADER: Final = "torch-ext/registration.h"
# kernels-data/src/python_dependencies.json; any other name stops `kernel-builder create-pyproject`.
_PYTHON_DEPENDS: Final[dict[str, frozenset[str]]] = {
    "general": frozenset({"einops", "helion", "tvm-ffi"}),
    "cuda": frozenset({"nvidia-cutlass-dsl"}),
    "cpu": frozenset(),
}


class Layout(Record):
    """A project that is ready to build for one target."""

    module: str
    """The Python package."""
    ops_name: str
    """Name of the extension module and of the torch.ops namespace."""
    target: Target
    variant: str
    stable_abi: tuple[int, int] | None
    units: Units
    tree: tuple[ProjectFile, ...]
    """The build tree: `source/...` and, where torch lacks headers, `stubs/...`."""
    package: tuple[ProjectFile, ...]
    """What lies beside the shared library in the variant: Python files and metadata.json."""
    warnings: tuple[str, ...] = ()


class _Refused(Exception):
    def __init__(self, message: str, cause: Cause = Cause.BAD_LAYOUT) -> None:
        super().__init__(message)
        self.finding = Finding(cause=cause, message=message)


def plan_layout(project: Project, toml: BuildToml, target: Target, toolchain: Toolchain) -> Layout | Finding:
    """Check and stage `project`, whose valid build.toml is `toml`, for `target`."""
    try:
        return _Planner(project, toml, target, toolchain).plan()
    except _Refused as refusal:
        return refusal.finding


def template(name: str) -> str:
    """A file of harness/builder/templates."""
    return (resources.files("harness.builder") / "templates" / name).read_text()


def variant_name(target: Target, toolchain: Toolchain, stable_abi: tuple[int, int] | None) -> str:
    """kernel-builder's name for a build, such as torch213-cxx11-cu130-x86_64-linux."""
    if stable_abi is not None:
        framework = f"torch-stable-abi{stable_abi[0]}{stable_abi[1]}"
    else:
        major, minor = (*toolchain.torch_release, 0, 0)[:2]
        framework = f"torch{major}{minor}-cxx11"
    release = toolchain.cuda.release if toolchain.cuda is not None else (0, 0)
    compute = "cpu" if target == "cpu" else f"cu{release[0]}{release[1]}"
    return f"{framework}-{compute}-{toolchain.platform}"


class _Planner:
    def __init__(self, project: Project, toml: BuildToml, target: Target, toolchain: Toolchain) -> None:
        self._project = project
        self._files = {f.path: f.text for f in project.files}
        self._toml = toml
        self._target = target
        self._toolchain = toolchain
        self._module = toml.general.module
        self._warnings: list[str] = []

    def plan(self) -> Layout:
        torch = self._torch()
        staged = self._staged(torch)
        self._check_package()
        self._check_versions(torch)
        self._check_python_depends()
        units = plan_units(self._toml, self._target, self._cuda_release())
        if isinstance(units, Finding):
            raise _Refused(units.message, units.cause)
        self._check_includes(staged, units)
        self._check_python({p: t for p, t in self._files.items() if p in staged})
        stable_abi = torch.stable_abi_for(self._target)
        ops_name = f"_{self._module}_{self._target}_{self._project.digest[:7]}"
        return Layout(
            module=self._module,
            ops_name=ops_name,
            target=self._target,
            variant=variant_name(self._target, self._toolchain, stable_abi),
            stable_abi=stable_abi,
            units=units,
            tree=self._tree(staged),
            package=self._package(torch, ops_name, units),
            warnings=tuple(dict.fromkeys([*self._warnings, *units.warnings])),
        )

    def _cuda_release(self) -> tuple[int, int] | None:
        return self._toolchain.cuda.release if self._toolchain.cuda is not None else None

    # --- checks --------------------------------------------------------------------------------

    def _torch(self) -> Torch:
        if self._toml.torch is None:
            name = "torch-noarch" if self._toml.torch_noarch is not None else "tvm-ffi"
            raise _Refused(
                f"this project has no compiled `{self._target}` kernel: liftbench builds [torch] "
                f"projects, and this is a [{name}] one",
                Cause.NO_BACKEND,
            )
        return self._toml.torch

    def _staged(self, torch: Torch) -> set[str]:
        """Paths that kernel-builder copies: listed files and the Python side."""
        lists = [("[torch]", torch.src)]
        lists += [(f"[kernel.{name}]", kernel.src) for name, kernel in self._toml.kernel.items()]
        staged = {"build.toml"}
        for where, paths in lists:
            for path in paths:
                self._check_listed(path, f"src of {where}")
                staged.add(normalised(path))
        includes = [("[torch]", torch.include)]
        includes += [(f"[kernel.{name}]", k.include) for name, k in self._toml.kernel.items()]
        for where, paths in includes:
            for path in paths:
                self._check_safe(path, f"include of {where}")
        suffixes = ("py", "pyi") if torch.pyext is None else torch.pyext
        for path in self._files:
            if path.startswith("torch-ext/") and path.endswith(tuple(f".{s}" for s in suffixes)):
                self._check_safe(path, "torch-ext")
                staged.add(path)
        return staged

    @staticmethod
    def _check_safe(path: str, where: str) -> None:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise _Refused(f'{where}: "{path}" must be relative and stay inside the project')
        if not _SAFE_PATH.fullmatch(path):
            raise _Refused(f"{where}: {path!r} has characters other than letters, digits and ._+@,=-/")

    def _check_listed(self, path: str, where: str) -> None:
        if any(c in path for c in "*?["):
            raise _Refused(f'{where}: "{path}" is a pattern; list every file by name')
        self._check_safe(path, where)
        name = normalised(path)
        if name in self._files:
            return
        if any(p.startswith(f"{name}/") for p in self._files):
            raise _Refused(f'{where}: "{path}" is a directory; list its files')
        if name == _GENERATED_HEADER:
            raise _Refused(f'{where}: "{path}" is generated by kernel-builder; do not list it')
        near = difflib.get_close_matches(name, self._files, n=1, cutoff=0.6)
        hint = f'; the project has "{near[0]}"' if near else ""
        raise _Refused(f'{where}: "{path}" does not exist in the project{hint}')

    def _check_package(self) -> None:
        root = f"torch-ext/{self._module}"
        if f"{root}/__init__.py" not in self._files:
            found = [p for p in self._files if p.startswith("torch-ext/") and p.endswith("__init__.py")]
            hint = f" (found {', '.join(sorted(found))})" if found else ""
            raise _Refused(
                f"{root}/__init__.py is missing{hint}: the package's name is general.name with `_` for `-`"
            )
        clash = f"{root}/{self._module}"
        if any(p == clash or p.startswith(f"{clash}/") for p in self._files):
            raise _Refused(f"{root} must not have a file or directory named {self._module}")
        for generated in (_GENERATED_HEADER, f"{root}/_ops.py"):
            if generated in self._files:
                self._warnings.append(f"{generated} is generated; the project's own is not used")

    def _check_versions(self, torch: Torch) -> None:
        """As CMake does at configure time: outside its range a project is not built at all."""
        cuda = self._toml.general.cuda
        if self._target == "cuda" and cuda is not None and self._toolchain.cuda is not None:
            self._check_range("CUDA", self._toolchain.cuda.release, cuda.minver, cuda.maxver)
        release = self._toolchain.torch_release
        if self._toolchain.torch_version is not None:
            self._check_range("torch", release, torch.minver, torch.maxver)
            abi = torch.stable_abi_for(self._target)
            if abi is not None and release < abi:
                raise _Refused(
                    f"stable-abi {abi[0]}.{abi[1]} is newer than torch {self._toolchain.torch_version}",
                    Cause.BAD_BUILD_TOML,
                )

    @staticmethod
    def _check_range(what: str, have: tuple[int, ...], low: str | None, high: str | None) -> None:
        def padded(parts: tuple[int, ...]) -> tuple[int, ...]:
            return (*parts, 0, 0, 0)[:4]

        text = ".".join(map(str, have))
        if low is not None and padded(have) < padded(version_parts(low)):
            raise _Refused(f"{what} {text} is older than minver {low}", Cause.BAD_BUILD_TOML)
        if high is not None and padded(have) > padded(version_parts(high)):
            raise _Refused(f"{what} {text} is newer than maxver {high}", Cause.BAD_BUILD_TOML)

    def _python_depends(self) -> list[str]:
        cuda = self._toml.general.cuda
        own = cuda.python_depends if self._target == "cuda" and cuda is not None else ()
        return [*self._toml.general.python_depends, *own]

    def _check_python_depends(self) -> None:
        known = _PYTHON_DEPENDS["general"] | _PYTHON_DEPENDS[self._target]
        for name in self._python_depends():
            if name not in known:
                raise _Refused(
                    f'python-depends: "{name}" is unknown to kernel-builder; known: '
                    f"{', '.join(sorted(known))}",
                    Cause.BAD_BUILD_TOML,
                )

    def _check_includes(self, staged: set[str], units: Units) -> None:
        """Sources of this target and every staged header; what is generated counts as staged."""
        directories = {unit.source: unit.include for unit in units.units}
        everywhere = tuple(dict.fromkeys(d for dirs in directories.values() for d in dirs))
        headers = {p for p in staged if PurePosixPath(p).suffix in HEADER_SUFFIXES}
        for path in sorted(headers | set(directories)):
            found = unlisted_include(
                path, self._files, staged | {_GENERATED_HEADER}, directories.get(path, everywhere)
            )
            if found is not None:
                raise _Refused(
                    f'{path}:{found[0]} includes "{found[1]}", which no `src` of build.toml lists: '
                    "kernel-builder copies listed files only, so list headers too"
                )

    def _check_python(self, staged: dict[str, str]) -> None:
        problems = python_problems({p: t for p, t in staged.items() if p.endswith(".py")})
        if problems:
            raise _Refused("\n".join(problems))

    # --- what is built -------------------------------------------------------------------------

    def _tree(self, staged: Iterable[str]) -> tuple[ProjectFile, ...]:
        tree = {f"{SOURCE}/{path}": self._files[path] for path in staged}
        tree[f"{SOURCE}/{_GENERATED_HEADER}"] = template("registration.h")
        if self._target == "cuda":
            for header in self._toolchain.stubs:
                tree[f"{STUBS}/{header}"] = template(f"stubs/{header}")
        return _project_files(tree)

    def _package(self, torch: Torch, ops_name: str, units: Units) -> tuple[ProjectFile, ...]:
        """As CMake installs it: *.py and the data files of torch-ext/<module>, not *.pyi."""
        root = f"torch-ext/{self._module}/"
        suffixes = {"py", *(torch.pyext or ())} - {"pyi"}
        package = {
            path.removeprefix(root): text
            for path, text in self._files.items()
            if path.startswith(root) and path.endswith(tuple(f".{s}" for s in suffixes))
        }
        package["_ops.py"] = template("_ops.py.in").replace("@OPS_NAME@", ops_name)
        package["metadata.json"] = self._metadata(ops_name, units)
        return _project_files(package)

    def _metadata(self, ops_name: str, units: Units) -> str:
        general = self._toml.general
        backend: dict[str, object] = {"type": self._target}
        if self._target == "cuda":
            backend["archs"] = list(units.capabilities)
        own = general.cuda.kernel_depends if self._target == "cuda" and general.cuda else ()
        depends = [d.model_dump(exclude_none=True) for d in (*general.kernel_depends, *own)]
        fields: dict[str, object] = {
            "name": general.name,
            "id": ops_name,
            "version": general.version,
            "license": general.license,
            "upstream": general.upstream,
            "source": general.source,
            "python-depends": self._python_depends(),
            "kernel-depends": depends,
            "backend": backend,
        }
        return json.dumps({k: v for k, v in fields.items() if v is not None}, indent=2) + "\n"


def _project_files(files: dict[str, str]) -> tuple[ProjectFile, ...]:
    return tuple(ProjectFile(path=path, text=files[path]) for path in sorted(files))
