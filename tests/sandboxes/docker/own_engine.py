"""A Docker engine of a test's own, which may be killed, stopped, or have a full disk."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from harness.errors import SandboxError
from sandboxes.docker.engine import DockerEngine

_START_S = 60.0
_GENTLE_S = 60.0


class OwnEngine:
    """dockerd with its own data, socket and containerd, and without a network."""

    def __init__(self, data_bytes: int | None = None, path: str = os.environ["PATH"]) -> None:
        """Skips the test where none can be started. `data_bytes`: size of its disk; `path`: its PATH."""
        self._path = path
        if shutil.which("dockerd") is None or os.geteuid() != 0:
            pytest.skip("a second Docker engine needs dockerd and root")
        # Short: paths of sockets have 107 characters.
        self.place = Path(tempfile.mkdtemp(prefix="lbdk-", dir="/tmp"))
        self.place.chmod(0o755)
        self.data = self.place / "data"
        self.data.mkdir()
        self._mounted = data_bytes is not None
        if self._mounted:
            options = f"size={data_bytes}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", self.data], check=True)
        self.environment = {"DOCKER_HOST": f"unix://{self.place}/socket"}
        try:
            self.start()
        except BaseException:
            self.remove()
            raise

    def start(self) -> None:
        """Start it (again), and wait until it answers."""
        command = [
            "dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-masq=false",
            "--storage-driver=overlay2", "--exec-opt", "native.cgroupdriver=cgroupfs",
            f"--data-root={self.data}", f"--exec-root={self.place}/run", f"--pidfile={self.place}/pid",
            "--host", self.environment["DOCKER_HOST"],
        ]  # fmt: skip
        with (self.place / "log").open("ab") as log:
            self._daemon = subprocess.Popen(
                command,
                env={**os.environ, "PATH": self._path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_S
        while True:
            try:
                self.engine = DockerEngine.connect(self.environment)
                return
            except SandboxError:
                if self._daemon.poll() is not None or time.monotonic() > deadline:
                    reason = (self.place / "log").read_text()[-3000:]
                    pytest.skip(f"a second Docker engine does not start here: {reason}")
                time.sleep(0.1)

    def kill(self) -> None:
        """As a crash would; containers run on."""
        self._daemon.kill()
        self._daemon.wait()
        # Its containerd dies with it. Where process 1 reaps nobody, the next engine would take it for alive.
        (self.place / "run/containerd/containerd.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """As an update of its package would; it ends its containers."""
        self._daemon.terminate()

    def hang(self, hangs: bool = True) -> None:
        """It answers nothing, or does so again."""
        self._daemon.send_signal(signal.SIGSTOP if hangs else signal.SIGCONT)

    def remove(self) -> None:
        """End it and all that it has started."""
        if hasattr(self, "engine"):
            self.engine.close()
        self._daemon.terminate()
        try:
            self._daemon.wait(_GENTLE_S)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait()
        for _ in range(200):
            left = self._left()
            if not left:
                break
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
            if (target := line.split()[4]).startswith(f"{self.place}/"):
                subprocess.run(["umount", "-l", target], check=True)
        shutil.rmtree(self.place)

    def _left(self) -> list[int]:
        """containerd and its shims, and what they hold; their commands name our folder."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.place).encode() in entry.read_bytes():
                    found.append(int(entry.parent.name))
            except OSError:
                continue  # It ended.
        return found
