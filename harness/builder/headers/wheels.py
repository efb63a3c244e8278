"""Single files out of wheels on a package index, without downloading the wheels.

What comes over the network is bounded before it is read; every file's CRC is checked (by zipfile), and the
SHA-256 of a wheel that was read whole.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import re
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from harness.errors import DownloadError, UsageError
from harness.records import Record

PYPI: Final = "https://pypi.org/simple"
_ACCEPT: Final = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_TIMEOUT_S: Final = 60.0
_PAGE_LIMIT: Final = 32 << 20  # torch's page had 365 kB in 2026
_BLOCK: Final = 64 << 10
_WHOLE: Final = 16 << 20
"""Wheels up to this size are read whole: one request, and their SHA-256 can be checked."""
_WHEEL = re.compile(
    r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>[^-/]+)(-\d[^-/]*)?-(?P<tags>[^-/]+-[^-/]+-[^-/]+)\.whl"
)


class Wheel(Record):
    """One wheel of an index."""

    name: str
    """As in its file name, such as nvidia_cublas."""
    version: str
    tags: str
    """Such as cp311-cp311-manylinux_2_28_x86_64."""
    url: str
    sha256: str | None = None
    """From the index; None where it gives none."""

    @property
    def release(self) -> tuple[int, ...] | None:
        """(13, 0, 88); None for anything but plain numbers, such as a release candidate."""
        plain = re.fullmatch(r"\d+(\.\d+)*", self.version)
        return tuple(int(part) for part in self.version.split(".")) if plain else None

    def fits(self, machine: str) -> bool:
        """Whether its files are those of Linux on `machine`, such as x86_64, or of any platform."""
        platform = self.tags.rpartition("-")[2]
        return platform == "any" or ("linux" in platform and platform.endswith(machine))


def index_url(env: Mapping[str, str]) -> str:
    """The simple index that pip or uv would ask, as far as the environment says. Raises UsageError."""
    for variable in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        given = env.get(variable)
        if not given:
            continue
        parts = urlsplit(given)
        if parts.scheme not in ("http", "https") or parts.username is not None:
            # Not printed: it may hold a password.
            raise UsageError(f"{variable}: only http(s) indexes without a user name can be asked for headers")
        return given.rstrip("/")
    return PYPI


def list_wheels(index: str, package: str) -> list[Wheel]:
    """All wheels of `package`. Raises DownloadError."""
    page_url = f"{index}/{package}/"
    with _open(page_url, {"Accept": _ACCEPT}) as response:
        page = _read(response, _PAGE_LIMIT, page_url)
        kind = response.headers.get_content_type()
        base = response.geturl()
    try:
        links = list(_json_links(page) if kind.endswith("json") else _html_links(page.decode()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DownloadError(f"{page_url} is no package index: {type(error).__name__}") from error
    wheels = []
    for link, sha256 in links:
        url = urljoin(base, link)
        named = _WHEEL.fullmatch(unquote(urlsplit(url).path.rpartition("/")[2]))
        if named is not None and urlsplit(url).scheme in ("http", "https"):
            name, version, tags = named["name"], named["version"], named["tags"]
            wheels.append(Wheel(name=name, version=version, tags=tags, url=url, sha256=sha256))
    return wheels


def open_wheel(wheel: Wheel) -> zipfile.ZipFile:
    """The wheel as a zip file, read as needed. Raises DownloadError; so may reading from it."""
    with _open(wheel.url, {"Range": f"bytes=0-{_BLOCK - 1}"}) as response:
        total = _total_bytes(response, wheel.url)
        if response.status != 206:
            if total is None or total > _WHOLE:
                size = "of unknown size" if total is None else f"of {total >> 20} MiB"
                raise DownloadError(
                    f"{_host(wheel.url)} does not serve parts of files (HTTP ranges), and "
                    f"{wheel.name} {wheel.version} is a file {size}: use PyPI or a mirror that does"
                )
            return _whole(wheel, _read(response, _WHOLE, wheel.url))
        assert total is not None, "_total_bytes refuses a part of an unknown whole"
        first = _read(response, _BLOCK, wheel.url)
        if len(first) != min(_BLOCK, total):
            raise DownloadError(f"{wheel.url}: asked for {_BLOCK} bytes, got {len(first)}")
    stream = _RemoteFile(wheel.url, total, first)
    if total <= _WHOLE:
        return _whole(wheel, stream.read(total))
    return _zip(wheel, io.BufferedReader(stream, _BLOCK))


def _whole(wheel: Wheel, content: bytes) -> zipfile.ZipFile:
    if wheel.sha256 is not None and hashlib.sha256(content).hexdigest() != wheel.sha256:
        raise DownloadError(f"{wheel.url}: the SHA-256 is not the index's: try again, or another mirror")
    return _zip(wheel, io.BytesIO(content))


def _zip(wheel: Wheel, stream: Any) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, ValueError) as error:
        raise DownloadError(f"{wheel.url} is no wheel: {error}") from error


class _RemoteFile(io.RawIOBase):
    """A file that is read by ranges; blocks that were read are kept."""

    def __init__(self, url: str, size_bytes: int, first: bytes) -> None:
        self._url = url
        self._size = size_bytes
        self._position = 0
        self._blocks = {0: first}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError("seek before the start of the file")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        self._load(range(self._position // _BLOCK, (end - 1) // _BLOCK + 1))
        number, offset = divmod(self._position, _BLOCK)
        piece = b"".join(self._blocks[n] for n in range(number, (end - 1) // _BLOCK + 1))
        piece = piece[offset : offset + end - self._position]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def _load(self, numbers: range) -> None:
        """One request for everything from the first block that is missing to the last."""
        missing = [n for n in numbers if n not in self._blocks]
        if not missing:
            return
        start, end = missing[0] * _BLOCK, min((missing[-1] + 1) * _BLOCK, self._size)
        with _open(self._url, {"Range": f"bytes={start}-{end - 1}"}) as response:
            content = _read(response, end - start, self._url)
            if response.status != 206 or len(content) != end - start:
                raise DownloadError(f"{self._url}: asked for {end - start} bytes, got {len(content)}")
        for number in range(missing[0], missing[-1] + 1):
            at = (number - missing[0]) * _BLOCK
            self._blocks[number] = content[at : at + _BLOCK]


# --- HTTP ------------------------------------------------------------------------------------


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _open(url: str, headers: Mapping[str, str]) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "liftbench", **headers})
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"{url}: HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise DownloadError(f"cannot reach {_host(url)}: {reason} (is this machine offline?)") from error


def _read(response: Any, limit_bytes: int, url: str) -> bytes:
    try:
        content: bytes = response.read(limit_bytes + 1)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"{url}: the connection broke: {error}") from error
    if len(content) > limit_bytes:
        raise DownloadError(f"{url}: more than the {limit_bytes} bytes that were expected")
    return content


def _total_bytes(response: Any, url: str) -> int | None:
    if response.status == 206:
        total = re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if total is None:
            raise DownloadError(f"{url}: a part of a file without its total size")
        return int(total[1])
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


# --- index pages -----------------------------------------------------------------------------


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _html_links(page: str) -> Iterator[tuple[str, str | None]]:
    """(link, SHA-256) as PEP 503 writes them: the digest stands in the fragment."""
    parser = _Anchors()
    parser.feed(page)
    for link in parser.links:
        url, fragment = urldefrag(link)
        digest = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
        yield url, digest[1] if digest else None


def _json_links(page: bytes) -> Iterator[tuple[str, str | None]]:
    """(link, SHA-256) as PEP 691 writes them."""
    for file in json.loads(page)["files"]:
        digest = file["hashes"].get("sha256")
        yield str(file["url"]), digest if isinstance(digest, str) else None
