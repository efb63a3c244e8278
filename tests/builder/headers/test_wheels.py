"""Single files of wheels over HTTP ranges, and what an index can answer instead."""

from __future__ import annotations

import zipfile

import pytest

from harness.builder.fetch_headers import PYPI, Wheel, index_url, list_wheels, open_wheel
from harness.errors import DownloadError, UsageError
from tests.fakes.index import serving, wheel_bytes

NAME = "nvidia_cublas-13.1.1.3-py3-none-manylinux_2_27_x86_64.whl"
HEADER = "nvidia/cu13/include/cublas_v2.h"
HUGE = 20 << 20
"""More than what is read whole."""


def only_wheel(index: str) -> Wheel:
    """The single wheel of nvidia-cublas."""
    [wheel] = list_wheels(index, "nvidia-cublas")
    return wheel


@pytest.mark.parametrize("as_json", [False, True])
def test_html_and_json_pages_say_the_same(as_json):
    """Name, version, tags, address and digest of each wheel; what is no wheel is left out."""
    files = {NAME: b"x", "nvidia_cublas-0.0.1.dev4.tar.gz": b"y"}
    with serving(files, as_json=as_json) as (index, fake):
        wheel = only_wheel(index)
    assert (wheel.name, wheel.version) == ("nvidia_cublas", "13.1.1.3")
    assert wheel.release == (13, 1, 1, 3) and wheel.sha256 == fake.digests[NAME]
    assert wheel.url == index.removesuffix("/simple") + f"/files/{NAME}"


def test_wheels_know_their_platform():
    """Any platform fits; Linux on another processor, Windows and macOS do not."""
    tags = {
        "py3-none-any": True,
        "py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64": True,
        "cp311-cp311-manylinux_2_28_aarch64": False,
        "py3-none-win_amd64": False,
        "cp311-none-macosx_11_0_x86_64": False,
    }
    for tag, fits in tags.items():
        assert Wheel(name="a", version="1", tags=tag, url="http://x/").fits("x86_64") == fits
    assert Wheel(name="a", version="13.7.0rc1", tags="a-b-c", url="http://x/").release is None


def test_one_header_of_a_huge_wheel_costs_little():
    """Central directory and member are read; the library beside them is not."""
    files = {f"nvidia/cu13/include/x{n}.h": f"// {n}\n" for n in range(2_000)}
    content = wheel_bytes({**files, HEADER: "#pragma once\n"}, HUGE)
    with serving({NAME: content}) as (index, fake):
        with open_wheel(only_wheel(index)) as archive:
            assert archive.read(HEADER) == b"#pragma once\n"
        assert fake.sent_bytes < len(content) // 20 and len(fake.requests) < 10


def test_zip64_wheels_are_read(monkeypatch):
    """The wheels of torch are too large for the old format."""
    # The standard library then writes the 64-bit records for two files as for 70,000.
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    content = wheel_bytes({HEADER: "a", "other": "b"}, HUGE)
    monkeypatch.undo()
    assert b"PK\x06\x06" in content[-500:]
    with serving({NAME: content}) as (index, _), open_wheel(only_wheel(index)) as archive:
        assert archive.read(HEADER) == b"a"


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
            open_wheel(wheel.model_copy(update={"sha256": "0" * 64}))


def test_a_huge_wheel_without_ranges_is_refused():
    """Hundreds of megabytes for a header would be no service; the message names the way out."""
    content = wheel_bytes({HEADER: "text"}, HUGE)
    with (
        serving({NAME: content}, ranges=False) as (index, _),
        pytest.raises(DownloadError, match="does not serve parts of files"),
    ):
        open_wheel(only_wheel(index))


def test_what_is_no_index_or_wheel_is_said():
    """Unknown packages, pages that are no index, and files that are no zip."""
    with serving({NAME: b"not a zip file"}, as_json=True) as (index, _):
        with pytest.raises(DownloadError, match="HTTP 404"):
            list_wheels(index, "no-such-package")
        with pytest.raises(DownloadError, match="is no wheel"):
            open_wheel(only_wheel(index))
    with pytest.raises(DownloadError, match="offline"):
        list_wheels(index, "nvidia-cublas")  # nobody listens there any more


def test_a_cut_off_part_is_an_error():
    """A server that sends less than it was asked for does not give a shorter header."""
    content = wheel_bytes({HEADER: "text"}, HUGE)
    with serving({NAME: content}) as (index, fake), open_wheel(only_wheel(index)) as archive:
        fake.wheels[NAME] = content[: 1 << 20]
        with pytest.raises(DownloadError, match="asked for"):
            archive.read("lib/huge.so")


def test_the_index_comes_from_the_environment():
    """As pip and uv know it; passwords are neither used nor printed."""
    assert index_url({}) == PYPI
    assert index_url({"PIP_INDEX_URL": "https://mirror/simple/"}) == "https://mirror/simple"
    assert index_url({"UV_INDEX_URL": "http://mirror/simple"}) == "http://mirror/simple"
    for bad in ("https://user:secret@mirror/simple", "file:///srv/simple"):
        with pytest.raises(UsageError) as refused:
            index_url({"PIP_INDEX_URL": bad})
        assert "secret" not in str(refused.value)
