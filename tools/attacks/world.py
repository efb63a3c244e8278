"""Targets outside the sandbox: planted secrets, listeners and a victim process, and what happened to them.

A secret's text (except the key's, which attacks must recognize) is in no environment, argument or input of
a job: if it appears in a job's output, it was read.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

_VICTIM = """
import os, signal, sys, time
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda got, frame: os.write(log, f"{got}\\n".encode()))
print("ready", flush=True)
while True:
    time.sleep(60)
"""
_EVERYWHERE = (
    *("/", "/etc", "/etc/cron.d", "/usr/bin", "/usr/local/bin", "/usr/lib", "/usr/local/lib", "/bin", "/lib"),
    *("/opt", "/tmp", "/var/tmp", "/dev", "/dev/shm", "/dev/mqueue", "/run", "/run/lock", "/home", "/mnt"),
    *("/usr/local/cuda/bin", "/sys/fs/bpf", "/liftbench"),
)
_IPC_PRIVATE, _IPC_RMID, _IPC_CREAT = 0, 0, 0o1000


class World:
    """Use as a context manager."""

    def __init__(self, battery: Path) -> None:
        """`battery`: the program of all attacks, copied here as a setuid program where we are root."""
        self.token = f"lb{secrets.token_hex(4)}"
        self.comm = self.token[:15]
        self.secrets = {kind: secrets.token_hex(12) for kind in ("private", "public", "task", "key", "tool")}
        self.folder = Path(tempfile.mkdtemp(prefix="outside-", dir="/var/tmp"))
        self._battery = battery
        self._heard: list[bytes] = []
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._stop = threading.Event()
        self._segment = -1

    def __enter__(self) -> World:
        try:
            self._plant_files()
            self._listen()
            self._start_victim()
            self._share_memory()
            os.environ["LIFTBENCH_API_KEY"] = self.key
        except BaseException:
            self.__exit__()
            raise
        return self

    @property
    def key(self) -> str:
        """In our environment and in the victim's."""
        return f"sk-canary-{self.secrets['key']}"

    def _plant_files(self) -> None:
        folder = self.folder
        folder.chmod(0o755)
        for name, mode in (("private", 0o600), ("public", 0o644), ("task", 0o644)):
            path = folder / name
            path.write_text(f"{self.token} {self.secrets[name]}\n")
            path.chmod(mode)
        for name, mode in (("toolkit", 0o755), ("open", 0o777), ("home", 0o755)):
            (folder / name).mkdir()
            (folder / name).chmod(mode)
        (folder / "toolkit/nvcc").write_text("nvcc\n")
        (folder / "toolkit/nvcc").chmod(0o755)
        (folder / "given").write_text("ours")
        (folder / "other-trial").write_text(f"other-{self.token}")
        (folder / "other-trial").chmod(0o600)
        (folder / "home/own-file").write_text("ours")
        (folder / "home/own-file").chmod(0o600)
        (folder / "signals").touch()
        if os.geteuid() == 0:
            shutil.copyfile(self._battery, folder / "setuid")
            (folder / "setuid").chmod(0o4755)

    def _listen(self) -> None:
        tcp = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port = tcp.getsockname()[1]
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", self.port))
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind(f"\0{self.token}")
        path = socket.socket(socket.AF_UNIX)
        path.bind(str(self.folder / "socket"))
        (self.folder / "socket").chmod(0o777)
        self._sockets = [tcp, udp, abstract, path]
        with contextlib.suppress(OSError):  # a machine without IPv6
            self._sockets.append(socket.create_server(("::1", self.port), family=socket.AF_INET6))
        for one in self._sockets:
            if one.type != socket.SOCK_DGRAM:
                one.listen(16)
            one.setblocking(False)
            self._selector.register(one, selectors.EVENT_READ, one)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select(0.1):
                one = key.data
                if one.type == socket.SOCK_DGRAM:
                    self._heard.append(one.recv(4096))
                    continue
                connection, _ = one.accept()
                with connection:
                    connection.settimeout(2)
                    with contextlib.suppress(OSError):
                        self._heard.append(connection.recv(4096) or b"(silence)")

    def _start_victim(self) -> None:
        words = [sys.executable, "-I", "-S", "-c", _VICTIM, str(self.folder / "signals")]
        self.victim = subprocess.Popen(
            [*words, f"victim-{self.token}"],
            env={"LIFTBENCH_API_KEY": self.key, "PATH": "/usr/bin"},
            stdout=subprocess.PIPE,
        )
        assert self.victim.stdout is not None
        self.victim.stdout.readline()

    def _share_memory(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        self._segment = libc.shmget(_IPC_PRIVATE, ctypes.c_size_t(4096), _IPC_CREAT | 0o666)
        if self._segment >= 0:
            address = libc.shmat(self._segment, None, 0)
            ctypes.memmove(address, self.token.encode(), len(self.token))
            libc.shmdt(ctypes.c_void_p(address))

    def words(self) -> dict[str, str]:
        """Environment variables of the attacks; none is secret."""
        root = Path(__file__).resolve().parents[2]
        interfaces = [name for _, name in socket.if_nameindex() if name != "lo"]
        return {
            "LB_TOKEN": self.token,
            "LB_COMM": self.comm,
            "LB_KEY_TAIL": self.secrets["key"],
            "LB_SECRET": str(self.folder / "private"),
            "LB_PUBLIC": str(self.folder / "public"),
            "LB_TASK": str(self.folder / "task"),
            "LB_TOOLKIT": str(self.folder / "toolkit"),
            "LB_OPEN_FOLDER": str(self.folder / "open"),
            "LB_SOCKET": str(self.folder / "socket"),
            "LB_SETUID": str(self.folder / "setuid"),
            "LB_HOME": str(self.folder / "home"),
            "LB_OWN_FILE": str(self.folder / "home/own-file"),
            "LB_HARNESS": str(root / "harness"),
            "LB_SANDBOXES": str(root / "sandboxes"),
            "LB_ABSTRACT": self.token,
            "LB_PORT": str(self.port),
            "LB_HOST_IP": _own_address(),
            "LB_INTERFACES": " ".join(interfaces),
            "LB_VICTIM": str(self.victim.pid),
            "LB_SHM": str(self._segment),
        }

    def read(self, output: str) -> str | None:
        """Which secret is in `output`."""
        found = [kind for kind, text in self.secrets.items() if kind != "key" and text in output]
        return f"the {found[0]} secret was read" if found else None

    def dropped(self, name: str) -> str | None:
        """Where the attack has left a file outside, which is removed."""
        root = Path(__file__).resolve().parents[2]
        ours = [self.folder / n for n in ("toolkit", "open", "home")]
        places = [*map(Path, _EVERYWHERE), *ours, root / "harness", root / "sandboxes"]
        for place in places:
            path = place / f"{self.token}-{name}"
            if path.exists():
                path.unlink()
                return f"a file lies in {place}"
        return None

    def heard(self, name: str) -> str | None:
        """Whether a listener got the attack's message."""
        mark = f"{self.token}-{name}".encode()
        return "the host's listener was reached" if any(mark in data for data in self._heard) else None

    def signalled(self, *numbers: signal.Signals) -> str | None:
        """Whether the victim got one of the signals, or is dead."""
        if self.victim.poll() is not None:
            return "the victim is dead"
        got = {int(word) for word in (self.folder / "signals").read_text().split()}
        return "the victim was signalled" if got & set(numbers) else None

    def outlived(self) -> str | None:
        """Whether a process with our name is alive after 2 s."""
        for _ in range(100):
            found = [pid for pid in _processes() if _comm(pid) == self.comm]
            if not found:
                return None
            time.sleep(0.02)
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return f"{len(found)} processes still live"

    def __exit__(self, *error: object) -> None:
        os.environ.pop("LIFTBENCH_API_KEY", None)
        self._stop.set()
        if hasattr(self, "_thread"):
            self._thread.join()
        self._selector.close()
        for one in self._sockets:
            one.close()
        if hasattr(self, "victim"):
            self.victim.kill()
            self.victim.communicate()
        if self._segment >= 0:
            ctypes.CDLL(None).shmctl(self._segment, _IPC_RMID, None)
        shutil.rmtree(self.folder)


def segments() -> dict[int, int]:
    """System V shared memory of this machine: id -> bytes."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {int(words[1]): int(words[3]) for words in map(str.split, lines)}


def remove_segment(number: int) -> None:
    ctypes.CDLL(None).shmctl(number, _IPC_RMID, None)


def _own_address() -> str:
    """An address of this machine other than the loopback; empty where there is none. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("203.0.113.1", 9))
        except OSError:
            return ""
        return str(asking.getsockname()[0])


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _comm(pid: int) -> str:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return "" if state in "ZX" else Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
