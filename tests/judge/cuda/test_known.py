"""The kernel whose result is known: what a healthy device leaves, what a sick one does, and its PTX."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.device import known_kernel as known
from harness.device.cuda import CudaError, Device
from harness.device.known_kernel import KnownKernel
from harness.errors import DeviceError
from tests.fakes.cuda_driver import FakeDriver

FOLDER = Path(known.__file__).parent


_ANY = random.SystemRandom().randrange(1 << 12)


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 100, pytest.param(_ANY, id="any")])
def test_the_closed_form_is_what_the_loop_leaves(gpu: Device, rounds: int) -> None:
    """Integers and exact floats end where their closed forms say, after any number of rounds."""
    with KnownKernel(gpu, count=1000, rounds=rounds) as kernel:
        run = kernel.run()
    assert run.ok
    assert run.microseconds >= 0.0


def test_wrong_words_are_seen(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that does one round too many is not healthy."""
    monkeypatch.setenv("LIFTBENCH_FAKE_CUDA_WRONG", "1")
    with KnownKernel(gpu, count=256, rounds=10) as kernel:
        assert not kernel.run().ok


def test_tuning_aims_at_a_time(gpu: Device) -> None:
    """Twice the target is about twice the rounds; they never leave their bounds."""
    with KnownKernel(gpu, count=64, rounds=100) as kernel:
        kernel.tune(target_us=0.0)
        assert kernel.rounds == 1
        kernel.tune(target_us=1e12)
        assert kernel.rounds == 1 << 20


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuLaunchKernel", "cuEventQuery"])
def test_a_device_that_cannot_launch_is_an_error(
    gpu: Device, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """That is no wrong result: it is a DeviceError that names the call, and nothing stays allocated."""
    before = driver.live
    monkeypatch.setenv("LIFTBENCH_FAKE_CUDA", f"{call}=700")
    with pytest.raises(CudaError, match=f"^{call} failed"), KnownKernel(gpu, count=64) as kernel:
        kernel.run()
    assert driver.live == before


def test_a_kernel_that_does_not_end_is_an_error(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge does not wait for ever on a device that hangs."""
    with KnownKernel(gpu, count=64, deadline_s=0.0) as kernel:
        monkeypatch.setenv("LIFTBENCH_FAKE_CUDA", "cuEventQuery=600")
        with pytest.raises(DeviceError, match=r"did not end within 0 s.*gpu-reset"):
            kernel.run()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc (a CUDA toolkit)")
def test_the_ptx_is_what_the_source_compiles_to() -> None:
    """known.ptx is known.cu by known.sh, but for what compilers of other versions write differently."""
    done = subprocess.run(["sh", FOLDER / "known.sh"], capture_output=True, text=True, check=True)
    release = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    if "release 13.0" not in release:
        pytest.skip("the text is that of nvcc 13.0")
    assert done.stdout == (FOLDER / "known.ptx").read_text()


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas (a CUDA toolkit)")
def test_the_ptx_assembles_for_hopper(tmp_path: Path) -> None:
    """ptxas takes it for sm_90, in the version of the language that drivers before CUDA 13 know."""
    text = (FOLDER / "known.ptx").read_text()
    assert ".version 7.8\n" in text
    command = ["ptxas", "-arch=sm_90", "-o", tmp_path / "known.cubin", FOLDER / "known.ptx"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
