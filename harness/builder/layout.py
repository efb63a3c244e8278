"""What is built and where: the checks that need no compiler, and the files of the variant.

The build tree holds what kernel-builder would copy plus what it generates, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from pathlib import PurePosixPath
from typing import Final

from harness.builder import metadata
from harness.builder.config.schema import BuildToml, Torch, TorchNoarch, version_parts
from harness.builder.depends import check_python_depends, not_installed
from harness.builder.includes import unlisted_include
from harness.builder.python_side import python_facts
from harness.builder.refusal import Refused
from harness.builder.staging import (
    GENERATED_HEADER,
    Staged,
    check_shell_safe,
    check_tree,
    shown,
    stage,
    straightened,
)
from harness.builder.toolchain import Toolchain
from harness.builder.units import HEADER_SUFFIXES, Units, plan_units
from harness.outcome import Cause
from harness.records import Finding, Project, ProjectFile, Record, Target

SOURCE: Final = "source"
"""Folder of the build tree that holds the project."""
STUBS: Final = "stubs"


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
    """Empty for a universal project."""
    tree: tuple[ProjectFile, ...]
    """The build tree: `source/...` and, where torch lacks headers, `stubs/...`."""
    package: tuple[ProjectFile, ...]
    """What lies beside the shared library in the variant: Python files and metadata.json."""
    warnings: tuple[str, ...] = ()

    @property
    def jit(self) -> bool:
        """A universal project: the package is the whole build, and no compiler runs here."""
        return not self.units.units


def plan_layout(project: Project, toml: BuildToml, target: Target, toolchain: Toolchain) -> Layout | Finding:
    """Check and stage `project`, whose valid build.toml is `toml`, for `target`."""
    try:
        return _Planner(project, straightened(toml), target, toolchain).plan()
    except Refused as refusal:
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
        self._toml = toml
        self._target = target
        self._toolchain = toolchain
        self._module = toml.general.module
        self._ops_name = f"_{self._module}_{target}_{project.digest[:7]}"
        self._warnings: list[str] = []

    def plan(self) -> Layout:
        if self._toml.tvm_ffi is not None:
            raise Refused(
                f"liftbench builds [torch] and [torch-noarch] projects for `{self._target}`; this is a "
                "[tvm-ffi] one",
                Cause.NO_BACKEND,
            )
        staged = stage(self._project, self._toml)
        self._warnings += staged.warnings
        self._check_package(staged)
        check_python_depends(self._toml.general)
        self._check_installed()
        if self._toml.torch is None:
            return self._universal(staged)
        return self._compiled(staged, self._toml.torch)

    def _compiled(self, staged: Staged, torch: Torch) -> Layout:
        self._check_versions(torch)
        units = plan_units(self._toml, self._target, self._cuda_release(), self._toolchain.cutlass)
        if isinstance(units, Finding):
            raise Refused(units.message, units.cause)
        for unit in units.units:
            for path in (unit.source, *unit.include):
                check_shell_safe(path, "build.toml")
        self._check_includes(staged.files, units)
        self._check_python(staged)
        stable_abi = torch.stable_abi_for(self._target)
        package = self._package(staged, torch) | {
            "_ops.py": template("_ops.py.in").replace("@OPS_NAME@", self._ops_name),
            metadata.NAME: self._metadata(units.capabilities or None),
        }
        return self._layout(
            variant_name(self._target, self._toolchain, stable_abi),
            package,
            units=units,
            tree=self._tree(staged.files),
            stable_abi=stable_abi,
        )

    def _universal(self, staged: Staged) -> Layout:
        """As upstream's setup.py for noarch: the package's files are the build, .pyi included.

        CUDA and torch versions are not looked at: one variant serves all of them.
        """
        general, noarch = self._toml.general, self._toml.torch_noarch
        assert noarch is not None
        if self._target not in general.backends:
            raise Refused(
                f"this universal project is for {', '.join(general.backends) or 'no backend'}: "
                f'general.backends lacks "{self._target}"',
                Cause.NO_BACKEND,
            )
        for name, kernel in sorted(self._toml.kernel.items()):
            if kernel.backend == self._target:
                raise Refused(
                    f"[kernel.{name}] is to be compiled for {self._target}, but a [torch-noarch] project has "
                    "nothing compiled: use [torch], or remove the kernel",
                    Cause.BAD_BUILD_TOML,
                )
        ops = f"torch-ext/{self._module}/_ops.py"
        if ops in staged.files:
            raise Refused(f"{ops} is generated by kernel-builder; remove it")
        self._check_python(staged)
        archs = noarch.cuda_capabilities if "cuda_capabilities" in noarch.model_fields_set else None
        package = self._package(staged, noarch) | {
            "_ops.py": template("_ops_universal.py.in").replace("@OPS_NAME@", self._ops_name),
            metadata.NAME: self._metadata(archs if self._target == "cuda" else None),
        }
        return self._layout(f"torch-{self._target}", package, units=Units(units=()))

    def _layout(
        self,
        variant: str,
        package: dict[str, str],
        *,
        units: Units,
        tree: tuple[ProjectFile, ...] = (),
        stable_abi: tuple[int, int] | None = None,
    ) -> Layout:
        check_tree(package)
        return Layout(
            module=self._module,
            ops_name=self._ops_name,
            target=self._target,
            variant=variant,
            stable_abi=stable_abi,
            units=units,
            tree=tree,
            package=_project_files(package),
            warnings=tuple(dict.fromkeys([*self._warnings, *units.warnings])),
        )

    def _cuda_release(self) -> tuple[int, int] | None:
        return self._toolchain.cuda.release if self._toolchain.cuda is not None else None

    # --- checks --------------------------------------------------------------------------------

    def _check_package(self, staged: Staged) -> None:
        root = f"torch-ext/{self._module}"
        if f"{root}/__init__.py" not in staged.files:
            raise Refused(self._no_package(root))
        clash = f"{root}/{self._module}"
        if any(p == clash or p.startswith(f"{clash}/") for p in staged.files):
            raise Refused(f"{root} must not have a file or directory named {self._module}")
        own = {f.path for f in self._project.files}
        generated = [f"{root}/_ops.py"] + ([GENERATED_HEADER] if self._toml.torch is not None else [])
        for path in generated:
            if path in own:
                self._warnings.append(f"{path} is generated; the project's own is not used")

    def _no_package(self, root: str) -> str:
        own = sorted(f.path for f in self._project.files)
        init = f"{root}/__init__.py"
        if init in own:
            return f'{init} is not copied: `pyext` in build.toml leaves out "py"'
        if init in self._project.left_out:
            return f"{init} {self._project.left_out[init]}"
        found = [shown(p) for p in own if p.startswith("torch-ext/") and p.endswith("__init__.py")]
        hint = f" (found {', '.join(found[:3])})" if found else ""
        return f"{init} is missing{hint}: the package's name is general.name with `_` for `-`"

    def _check_installed(self) -> None:
        root = self._toolchain.torch_root
        if root is not None:
            for name in not_installed(self._toml.general, self._target, self._toolchain.local(root.parent)):
                self._warnings.append(f"python-depends {name} is not installed here: pip install it")

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
                raise Refused(
                    f"stable-abi {abi[0]}.{abi[1]} is newer than torch {self._toolchain.torch_version}",
                    Cause.BAD_BUILD_TOML,
                )

    @staticmethod
    def _check_range(what: str, have: tuple[int, ...], low: str | None, high: str | None) -> None:
        def padded(parts: tuple[int, ...]) -> tuple[int, ...]:
            return (*parts, 0, 0, 0)[:4]

        text = ".".join(map(str, have))
        if low is not None and padded(have) < padded(version_parts(low)):
            raise Refused(f"{what} {text} is older than minver {low}", Cause.BAD_BUILD_TOML)
        if high is not None and padded(have) > padded(version_parts(high)):
            raise Refused(f"{what} {text} is newer than maxver {high}", Cause.BAD_BUILD_TOML)

    def _check_includes(self, staged: dict[str, str], units: Units) -> None:
        """Sources of this target and every staged header; what is generated counts as staged."""
        files = {f.path: f.text for f in self._project.files}
        directories = {unit.source: unit.include for unit in units.units}
        everywhere = tuple(dict.fromkeys(d for dirs in directories.values() for d in dirs))
        headers = {p for p in staged if PurePosixPath(p).suffix in HEADER_SUFFIXES}
        for path in sorted(headers | set(directories)):
            found = unlisted_include(
                path, files, staged.keys() | {GENERATED_HEADER}, directories.get(path, everywhere)
            )
            if found is not None:
                raise Refused(
                    f'{path}:{found[0]} includes "{found[1]}", which no `src` of build.toml lists: '
                    "kernel-builder copies listed files only, so list headers too"
                )

    @staticmethod
    def _check_python(staged: Staged) -> None:
        """Everything that is copied, tests included, as upstream's hook does."""
        copied = staged.files | staged.tests
        problems = python_facts({p: t for p, t in copied.items() if p.endswith(".py")}).problems
        if problems:
            raise Refused("\n".join(problems))

    # --- what is built -------------------------------------------------------------------------

    def _tree(self, staged: dict[str, str]) -> tuple[ProjectFile, ...]:
        check_tree([*staged, GENERATED_HEADER])
        tree = {f"{SOURCE}/{path}": text for path, text in staged.items()}
        tree[f"{SOURCE}/{GENERATED_HEADER}"] = template("registration.h")
        if self._target == "cuda":
            for header in self._toolchain.stubs:
                tree[f"{STUBS}/{header}"] = template(f"stubs/{header}")
        return _project_files(tree)

    def _package(self, staged: Staged, framework: Torch | TorchNoarch) -> dict[str, str]:
        """The package's own files. CMake installs *.py and data files but no *.pyi; noarch copies all."""
        suffixes = {"py", *(framework.pyext or ())} - {"pyi"}
        if isinstance(framework, TorchNoarch):
            suffixes = set(("py", "pyi") if framework.pyext is None else framework.pyext)
        endings: Iterable[str] = tuple(f".{suffix}" for suffix in suffixes)
        root = f"torch-ext/{self._module}/"
        return {
            path.removeprefix(root): text
            for path, text in staged.files.items()
            if path.startswith(root) and path.endswith(tuple(endings))
        }

    def _metadata(self, archs: tuple[str, ...] | None) -> str:
        return metadata.metadata(self._toml.general, self._target, self._ops_name, archs)


def _project_files(files: dict[str, str]) -> tuple[ProjectFile, ...]:
    return tuple(ProjectFile(path=path, text=files[path]) for path in sorted(files))
