"""Plans a build: checks a project without a compiler, and lists the files of build tree and package."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

from harness.builder.build_toml import BuildToml, CudaGeneral, General, Torch, TorchNoarch, version_parts
from harness.builder.check_project import (
    GENERATED_HEADER,
    Refused,
    Staged,
    check_python_depends,
    check_shell_safe,
    check_tree,
    python_facts,
    stage,
    with_normal_paths,
)
from harness.builder.toolchain import Toolchain
from harness.builder.translation_units import Units, plan_units
from harness.outcome import Cause
from harness.records import Project, Record, Target

SOURCE: Final = "source"
"""Folder of the build tree that contains the project."""
STUBS: Final = "stubs"
METADATA: Final = "metadata.json"


class Layout(Record):
    """A project that is ready to build for one target."""

    module: str
    ops_name: str
    """Name of the extension module and of the torch.ops namespace."""
    target: Target
    variant: str
    stable_abi: tuple[int, int] | None
    units: Units
    tree: dict[str, str]
    """The build tree, texts by path: `source/...` and, for headers that torch lacks, `stubs/...`."""
    package: dict[str, str]
    """Files beside the shared library in the variant: Python files and metadata.json."""
    warnings: tuple[str, ...] = ()

    @property
    def jit(self) -> bool:
        """Whether this is a universal project, for which no compiler runs at build time."""
        return not self.units.units


def plan_layout(project: Project, toml: BuildToml, target: Target, toolchain: Toolchain) -> Layout:
    """Check and stage `project`, whose valid build.toml is `toml`, for `target`. Raises Refused."""
    return _Planner(project, with_normal_paths(toml), target, toolchain).plan()


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
        if self._toml.torch is None:
            return self._universal(staged)
        return self._compiled(staged, self._toml.torch)

    def _compiled(self, staged: Staged, torch: Torch) -> Layout:
        self._check_versions(torch)
        release = self._toolchain.cuda.release if self._toolchain.cuda is not None else None
        units = plan_units(self._toml, self._target, release, self._toolchain.cutlass)
        for unit in units.units:
            for path in (unit.source, *unit.include):
                check_shell_safe(path, "build.toml")
        _check_python(staged)
        stable_abi = torch.stable_abi_for(self._target)
        package = self._package(staged, torch) | {
            "_ops.py": template("_ops.py.in").replace("@OPS_NAME@", self._ops_name),
            METADATA: metadata(self._toml.general, self._target, self._ops_name, units.capabilities or None),
        }
        variant = variant_name(self._target, self._toolchain, stable_abi)
        return self._layout(variant, package, units, self._tree(staged.files), stable_abi)

    def _universal(self, staged: Staged) -> Layout:
        """As kernel-builder's setup.py for noarch: the package's files are the build, .pyi included.

        CUDA and torch versions are not checked: one variant serves all of them.
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
        _check_python(staged)
        given = self._target == "cuda" and "cuda_capabilities" in noarch.model_fields_set
        archs = noarch.cuda_capabilities if given else None
        package = self._package(staged, noarch) | {
            "_ops.py": template("_ops_universal.py.in").replace("@OPS_NAME@", self._ops_name),
            METADATA: metadata(general, self._target, self._ops_name, archs),
        }
        return self._layout(f"torch-{self._target}", package, Units(units=()), {}, None)

    def _layout(
        self,
        variant: str,
        package: dict[str, str],
        units: Units,
        tree: dict[str, str],
        stable_abi: tuple[int, int] | None,
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
            package=dict(sorted(package.items())),
            warnings=tuple(dict.fromkeys([*self._warnings, *units.warnings])),
        )

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
        return f"{init} is missing: the package's name is general.name with `_` for `-`"

    def _check_versions(self, torch: Torch) -> None:
        """As kernel-builder's CMake does: a project is not built outside its range of versions."""
        cuda, toolkit = self._toml.general.cuda, self._toolchain.cuda
        if self._target == "cuda" and cuda is not None and toolkit is not None:
            _check_range("CUDA", toolkit.release, cuda.minver, cuda.maxver)
        if self._toolchain.torch_version is None:
            return
        release, abi = self._toolchain.torch_release, torch.stable_abi_for(self._target)
        _check_range("torch", release, torch.minver, torch.maxver)
        if abi is not None and release < abi:
            raise Refused(
                f"stable-abi {abi[0]}.{abi[1]} is newer than torch {self._toolchain.torch_version}",
                Cause.BAD_BUILD_TOML,
            )

    def _tree(self, staged: dict[str, str]) -> dict[str, str]:
        check_tree([*staged, GENERATED_HEADER])
        tree = {f"{SOURCE}/{path}": text for path, text in staged.items()}
        tree[f"{SOURCE}/{GENERATED_HEADER}"] = template("registration.h")
        if self._target == "cuda":
            for header in self._toolchain.stubs:
                tree[f"{STUBS}/{header}"] = template(f"stubs/{header}")
        return dict(sorted(tree.items()))

    def _package(self, staged: Staged, framework: Torch | TorchNoarch) -> dict[str, str]:
        """The package's own files. CMake installs *.py and data files but no *.pyi; noarch copies all."""
        suffixes = {"py", *(framework.pyext or ())} - {"pyi"}
        if isinstance(framework, TorchNoarch):
            suffixes = set(("py", "pyi") if framework.pyext is None else framework.pyext)
        endings = tuple(f".{suffix}" for suffix in suffixes)
        root = f"torch-ext/{self._module}/"
        return {
            path.removeprefix(root): text
            for path, text in staged.files.items()
            if path.startswith(root) and path.endswith(endings)
        }


def _check_python(staged: Staged) -> None:
    """Check every copied Python file, tests included, as kernel-builder does."""
    copied = staged.files | staged.tests
    problems = python_facts({p: t for p, t in copied.items() if p.endswith(".py")}).problems
    if problems:
        raise Refused("\n".join(problems))


def _check_range(what: str, have: tuple[int, ...], low: str | None, high: str | None) -> None:
    def padded(parts: tuple[int, ...]) -> tuple[int, ...]:
        return (*parts, 0, 0, 0)[:4]

    text = ".".join(map(str, have))
    if low is not None and padded(have) < padded(version_parts(low)):
        raise Refused(f"{what} {text} is older than minver {low}", Cause.BAD_BUILD_TOML)
    if high is not None and padded(have) > padded(version_parts(high)):
        raise Refused(f"{what} {text} is newer than maxver {high}", Cause.BAD_BUILD_TOML)


def metadata(general: General, target: Target, ops_name: str, archs: Sequence[str] | None) -> str:
    """metadata.json as kernel-builder writes it, without its digest. `archs`: CUDA capabilities, if known."""
    backend: dict[str, Any] = {"type": target}
    if archs is not None:
        backend["archs"] = list(archs)
    # The target's own table comes after the general one.
    own = general.cuda if target == "cuda" and general.cuda is not None else CudaGeneral()
    fields: dict[str, Any] = {
        "name": general.name,
        "id": ops_name,
        "version": general.version,
        "license": general.license,
        "upstream": general.upstream,
        "source": general.source,
        "python-depends": [*general.python_depends, *own.python_depends],
        "kernel-depends": [
            d.model_dump(exclude_none=True) for d in (*general.kernel_depends, *own.kernel_depends)
        ],
        "backend": backend,
    }
    return _json_text({key: value for key, value in fields.items() if value is not None})


def with_digest(text: str, files: Mapping[str, bytes]) -> str:
    """metadata.json with the SHA-256 (base64) of each file of the variant, by path in the variant."""
    hashes = {
        path: base64.b64encode(hashlib.sha256(files[path]).digest()).decode()
        for path in sorted(files)
        # The files that kernel-builder's loader leaves out of its comparison.
        if path != METADATA and not path.endswith(".pyc") and "__pycache__" not in path.split("/")
    }
    return _json_text({**json.loads(text), "digest": {"algorithm": "sha256", "files": hashes}})


def _json_text(fields: dict[str, Any]) -> str:
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
