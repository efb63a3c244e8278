"""Fetching header files from an index, keeping them, and giving them to the compilers."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import pytest

from harness.builder.fetch_headers import LIBRARIES, PYPI, Fetcher, Wheel, index_url, list_wheels, open_wheel
from harness.builder.headers import load_headers
from harness.builder.toolchain import Toolchain
from harness.cli.build import headers
from harness.errors import DownloadError, UsageError
from tests.fakes.index import serving, wheel_bytes
from tests.fakes.projects import fake_toolchain

LINUX = "py3-none-manylinux_2_27_x86_64"
CUTLASS = "nvidia_cutlass-3.6.0.0-py3-none-any.whl"


def metadata(cublas: str) -> bytes:
    """A cuda-toolkit wheel: every library, with markers and extras as the real one has them."""
    versions = {package: f"=={7 if package == 'nvidia-cufft' else 13}.0.1.*" for package in LIBRARIES}
    versions |= {"nvidia-cublas": f"=={cublas}.*", "nvidia-nvjitlink": "<14,>=13.0.1"}
    lines = [
        f"Requires-Dist: {n}{v}; (sys_platform == 'linux') and extra == 'x'" for n, v in versions.items()
    ]
    return wheel_bytes({"cuda_toolkit.dist-info/METADATA": "Name: cuda-toolkit\n" + "\n".join(lines) + "\n"})


def library_wheels() -> dict[str, bytes]:
    """One wheel with its header for each library, and some that must not be chosen."""
    wheels = {}
    for package, header in LIBRARIES.items():
        content = wheel_bytes(
            {f"nvidia/cu13/include/{header}": f"// {package}\n", "nvidia/cu13/lib/x.so": "ELF"}
        )
        version = "7.0.1.5" if package == "nvidia-cufft" else "13.0.1"
        wheels[f"{package.replace('-', '_')}-{version}-{LINUX}.whl"] = content
    other = wheel_bytes({"nvidia/cu13/include/cublas_v2.h": "// another\n"})
    for name in (f"13.0.2-{LINUX}", f"13.9.9-{LINUX}", "13.0.1-py3-none-win_amd64"):
        wheels[f"nvidia_cublas-{name}.whl"] = other
    wheels[f"nvidia_nvjitlink-13.5.0-{LINUX}.whl"] = other
    return wheels


def index_files() -> dict[str, bytes]:
    """An index with everything that the fake toolchain's headers need."""
    torch = {
        "torch/include/c10/cuda/impl/cuda_cmake_macros.h": "#define FROM_THE_CUDA_WHEEL\n",
        "torch/include/torch/all.h": "// both have it\n",
        "torch/lib/libtorch_cuda.so": "ELF",
    }
    return {
        **library_wheels(),
        "cuda_toolkit-13.0.1-py3-none-any.whl": metadata("13.9.9"),
        "cuda_toolkit-13.0.2-py3-none-any.whl": metadata("13.0.1"),
        "cuda_toolkit-13.1.0-py3-none-any.whl": metadata("13.9.9"),
        "torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl": wheel_bytes({"torch/lib/libtorch_cpu.so": ""}),
        "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl": wheel_bytes(torch, 1 << 10),
        "torch-2.13.0-cp311-cp311-win_amd64.whl": b"",
        CUTLASS: cutlass_wheel(),
    }


def cutlass_wheel() -> bytes:
    """Laid out as the real one."""
    source = "cutlass_library/source"
    return wheel_bytes(
        {
            f"{source}/include/cutlass/version.h": "#define CUTLASS_MAJOR 3\n",
            f"{source}/tools/util/include/cutlass/util/host_tensor.h": "// util\n",
            f"{source}/tools/library/src/gemm.cu": "// not a header that anybody asked for\n",
            f"{source}/include/../../../evil.h": "// outside\n",
        }
    )


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    """nvcc 13.0.88 without libraries, and a CPU-only torch 2.13.0."""
    found = fake_toolchain(tmp_path / "toolchain")
    assert found.torch_root is not None
    (found.torch_root / "include/torch").mkdir(parents=True)
    (found.torch_root / "include/torch/all.h").touch()
    return found


def fetcher(root: Path, index: str, said: list[str] | None = None) -> Fetcher:
    """Its progress messages go to `said`."""
    return Fetcher(root, index, ([] if said is None else said).append)


def contents(folder: Path) -> dict[str, str]:
    """Path -> text of every file but the manifest."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


def test_cuda_headers_match_nvcc_and_torch(toolchain, tmp_path):
    """Versions follow the newest toolkit of nvcc's release; only what toolkit and torch lack comes."""
    assert toolchain.cuda is not None and toolchain.cuda.include is not None
    toolchain.cuda.include.mkdir(parents=True)
    (toolchain.cuda.include / "nvrtc.h").touch()
    with serving(index_files()) as (index, _):
        libraries, torch = fetcher(tmp_path / "h", index).cuda(toolchain)
        mirrored = fetcher(tmp_path / "h2", index.replace("127.0.0.1", "localhost")).cuda(toolchain)
    assert (libraries.name, torch.name) == ("cuda-13.0", "torch-2.13.0")
    lacking = {package: header for package, header in LIBRARIES.items() if header != "nvrtc.h"}
    assert contents(libraries.root) == {f"include/{h}": f"// {package}\n" for package, h in lacking.items()}
    macros = {"include/c10/cuda/impl/cuda_cmake_macros.h": "#define FROM_THE_CUDA_WHEEL\n"}
    assert contents(torch.root) == macros
    assert "nvidia-cublas 13.0.1" in libraries.sources and "nvidia-nvjitlink 13.0.1" in libraries.sources
    assert load_headers(tmp_path / "h", "cuda-13.0") == libraries
    assert [h.digest for h in mirrored] == [libraries.digest, torch.digest]
    said: list[str] = []
    assert fetcher(tmp_path / "h", "http://127.0.0.1:9/simple", said).cuda(toolchain) == [libraries, torch]
    assert all("already there" in line for line in said), "the second call needs no network"


def test_cutlass_keeps_its_layout_and_stays_inside(tmp_path):
    """Sources and paths that lead outside do not come; a sandbox's user can read the rest."""
    before = os.umask(0o077)
    try:
        with serving(index_files()) as (index, _):
            found = fetcher(tmp_path / "h", index).cutlass("cutlass_3_6")
    finally:
        os.umask(before)
    assert sorted(contents(found.root)) == [
        "include/cutlass/version.h",
        "tools/util/include/cutlass/util/host_tensor.h",
    ]
    assert found.include == (found.root / "include", found.root / "tools/util/include")
    assert not list(tmp_path.rglob("evil.h"))
    modes = {path.stat().st_mode & 0o777 for path in (found.root, *found.root.rglob("*"))}
    assert modes == {0o755, 0o644}


def damaged(content: bytes) -> bytes:
    """The wheel with one wrong byte in the first member's data."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        first = archive.infolist()[0]
    at = first.header_offset + 30 + len(first.filename) + first.compress_size // 2
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


@pytest.mark.parametrize(
    "wheel",
    [
        damaged(cutlass_wheel()),
        wheel_bytes({"cutlass_library/source/include/a.h": bytes(9 << 20)}),
        wheel_bytes({"cutlass_library/elsewhere.h": ""}),
    ],
    ids=["damaged", "too large", "no headers"],
)
def test_a_bad_wheel_leaves_nothing_behind(wheel, tmp_path):
    """The set appears whole or not at all."""
    with serving({CUTLASS: wheel}) as (index, _), pytest.raises(DownloadError):
        fetcher(tmp_path / "h", index).cutlass("cutlass_3_6")
    assert list((tmp_path / "h").rglob("*")) == []


def test_the_command_fetches_and_prints(tmp_path, monkeypatch, capsys):
    """Progress on stderr, the sets on stdout, also as JSON; what cannot be fetched is a usage error."""
    monkeypatch.setenv("LIFTBENCH_HEADERS", str(tmp_path))
    with serving(index_files()) as (index, _):
        monkeypatch.setenv("PIP_INDEX_URL", index)
        headers(["cutlass_3_6"])
    printed = capsys.readouterr()
    assert "nvidia-cutlass 3.6.0.0" in printed.out and "cutlass_3_6: 2 files" in printed.err
    headers(["cutlass_3_6"], json_output=True)
    printed = capsys.readouterr()
    [record] = json.loads(printed.out)
    assert record["name"] == "cutlass_3_6" and "already there" in printed.err
    with pytest.raises(DownloadError, match="is this machine offline"):
        headers(["cutlass_3_8"])
    with pytest.raises(UsageError, match="there are cuda"):
        headers(["cublas"])
    with pytest.raises(UsageError, match=r"cutlass_3_9: PyPI has .*set CUTLASS_SRC_DIR to a checkout"):
        headers(["cutlass_3_9"])


NAME = "nvidia_cublas-13.1.1.3-py3-none-manylinux_2_27_x86_64.whl"
HEADER = "nvidia/cu13/include/cublas_v2.h"
HUGE = 20 << 20
"""More than what is read whole."""


def only_wheel(index: str) -> Wheel:
    """The single wheel of nvidia-cublas."""
    [wheel] = list_wheels(index, "nvidia-cublas")
    return wheel


@pytest.mark.parametrize("zip64", [False, True])
def test_one_header_of_a_huge_wheel_costs_little(zip64, monkeypatch):
    """Central directory and member are read, not the library beside them, also from a zip64 file."""
    if zip64:
        monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    files = {f"nvidia/cu13/include/x{n}.h": f"// {n}\n" for n in range(100)}
    content = wheel_bytes({**files, HEADER: "#pragma once\n"}, HUGE)
    assert (b"PK\x06\x06" in content) == zip64
    with serving({NAME: content}) as (index, fake):
        with open_wheel(only_wheel(index)) as archive:
            assert archive.read(HEADER) == b"#pragma once\n"
        assert fake.sent_bytes < len(content) // 20 and len(fake.requests) < 10


@pytest.mark.parametrize("ranges", [False, True])
def test_a_small_wheel_is_read_whole(ranges):
    """With or without ranges on the server, and then its SHA-256 is checked."""
    content = wheel_bytes({HEADER: "text"}, 1 << 20)
    with serving({NAME: content}, ranges=ranges) as (index, fake):
        wheel = only_wheel(index)
        with open_wheel(wheel) as archive:
            assert archive.read(HEADER) == b"text"
        assert len(fake.requests) <= 3
        with pytest.raises(DownloadError, match="SHA-256"):
            open_wheel(wheel._replace(sha256="0" * 64))


def test_what_a_server_does_wrong_is_said():
    """No ranges for a huge wheel, a part cut short, unknown packages, no zip file, no server."""
    content = wheel_bytes({HEADER: "text"}, HUGE)
    with (
        serving({NAME: content}, ranges=False) as (index, _),
        pytest.raises(DownloadError, match="does not serve parts of files"),
    ):
        open_wheel(only_wheel(index))
    with serving({NAME: content}) as (index, fake), open_wheel(only_wheel(index)) as archive:
        fake.wheels[NAME] = content[: 1 << 20]
        with pytest.raises(DownloadError, match="asked for"):
            archive.read("lib/huge.so")
    with serving({NAME: b"not a zip file"}) as (index, _):
        with pytest.raises(DownloadError, match="HTTP 404"):
            list_wheels(index, "no-such-package")
        with pytest.raises(DownloadError, match="is no wheel"):
            open_wheel(only_wheel(index))
    with pytest.raises(DownloadError, match="offline"):
        list_wheels(index, "nvidia-cublas")  # nobody listens there any more


def test_the_index_comes_from_the_environment():
    """As pip and uv know it; passwords are neither used nor printed."""
    assert index_url({}) == PYPI
    assert index_url({"PIP_INDEX_URL": "https://mirror/simple/"}) == "https://mirror/simple"
    assert index_url({"UV_INDEX_URL": "http://mirror/simple"}) == "http://mirror/simple"
    for bad in ("https://user:secret@mirror/simple", "file:///srv/simple"):
        with pytest.raises(UsageError) as refused:
            index_url({"PIP_INDEX_URL": bad})
        assert "secret" not in str(refused.value)
