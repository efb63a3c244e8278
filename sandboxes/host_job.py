"""What a job is given on this host: a user, a folder, a control group, a GPU, files, its spec."""

from __future__ import annotations

import base64
import itertools
import json
import os
import pwd
import random
import re
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from harness.errors import SandboxError
from sandboxes.cgroups import Cgroup, Cgroups
from sandboxes.gpu import (
    checked_environment,
    device_nodes,
    driver_environment,
    driver_libraries,
    find_gpus,
    slot_named,
)
from sandboxes.host_process import CHANNEL_NUMBER, INSIDE, HostProcess, SpawnSpec
from sandboxes.job import Job
from sandboxes.orphans import owned_prefix
from sandboxes.reaper import processes, stat_of
from sandboxes.scratch import remove_tree
from sandboxes.seccomp import compile_filter, job_filter, profile, without_hidden_memory

_ADDRESS_SLACK_BYTES: Final = 16 << 30
_UIDS: Final = range(20_000, 60_000)  # below 65536: a user namespace may map no more
CHOWN, KILL, SETGID, SETUID, SYS_ADMIN = 0, 5, 6, 7, 21  # linux/capability.h


class FreeUsers:
    def __init__(self) -> None:
        self._numbers = itertools.count(random.SystemRandom().randrange(len(_UIDS)))
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """An id without account and processes; None where this process may not change users."""
        if os.geteuid() != 0 or not can_change_users():
            return None
        with self._lock:
            busy = {uid for _, uid in processes()}
            for number in itertools.islice(self._numbers, len(_UIDS)):
                uid = _UIDS[number % len(_UIDS)]
                if uid not in busy and not _has_account(uid):
                    return uid
        raise SandboxError(f"no user id in {_UIDS} is free")


def can_change_users(*more: int) -> bool:
    """Whether this process can start and kill processes of other users, and has the capabilities `more`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            held = int(line.split()[1], 16)
            return all(held >> number & 1 for number in (CHOWN, KILL, SETGID, SETUID, *more))
    return False


def _has_account(uid: int) -> bool:
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False


def threads_of(uid: int) -> int:
    """How many threads `uid` runs now, as RLIMIT_NPROC counts them."""
    counts = [stat_of(pid)[17:18] for pid, owner in processes() if owner == uid]
    return sum(int(number) for found in counts for number in found)


@dataclass(frozen=True)
class HostGpu:
    nodes: tuple[Path, ...] = ()
    libraries: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def gpu_of(job: Job) -> HostGpu:
    if job.device is None:
        return HostGpu()
    slot = slot_named(job.device, find_gpus())
    libraries = driver_libraries()
    variables = {"CUDA_VISIBLE_DEVICES": slot.uuid} | driver_environment(libraries)
    return HostGpu(tuple(device_nodes(slot)), tuple(libraries), variables)


def environment_of(job: Job, scratch: str, gpu: HostGpu | None = None) -> dict[str, str]:
    """A scrubbed environment with the job's own variables. Raises SandboxError."""
    base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": scratch, "TMPDIR": scratch, "LANG": "C.UTF-8"}
    return base | checked_environment(job.environment) | dict(gpu.environment if gpu else {})


def profile_for(job: Job, *, sockets: bool, counted: bool, rulesets: bool = False) -> bytes:
    """The job's filter followed by our profile, for this machine. Raises SandboxError.

    `counted`: a control group counts all memory, so that none is hidden; CUDA needs hidden memory too.
    `rulesets`: Landlock rulesets are still to be made after it.
    """
    machine, hidden = os.uname().machine, counted or job.device is not None
    return job_filter(job, machine, _program(machine, sockets, hidden, rulesets))


@cache
def _program(machine: str, sockets: bool, hidden: bool, rulesets: bool) -> bytes:
    found = profile() if hidden else without_hidden_memory(profile())
    gone = () if rulesets else ("landlock_create_ruleset",)
    return compile_filter(found, machine, sockets=sockets, also_refuse=gone)


def new_folder(uid: int | None) -> Path:
    """A folder for one job, with a `scratch` directory that belongs to `uid`. Raises SandboxError."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=owned_prefix("job")))
    except OSError as error:
        raise SandboxError(f"no folder for a job: {error}; is the disk full?") from error
    try:
        (folder / "scratch").mkdir(mode=0o700)
        if uid is not None:
            folder.chmod(0o711)
            os.chown(folder / "scratch", uid, uid)
    except OSError as error:
        remove_tree(folder)
        raise SandboxError(f"no folder for a job: {error}") from error
    return folder


def group_for(job: Job, groups: Cgroups | None, *, scratch_counts: bool) -> Cgroup | None:
    """A control group with the job's limits (`scratch_counts`: and scratch). Raises SandboxError."""
    if groups is None:
        return None
    limits, memory = job.limits, job.limits.memory_bytes
    if memory is not None and scratch_counts:
        memory += limits.scratch_bytes
    name = owned_prefix("job") + secrets.token_hex(6)
    return groups.create(name, memory_bytes=memory, processes=limits.processes)


def spec_for(
    job: Job,
    *,
    scratch: str,
    environment: dict[str, str],
    seccomp: bytes,
    caps_memory: bool,
    processes: int | None,
    channel: str = CHANNEL_NUMBER,
    die_with_parent: bool = True,
    landlock: Sequence[Any] | None = None,
    counted: Sequence[str] = (),
    reaps: bool = True,
) -> str:
    """The argument of inside.py.

    `counted`: other directories in memory whose files count as scratch. `reaps`: it becomes the subreaper
    of orphans. `processes`: RLIMIT_NPROC, which counts all processes of the user.
    """
    limits, memory = job.limits, job.limits.memory_bytes
    # A backstop for the watchdog. CUDA reserves far more than it uses: 280 GiB for one pool on an H200.
    backstop = None if memory is None or job.device or caps_memory else 2 * memory + _ADDRESS_SLACK_BYTES
    return json.dumps(
        {
            "channel": channel,
            "scratch": scratch,
            "environment": environment,
            "limits": {
                "cpu_s": None if limits.cpu_s is None else int(limits.cpu_s) + 1,
                "file_bytes": limits.file_bytes,
                "address_bytes": backstop,
                "processes": processes,
            },
            "landlock": landlock,
            "counted": list(counted),
            "seccomp": base64.b64encode(seccomp).decode(),
            "reaps": reaps,
            "die_with_parent": die_with_parent,
            "preload": list(job.preload),
            "site": [str(path) for path in job.site],
        }
    )


def start_inside(
    job: Job,
    uid: int | None,
    readable: Iterable[Path],
    spec: Callable[[str], str],
    groups: Cgroups | None = None,
) -> HostProcess:
    """Start inside.py, which restricts itself, without another program around it. Raises SandboxError.

    `spec` makes its argument from the path of the scratch directory.
    """
    folder = new_folder(uid)
    try:
        command = [sys.executable, "-I", "-S", str(INSIDE), spec(str(folder / "scratch"))]
        cgroup = group_for(job, groups, scratch_counts=False)
    except BaseException:
        remove_tree(folder)
        raise
    return HostProcess(SpawnSpec(job, command, folder, [*readable, INSIDE, folder / "scratch"], uid, cgroup))


_SYSTEM: Final = Path("/usr")
_TOP: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC: Final = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives")
# glibc and torch count cores and memory nodes here.
_MACHINE: Final = ("/sys/devices/system/cpu", "/sys/devices/system/node")
# CUDA looks up the GPU and its links here.
_MACHINE_WITH_GPU: Final = ("/sys/devices", "/sys/bus/pci", "/sys/module")
# For scripts; the rest of /usr/bin is for builds or interactive use.
_TOOLS: Final = ("sh", "env", "uname")
_LIBRARIES: Final = ("lib", "lib32", "lib64", "libx32")
_CUDA_LIBRARIES: Final = ("local/cuda*/lib64", "local/cuda*/targets/*/lib")
# Compilers' folders below `lib`, and in wheels.
_COMPILERS: Final = re.compile(r"gcc(-cross)?|llvm.*|clang.*|bfd-plugins|rustlib|go(-.*)?")
_WHEELS: Final = ("nvidia/*/bin", "nvidia/*/nvvm", "nvidia/cuda_nvcc", "triton/backends/*/bin", "ziglang")


@dataclass(frozen=True)
class View:
    shown: tuple[Path, ...]
    hidden: tuple[Path, ...]
    """Excluded from `shown`; a path of `shown` may lie below it again."""
    links: tuple[tuple[Path, str], ...]
    """Top-level links (such as /lib) and their targets."""

    def in_order(self) -> list[tuple[Path, bool]]:
        both = [(path, True) for path in self.shown] + [(path, False) for path in self.hidden]
        return sorted(both, key=lambda entry: entry[0].parts)

    def granted(self) -> Iterator[tuple[Path, bool]]:
        """The same as an allow list: paths, with whether everything below or only the listing is readable."""
        hidden = set(self.hidden)
        above = {parent for path in hidden for parent in path.parents}
        for path in self.shown:
            if path.resolve() == path:
                yield from _granted(path, hidden, above)


def view_for(job: Job, also: Iterable[Path] = ()) -> View:
    """What `job` may read, with `also` (driver libraries). Raises SandboxError for a missing path."""
    run = job.role == "run"
    wanted = [*(_system_libraries() if run else [_SYSTEM]), *_interpreter(run)]
    wanted += [path for name in _ETC if (path := Path("/etc") / name).exists()]
    machine = (*_MACHINE, *_MACHINE_WITH_GPU) if job.device else _MACHINE
    wanted += [path for name in machine if (path := Path(name)).exists()]
    links = []
    for name in _TOP:
        path = Path("/") / name
        if path.is_symlink():
            links.append((path, str(path.readlink())))
        elif path.is_dir():
            wanted.append(path)
    for path in [*job.readable, *job.site, *also]:
        if not path.exists():
            raise SandboxError(f"a job is to read {path}, which does not exist")
        wanted.append(Path(os.path.abspath(path)))  # noqa: PTH100 - keep links
    real = {path.resolve() for path in wanted}
    # Targets of top-level links are shown under their own name.
    aliases = {p: p.resolve() for p in wanted if not any(link in p.parents for link, _ in links)}
    # Our own source: the whole checkout, or the two installed packages.
    root = Path(__file__).resolve().parents[1]
    ours = [root] if (root / "pyproject.toml").is_file() else [root / "harness", root / "sandboxes"]
    hidden = {*ours, *(_compilers(real) if run else [])}
    hidden |= {
        alias / path.relative_to(place)
        for alias, place in aliases.items()
        for path in hidden
        if path.is_relative_to(place)
    }
    return _without_repeats({*real, *aliases}, hidden, links)


def _system_libraries() -> list[Path]:
    found = [_SYSTEM / part / name for part in (".", "local") for name in _LIBRARIES]
    found += [path for pattern in _CUDA_LIBRARIES for path in _SYSTEM.glob(pattern)]
    found += [_SYSTEM / "bin" / name for name in _TOOLS]
    return [path for path in found if path.exists()]


def _interpreter(run: bool) -> list[Path]:
    """This Python: its whole prefixes, or with `run` only what it needs at run time."""
    prefixes = dict.fromkeys(Path(p) for p in (sys.prefix, sys.base_prefix, sys.base_exec_prefix))
    if not run:
        return [p for p in prefixes if not p.is_relative_to(_SYSTEM)] + _chain(Path(sys.executable))
    parts = [p / name for p in prefixes for name in (*_LIBRARIES, "pyvenv.cfg")]
    return [path for path in parts if path.exists()] + _chain(Path(sys.executable))


def _chain(path: Path) -> list[Path]:
    """A path and every link target on the way to the file, as for a virtual environment's python."""
    found = [path]
    while found[-1].is_symlink():
        found.append(Path(os.path.normpath(found[-1].parent / found[-1].readlink())))
    return found


def _compilers(shown: Iterable[Path]) -> Iterator[Path]:
    for path in shown:
        inner = list(path.iterdir()) if path.name in _LIBRARIES else []
        yield from (entry for entry in inner if _COMPILERS.fullmatch(entry.name))
        pythons = [entry for entry in inner if entry.name.startswith("python3")]
        sites = [entry / f"{kind}-packages" for entry in pythons for kind in ("site", "dist")]
        for site in [path, *sites]:
            if site.name.endswith("-packages") and site.is_dir():
                yield from (found for pattern in _WHEELS for found in site.glob(pattern))


def _without_repeats(shown: set[Path], hidden: set[Path], links: list[tuple[Path, str]]) -> View:
    kept: dict[Path, bool] = {}
    for path in sorted(shown | hidden, key=lambda p: p.parts):
        nearest = next((parent for parent in path.parents if parent in kept), None)
        visible = path in shown  # a requested path overrides an exclusion
        if visible != (nearest is not None and kept[nearest]) and (visible or path.exists()):
            kept[path] = visible
    return View(
        tuple(path for path, visible in kept.items() if visible),
        tuple(path for path, visible in kept.items() if not visible),
        tuple(links),
    )


def _granted(path: Path, hidden: set[Path], above: set[Path]) -> Iterator[tuple[Path, bool]]:
    if path in hidden:
        return
    if path not in above:
        yield path, True
        return
    yield path, False
    with os.scandir(path) as entries:
        inner = [path / entry.name for entry in entries if not entry.is_symlink()]
    for entry_path in inner:
        yield from _granted(entry_path, hidden, above)
