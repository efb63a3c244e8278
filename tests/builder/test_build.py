"""Building: whose fault a failure is, the cache, and (slow) real compilers for both targets."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from harness.builder.build import Built, build
from harness.builder.cache import build_key
from harness.builder.compiler_output import TREE, clean
from harness.builder.compiler_slots import COMPILER_BYTES
from harness.builder.toolchain import Toolchain
from harness.errors import SandboxError
from harness.outcome import Cause
from harness.records import DiagnosticKind, Project, Target
from tests.fakes.processes import processes_naming
from tests.fakes.projects import BUILD_TOML, fake_toolchain, project
from tests.fakes.sandbox import FakeSandbox, exit_facts

FAILED = "[0/3] g++ source/a.cpp\nFAILED: [code=1] obj/kernels/fill.cpp/unit.o \n/usr/bin/g++ -c x\n"

SOURCES = ("torch-ext/torch_binding.cpp", "kernels/fill.cpp")


def run(
    sandbox: FakeSandbox,
    toolchain: Toolchain,
    tmp_path: Path,
    given: Project | None = None,
    target: Target = "cpu",
) -> Built:
    """Build the tiny project with a sandbox that only pretends."""
    return build(
        given or project(),
        target,
        sandbox=sandbox,
        toolchain=toolchain,
        cache=tmp_path / "cache",
        log=tmp_path / "out/build.log",
    )


def successful(toolchain: Toolchain, given: Project | None = None) -> FakeSandbox:
    """A sandbox in which ninja left a library."""
    name = f"_fill_it_cpu_{(given or project()).digest[:7]}"
    objects = [f"obj/{source}/unit.o" for source in SOURCES]
    log = "# ninja log v7\n" + "".join(f"0\t1000\t1\t{path}\tff\n" for path in objects) + "rubbish\n"
    files = {f"{TREE}/lib/{name}.abi3.so": b"\x7fELF...", f"{TREE}/.ninja_log": log.encode()}
    files |= {f"{TREE}/{path}{end}": b"object" for path in objects for end in ("", ".log")}
    return FakeSandbox(exit_facts("ok", "[1/3] g++ source/torch-ext/torch_binding.cpp\n", 0), files)


def test_a_build_is_stored_as_kernels_expects_it(toolchain, tmp_path):
    """build/<variant>/ holds the package; the record says what was built and how long it took."""
    sandbox = successful(toolchain)
    built = run(sandbox, toolchain, tmp_path)
    result = built.result
    assert result.ok and not result.cache_hit and result.finding is None
    assert (result.units, result.module, result.compiler_s) == (2, "fill_it", 2.0)
    assert result.variant == "torch-stable-abi210-cpu-x86_64-linux"
    assert built.package is not None and built.package.name == result.variant
    assert sorted(p.name for p in built.package.iterdir()) == [
        "__init__.py",
        f"_fill_it_cpu_{project().digest[:7]}.abi3.so",
        "_ops.py",
        "metadata.json",
    ]
    assert sandbox.processes[0].closed
    log = (tmp_path / "out/build.log").read_text()
    assert "built now" in log.splitlines()[0] and "[1/3] g++ torch-ext/torch_binding.cpp" in log


def test_the_job_runs_ninja_on_the_staged_tree_only(toolchain, tmp_path):
    """Role, argv, environment and inputs of the one process."""
    sandbox = successful(toolchain)
    run(sandbox, toolchain, tmp_path, project({"README.md": "not staged"}))
    number, job = next((n, j) for n, j in enumerate(sandbox.jobs) if j.argv[0] == "/usr/bin/ninja")
    assert job.role == "build" and job.device is None
    assert [*job.argv[:4], *job.argv[5:]] == ["/usr/bin/ninja", "-C", f"{{scratch}}/{TREE}", "-j", "-k", "0"]
    assert int(job.argv[4]) in (1, 2), "as many as there are files, slots permitting"
    assert job.environment["LC_ALL"] == "C" and "SOURCE_DATE_EPOCH" in job.environment
    assert job.limits.wall_s == 600, "and memory for each compiler that may run"
    assert job.limits.memory_bytes == (8 << 30) + (int(job.argv[4]) - 1) * COMPILER_BYTES
    staged = sandbox.inputs[number]
    assert f"{TREE}/build.ninja" in staged and f"{TREE}/source/torch-ext/registration.h" in staged
    assert not any("README" in path for path in staged)


def test_the_second_request_is_a_cache_hit(toolchain, tmp_path):
    """Same content, no process; another target or file is another build."""
    first = run(successful(toolchain), toolchain, tmp_path)
    idle = FakeSandbox(exit_facts("sandbox_error"))
    second = run(idle, toolchain, tmp_path)
    assert idle.jobs == [] and second.result.cache_hit and second.package == first.package
    assert second.result.model_copy(update={"cache_hit": False, "wall_s": 0}) == (
        first.result.model_copy(update={"wall_s": 0})
    )
    assert "cache hit" in (tmp_path / "out/build.log").read_text().splitlines()[0]
    keys = {
        build_key(project(), "cpu", toolchain),
        build_key(project(), "cuda", toolchain),
        build_key(project({"README.md": "x"}), "cpu", toolchain),
        build_key(project(), "cpu", fake_toolchain(tmp_path / "t", torch="2.12.0+cpu")),
    }
    assert len(keys) == 4


def test_two_at_once_build_once(toolchain, tmp_path):
    """One builds, and the other waits for it."""
    sandbox = successful(toolchain)
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: run(sandbox, toolchain, tmp_path), range(2)))
    assert sorted(built.result.cache_hit for built in both) == [False, True] and len(sandbox.jobs) == 1


def test_a_damaged_entry_is_built_again(toolchain, tmp_path):
    """A changed byte is noticed; the entry is replaced."""
    built = run(successful(toolchain), toolchain, tmp_path)
    assert built.package is not None
    (built.package / "_ops.py").write_text("import os")
    again = run(successful(toolchain), toolchain, tmp_path)
    assert not again.result.cache_hit and again.package is not None
    assert "torch.ops" in (again.package / "_ops.py").read_text()


COMPILE_ERROR = (
    FAILED + 'source/kernels/fill.cpp:3:5: error: "x" was not declared\n    3 | x;\nninja: build stopped.\n'
)


def test_a_compile_error_is_a_finding_and_is_cached(toolchain, tmp_path):
    """The first line is the error, as a path of the project."""
    built = run(FakeSandbox(exit_facts("nonzero", COMPILE_ERROR, 1)), toolchain, tmp_path)
    finding = built.result.finding
    assert finding is not None and finding.cause is Cause.COMPILE_ERROR
    assert finding.message.splitlines()[0] == 'kernels/fill.cpp:3:5: error: "x" was not declared'
    assert "ninja" not in finding.message and built.package is None
    again = run(FakeSandbox(exit_facts("sandbox_error")), toolchain, tmp_path)
    assert again.result.cache_hit and again.result.finding == finding


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (exit_facts("signal", signal=11), Cause.BUILD_LIMIT),
        (exit_facts("cpu_timeout"), Cause.BUILD_TIMEOUT),
        (exit_facts("output_limit"), Cause.BUILD_LIMIT),
        (
            exit_facts("nonzero", FAILED + "g++: fatal error: Killed signal terminated program cc1plus\n"),
            Cause.BUILD_LIMIT,
        ),
        (exit_facts("ok"), Cause.LINK_ERROR),
    ],
)
def test_limits_are_findings_that_are_not_cached(facts, cause, toolchain, tmp_path):
    """A limit may be due to a busy machine, so the result is not kept."""
    built = run(FakeSandbox(facts), toolchain, tmp_path)
    assert built.result.finding is not None and built.result.finding.cause is cause
    if cause is not Cause.LINK_ERROR:
        assert run(successful(toolchain), toolchain, tmp_path).result.ok


@pytest.mark.parametrize(
    ("facts", "control", "said"),
    [
        (exit_facts("sandbox_error", "launcher: no"), None, "launcher: no"),
        (exit_facts("nonzero", COMPILE_ERROR), exit_facts("nonzero", "no g++"), "no g\\+\\+"),
        (exit_facts("nonzero", COMPILE_ERROR), exit_facts("wall_timeout"), "ended with wall_timeout"),
    ],
)
def test_our_failures_are_raised(facts, control, said, toolchain, tmp_path):
    """The sandbox says that it failed, or a project of ours is not built either."""
    with pytest.raises(SandboxError, match=said):
        run(FakeSandbox(facts, control=control), toolchain, tmp_path)
    assert run(successful(toolchain), toolchain, tmp_path).result.ok


def test_a_starved_build_is_ours_and_a_slow_one_is_not(toolchain, tmp_path):
    """Ours only if other processes had the cores for over half of the limit."""
    late = replace(exit_facts("wall_timeout"), wall_s=100.0)
    for starved_s in (None, 0.0, 50.0):
        built = run(FakeSandbox(replace(late, starved_s=starved_s)), toolchain, tmp_path)
        assert built.result.finding is not None and built.result.finding.cause is Cause.BUILD_TIMEOUT
    with pytest.raises(SandboxError, match=r"51 s of it other processes.*run fewer trials"):
        run(FakeSandbox(replace(late, starved_s=51.0)), toolchain, tmp_path)


def test_the_control_sees_every_folder_of_the_toolchain(toolchain, tmp_path):
    """It asks for a header of each, and contains nothing of the project."""
    assert toolchain.torch_root is not None
    for header in ("torch/all.h", "torch/late.h", "c10/x.h", "odd name/x.h"):
        (toolchain.torch_root / "include" / header).parent.mkdir(parents=True, exist_ok=True)
        (toolchain.torch_root / "include" / header).touch()
    sandbox = FakeSandbox(exit_facts("nonzero", COMPILE_ERROR, 1))
    run(sandbox, toolchain, tmp_path)
    control = sandbox.inputs[-1]
    text = control[f"{TREE}/source/liftbench_control.cpp"]
    asked = [line for line in text.splitlines() if line.startswith("#if")]
    assert asked == [f"#if !__has_include(<{header}>)" for header in ("c10/x.h", "torch/all.h")]
    assert not any(
        "fill" in name or "fill" in contents for name, contents in control.items() if "nvcc" not in name
    )


@pytest.mark.parametrize(
    ("target", "error", "cause"),
    [
        ("cuda", "fatal error: curand_kernel.h: No such file or directory", Cause.NO_TOOLCHAIN),
        ("cuda", "fatal error: my_curand.h: No such file or directory", Cause.COMPILE_ERROR),
        ("cpu", "fatal error: cublas_v2.h: No such file or directory", Cause.COMPILE_ERROR),
        ("cuda", "error: 'cublasSgemm' was not declared", Cause.NO_TOOLCHAIN),
        ("cuda", "error: 'cusparseCreate' was not declared", Cause.COMPILE_ERROR),
        ("cpu", f"fatal error: {'A' * 300}.h: No such file or directory", Cause.COMPILE_ERROR),
        ("cuda", f"fatal error: {'A' * 300}.h: No such file or directory", Cause.COMPILE_ERROR),
    ],
)
def test_a_poor_toolkit_is_not_the_students_fault(target, error, cause, toolchain, tmp_path):
    """Only headers of a whole CUDA toolkit, and names that a stand-in lacks; a CPU kernel needs neither."""
    poor = toolchain.model_copy(update={"stubs": ("cublas_v2.h",)})
    output = f"{FAILED}source/kernels/fill.c:1:10: {error}\n"
    built = run(FakeSandbox(exit_facts("nonzero", output)), poor, tmp_path, target=target)
    assert built.result.finding is not None and built.result.finding.cause is cause


def test_a_machine_without_nvcc_still_checks_the_project(toolchain, tmp_path):
    """Errors of the project are reported before gaps of the machine."""
    bare = toolchain.model_copy(update={"cuda": None})
    idle = FakeSandbox(exit_facts("ok"))
    bad = run(idle, bare, tmp_path, project({"kernels/fill.h": None}), "cuda").result.finding
    good = run(idle, bare, tmp_path, project(), "cuda").result.finding
    assert bad is not None and bad.cause is Cause.BAD_LAYOUT
    assert good is not None and good.cause is Cause.NO_TOOLCHAIN and idle.jobs == []


def test_a_bad_build_toml_starts_nothing(toolchain, tmp_path):
    """build.toml is validated before any process starts; the log contains the finding."""
    idle = FakeSandbox(exit_facts("ok"))
    built = run(idle, toolchain, tmp_path, project({"build.toml": BUILD_TOML.replace("fill-it", "fill_it")}))
    assert built.result.finding is not None
    assert built.result.finding.cause is Cause.BAD_BUILD_TOML and idle.jobs == []
    assert 'name = "fill-it"' in (tmp_path / "out/build.log").read_text()
    missing = run(idle, toolchain, tmp_path, project({"build.toml": None})).result.finding
    assert missing is not None and "missing" in missing.message


def test_warnings_tell_of_a_cpu_only_torch(toolchain, tmp_path):
    """Whoever reads a CUDA build knows what it was not linked with."""
    built = run(FakeSandbox(exit_facts("nonzero", COMPILE_ERROR)), toolchain, tmp_path, target="cuda")
    assert any("CPU-only" in w and "cuda_cmake_macros.h" in w for w in built.result.warnings)
    assert built.result.architectures == ("sm_90",)


def test_paths_are_cleaned(toolchain):
    """Neither the scratch directory nor this machine's layout reaches a message."""
    text = f"/tmp/liftbench-x/scratch/{TREE}/source/a.cpp {toolchain.torch_root}/include/c10/x.h"
    assert clean(text, toolchain) == "a.cpp torch/include/c10/x.h"
    assert clean(f"ninja: Entering directory `/s/{TREE}'\nx", toolchain) == "x"
    assert clean("my/source/a.cpp", toolchain) == "my/source/a.cpp"


def assert_no_paths(library: bytes, toolchain: Toolchain) -> None:
    """No directory of the builder's is in the bytes."""
    places = [toolchain.torch_root, toolchain.python_include, "/tmp/", TREE, "tmpxft"]
    places += [] if toolchain.cuda is None else [toolchain.cuda.root]
    assert [place for place in places if str(place).encode() in library] == []


@pytest.mark.slow
def test_a_cpu_build_is_cached_and_names_no_path(really, real, tmp_path):
    """Nothing of this machine is in the library; compiler time is part of the wall time."""
    built = really(project(), "cpu", tmp_path)
    assert built.result.ok, built.result.finding
    assert built.package is not None
    assert_no_paths(next(built.package.glob("*.abi3.so")).read_bytes(), real)
    assert built.result.compiler_s is not None and built.result.compiler_s <= built.result.wall_s
    assert really(project(), "cpu", tmp_path).result.cache_hit


@pytest.mark.slow
def test_a_cuda_build_is_the_same_every_time(really, real, tmp_path):
    """Two scratch directories, one result, for sm_90; linked with the CUDA runtime, without rpath."""
    libraries = []
    for cache in (tmp_path / "a", tmp_path / "b"):
        built = really(project(), "cuda", cache)
        assert built.result.ok, built.result.finding
        assert built.package is not None and built.result.architectures == ("sm_90",)
        libraries.append(next(built.package.glob("*.abi3.so")).read_bytes())
    assert libraries[0] == libraries[1]
    assert_no_paths(libraries[0], real)
    assert b"libcudart.so" in libraries[0] and b"fill_kernel" in libraries[0]


TEMPLATES = """\
template<int N, int M> struct F { static constexpr int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; };
template<int M> struct F<0, M> { static constexpr int v = M; };
int x = F<28, 0>::v;
"""
ARRAY = "extern const char a[1ull << 34];\nconst char a[1ull << 34] = {1, 2, 3};\n"
PACK = "#include <utility>\nstd::make_integer_sequence<int, 100000000> s;\n"

BOMBS: dict[str, tuple[str, float, int, Cause, DiagnosticKind]] = {
    "templates": (TEMPLATES, 2.0, 8 << 30, Cause.BUILD_TIMEOUT, "timeout"),
    "a parameter pack": (PACK, 60.0, 300 << 20, Cause.BUILD_LIMIT, "out_of_memory"),
    "a giant array": (ARRAY, 60.0, 8 << 30, Cause.BUILD_LIMIT, "other"),
}
"""Text, limits, what comes of it. A file is limited to 256 MiB, which the array goes over."""


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_stopped_and_nothing_of_it_stays(name: str, really, tmp_path: Path) -> None:
    """Build failed for the right limit, the file is named, no compiler lives on, and the next build works."""
    text, wall_s, memory_bytes, cause, kind = BOMBS[name]
    source = f"kernels/bomb_{secrets.token_hex(8)}.cpp"
    binding = {'"torch-ext/torch_binding.cpp", ': ""}
    given = project({source: text}, toml=binding | {'src = ["kernels/fill.cpp"': f'src = ["{source}"'})
    result = really(given, "cpu", tmp_path, wall_s=wall_s, memory_bytes=memory_bytes).result
    assert result.finding is not None and result.finding.cause is cause, result.finding
    assert [(d.kind, d.file) for d in result.diagnostics] == [(kind, source)], result.diagnostics
    assert processes_naming(Path(source).stem) == []
    good = really(project(toml=binding), "cpu", tmp_path)
    assert good.result.ok, good.result.finding
