"""A GPU's device files reach a job, and those of other GPUs do not: with made-up nodes that no driver serves.

Opening such a node gives ENXIO where the sandbox lets it through to the driver (which is not there), and
another error where the sandbox stops it. The nodes lie in a /dev of our own, in a mount namespace that ends
with the test.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.cuda_driver import compile_driver
from tests.fakes.nvml import WHOLE, compile_nvml

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device files"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
    pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU"),
]

# Started in a mount namespace of its own. The job opens every node and says how that went.
HARNESS = """
import json, os, subprocess, sys
from pathlib import Path
place, backend, device = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place], check=True)
for name in ("null", "zero", "full", "random", "urandom", "tty"):
    (place / name).touch()
    subprocess.run(["mount", "--bind", f"/dev/{name}", place / name], check=True)
for name, minor in (("nvidia0", 0), ("nvidia3", 3), ("nvidiactl", 255), ("nvidia-uvm", 254)):
    os.mknod(place / name, 0o20666, os.makedev(195, minor))
    os.chmod(place / name, 0o666)
for name in ("shm", "pts"):
    (place / name).mkdir()
(place / "shm").chmod(0o1777)
subprocess.run(["mount", "--bind", "/dev/pts", place / "pts"], check=True)
subprocess.run(["mount", "--move", place, "/dev"], check=True)
layers = f"lowerdir={sys.argv[4]}:/usr/local"
subprocess.run(["mount", "-t", "overlay", "-o", layers, "none", "/usr/local"], check=True)
from sandboxes.registry import open_sandbox
from sandboxes.job import Job, Limits
code = '''
import ctypes, json, os
found = {}
for name in ("devices", "version"):
    try:
        os.close(os.open("/proc/" + name, os.O_RDONLY)); found[name] = 0
    except OSError as error:
        found[name] = error.errno
try:
    found["libcuda"] = ctypes.CDLL("libcuda.so.1").cuInit(0)
except OSError:
    found["libcuda"] = -1
for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm"):
    try:
        os.close(os.open("/dev/" + name, os.O_RDWR)); found[name] = 0
    except OSError as error:
        found[name] = error.errno
print(json.dumps([found, {k: v for k, v in os.environ.items() if "CUDA" in k or "NVIDIA" in k}]))
'''
sandbox = open_sandbox(backend)
script = place.parent / "job.py"
script.write_text(code)
# In an interpreter that imported a module before, as workers do: the loader has read its variables by then.
argv = [sys.executable, "-I", "-S", "{scratch}/job.py"]
inputs, limits = {"job.py": script}, Limits(wall_s=30)
job = Job(role="run", argv=argv, limits=limits, inputs=inputs, device=device or None, preload=("json",))
process = sandbox.start(job)
facts = process.wait()
process.close()
sandbox.close()
assert facts.status == "ok", facts
print(facts.output)
"""


def tried(backend: str, device: str, folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Errors by node, and what the environment says of GPUs."""
    compile_nvml(folder)
    (folder / "dev").mkdir()
    (folder / "local/nvidia/lib64").mkdir(parents=True)
    compile_driver(folder / "local/nvidia/lib64")
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", HARNESS]
    done = subprocess.run(
        [*command, str(folder / "dev"), backend, device, str(folder / "local")],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(folder), "LIFTBENCH_FAKE_NVML": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if "SandboxError" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    found, environment = json.loads(done.stdout)
    return found, environment


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock", "local"])
def test_a_job_reaches_its_own_gpu_only(backend: str, tmp_path: Path) -> None:
    """Its own node and the control nodes lead to the driver; another GPU's node is closed or absent. The
    driver's library is found in a folder that the loader does not know; what it reads of /proc is open."""
    found, environment = tried(backend, WHOLE, tmp_path)
    assert [found[name] for name in ("nvidia0", "nvidiactl", "nvidia-uvm")] == [errno.ENXIO] * 3
    assert [found[name] for name in ("devices", "version", "libcuda")] == [0] * 3
    if backend != "local":
        assert found["nvidia3"] in (errno.ENOENT, errno.EACCES)
    assert environment["CUDA_VISIBLE_DEVICES"] == WHOLE


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_a_job_without_a_gpu_reaches_none(backend: str, tmp_path: Path) -> None:
    """No node leads to a driver for a job that was not given a GPU."""
    found, environment = tried(backend, "", tmp_path)
    assert found.pop("libcuda") == -1 and not environment
    open_anyway = [found.pop(name) for name in ("devices", "version")]
    assert open_anyway == [0 if backend == "bubblewrap" else errno.EACCES] * 2  # bubblewrap has its own /proc
    assert set(found.values()) <= {errno.ENOENT, errno.EACCES}
