"""What a sandbox hands in for a GPU: device files, libraries, variables; with made-up nodes and files."""

from __future__ import annotations

import json
import os
import platform
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from harness.errors import DeviceError, SandboxError
from sandboxes.docker.gpu import Toolkit, cdi_device, cdi_of_engine, docker_gpu_arguments, find_toolkit
from sandboxes.driver import driver_environment, driver_libraries
from sandboxes.gpu import (
    GpuSlot,
    checked_environment,
    device_nodes,
    find_gpus,
    slot_named,
)
from sandboxes.nvml import Gpu, MigInstance
from tests.fakes.cuda_driver import compile_driver
from tests.fakes.nvml import SLICED, SLICES, WHOLE, compile_nvml, install_fake_nvml

ROOT = Path(__file__).resolve().parents[2]
NVIDIA_MAJOR = 195
FIRST = Gpu(0, "GPU-a", "Made-up H200", 0, (9, 0), False)
SECOND = Gpu(1, "GPU-b", "Made-up H200", 5, (9, 0), None)
CUT = Gpu(
    2, "GPU-c", "Made-up H100", 2, (9, 0), True, (MigInstance("MIG-x", 9, 0), MigInstance("MIG-y", 11, 1))
)
GOOD = Toolkit(Version("1.17.8"), "nvidia-ctk")


def make_node(path: Path, minor: int = 0) -> Path:
    """A device file of a driver that is not there, as root may make one."""
    path.parent.mkdir(exist_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(NVIDIA_MAJOR, minor))
    except PermissionError:
        pytest.skip("making device files needs root")
    return path


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """A /dev with the files of three GPUs and of those that all share."""
    for minor, name in enumerate(("nvidia0", "nvidia2", "nvidia5", "nvidiactl", "nvidia-uvm")):
        make_node(tmp_path / "dev" / name, minor)
    return tmp_path / "dev"


def test_a_job_names_a_gpu_by_uuid_or_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a MIG instance by its UUID; a GPU in MIG mode cannot be used whole, an unknown one not at all."""
    install_fake_nvml(monkeypatch, tmp_path)
    gpus = find_gpus()
    assert slot_named("0", gpus) == slot_named(WHOLE, gpus) == GpuSlot(gpus[0])
    cut = slot_named(SLICES[1], gpus)
    assert (cut.gpu, cut.instance, cut.uuid) == (gpus[1], gpus[1].instances[1], SLICES[1])
    for whole in ("1", SLICED):
        with pytest.raises(DeviceError, match=f"in MIG mode: name one of its instances .{SLICES[0]}"):
            slot_named(whole, gpus)
    with pytest.raises(DeviceError, match="no GPU '7' on this machine; there are: 0 = GPU-a"):
        slot_named("7", [FIRST, SECOND])
    with pytest.raises(DeviceError, match="there is none, or no driver"):
        slot_named("0", [])


def test_a_gpu_comes_with_its_own_node_and_no_others(dev: Path) -> None:
    """By minor number, not by index; a missing node is named with the command that makes it."""
    assert device_nodes(GpuSlot(SECOND), dev) == [dev / "nvidia5", dev / "nvidiactl", dev / "nvidia-uvm"]
    make_node(dev / "nvidia-uvm-tools", 2)
    assert device_nodes(GpuSlot(FIRST), dev)[-1] == dev / "nvidia-uvm-tools"
    (dev / "nvidia-uvm").unlink()
    (dev / "nvidia-uvm").write_text("a file is no device")
    with pytest.raises(DeviceError, match=r"nvidia-uvm is missing or is no device: as root: nvidia-modprobe"):
        device_nodes(GpuSlot(FIRST), dev)


def test_a_mig_instance_comes_with_its_capabilities(dev: Path, tmp_path: Path) -> None:
    """The driver's files tell which two of nvidia-caps belong to it."""
    group = tmp_path / "driver/capabilities/gpu2/mig/gi11"
    (group / "ci1").mkdir(parents=True)
    (group / "access").write_text("DeviceFileMinor: 102\nDeviceFileMode: 292\n")
    (group / "ci1/access").write_text("DeviceFileMinor: 104\nDeviceFileMode: 292\n")
    caps = [make_node(dev / "nvidia-caps" / f"nvidia-cap{n}", n) for n in (102, 104)]
    slot = GpuSlot(CUT, CUT.instances[1])
    assert device_nodes(slot, dev, tmp_path / "driver")[:3] == [dev / "nvidia2", *caps]
    with pytest.raises(DeviceError, match=r"gi9/access names no DeviceFileMinor.*may be gone"):
        device_nodes(GpuSlot(CUT, CUT.instances[0]), dev, tmp_path / "driver")


def test_driver_libraries_are_those_of_this_architecture(tmp_path: Path) -> None:
    """Each with the file that it links to; 32-bit ones and other libraries stay out."""
    word = {"x86_64": "x86-64", "aarch64": "AArch64"}[platform.machine()]
    lines = []
    for name in ("libcuda.so", "libnvidia-ml.so", "libnvidia-gpucomp.so"):
        (tmp_path / f"{name}.580.95.05").touch()
    for name, file in (("libcuda.so.1", "libcuda.so"), ("libnvidia-ml.so.1", "libnvidia-ml.so")):
        (tmp_path / name).symlink_to(f"{file}.580.95.05")
        lines.append(f"\t{name} (libc6,{word}) => {tmp_path / name}")
    lines.insert(0, "\tlibcuda.so.1 (libc6) => /usr/lib32/libcuda.so.1")
    lines += [
        f"\tlibnvidia-gpucomp.so.580.95.05 (libc6,{word}) => {tmp_path}/libnvidia-gpucomp.so.580.95.05",
        f"\tlibc.so.6 (libc6,{word}) => /lib/libc.so.6",
    ]
    cache = "\n".join(lines)
    found = driver_libraries(cache, [tmp_path / "absent"])
    assert [p.name for p in found] == [
        "libcuda.so.1",
        "libcuda.so.580.95.05",
        "libnvidia-ml.so.1",
        "libnvidia-ml.so.580.95.05",
        "libnvidia-gpucomp.so.580.95.05",
    ]
    assert driver_environment(found, cache) == {}


def test_a_driver_that_the_loader_does_not_know_is_found_and_named(tmp_path: Path) -> None:
    """GPU operators mount one at a place of their own; a sandbox then gets LD_LIBRARY_PATH from us."""
    (tmp_path / "libcuda.so.1").touch()
    found = driver_libraries("", [tmp_path / "absent", tmp_path])
    assert found == [tmp_path / "libcuda.so.1"]
    assert driver_environment(found, "") == {"LD_LIBRARY_PATH": str(tmp_path)}
    assert (driver_libraries("", [tmp_path / "absent"]), driver_environment([], "")) == ([], {})
    searched = Path("/usr/lib", f"{platform.machine()}-linux-gnu", "libcuda.so.1")
    assert driver_environment([searched], "") == {}  # the loader searches there by itself


LOAD = """
import ctypes, sys
from pathlib import Path
from sandboxes.driver import load_driver
from sandboxes.nvml import open_nvml
folder, cache = Path(sys.argv[1]), sys.argv[2]
absent = open_nvml() is None
loaded = load_driver(cache, [folder])
with open_nvml() as nvml:
    gpus = len(nvml.gpus())
print(absent, loaded, gpus, bool(ctypes.CDLL("libcuda.so.1").cuInit))
"""


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_the_judge_loads_a_driver_that_the_loader_does_not_know(tmp_path: Path) -> None:
    """By path, before anyone asks for NVML or CUDA by name; nothing is loaded where the loader knows it."""
    # As the real ones; without it the loader does not know them by name.
    compile_nvml(tmp_path, "-Wl,-soname,libnvidia-ml.so.1")
    compile_driver(tmp_path, "-Wl,-soname,libcuda.so.1")

    def loaded(cache: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", LOAD, str(tmp_path), cache]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert loaded("").stdout.split() == ["True", "True", "3", "True"]
    word = {"x86_64": "x86-64", "aarch64": "AArch64"}[platform.machine()]
    assert loaded(f"\tlibcuda.so.1 (libc6,{word}) => {tmp_path}/libcuda.so.1").returncode == 1


def test_a_job_cannot_choose_devices_or_load_code_by_a_variable() -> None:
    """The container toolkit's hook, which runs as root, once obeyed such variables."""
    for name in (
        *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "LD_PRELOAD", "LD_LIBRARY_PATH"),
        *("GLIBC_TUNABLES", "CUDA_VISIBLE_DEVICES", "CUDA_INJECTION64_PATH", "CUDA_MPS_PIPE_DIRECTORY"),
        "CUDA_DEVICE_ORDER",
    ):
        with pytest.raises(SandboxError, match=f"a job may not set {name}"):
            checked_environment({"PATH": "/bin", name: "x"})
    wanted = {"OMP_NUM_THREADS": "1", "CUDA_CACHE_PATH": "{scratch}/jit/cuda", "TORCHINDUCTOR_CACHE_DIR": "x"}
    assert checked_environment(wanted) == wanted


def specification(names: dict[str, list[str]]) -> dict[str, object]:
    """As nvidia-ctk writes one: entries by name with their nodes; what all share stands once."""
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": node} for node in nodes]}}
            for name, nodes in names.items()
        ],
        "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]},
    }


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_only_the_entry_with_exactly_this_gpu_is_used(tmp_path: Path, suffix: str) -> None:
    """Not `all`, not a stale one of another card; MIG instances are told apart by nvidia-caps."""
    caps = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in (21, 22, 30, 31)]
    names = {
        "0": ["/dev/nvidia0"],
        "GPU-b": ["/dev/nvidia5"],
        "1": ["/dev/nvidia5"],
        "2:0": ["/dev/nvidia2", *caps[:2]],
        "2:1": ["/dev/nvidia2", *caps[2:]],
        "all": ["/dev/nvidia0", "/dev/nvidia5", "/dev/nvidia2"],
    }
    text = {"json": json.dumps, "yaml": yaml.safe_dump}[suffix](specification(names))
    (tmp_path / f"nvidia.{suffix}").write_text(text)
    (tmp_path / "other.json").write_text('{"kind": "x/y"}')
    for nodes, name in (
        (["/dev/nvidia0"], "0"),
        (["/dev/nvidia5"], "1"),
        (["/dev/nvidia2", *caps[2:]], "2:1"),
        (["/dev/nvidia7"], None),
    ):
        found = cdi_device([*map(Path, nodes), Path("/dev/nvidiactl")], [tmp_path / "absent", tmp_path])
        assert found == (name and f"nvidia.com/gpu={name}")


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", "{"), ("a.yaml", "a: [b"), ("a.json", "[]"), ("a.json", '{"devices": 1}')]
)
def test_broken_files_are_named(tmp_path: Path, name: str, text: str) -> None:
    """With the command that makes it again."""
    (tmp_path / name).write_text(text)
    with pytest.raises(SandboxError, match=rf"{name} cannot be read as a CDI.*nvidia-ctk cdi generate"):
        cdi_device([], [tmp_path])


PRINTED = {
    "nvidia-container-cli": "cli-version: {}\nlib-version: {}\nbuild date: 2025-05-30T13:47+00:00\n",
    "nvidia-ctk": "NVIDIA Container Toolkit CLI version {}\ncommit: f8daa5e26de9\n",
    "nvidia-container-runtime": (
        "NVIDIA Container Runtime version {}\ncommit: f8daa5e\nspec: 1.2.1\n\nrunc version 1.1.5\n"
    ),
}


def install(folder: Path, versions: dict[str, str]) -> Toolkit | None:
    """The toolkit that is found with programs that print what the real ones print."""
    for name, version in versions.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{PRINTED[name].format(version, version)}END\n")
        program.chmod(0o755)
    return find_toolkit(str(folder))


@pytest.mark.parametrize("name", list(PRINTED))
def test_each_program_reports_the_version(tmp_path: Path, name: str) -> None:
    """runc's version, printed below it, is ignored; of several programs the oldest counts."""
    assert install(tmp_path, {name: "1.17.8"}) == Toolkit(Version("1.17.8"), name)
    found = install(tmp_path, {"nvidia-ctk": "1.18.0", "nvidia-container-cli": "1.17.3"})
    assert found == Toolkit(Version("1.17.3"), "nvidia-container-cli")


@pytest.mark.parametrize(
    ("version", "cdi", "reason"),
    [
        ("1.17.8-rc.1", False, "CVE-2025-23266.*At least 1.17.8 is needed"),
        ("1.17.4", True, "CVE-2025-23266.*At least 1.17.5 is needed"),
        ("1.17.5", True, None),
        ("1.17.8", False, None),
        ("2.0.0", True, None),
        ("unreleased", True, "below 1.17.5 have known.*install it, or use --sandbox bubblewrap"),
    ],
)
def test_a_toolkit_with_known_holes_is_refused(
    tmp_path: Path, version: str, cdi: bool, reason: str | None
) -> None:
    """1.17.8 is the floor, and 1.17.5 where CDI is used; a version that is not understood is none."""
    toolkit = install(tmp_path, {"nvidia-ctk": version})
    device = "nvidia.com/gpu=0" if cdi else None
    if reason is None:
        assert docker_gpu_arguments(GpuSlot(FIRST), device, toolkit)
        return
    with pytest.raises(SandboxError, match=reason):
        docker_gpu_arguments(GpuSlot(FIRST), device, toolkit)


def test_an_engine_with_cdi_is_given_the_cdi_name(dev: Path, tmp_path: Path) -> None:
    """By the entry in the directories that the engine itself reads."""
    nodes = {"gpu7": [str(dev / "nvidia0")]}
    (tmp_path / "nvidia.json").write_text(json.dumps(specification(nodes)))
    engine = {"ServerVersion": "28.2.2", "CDISpecDirs": [str(tmp_path)]}
    found = cdi_of_engine(GpuSlot(FIRST), engine, dev)
    made = docker_gpu_arguments(GpuSlot(FIRST), found, GOOD)
    (request,) = made["device_requests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=gpu7"])
    assert made["environment"]["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert cdi_of_engine(GpuSlot(SECOND), engine, dev) is None


@pytest.mark.parametrize(("version", "folders"), [("24.0.9", 1), ("27.5.1", 0)], ids=["old", "off"])
def test_an_engine_without_cdi_is_asked_the_older_way(
    dev: Path, tmp_path: Path, version: str, folders: int
) -> None:
    """The GPU is named by UUID, with no more capabilities than needed."""
    (tmp_path / "nvidia.json").write_text(json.dumps(specification({"0": [str(dev / "nvidia0")]})))
    engine = {"ServerVersion": version, "CDISpecDirs": [str(tmp_path)] * folders}
    assert cdi_of_engine(GpuSlot(FIRST), engine, dev) is None
    (request,) = docker_gpu_arguments(GpuSlot(FIRST), None, GOOD)["device_requests"]
    assert request["DeviceIDs"] == ["GPU-a"]
    assert request["Capabilities"] == [["gpu", "compute", "utility"]]
