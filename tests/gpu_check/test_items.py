"""What gpu-check asks, tried without a GPU: real sandboxes, the real program up to the missing driver, and a
stand-in for it that says what a GPU would have."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.builder.toolchain import find_cuda
from harness.errors import SandboxError
from sandboxes.gpu import GpuSlot
from sandboxes.job import Sandbox
from sandboxes.nvml import open_nvml
from sandboxes.registry import open_sandbox
from tests.fakes.gpu import WithoutDevice
from tests.fakes.nvml import WHOLE, install_fake_nvml
from tools.gpu_check.__main__ import main
from tools.gpu_check.item import Bench, FellShort, Item, NotHere
from tools.gpu_check.items import all_items
from tools.gpu_check.sandbox_items import BACKENDS, freeze, hang, known, residue
from tools.gpu_check.sandbox_items import fault as illegal_access

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
ITEMS = all_items()
STAND_IN = Path(__file__).parents[1] / "fakes" / "gpu_probe.c"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that says how its GPUs are."""
    folder = tmp_path / "state"
    folder.mkdir()
    install_fake_nvml(monkeypatch, folder)
    return folder


def without_device(events: Path | None = None, code: int = 0) -> WithoutDevice:
    """A local sandbox that is handed a GPU, and hands in none."""
    return WithoutDevice(open_sandbox("local"), events, code)


def local_only(name: str) -> Sandbox:
    """The one sandbox that every machine has."""
    if name != "local":
        raise SandboxError(f"no sandbox to use: {name} is not on this machine")
    return without_device()


@pytest.fixture
def bench(state: Path, tmp_path: Path) -> Iterator[Bench]:
    """With the whole made-up GPU; the probe program is not made yet."""
    folder = tmp_path / "bench"
    folder.mkdir()
    nvml = open_nvml()
    assert nvml is not None
    with nvml:
        yield Bench(nvml, GpuSlot(nvml.gpus()[0]), local_only, folder)


def stand_in(bench: Bench, tmp_path: Path, *, bad: bool = False) -> Bench:
    """The bench with a program that needs no GPU."""
    program = tmp_path / "bench" / "probe"
    subprocess.run(["gcc", f"-DBAD={int(bad)}", "-o", program, STAND_IN], check=True, capture_output=True)
    return bench


# --- the real program, up to the missing driver ------------------------------------------------


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real program."""
    cuda = find_cuda(os.environ)
    if cuda is None or cuda.library is None:
        pytest.skip("no nvcc with a CUDA runtime on this machine")
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU: make gpu-check is the test there")
    return tmp_path_factory.mktemp("program") / "probe"


def asked_in_vain(item: Item, bench: Bench) -> str:
    """How an item ends without a driver."""
    with pytest.raises(FellShort) as caught:
        item.measure(bench)
    return str(caught.value) + str(caught.value.facts)


def test_every_item_gets_as_far_as_the_missing_driver(bench: Bench, tmp_path: Path, compiled: Path) -> None:
    """The program compiles for sm_90, starts in the sandbox, and CUDA says that there is no driver."""
    ours = tmp_path / "bench" / "probe"
    for item in ITEMS:
        if not item.name.endswith("/local"):
            continue
        assert "cudaErrorInsufficientDriver" in asked_in_vain(item, bench), item.name
        assert ours.exists()


def test_a_backend_that_is_not_there_is_no_failure(bench: Bench, tmp_path: Path) -> None:
    """The reason is the one that the sandbox gave."""
    stand_in(bench, tmp_path)
    for measure in (known, hang, illegal_access, residue, freeze):
        with pytest.raises(NotHere, match="docker is not on this machine"):
            measure("docker", bench)


def test_the_machine_item_names_the_missing_device_files(bench: Bench) -> None:
    """The made-up GPU has none in /dev."""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    with pytest.raises(Exception, match=r"/dev/nvidia0.*is not there.*nvidia-modprobe"):
        ITEMS[0].measure(bench)


# --- what the items make of answers ------------------------------------------------------------


def test_the_known_kernel_passes_with_its_time(bench: Bench, tmp_path: Path) -> None:
    """Kernel time as the program says, wall time as we saw."""
    facts = known("local", stand_in(bench, tmp_path))
    assert facts["kernel_us"] == 187.5
    assert isinstance(facts["wall_s"], float)


def test_a_kernel_without_end_is_killed_and_the_gpu_is_free(
    bench: Bench, tmp_path: Path, state: Path
) -> None:
    """Processes that were there before are not waited for."""
    (state / "processes").write_text("77 1048576\n")
    facts = hang("local", stand_in(bench, tmp_path))
    assert facts["status"] == "signal"
    assert facts["memory_left_bytes"] == 0
    assert facts["known_us_after"] == 187.5


def test_a_kernel_without_end_that_ends_fell_short(bench: Bench, tmp_path: Path) -> None:
    """Then nothing was proved."""
    with pytest.raises(FellShort, match=r"to run|before it said|did not say 'running'"):
        hang("local", stand_in(bench, tmp_path, bad=True))


def test_an_illegal_write_is_told_with_its_xid(bench: Bench, tmp_path: Path, state: Path) -> None:
    """Xids from before are not its own."""
    (state / "events").write_text("79\n")
    stand_in(bench, tmp_path).sandbox = lambda name: without_device(state / "events", 31)
    facts = illegal_access("local", bench)
    assert (facts["status"], facts["xids"]) == ("nonzero", "Xid 31 (MMU fault)")


def test_a_gpu_that_blames_itself_for_an_illegal_write_fell_short(
    bench: Bench, tmp_path: Path, state: Path
) -> None:
    """A student could take it away from the others."""
    stand_in(bench, tmp_path).sandbox = lambda name: without_device(state / "events", 79)
    with pytest.raises(FellShort, match="reported as a fault of the GPU"):
        illegal_access("local", bench)


def test_an_illegal_write_that_goes_unnoticed_fell_short(bench: Bench, tmp_path: Path) -> None:
    """The facts say what was told instead."""
    with pytest.raises(FellShort, match="did not end as cudaErrorIllegalAddress") as caught:
        illegal_access("local", stand_in(bench, tmp_path, bad=True))
    assert caught.value.facts["status"] == "ok"


def test_memory_that_is_clean_passes_and_what_is_left_is_counted(bench: Bench, tmp_path: Path) -> None:
    """A single word of another process is too much."""
    assert residue("local", stand_in(bench, tmp_path))["words_equal"] == 0
    with pytest.raises(FellShort, match="read what another one had left") as caught:
        residue("local", stand_in(bench, tmp_path, bad=True))
    assert caught.value.facts["words_equal"] == 7


def test_a_frozen_worker_stands_still_and_goes_on(bench: Bench, tmp_path: Path) -> None:
    """No message while frozen; it ends by itself when told to."""
    facts = freeze("local", stand_in(bench, tmp_path))
    assert facts["rounds_while_frozen"] == 0
    assert isinstance(facts["rounds"], int)
    assert facts["rounds"] > 1


def test_a_worker_that_comes_back_wrong_fell_short(bench: Bench, tmp_path: Path) -> None:
    """The result counts, not only that it goes on."""
    with pytest.raises(FellShort, match="wrong result"):
        freeze("local", stand_in(bench, tmp_path, bad=True))


# --- the command -------------------------------------------------------------------------------


def test_items_have_names_of_their_own_and_begin_with_the_machine() -> None:
    """Then the transport, one expert end to end, the clock; every question of a sandbox is asked of each."""
    names = [item.name for item in ITEMS]
    assert len(set(names)) == len(names)
    assert names[:4] == ["machine", "transport", "end_to_end/l1/softmax", "aa/64"]
    for backend in BACKENDS:
        wanted = 5 if backend == "local" else 6  # `transport` is asked of local first
        assert sum(name.endswith(f"/{backend}") for name in names) == wanted


def test_without_a_gpu_it_says_so_and_what_is_owed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, and no record that could be taken for one."""
    assert main(["--out", str(tmp_path / "results")]) == 0
    said = capsys.readouterr().out
    assert "not measured: no NVIDIA driver on this machine" in said
    assert "hang/docker" in said
    assert not (tmp_path / "results").exists()


def test_an_unknown_gpu_is_a_usage_error(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With those that there are."""
    assert main(["--device", "9", "--out", str(tmp_path)]) == 2
    assert WHOLE in capsys.readouterr().out


def test_out_of_time_is_no_failure(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, and the table says of every item that it was not measured yet."""
    assert main(["--budget-s", "1", "--out", str(tmp_path)]) == 0
    assert "owed, run it again: machine, transport, end_to_end/l1/softmax" in capsys.readouterr().out
    (table,) = tmp_path.glob("made-up-h200-*.md")
    assert table.read_text().count("| not measured yet |") == len(ITEMS)


def test_a_failed_item_is_exit_code_3(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The made-up GPU has no device files, so the first item fails."""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    assert main(["--budget-s", "11", "--out", str(tmp_path)]) == 3
    assert "failed: machine" in capsys.readouterr().out


def test_the_documentation_lists_every_question() -> None:
    """Also when one is added."""
    text = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text()
    for item in ITEMS:
        question, _, of = item.name.partition("/")
        assert f"| `{question}{'/<' if of else '`'}" in text, item.name
