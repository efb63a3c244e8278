"""`liftbench export`: what is written is read by the programs that it is for."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import parse_eval_result_entries
from kernels.cli.benchmark import discover_benchmark_classes, run_benchmark_script

from harness.cli.main import run
from harness.files import write_files
from harness.records import ContenderTiming, Grade, Lane, Spread, TrialKey, WorkloadTiming
from harness.records.grade import EmulatedCheck, Place
from harness.student.prompts import task_text
from harness.study.store import RunStore
from harness.suite.catalogue import all_tasks, expert_project
from sandboxes.gpu import find_gpus
from tests.board import runs as board
from tests.fakes.overlays import TASKS, ZOO
from tests.fakes.universal import universal
from tests.report import factories as make

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent
MODELS = """
import sys
from pathlib import Path
from harbor.models.task.task import Task
from harbor.models.task.verifier_mode import (
    resolve_task_verifier_mode, resolve_verifier_environment_definition,
)

for folder in sorted(Path(sys.argv[1]).iterdir()):
    task = Task(folder)
    verifier = resolve_verifier_environment_definition(task.config, task.paths)
    assert Task.is_valid_dir(folder) and verifier.bundled_tests
    mode = resolve_task_verifier_mode(task.config).value
    print(task.name, mode, verifier.config.gpus, len(task.instruction) > 999)
"""
# Written by hand from Harbor's documentation of task.toml.
FIELDS: dict[str, dict[str, type]] = {
    "": {"schema_version": str, "artifacts": list},
    "task": {"name": str, "version": str, "description": str, "keywords": list},
    "agent": {"timeout_sec": float},
    "verifier": {"environment_mode": str, "timeout_sec": float},
    "environment": {"build_timeout_sec": float, "cpus": int, "memory_mb": int},
    "verifier.environment": {"build_timeout_sec": float, "cpus": int, "memory_mb": int},
}


def export(*words: object) -> int:
    """The exit code."""
    return run(["export", *map(str, words)])


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_harbor_task_has_all_its_files(target: str, tmp_path: Path) -> None:
    """Every field has its type, only a CUDA task's verifier asks for a GPU, the expert is the solution."""
    assert export("harbor", tmp_path / "out", "--tasks", "l1/rms_norm", "--target", target) == 0
    folder = tmp_path / "out" / "l1-rms_norm"
    read = tomllib.loads((folder / "task.toml").read_text())
    assert read["schema_version"] == "1.4"
    for table, fields in FIELDS.items():
        found: Any = read
        for word in filter(None, table.split(".")):
            found = found[word]
        assert {name: type(found[name]) for name in fields} == fields
    assert read["verifier"]["environment_mode"] == "separate"
    gpus = {"gpus": 1, "gpu_types": ["H100", "H200"]} if target == "cuda" else {}
    assert {k: v for k, v in read["verifier"]["environment"].items() if "gpu" in k} == gpus
    (loaded,) = (one for one in all_tasks() if one.task.id == "l1/rms_norm")
    instruction = (folder / "instruction.md").read_text()
    assert instruction.startswith(task_text(loaded.task, target, "full"))  # type: ignore[arg-type]
    assert "/app/project/build.toml" in instruction and read["artifacts"] == ["/app/project"]
    expert = expert_project(loaded.task)
    assert expert is not None
    solution = folder / "solution" / "project"
    assert {f.path: f.text for f in expert.files} == {
        str(path.relative_to(solution)): path.read_text() for path in solution.rglob("*") if path.is_file()
    }
    for script in ("tests/test.sh", "solution/solve.sh"):
        assert (folder / script).stat().st_mode & 0o111
        assert subprocess.run(["bash", "-n", folder / script], check=False).returncode == 0
    for name in ("task.toml", "reference.py"):
        copy = folder / "tests/tasks/l1/rms_norm" / name
        assert copy.read_bytes() == (loaded.directory / name).read_bytes()


def harbor_python() -> str | None:
    """A Python that has harbor."""
    for name in (os.environ.get("HARBOR_PYTHON"), "python3.12", "python3.13", "python3.14"):
        found = shutil.which(name) if name else None
        if (
            found
            and subprocess.run([found, "-c", "import harbor"], capture_output=True, check=False).returncode
            == 0
        ):
            return found
    return None


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_harbor_reads_every_task(target: str, tmp_path: Path) -> None:
    """Harbor's own models accept all tasks, with the verifier's image in tests/; its linter finds nothing."""
    python = harbor_python()
    if python is None:
        pytest.skip("no Python >= 3.12 with harbor 0.25 on PATH (HARBOR_PYTHON names one)")
    assert export("harbor", tmp_path / "out", "--target", target) == 0
    done = subprocess.run(
        [python, "-c", MODELS, tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    gpus = "1" if target == "cuda" else "None"
    expected = [
        f"liftbench/{one.task.id.replace('/', '-')}-{target} separate {gpus} True" for one in all_tasks()
    ]
    assert sorted(done.stdout.splitlines()) == sorted(expected)
    linter = Path(python).with_name("harbor")
    lint = subprocess.run(
        [linter, "lint", "--json", *(tmp_path / "out").iterdir()], capture_output=True, check=False
    )
    assert (lint.returncode, json.loads(lint.stdout)) == (0, [])


@pytest.mark.slow
def test_the_verifier_of_a_harbor_task_rewards_the_expert_and_no_failure_of_ours(tmp_path: Path) -> None:
    """The expert is rewarded, an empty project gets zeros, and what is no student's failure leaves no reward.
    The grade's raw samples are a file that `pytest-benchmark compare` prints, labeled with the CPU."""
    assert export("harbor", tmp_path / "out", "--tasks", "l1/rms_norm", "--target", "cpu") == 0
    folder, project, logs = tmp_path / "out/l1-rms_norm", tmp_path / "project", tmp_path / "logs"
    reward, printed = logs / "verifier/reward.json", logs / "verifier/grade.json"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{TOOLS}:{os.environ['PATH']}",
        "HARBOR_PROJECT": str(project),
        "HARBOR_LOGS": str(logs),
        "LIFTBENCH_GRADE_CACHE": str(tmp_path / "cache"),
        "LIFTBENCH_GRADE_SANDBOX": "local",
    }

    def script(name: str, **changes: str) -> int:
        return subprocess.run([folder / name], env=environment | changes, check=False).returncode

    assert script("tests/test.sh") == 0
    zeros = {"compiled": 0.0, "correct": 0.0, "speedup": 0.0, "sol": 0.0}
    assert json.loads(reward.read_text()) == zeros
    assert script("solution/solve.sh") == 0
    assert script("tests/test.sh") == 0
    given = json.loads(reward.read_text())
    assert (given["compiled"], given["correct"]) == (1.0, 1.0)
    assert given["speedup"] > 0 and all(map(math.isfinite, given.values()))
    assert export("pytest-benchmark", printed, tmp_path / "samples.json") == 0
    cpu = Grade.model_validate_json(printed.read_bytes()).place
    assert cpu is not None and f"on CPU {cpu.device}" in compared(tmp_path / "samples.json")
    ours = tmp_path / "a file"
    ours.touch()
    assert script("tests/test.sh", LIFTBENCH_GRADE_CACHE=str(ours / "cache")) not in (0, 3)
    assert not reward.exists()


@pytest.mark.slow
@pytest.mark.skipif(bool(find_gpus()), reason="a GPU measures it")
def test_what_a_machine_cannot_measure_has_no_rewards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A CUDA project without a GPU: its grade is printed, the exit code is 1, and no reward is written."""
    write_files({file.path: file.text for file in universal().files}, tmp_path / "scale")
    words = ["--task", "t/scale", "--tasks-root", TASKS, "--sandbox", "local", "--cache", tmp_path / "cache"]
    given = [tmp_path / "scale", *words, "--no-emulate", "--json", "--rewards", tmp_path / "reward.json"]
    assert run(["grade", *map(str, given)]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["verdict"] == "not_measured" and "no rewards" in said.err
    assert not (tmp_path / "reward.json").exists()


def scripts(folder: Path, task: str) -> Any:
    """The class in the script of a task, whose project is the zoo's."""
    shutil.copytree(ZOO / "base", folder, dirs_exist_ok=True)
    root = [] if "l" in task.partition("/")[0] else ["--tasks-root", TASKS]
    assert export("kernels", folder, "--task", task, "--target", "cpu", *root) == 0
    (path,) = (folder / "benchmarks").glob("benchmark*.py")
    (found,) = discover_benchmark_classes(path, folder)
    return found


@pytest.mark.parametrize(
    "task", ["t/axpy", "t/two_outputs", "t/masked_scale", "t/argmax", "t/strided_scale", "l2/adamw_step"]
)
def test_a_script_for_kernels_tells_right_from_wrong(task: str, tmp_path: Path) -> None:
    """For all roles of operands: a kernel that does as the reference passes, one that does nothing fails."""
    made = scripts(tmp_path, task)
    module = sys.modules[made.__module__]
    methods = [name.removeprefix("benchmark_") for name in dir(made) if name.startswith("benchmark_")]
    assert methods == sorted(module.WORKLOADS)
    text = Path(module.__file__).read_text()
    op = text.partition("self.kernel.")[2].partition("(")[0]
    for kernel, right in ((as_reference, True), (idle, False)):
        one = made()
        getattr(one, f"setup_{methods[0]}")()
        one.kernel = SimpleNamespace(**{op: partial(kernel, module, one)})
        getattr(one, f"benchmark_{methods[0]}")()
        for _ in range(2):  # the reference is called again and again
            assert torch.allclose(one.out, getattr(one, f"verify_{methods[0]}")(), atol=1e-2) is right


def as_reference(module: Any, one: Any, *given: Any, **named: Any) -> None:
    """A kernel that is right."""
    inputs = {name: value.clone() for name, value in one.inputs.items()}
    answer = module.reference({**inputs, **one.workload.scalars})
    for out, value in zip(one.written, answer, strict=True):
        out.copy_(value)


def idle(module: Any, one: Any, *given: Any, **named: Any) -> None:
    """A kernel that does nothing; memory that it should write holds no earlier answer."""
    for value, (_, role, *_) in zip(given, module.OPERANDS, strict=False):
        if role == "out":
            value.fill_(7)


@pytest.mark.slow
def test_kernels_times_a_built_project_by_the_script(tmp_path: Path) -> None:
    """Built as kernel-builder does, loaded and timed by the kernels package, and verified."""
    project = tmp_path / "rms-norm"
    shutil.copytree(ROOT / "kernels_ref/l1/rms_norm", project)
    words = ["build", str(project), "--target", "cpu", "--sandbox", "local", "--out", str(tmp_path / "out")]
    assert run([*words, "--cache", str(tmp_path / "cache")]) == 0
    shutil.copytree(tmp_path / "out/rms-norm/build", project / "build")
    assert export("kernels", project, "--task", "l1/rms_norm", "--target", "cpu") == 0
    results, _ = run_benchmark_script(
        project / "benchmarks/benchmark_rms_norm.py",
        iterations=3, warmup=1, cwd=project, repo_id=str(project), is_local=True, revision="local",
    )  # fmt: skip
    assert {name: one.verified for name, one in results.items()} == {
        "RmsNorm.llama32_1b_float32": True,
        "RmsNorm.qwen3_8b_float32": True,
    }


def timed_grade(samples: bool = True, device: str | None = "NVIDIA H200") -> Grade:
    """A correct grade of one workload: the project takes 100 us a call, the reference 150."""

    def contender(name: str, us: float) -> ContenderTiming:
        spread = Spread(n=40, mean_us=us, median_us=us, q1_us=us, q3_us=us)
        lane = Lane(
            name="batch",
            calls=40,
            inside=spread,
            outside_us=us,
            constant_us=1.0,
            uncertainty_us=2.0,
            matched=True,
        )
        reveals = (us - 1, us, us + 1, us + 4) if samples else ()
        return ContenderTiming(
            name=name, lanes=(lane,), lane="batch", score_us=us, latency_us=1.0, reveals_us=reveals
        )

    workload = WorkloadTiming(
        workload="big", dtype="float16", student=contender("student", 100.0),
        references=(contender("eager", 150.0),), speedup=make.ratio(1.5), bytes_moved=1,
    )  # fmt: skip
    made = make.grade(TrialKey(task="l1/f0t0", model=make.MODEL, arm="without_skill", repeat=0))
    assert made.timing is not None
    timing = made.timing.model_copy(update={"workloads": (workload,)})
    return made.model_copy(update={"timing": timing, "place": Place(node="n", device=device)})


def compared(path: Path) -> str:
    """What `pytest-benchmark compare` prints."""
    done = subprocess.run(
        [TOOLS / "pytest-benchmark", "compare", path],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "Failed to load" not in done.stdout + done.stderr, done.stderr
    return done.stdout


def test_pytest_benchmark_compares_samples(tmp_path: Path) -> None:
    """Raw samples in seconds with their statistics, a row per contender, the group named by its device."""
    (tmp_path / "grade.json").write_text(timed_grade().model_dump_json())
    assert export("pytest-benchmark", tmp_path / "grade.json", tmp_path / "out.json") == 0
    mine, theirs = json.loads((tmp_path / "out.json").read_text())["benchmarks"]
    assert mine["stats"]["data"] == pytest.approx([99e-6, 100e-6, 101e-6, 104e-6])
    assert {k: mine["stats"][k] for k in ("min", "max", "mean", "total", "median", "iqr", "q1", "q3")} == (
        pytest.approx({"min": 99e-6, "max": 104e-6, "mean": 101e-6, "total": 404e-6, "median": 100.5e-6,
                       "iqr": 3e-6, "q1": 99.5e-6, "q3": 102.5e-6})
    )  # fmt: skip
    assert (mine["stats"]["rounds"], mine["stats"]["iterations"]) == (4, 10)
    assert theirs["name"] == "eager beside project" and mine["params"]["device"] == "GPU NVIDIA H200"
    text = compared(tmp_path / "out.json")
    assert "l1/f0t0 big float16 on GPU NVIDIA H200" in text and "eager beside project" in text


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (timed_grade(samples=False), "kept none"),
        (timed_grade(device=None), "kept none"),
        (
            make.grade(TrialKey(task="l1/f0t0", model="a/b", arm="x", repeat=0), make.Cause.COMPILE_ERROR),
            "nothing",
        ),
        (None, "is no output of"),
    ],
)
def test_a_grade_without_samples_is_refused(
    made: Grade | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an older version, without a device, not timed, or no grade at all: exit code 2, and no file."""
    (tmp_path / "grade.json").write_text("{}" if made is None else made.model_dump_json())
    assert export("pytest-benchmark", tmp_path / "grade.json", tmp_path / "out.json") == 2
    assert why in capsys.readouterr().err and not (tmp_path / "out.json").exists()


def test_a_recorded_run_of_an_older_version_has_no_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its figures were summaries; nothing is made up from them."""
    assert export("pytest-benchmark", ROOT / "studies/cpu-kernel-builder/run", tmp_path / "out.json") == 2
    assert "grade it again" in capsys.readouterr().err


def test_the_hub_gets_labeled_figures(tmp_path: Path) -> None:
    """The Hub's own reader takes them; each GPU model, CPUs and emulation have tasks of their own, named."""
    seen: dict[str, str] = {}
    cpu, emulated = {"target": "cpu", "gpu": None}, {"gpu": None}
    machines = {"h200": {}, "h100": {"gpu": "NVIDIA H100"}, "cpu": cpu, "emulated": emulated}
    for name, changes in machines.items():
        made = board.store(tmp_path, name, board.speed(2.0), repeats=1, **changes)
        if changes is emulated:
            only_emulated(RunStore(made))
        out = tmp_path / f"out-{name}"
        assert export("hub", made, out, "--dataset", "owner/liftbench") == 0
        index = yaml.safe_load((out / "dataset/eval.yaml").read_text())
        assert index["evaluation_framework"] == "harbor" and "secret inputs" in index["description"]
        ids = {task["id"] for task in index["tasks"]}
        for path in (out / "models").glob("*/.eval_results/*.yaml"):
            for entry in parse_eval_result_entries(yaml.safe_load(path.read_text())):
                assert entry.dataset_id == "owner/liftbench" and entry.task_id in ids
                assert entry.notes is not None and "95% interval" in entry.notes
                seen[entry.task_id] = entry.notes
    labels = {"nvidia-h200": "on NVIDIA H200;", "nvidia-h100": "on NVIDIA H100;", "cpu-amd": "not a GPU"}
    (label,) = {notes for key, notes in seen.items() if key.endswith("-correct_emulated")}
    assert "emulated GPU: correctness only, not a GPU's result" in label
    for start, label in labels.items():
        found = [notes for key, notes in seen.items() if key.startswith(start)]
        assert len(found) == 3 and all(label in notes for notes in found)
    assert len(seen) == 11


def only_emulated(store: RunStore) -> None:
    """Replace all trials by some that no GPU ran."""
    seen = EmulatedCheck(outcome="wrong_result", message="off by one", wall_s=1.0)
    arms = {arm.id: arm for arm in store.run().config.arms}
    for key in (trial.key for trial in store.load()):
        no_gpu = {"model": key.model, "repeat": key.repeat, "emulated": seen}
        store.append(make.trial(key.task, arms[key.arm], make.Cause.NO_CUDA_DEVICE, "no GPU", **no_gpu))


def test_wrong_use_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown tasks, folders that are not empty, files that exist, empty runs: exit code 2."""
    full = tmp_path / "full"
    full.mkdir()
    (full / "build.toml").touch()
    (full / "benchmarks").mkdir()
    (full / "benchmarks/benchmark_rms_norm.py").touch()
    made = board.store(tmp_path, "run", board.speed(2.0), repeats=1)
    empty = board.store(tmp_path, "empty", board.speed(2.0), repeats=1)
    (empty / "trials.jsonl").unlink()
    new = tmp_path / "new"
    wrong: list[tuple[list[object], str]] = [
        (["harbor", new, "--tasks", "l1/none"], "no task matches"),
        (["harbor", full], "not empty"),
        (["kernels", full, "--task", "l1/none"], "no task matches"),
        (["kernels", full, "--task", "l1/*"], "name one"),
        (["kernels", tmp_path, "--task", "l1/rms_norm"], "no build.toml"),
        (["kernels", full, "--task", "l1/rms_norm"], "exists"),
        (["pytest-benchmark", made, new], "kept none"),
        (["pytest-benchmark", "nowhere", new], "no run"),
        (["hub", made, full, "--dataset", "a/b"], "not empty"),
        (["hub", made, new, "--dataset", "a"], "OWNER/NAME"),
        (["hub", empty, new, "--dataset", "a/b"], "no figures"),
    ]
    for words, why in wrong:
        assert export(*words) == 2
        assert why in capsys.readouterr().err
    assert not new.exists()
