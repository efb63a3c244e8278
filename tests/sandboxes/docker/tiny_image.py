"""An image that holds no more than this machine's Python, where our images have theirs, and a shell.

Made in about a second without a registry, apt or pip.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

PLACE = "opt/liftbench/venv"
_LEFT_OUT = re.compile(
    r"/(test|tests|idlelib|ensurepip|lib2to3|tkinter|turtledemo|site-packages|config-[^/]*)(/|$)"
)
_EMPTY = ("dev", "etc", "proc", "scratch", "sys", "tmp", "root", "run", "usr/bin", "var/tmp")


def make_tiny_image(client: Any, reference: str) -> None:
    """Import it under that name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=False) as archive:
        for name in _EMPTY:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        _add_python(archive)
    repository, _, tag = reference.rpartition(":")
    client.api.import_image_from_data(buffer.getvalue(), repository=repository, tag=tag)


def _add_python(archive: tarfile.TarFile) -> None:
    base = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    binary = (base / "bin" / version).resolve()
    library = base / "lib" / version
    objects = [binary, Path("/bin/sh").resolve(), *library.glob("lib-dynload/*.so")]
    archive.add(binary, f"{PLACE}/bin/python")
    archive.add(Path("/bin/sh").resolve(), "bin/sh")
    archive.add(library, f"{PLACE}/lib/{version}", filter=_wanted)
    for name, file in _shared_libraries(objects).items():
        archive.add(file, name)


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.mode |= 0o444 | (0o111 if member.isdir() else 0)
    return None if _LEFT_OUT.search(f"/{member.name}") else member


def _shared_libraries(objects: list[Path]) -> dict[str, Path]:
    """Name in the image -> file, by what the loader says; libraries of another prefix go beside libc."""
    found: dict[str, Path] = {}
    told = subprocess.run(["ldd", *objects], capture_output=True, text=True, check=False).stdout
    for name, path in re.findall(r"^\s*(?:(\S+) => )?(/\S+) \(0x", told, flags=re.MULTILINE):
        standard = path.startswith(("/lib", "/usr/lib"))
        found[path.lstrip("/") if standard else f"usr/lib/{name}"] = Path(path).resolve()
    return found
