"""Images: provenance, and copying files out of one without trusting the archive."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

docker_errors = pytest.importorskip("docker.errors", reason="needs docker (pip install docker)")

from harness import __version__
from harness.builder.toolchain import toolchain_of_image
from harness.errors import SandboxError
from sandboxes.docker.engine import DESCRIPTION, DockerEngine, Image, reference

ID = "sha256:" + "0123456789ab" + "c" * 52


class FakeContainer:
    """Never started; its archives are given."""

    def __init__(self, archives: dict[str, bytes]) -> None:
        self._archives = archives
        self.removed = False

    def get_archive(self, path: str, chunk_size: int) -> tuple[Iterator[bytes], dict[str, Any]]:
        if path not in self._archives:
            raise docker_errors.NotFound(f"no {path}")
        data = self._archives[path]
        return iter([data[i : i + 1000] for i in range(0, len(data), 1000)]), {}

    def remove(self, force: bool) -> None:
        self.removed = True


class FakeClient:
    """An engine with one image, that many things may be asked of."""

    def __init__(self, archives: dict[str, bytes]) -> None:
        self.images = self.containers = self
        self._archives = archives
        self.made: list[FakeContainer] = []
        self.attrs = {
            "Id": ID,
            "Created": "2026-11-21T00:00:00Z",
            "RootFS": {"Layers": ["sha256:aa", "sha256:bb"]},
            "Config": {"Labels": {"org.liftbench.image.version": "1.2", "org.liftbench.image.role": "build"}},
        }

    def get(self, name: str) -> FakeClient:
        if "none" in name:
            raise docker_errors.ImageNotFound("no such image")
        return self

    def create(self, image: str, **settings: Any) -> FakeContainer:
        assert image == ID and settings["network_disabled"]
        self.made.append(FakeContainer(self._archives))
        return self.made[-1]


def archive(**members: str | bytes | tuple[bytes, str]) -> bytes:
    """A tar: name -> contents, or (type, link name); `__` in a name stands for `/`, `up` for `..`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for key, value in members.items():
            entry = tarfile.TarInfo(
                "/".join(".." if p == "up" else p for p in key.split("__")).replace("_so", ".so")
            )
            if isinstance(value, tuple):
                entry.type, entry.linkname = value
                tar.addfile(entry)
                continue
            data = value.encode() if isinstance(value, str) else value
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def description(trees: list[dict[str, Any]], links: dict[str, str] | None = None) -> bytes:
    """The archive of an image's description."""
    return archive(**{"toolchain.json": json.dumps({"view": {"trees": trees, "links": links or {}}})})


def tree(path: str, names: str = "*", deep: bool = True) -> dict[str, Any]:
    """As descriptions list it."""
    return {"path": path, "names": names, "deep": deep}


def image_with(archives: dict[str, bytes]) -> tuple[Image, FakeClient]:
    """An image that holds them, by path."""
    client = FakeClient(archives)
    return Image(client, "liftbench/build:1.2"), client  # type: ignore[arg-type]


def test_a_missing_image_says_how_to_make_it():
    """The name and the command."""
    with pytest.raises(SandboxError, match=r"no image liftbench/none:1: make image"):
        Image(FakeClient({}), "liftbench/none:1")  # type: ignore[arg-type]


def test_a_view_has_what_the_description_lists(tmp_path):
    """By name and depth; links resolve as in the image, hard links and special files are left out."""
    made, client = image_with(
        {
            DESCRIPTION: description(
                [tree("/usr/lib/x", "*.so*", deep=False), tree("/opt/include"), tree("/usr/bin/py")],
                {"/lib": "usr/lib", "/opt/venv/bin/python": "/usr/bin/py"},
            ),
            "/usr/lib/x": archive(
                x__a_so="A",
                x__b_so=(tarfile.SYMTYPE, "a.so"),
                x__c="C",
                x__deep__d_so="D",
                x__pipe_so=(tarfile.FIFOTYPE, ""),
                x__dev_so=(tarfile.CHRTYPE, ""),
                x__hard_so=(tarfile.LNKTYPE, "x/a.so"),
            ),
            "/opt/include": archive(include__deep__h="H"),
            "/usr/bin/py": archive(py="PY"),
        }
    )
    view = made.view(tmp_path)
    assert view == tmp_path / "images/0123456789ab" and view.stat().st_mode & 0o777 == 0o755
    files = sorted(p.relative_to(view).as_posix() for p in view.rglob("*") if not p.is_dir())
    assert files == [
        "opt/include/deep/h",
        "opt/venv/bin/python",
        "usr/bin/py",
        "usr/lib/x/a.so",
        "usr/lib/x/b.so",
    ]
    assert (view / "lib/x/b.so").read_text() == "A" and (view / "opt/venv/bin/python").read_text() == "PY"
    assert (view / "usr/bin/py").stat().st_mode & 0o777 == 0o444
    assert all(container.removed for container in client.made)
    before = len(client.made)
    assert made.view(tmp_path) == view and len(client.made) == before  # made once


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../../../etc/passwd", "/../../etc/passwd"])
def test_no_link_leads_out_of_a_view(target, tmp_path):
    """As in a root directory of its own, `..` ends at the top."""
    made, _ = image_with(
        {
            DESCRIPTION: description([tree("/a/b")], {"/c/d": target}),
            "/a/b": archive(b__link=(tarfile.SYMTYPE, target)),
        }
    )
    view = made.view(tmp_path)
    for link in ("a/b/link", "c/d"):
        reached = Path(os.path.normpath((view / link).parent / (view / link).readlink()))
        assert reached == view / "etc/passwd"


@pytest.mark.parametrize(
    "archives",
    [
        {"/a": archive(a__up__up__up__evil="x")},
        {"/a": archive(a__link=(tarfile.SYMTYPE, "/tmp"), a__link__evil="x")},
        {"/a": b"no archive at all" * 100},
        {"/a": archive(a__f="x" * 5000)[:3000]},
        {},
    ],
    ids=["parent", "through a link", "no tar", "cut off", "not there"],
)
def test_an_archive_that_makes_no_sense_leaves_no_view(archives, tmp_path):
    """It is an error of ours, and nothing half-made stays."""
    made, client = image_with({DESCRIPTION: description([tree("/a")])} | archives)
    with pytest.raises(SandboxError):
        made.view(tmp_path)
    assert [p.name for p in (tmp_path / "images").iterdir()] == ["0123456789ab.lock"]
    assert list(tmp_path.rglob("evil")) == [] and all(container.removed for container in client.made)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        json.dumps({"view": {"trees": [tree("/a/../../b")], "links": {}}}),
        json.dumps({"view": {"trees": [], "links": {"/": "x"}}}),
        "x" * ((1 << 20) + 1),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(text, tmp_path):
    """With the command that makes a new image."""
    made, _ = image_with({DESCRIPTION: archive(**{"toolchain.json": text})})
    with pytest.raises(SandboxError, match="make image"):
        made.view(tmp_path)


def test_views_that_were_not_used_for_long_go(tmp_path):
    """Three stay; the newest is among them."""
    for number in range(4):
        old = tmp_path / "images" / f"old{number}"
        old.mkdir(parents=True)
        os.utime(old, (number, number))
    view = image_with({DESCRIPTION: description([])})[0].view(tmp_path)
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
