"""What still works where packages are missing, and what is said where something does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.builder.build_toml import ABSENT
from harness.builder.toolchain import Toolchain
from harness.models.package import REQUIREMENTS
from tests.fakes.tiny import record, write_skill, write_tasks

ROOT = Path(__file__).resolve().parent.parent

# By name, and what goes missing with it.
OPTIONAL = {
    "kernels": ("kernels",),
    "openai": ("openai", "httpx2"),
    "anthropic": ("anthropic", "httpx2"),
    "docker": ("docker",),
    "ray": ("ray",),
    "kernel_abi_check": ("kernel_abi_check",),
    "skills_ref": ("skills_ref",),
    "pytest": ("pytest", "pytest_benchmark"),
}
ALL = tuple(dict.fromkeys(name for names in OPTIONAL.values() for name in names))
SETS = OPTIONAL | {"all at once": ALL, "all and torch": (*ALL, "torch")}
BAD = ROOT / "tests" / "zoo" / "bad_build_toml"

# Real finders, asked about everything else: to `import` and to `find_spec` a name is then as unknown as
# if it had never been installed.
_HIDE = """
import site, sys

for place in {places!r}:
    site.addsitedir(place)


class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in {hidden!r}
        return None if hidden else self.finder.find_spec(name, path, target)


sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


class Machine(NamedTuple):
    """A Python on which some packages are missing."""

    python: Path
    home: Path

    def run(self, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """`liftbench WORDS`, without any key in the environment."""
        return self._start("-m", "harness.cli.main", *words, **environment)

    def python_c(self, code: str, *words: str) -> subprocess.CompletedProcess[str]:
        """`python -c CODE WORDS`."""
        return self._start("-c", code, *words)

    def _start(self, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        known = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
            "HOME": str(self.home),
        }
        return subprocess.run(
            [str(self.python), *map(str, words)],
            cwd=self.home,
            env=known | environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Machine]:
    """Makes a machine without the named packages; its child processes (the validator) lack them too."""
    library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    library |= {str(Path(path, "lib-dynload")) for path in library}
    places = [path for path in sys.path if Path(path).is_dir() and path not in library | {""}]
    made: dict[tuple[str, ...], Machine] = {}

    def make(*hidden: str) -> Machine:
        if hidden not in made:
            home = tmp_path_factory.mktemp("machine")
            venv.create(home / "venv", symlinks=True)
            [site] = (home / "venv").glob("lib/python3*/site-packages")
            (site / "hide_packages.py").write_text(_HIDE.format(places=places, hidden=set(hidden)))
            # A .pth file rather than an option of one process: `python -I` reads it as well.
            (site / "hide.pth").write_text("import hide_packages\n")
            made[hidden] = Machine(home / "venv" / "bin" / "python", home)
        return made[hidden]

    return make


Without = Callable[..., Machine]


def test_a_hidden_package_is_missing_in_every_way(without: Without) -> None:
    """The test's own means: neither imported nor found, in a child with -I as well; others are there."""
    code = (
        "import importlib.util, subprocess, sys\n"
        "def seen(name):\n"
        "    try:\n"
        "        return __import__(name) is not None\n"
        "    except ModuleNotFoundError:\n"
        "        return importlib.util.find_spec(name) is not None\n"
        "print(seen('rich'), seen('filelock'))\n"
        "if len(sys.argv) == 1:\n"
        "    subprocess.run([sys.executable, '-I', '-c', sys.orig_argv[2], 'child'], check=True)\n"
    )
    done = without("rich").python_c(code)
    assert done.stdout == "False True\n" * 2


COMMANDS = {
    "doctor": "what this allows",
    "tasks list": "l1/rms_norm",
    "tasks show l1/rms_norm": "# Task: RMS norm",
    "skills list": "cuda-kernel-builder",
    "skills check cuda-kernel-builder --no-build": "cuda-kernel-builder: ok",
    "runs": "no runs",
    "eval cuda-kernel-builder -m openai/x -m anthropic/y --limit 6 --dry-run": "120 trials",
}

# One process for all commands: starting it is most of what each of them costs.
_ONE_AFTER_THE_OTHER = """
import sys
from harness.cli.main import app

for words in sys.argv[1:]:
    print(f"$ {words}", flush=True)
    code = app(words.split(), standalone_mode=False)
    assert not code, (words, code)
"""


@pytest.mark.parametrize("missing", SETS)
def test_what_needs_no_optional_package_works_without(without: Without, missing: str) -> None:
    """Looking around, listing and planning need none of them, nor torch."""
    done = without(*SETS[missing]).python_c(_ONE_AFTER_THE_OTHER, *COMMANDS)
    assert done.returncode == 0, done.stderr
    outputs = dict(part.split("\n", 1) for part in done.stdout.split("$ ")[1:])
    assert outputs.keys() == COMMANDS.keys()
    for command, said in COMMANDS.items():
        assert said in outputs[command]


@pytest.mark.parametrize("command", ["--help", *COMMANDS])
def test_each_command_works_without_any(without: Without, command: str) -> None:
    """All of them and torch missing at once, each command as a user starts it."""
    done = without(*ALL, "torch").run(*command.split())
    assert done.returncode == 0, done.stderr
    assert COMMANDS.get(command, "Usage: ") in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("missing", [name for name in SETS if "torch" not in SETS[name]])
def test_a_project_is_graded_without(
    toolchain: Toolchain, without: Without, missing: str, tmp_path: Path
) -> None:
    """A bad build.toml gets its verdict, by our own records where upstream's parser is missing."""
    words = ["--task", "l1/rms_norm", "--target", "cpu", "--sandbox", "local", "--cache", tmp_path, "--json"]
    done = without(*SETS[missing]).run("grade", BAD, *words)
    assert done.returncode == 0, done.stderr
    grade = json.loads(done.stdout)
    assert (grade["verdict"], grade["finding"]["cause"]) == ("build_failed", "bad_build_toml")
    assert "sources" in grade["finding"]["message"]


@pytest.mark.slow
def test_a_whole_eval_works_without(toolchain: Toolchain, without: Without, tmp_path: Path) -> None:
    """With all of them missing, recorded replies are graded; listing and showing them needs no torch."""
    machine = without(*ALL)
    tasks, skill = write_tasks(tmp_path, ("one",)), write_skill(tmp_path)
    recording = record(tmp_path, tasks, skill, 1, "```toml build.toml\nbroken\n```\n")
    runs = ["--runs-dir", tmp_path / "runs"]
    done = machine.run(
        *("eval", skill, "-m", f"replay/{recording}", "--runs", "1", "--target", "cpu", "--sandbox", "local"),
        *("--tasks-root", tasks, "--cache", tmp_path / "cache", *runs),
    )
    assert done.returncode == 0, done.stderr
    assert "inconclusive" in done.stdout
    machine = without(*ALL, "torch")
    assert "2/2" in machine.run("runs", *runs).stdout
    assert "inconclusive" in machine.run("report", "last", *runs).stdout
    shown = machine.run("show", "last", "with_skill", *runs)
    assert "build_toml  build.toml:1" in shown.stdout, shown.stderr


@pytest.mark.parametrize(
    ("hidden", "model", "variable", "package"),
    [
        ("openai", "openai/x", "OPENAI_API_KEY", "openai"),
        ("anthropic", "anthropic/y", "ANTHROPIC_API_KEY", "anthropic"),
        ("openai", "local/z", "LIFTBENCH_API_KEY", "openai"),
        # An SDK that is there, but not what it stands on.
        ("httpx2", "openai/x", "OPENAI_API_KEY", "openai"),
        ("httpx2", "anthropic/y", "ANTHROPIC_API_KEY", "anthropic"),
    ],
)
def test_a_missing_sdk_is_said_in_one_sentence(
    without: Without, hidden: str, model: str, variable: str, package: str, tmp_path: Path
) -> None:
    """Exit code 2, one line with the pip command, and nothing is written."""
    server = ["--base-url", "http://localhost:1/v1"] if model.startswith("local/") else []
    words = ["-m", model, *server, "--target", "cpu", "--runs-dir", tmp_path / "runs"]
    done = without(hidden).run("eval", "cuda-kernel-builder", *words, **{variable: "sk-test-0123456789"})
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith(f"liftbench: model {model} needs the {package} package (")
    assert line.endswith(f": pip install '{REQUIREMENTS[package]}'")
    assert done.stdout == ""
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["grade", str(BAD), "--task", "l1/rms_norm"],
        ["validate", "l1/rms_norm"],
        ["eval", "cuda-kernel-builder", "-m", "local/z", "--base-url", "http://localhost:1/v1"],
    ],
    ids=lambda words: words[0],
)
def test_missing_torch_is_said_in_one_sentence(
    toolchain: Toolchain, without: Without, words: list[str]
) -> None:
    """Nothing can be built without torch: exit code 2, and the pip command."""
    if words[0] == "eval":
        pytest.importorskip("openai", reason="needs openai (pip install openai)")
    done = without("torch").run(*words, "--target", "cpu", "--sandbox", "local")
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].endswith("no torch found: pip install torch")
    assert "Traceback" not in done.stderr
    assert not (without("torch").home / "runs").exists()


def test_missing_ninja_is_said_in_one_sentence(
    toolchain: Toolchain, without: Without, tmp_path: Path
) -> None:
    """Neither the package nor the program: exit code 2, and the pip command."""
    assert toolchain.gxx is not None
    (tmp_path / "g++").symlink_to(toolchain.gxx)
    words = ["grade", BAD, "--task", "l1/rms_norm", "--target", "cpu", "--sandbox", "local"]
    done = without("ninja").run(*words, PATH=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert (
        done.stderr.splitlines()[-1] == "liftbench: cannot build for cpu: no ninja found: pip install ninja"
    )


def test_doctor_says_what_is_missing_and_what_for(without: Without) -> None:
    """Each absent package comes with its pip command and what it would be good for."""
    done = without(*ALL, "torch").run("doctor", "--json")
    found = {i["name"]: i for i in json.loads(done.stdout)["items"] if i["group"] == "packages"}
    absent = ["torch", "kernels", "openai", "anthropic", "docker", "ray", "kernel_abi_check"]
    for name in absent:
        assert found[name]["found"] is None
        assert found[name]["advice"].startswith(f"pip install {name.replace('_', '-')}: ")
    [cpu, _] = json.loads(done.stdout)["stages"]
    assert cpu["build"].startswith("no: ")


def test_a_verdict_by_our_own_records_is_marked(without: Without) -> None:
    """Where the kernels package is missing, a skill's projects are checked with a warning that says so."""
    assert ABSENT in without("kernels").run("skills", "check", "cuda-kernel-builder", "--no-build").stdout


def test_the_pip_commands_ask_for_what_we_need() -> None:
    """The versions in the messages are those of pyproject.toml."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert set(REQUIREMENTS.values()) <= set(declared)
