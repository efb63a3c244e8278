"""Images: copying files out of one without trusting the archive."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker.errors
import pytest

from harness import __version__
from harness.builder.toolchain import toolchain_of_image
from harness.errors import SandboxError
from sandboxes.docker.engine import DESCRIPTION, DockerEngine, Image, reference

ID = "sha256:" + "0123456789ab" + "c" * 52
Member = str | tuple[bytes, str]
"""The contents of a file, or the type and target of another member."""


class FakeEngine:
    """A client with one image, the container made of it (never started), and archives by path."""

    def __init__(self, archives: dict[str, bytes]) -> None:
        self.images = self.containers = self
        self.attrs = {"Id": ID}
        self.archives = archives
        self.made = self.removed = 0

    def get(self, name: str) -> FakeEngine:
        if "none" in name:
            raise docker.errors.ImageNotFound("no such image")
        return self

    def create(self, image: str, **settings: Any) -> FakeEngine:
        assert image == ID and settings["network_disabled"]
        self.made += 1
        return self

    def get_archive(self, path: str, chunk_size: int) -> tuple[Iterator[bytes], dict[str, Any]]:
        if path not in self.archives:
            raise docker.errors.NotFound(f"no {path}")
        data = self.archives[path]
        return iter([data[i : i + 1000] for i in range(0, len(data), 1000)]), {}

    def remove(self, force: bool) -> None:
        self.removed += 1


def archive(members: dict[str, Member]) -> bytes:
    """A tar of them by name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, value in members.items():
            entry = tarfile.TarInfo(name)
            if isinstance(value, tuple):
                entry.type, entry.linkname = value
                tar.addfile(entry)
            else:
                entry.size = len(value)
                tar.addfile(entry, io.BytesIO(value.encode()))
    return buffer.getvalue()


def tree(path: str, names: str = "*", deep: bool = True) -> dict[str, Any]:
    """As descriptions list it."""
    return {"path": path, "names": names, "deep": deep}


def image_with(
    trees: list[dict[str, Any]], archives: dict[str, bytes], links: dict[str, str] | None = None
) -> tuple[Image, FakeEngine]:
    """An image with a description of these trees and links, and archives by path."""
    text = json.dumps({"view": {"trees": trees, "links": links or {}}})
    engine = FakeEngine({DESCRIPTION: archive({"toolchain.json": text}), **archives})
    return Image(engine, "liftbench/build:1.2"), engine  # type: ignore[arg-type]


def test_a_missing_image_says_how_to_make_it() -> None:
    """The name and the command."""
    with pytest.raises(SandboxError, match=r"no image liftbench/none:1: make image"):
        Image(FakeEngine({}), "liftbench/none:1")  # type: ignore[arg-type]


def test_a_view_has_what_the_description_lists(tmp_path: Path) -> None:
    """By name and depth; links resolve as in the image, hard links and special files are left out."""
    libraries: dict[str, Member] = {
        "x/a.so": "A",
        "x/b.so": (tarfile.SYMTYPE, "a.so"),
        "x/c": "C",
        "x/deep/d.so": "D",
        "x/pipe.so": (tarfile.FIFOTYPE, ""),
        "x/hard.so": (tarfile.LNKTYPE, "x/a.so"),
    }
    made, engine = image_with(
        [tree("/usr/lib/x", "*.so*", deep=False), tree("/opt/include")],
        {"/usr/lib/x": archive(libraries), "/opt/include": archive({"include/deep/h": "H"})},
        {"/lib": "usr/lib", "/opt/header": "/opt/include/deep/h"},
    )
    view = made.view(tmp_path)
    assert view == tmp_path / "images/0123456789ab" and view.stat().st_mode & 0o777 == 0o755
    files = sorted(p.relative_to(view).as_posix() for p in view.rglob("*") if not p.is_dir())
    assert files == ["opt/header", "opt/include/deep/h", "usr/lib/x/a.so", "usr/lib/x/b.so"]
    assert (view / "lib/x/b.so").read_text() == "A" and (view / "opt/header").read_text() == "H"
    assert (view / "opt/include/deep/h").stat().st_mode & 0o777 == 0o444
    before = engine.made
    assert engine.removed == before
    assert made.view(tmp_path) == view and engine.made == before  # made once


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../../../etc/passwd"])
def test_no_link_leads_out_of_a_view(target: str, tmp_path: Path) -> None:
    """As in a root directory of its own, `..` ends at the top."""
    link = {"/a/b": archive({"b/link": (tarfile.SYMTYPE, target)})}
    view = image_with([tree("/a/b")], link, {"/c/d": target})[0].view(tmp_path)
    for name in ("a/b/link", "c/d"):
        reached = Path(os.path.normpath((view / name).parent / (view / name).readlink()))
        assert reached == view / "etc/passwd"


@pytest.mark.parametrize(
    "archives",
    [
        {"/a": archive({"a/../../../evil": "x"})},
        {"/a": archive({"a/link": (tarfile.SYMTYPE, "/tmp"), "a/link/evil": "x"})},
        {"/a": b"no archive at all" * 100},
        {"/a": archive({"a/f": "x" * 5000})[:3000]},
        {},
        {DESCRIPTION: archive({"toolchain.json": "[]"})},
        {DESCRIPTION: archive({"toolchain.json": json.dumps({"view": {"trees": [], "links": {"/": "x"}}})})},
        {DESCRIPTION: archive({"toolchain.json": "x" * ((1 << 20) + 1)})},
    ],
    ids=["parent", "through a link", "no tar", "cut off", "not there", "no view", "top", "large"],
)  # fmt: skip
def test_what_makes_no_sense_leaves_no_view(archives: dict[str, bytes], tmp_path: Path) -> None:
    """It is an error of ours, and nothing half-made stays."""
    made, engine = image_with([tree("/a")], archives)
    with pytest.raises(SandboxError):
        made.view(tmp_path)
    assert [p.name for p in (tmp_path / "images").iterdir()] == ["0123456789ab.lock"]
    assert list(tmp_path.rglob("evil")) == [] and engine.removed == engine.made


def test_views_that_were_not_used_for_long_go(tmp_path: Path) -> None:
    """Three stay; the newest is among them."""
    for number in range(4):
        old = tmp_path / "images" / f"old{number}"
        old.mkdir(parents=True)
        os.utime(old, (number, number))
    view = image_with([], {})[0].view(tmp_path)
    left = {p for p in view.parent.iterdir() if p.is_dir()}
    assert left == {view, view.parent / "old2", view.parent / "old3"}


@pytest.mark.docker
@pytest.mark.slow
def test_the_real_build_image_describes_a_whole_toolchain(engine: DockerEngine, tmp_path: Path) -> None:
    """Nothing is missing for either target, and the interpreter and torch can be read in its view."""
    try:
        made = Image(engine.client, reference("build", __version__))
    except SandboxError as error:
        pytest.skip(str(error))
    found = toolchain_of_image(made.description(), made.view(tmp_path))
    assert found.missing("cpu") is None and found.missing("cuda") is None
    assert found.readable("cuda") == [] and found.disassembler is not None and found.torch_root is not None
    for path in (found.python, found.torch_root / "lib/libtorch_cpu.so"):
        real = found.local(path).resolve()
        assert real.is_relative_to(found.root) and real.read_bytes()[:4] == b"\x7fELF"
