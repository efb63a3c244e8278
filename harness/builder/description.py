"""The toolchain of an image: described when the image is made, read back by whoever uses it.

What a description names is absolute and without `..`; a path of an image is never taken for one of this
machine.

    /opt/liftbench/toolchain.json   {"toolchain": {...}, "view": {"trees": [...], "links": {...}}, ...}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from harness.builder.cuda_toolkit import CudaToolkit
from harness.builder.toolchain import Toolchain, find_toolchain
from harness.errors import SandboxError
from harness.records import Record

_LIMIT: Final = 1 << 20  # 6 kB on Debian 12 with a CPU-only torch
_LIBRARY: Final = "*.so*"


class Tree(Record):
    """A directory, or one file, that is copied out of the image."""

    path: Path
    """Without a link in it."""
    names: str = "*"
    """Of the files that are wanted."""
    deep: bool = True
    """Whether its subdirectories are wanted too."""


class View(Record):
    """Everything of an image that the trusted side reads."""

    trees: tuple[Tree, ...]
    links: dict[Path, str]
    """Links on the way to it: path -> what it points at."""


class Description(Record):
    """What an image says of itself."""

    schema_version: Literal[1] = 1
    toolchain: Toolchain
    view: View


def describe_toolchain() -> str:
    """The description of the image that this runs in, as JSON."""
    found = find_toolchain()
    links: dict[Path, str] = {}
    trees: dict[Path, Tree] = {}
    for tree in _wanted(found):
        _note_links(tree.path, links)
        real = tree.path.resolve()
        # Of most places for libraries nothing is wanted, and what lies below them is large.
        if real.is_file() or any(real.glob(tree.names)):
            trees.setdefault(real, tree.model_copy(update={"path": real}))
    description = Description(toolchain=found, view=View(trees=tuple(trees.values()), links=links))
    return description.model_dump_json(indent=1) + "\n"


def toolchain_of_image(description: bytes, view: Path) -> Toolchain:
    """The toolchain that an image describes; `view` holds the files of it that can be read here.

    Raises SandboxError for a description that makes no sense.
    """
    try:
        if len(description) > _LIMIT:
            raise ValueError(f"it has more than {_LIMIT} bytes")
        toolchain = Description.model_validate_json(description).toolchain
        for path in _paths(toolchain):
            if not path.is_absolute() or ".." in path.parts:
                raise ValueError(f"it names {str(path)[:200]!r}")
    except ValidationError as error:
        raise _senseless(f"it has {error.error_count()} errors") from None
    except ValueError as error:
        raise _senseless(str(error)) from None
    return toolchain.model_copy(update={"root": view.absolute()})


def _senseless(why: str) -> SandboxError:
    return SandboxError(f"the build image's description of its toolchain cannot be used: {why}; make image")


# --- what is in it ---------------------------------------------------------------------------


def _paths(toolchain: Toolchain) -> Iterator[Path]:
    """Every path in `toolchain`."""
    one = [toolchain.gxx, toolchain.ninja, toolchain.python, toolchain.python_include, toolchain.torch_root]
    yield from (path for path in [*one, toolchain.disassembler, *toolchain.libraries] if path is not None)
    yield from _cuda_paths(toolchain.cuda)
    for root, include in _fetched(toolchain):
        yield root
        yield from include


def _fetched(toolchain: Toolchain) -> Iterator[tuple[Path, tuple[Path, ...]]]:
    """(root, include directories) of each set of headers that was fetched."""
    yield from ((headers.root, headers.include) for headers in toolchain.headers)
    yield from ((cutlass.root, cutlass.include) for cutlass in toolchain.cutlass)


def _cuda_paths(cuda: CudaToolkit | None) -> Iterable[Path]:
    if cuda is None:
        return ()
    found = [cuda.nvcc, cuda.root, cuda.include, cuda.library, cuda.cudart, cuda.math_include]
    return (path for path in found if path is not None)


def _wanted(toolchain: Toolchain) -> Iterator[Tree]:
    """Headers, whose absence is told apart from a mistake, and libraries, whose symbols are read."""
    torch, cuda = toolchain.torch_root, toolchain.cuda
    if torch is not None:
        yield Tree(path=torch / "version.py")
        yield Tree(path=torch / "include")
        yield Tree(path=torch / "lib", names=_LIBRARY, deep=False)
        for wheel in sorted(torch.parent.glob("nvidia/*/lib")):
            yield Tree(path=wheel, names=_LIBRARY, deep=False)
    yield Tree(path=toolchain.python)
    for directory in toolchain.libraries:
        yield Tree(path=directory, names=_LIBRARY, deep=False)
    headers = [toolchain.python_include]
    if cuda is not None:
        headers += [cuda.include, cuda.math_include]
        if cuda.library is not None:
            yield Tree(path=cuda.library, names=_LIBRARY, deep=False)
    headers += [place for _, include in _fetched(toolchain) for place in include]
    yield from (Tree(path=place) for place in headers if place is not None)


def _note_links(path: Path, links: dict[Path, str]) -> None:
    """Every link on the way to what `path` stands for."""
    here = Path("/")
    for number, part in enumerate(path.parts[1:], start=2):
        here = here / part
        if here.is_symlink() and here not in links:
            target = here.readlink()
            links[here] = str(target)
            _note_links(here.parent.joinpath(target, *path.parts[number:]), links)
            return
