"""Runs all attacks on one backend. An attack that did not run is `unmeasured`, never `held`."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from harness.errors import InfraError, UsageError
from sandboxes.job import ExitFacts, Job, Limits, Process, RoleName, Sandbox
from sandboxes.registry import open_sandbox
from sandboxes.scratch import MAX_BYTES, CollectError
from tools.attacks.catalogue import Attack, all_attacks
from tools.attacks.world import World, remove_segment, segments

UNAVAILABLE = 5
"""Exit code of this program where the backend is unavailable."""
Verdict = Literal["held", "leaked", "unmeasured"]
PROCESSES = 48
FILES = 4_000
SCRATCH_MIB = 48
MEMORY_MIB = 512
_CLAIM = re.compile(r"^@ (\w+) (held|leaked|unmeasured|signal|end): (.*)$", re.MULTILINE)
_SHOWN = 90
_REMOVED_S = 60.0
_OUTPUT_BYTES = 1 << 18


@dataclass(frozen=True)
class Observation:
    """The result of one attack."""

    name: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True)
class Report:
    """The results of all attacks on one backend."""

    backend: str
    user: bool
    """Whether liftbench ran as a plain user."""
    facts: dict[str, str]
    seconds: float
    observations: tuple[Observation, ...]


def observe(sandbox: Sandbox, battery: Path, role: RoleName = "run") -> Report:
    """Run every attack. Raises SandboxError when a job cannot be started.

    In other roles than `run`, limits, results and the collector are left out (they are the same code), and
    deferral (nothing is measured while a build is frozen).
    """
    began = time.monotonic()
    attacks = [a for a in all_attacks() if role == "run" or a.family != "deferral"]
    with World(battery) as world:
        session = _Session(sandbox, battery, world, role)
        found = session.together([a for a in attacks if not a.alone])
        wanted = [a for a in attacks if a.alone and (role == "run" or a.family == "lifetime")]
        found += [session.alone(a) for a in wanted]
    seconds = round(time.monotonic() - began, 1)
    return Report(sandbox.name, os.geteuid() != 0, sandbox.facts(), seconds, tuple(found))


class _Session:
    def __init__(self, sandbox: Sandbox, battery: Path, world: World, role: RoleName) -> None:
        self._sandbox = sandbox
        self._battery = battery
        self._world = world
        self._role: RoleName = role
        self._mark = f"mark-{world.token}"

    def _start(self, words: list[str], limits: Limits, inputs: dict[str, Path]) -> Process:
        given = {"LB_PROCESSES": PROCESSES, "LB_FILES": FILES, "LB_SCRATCH_MIB": SCRATCH_MIB}
        job = Job(
            role=self._role,
            argv=["{scratch}/battery", "{channel}", *words],
            limits=limits,
            inputs={
                "battery": self._battery,
                f"mark-{self._world.token}": self._world.folder / "given",
                **inputs,
            },
            readable=[self._world.folder / "toolkit"],
            environment=self._world.words() | {k: str(v) for k, v in given.items()},
        )
        return self._sandbox.start(job)

    def together(self, attacks: list[Attack]) -> list[Observation]:
        """Attacks without side effects, in one job, while another trial runs."""
        world = self._world
        other = self._start(
            ["alone", "sleeper"], limits(wall_s=120), {"other-trial": world.folder / "other-trial"}
        )
        before = segments()
        process = self._start(
            [a.name for a in attacks], limits(wall_s=120), {"given": world.folder / "given"}
        )
        try:
            facts = _end(process)
            time.sleep(0.1)  # for the victim's and the listener's logs
            return [self._judge(a, facts, before) for a in attacks]
        finally:
            process.close()
            other.close()

    def _judge(self, attack: Attack, facts: ExitFacts, before: dict[int, int]) -> Observation:
        evidence = self._evidence(attack.name, facts.output, before)
        if evidence is not None:
            return Observation(attack.name, "leaked", evidence)
        believed = attack.name not in _SEEN_OUTSIDE
        return _claimed(attack.name, facts, believed)

    def _evidence(self, name: str, output: str, before: dict[int, int]) -> str | None:
        """Evidence outside the sandbox that an attack succeeded, or None."""
        world = self._world
        dropped = world.dropped(name)
        if dropped or name not in _WITNESSES:
            return dropped
        own = "\n".join(line for line in output.splitlines() if line.startswith(f"@ {name} "))
        return _WITNESSES[name](world, name, own, before)

    def alone(self, attack: Attack) -> Observation:
        """An attack whose job is judged by its end, or by what it leaves behind."""
        bounds = _BOUNDS.get(attack.name, limits())
        try:
            process = self._start(["alone", attack.name], bounds, {})
        except OSError as error:
            return Observation(attack.name, "unmeasured", str(error))
        try:
            if attack.family == "collector":
                return self._collected(attack.name, process)
            if attack.name.startswith("channel_"):
                return _channelled(attack.name, process)
            facts = _end(process)
            return self._ended(attack, facts)
        finally:
            process.close()

    def _ended(self, attack: Attack, facts: ExitFacts) -> Observation:
        name, end = attack.name, f"{facts.status}, code {facts.code}, signal {facts.signal}"
        if facts.status == "sandbox_error":
            return Observation(name, "leaked", f"counts as ours: {end}")
        if name in _ENDS:
            held = _ENDS[name](facts)
            return Observation(name, "held" if held else "leaked", end)
        if attack.family == "lifetime":
            outlived = self._world.outlived()
            if outlived is None and name == "ignore_signals" and facts.status != "wall_timeout":
                outlived = end
            return Observation(name, "leaked" if outlived else "held", outlived or f"gone: {end}")
        return _claimed(name, facts, believed=True)

    def _collected(self, name: str, process: Process) -> Observation:
        """Let the attack plant files, collect everything, and check the copies."""
        racing = name == "plant_swap"
        if not racing and (facts := _end(process)).status != "ok" and name not in _MAY_FAIL:
            return Observation(name, "unmeasured", f"did not plant: {facts.status} {facts.output[-_SHOWN:]}")
        problem, taken = None, 0
        until = time.monotonic() + 1.0
        while problem is None:
            with tempfile.TemporaryDirectory(prefix="collected-") as folder:
                try:
                    taken = len(process.collect(["*"], Path(folder)))
                    said = f"{taken} files taken"
                except CollectError as refusal:
                    said = f"refused: {refusal}"
                except (OSError, RecursionError, ValueError) as error:
                    problem = f"the collector failed: {type(error).__name__}: {error}"
                problem = problem or self._harm(name, Path(folder))
            if not racing or time.monotonic() > until:
                break
        process.close()
        left = self._left_after(_REMOVED_S)
        problem = problem or (f"scratch was not removed: {left[0].parent}" if left else None)
        return Observation(name, "leaked" if problem else "held", (problem or said)[:_SHOWN])

    def _left_after(self, within_s: float) -> list[Path]:
        """Scratch directories that are not removed yet; large ones are removed in the background."""
        deadline = time.monotonic() + within_s
        while True:
            left = [path for path in _job_folders() if os.path.lexists(path / self._mark)]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.1)

    def _harm(self, name: str, folder: Path) -> str | None:
        total = 0
        for path in folder.rglob("*"):
            facts = path.lstat()
            if stat.S_ISDIR(facts.st_mode):
                continue
            if not stat.S_ISREG(facts.st_mode):
                return f"{path.name!r} is no regular file"
            if facts.st_mode & 0o6000 or facts.st_uid != os.geteuid():
                return f"{path.name!r} kept its mode or owner"
            total += facts.st_size
            text = path.read_bytes()[:4096].decode(errors="replace")
            if self._world.read(text) or "root:x:0" in text or self._world.key in text:
                return f"{path.name!r} holds what the student may not read"
            if name == "plant_hardlink" and path.name in ("first", "second", "secret"):
                return f"{path.name!r} has a second name"
        return None if total <= MAX_BYTES else f"{total} bytes were taken"


def _job_folders() -> list[Path]:
    """The contents of job folders. Those of other users may be unreadable."""
    found: list[Path] = []
    for folder in Path(tempfile.gettempdir()).glob("liftbench-*"):
        with suppress(OSError):
            found += folder.iterdir()
    return found


def limits(
    wall_s: float = 20.0,
    cpu_s: float | None = None,
    output_bytes: int = _OUTPUT_BYTES,
    file_bytes: int = 64 << 20,
) -> Limits:
    """Small limits, which the attacks know."""
    return Limits(
        wall_s=wall_s,
        cpu_s=cpu_s,
        memory_bytes=MEMORY_MIB << 20,
        file_bytes=file_bytes,
        output_bytes=output_bytes,
        processes=PROCESSES,
        scratch_bytes=SCRATCH_MIB << 20,
        scratch_files=FILES,
    )


def _end(process: Process) -> ExitFacts:
    facts = process.wait(60.0)
    if facts is None:
        process.kill()
        facts = process.wait(10.0)
    if facts is None:
        raise TimeoutError("a job did not end when it was killed")
    return facts


def _claimed(name: str, facts: ExitFacts, believed: bool) -> Observation:
    """By its own report, or by how the job ended."""
    claims = [(m[2], m[3]) for m in _CLAIM.finditer(facts.output) if m[1] == name]
    said = dict(reversed(claims))  # the first of each kind
    if "unmeasured" in said:
        return Observation(name, "unmeasured", said["unmeasured"][:_SHOWN])
    if "leaked" in said:
        detail = said["leaked"][:_SHOWN]
        return Observation(
            name, "leaked" if believed else "held", detail if believed else f"only inside: {detail}"
        )
    if "held" in said:
        return Observation(name, "held", said["held"][:_SHOWN])
    if "signal" in said:
        return Observation(name, "held", f"killed by signal {said['signal']}")
    if facts.status in ("oom", "signal", "disk_limit", "cpu_timeout") and "end" not in said:
        return Observation(name, "held", f"stopped: {facts.status}")
    return Observation(name, "unmeasured", f"no result: {facts.status}: {facts.output[-_SHOWN:]!r}")


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _channelled(name: str, process: Process) -> Observation:
    """Read everything as the judge does, and check for leaked descriptors."""
    before = _descriptors()
    received, longest = 0, 0
    process.channel.settimeout(10)
    while data := process.channel.recv((1 << 16) + 1):
        received, longest = received + 1, max(longest, len(data))
        if name == "channel_handshake" and received == 5:
            break  # the next one is empty, which reads like an end
    facts = _end(process)
    more = _descriptors() - before
    detail = f"{received} messages, longest {longest}, {facts.status}, code {facts.code}"
    expected = ("nonzero", 3) if name == "channel_handshake" else ("ok", 0)
    held = (facts.status, facts.code) == expected and more < 20 and received > 0
    return Observation(name, "held" if held else "leaked", f"{detail}, {more} descriptors more")


def _printable(facts: ExitFacts) -> bool:
    # Only that the text arrived whole; harness.report, which a plain user cannot import here, cleans it.
    return "end" in facts.output and facts.status == "ok"


_SEEN_OUTSIDE = frozenset(
    ("write_tmp", "write_dev_shm", "write_input", "net_udp", "kill_all", "ipc_leftover")
)
"""Judged only by evidence outside: inside the sandbox they may succeed."""
_MAY_FAIL = frozenset(("plant_setuid", "plant_hardlink"))
"""A backend may refuse to create the file."""

_Witness = Callable[[World, str, str, dict[int, int]], str | None]


def _leftover(world: World, name: str, own: str, before: dict[int, int]) -> str | None:
    left = [number for number, size in segments().items() if number not in before and size == 1 << 16]
    mine = [number for number in left if f"segment {number} " in own]
    for number in mine:
        remove_segment(number)
    return f"segment {mine[0]} is still there" if mine else None


def _changed(world: World, name: str, own: str, before: dict[int, int]) -> str | None:
    return None if (world.folder / "given").read_text() == "ours" else "the original was changed"


def _secret(world: World, name: str, own: str, before: dict[int, int]) -> str | None:
    return world.read(own)


def _heard(world: World, name: str, own: str, before: dict[int, int]) -> str | None:
    return world.heard(name)


_WITNESSES: dict[str, _Witness] = {
    **dict.fromkeys(("read_secret", "read_public", "read_tasks", "hardlink_secret"), _secret),
    **dict.fromkeys(("net_tcp4", "net_tcp6", "net_udp", "net_abstract", "net_unix_path"), _heard),
    "kill_victim": lambda world, *_: world.signalled(signal.SIGUSR1),
    "pidfd": lambda world, *_: world.signalled(signal.SIGUSR2),
    "kill_all": lambda world, *_: world.signalled(signal.SIGWINCH),
    "ipc_leftover": _leftover,
    "write_input": _changed,
}
_ENDS: dict[str, Callable[[ExitFacts], bool]] = {
    "exit_97": lambda facts: (facts.status, facts.code) == ("nonzero", 97),
    "exit_125": lambda facts: (facts.status, facts.code) == ("nonzero", 125),
    "exit_signal": lambda facts: (facts.status, facts.signal) == ("signal", 9),
    "output_flood": lambda facts: facts.status == "output_limit" and len(facts.output) <= 1 << 16,
    "terminal_escapes": _printable,
}
_BOUNDS = {
    "ignore_signals": limits(wall_s=1.0),
    "cpu_spin": limits(cpu_s=1.0),
    "output_flood": limits(output_bytes=1 << 16),
    # Else the limit on one file would stand in for the one on memory.
    **dict.fromkeys(("memory_memfd", "memory_dev_shm"), limits(file_bytes=2 << 30)),
}


def load_report(text: str) -> Report:
    """The inverse of dump_report. Raises ValueError, KeyError or TypeError on anything else."""
    data = json.loads(text)
    data["observations"] = tuple(Observation(**one) for one in data["observations"])
    return Report(**data)


def dump_report(report: Report) -> str:
    return json.dumps(asdict(report), indent=1)


def main() -> None:
    """Exits with UNAVAILABLE, and a reason on stderr, where the backend is unavailable."""
    try:
        sandbox = open_sandbox(sys.argv[1])
    except (UsageError, InfraError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(UNAVAILABLE)
    try:
        Path(sys.argv[3]).write_text(dump_report(observe(sandbox, Path(sys.argv[2]))))
    finally:
        sandbox.close()


if __name__ == "__main__":
    main()
