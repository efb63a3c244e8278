"""Command lines, student flags, architectures and the ninja file."""

from __future__ import annotations

import shlex

import pytest

from harness.builder.allowed_flags import screen
from harness.builder.cache import RECIPE
from harness.builder.commands import compile_argv, library_path, link_argv, ninja_file
from harness.builder.translation_units import Unit, Units, gencode, loose_intersection, supported
from harness.records import digest_of
from tests.fakes.projects import fake_toolchain, planned, project


@pytest.mark.parametrize("torch", ["2.13.0+cpu", "2.11.0+cu130"])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_commands_are_kernel_builders(target, torch, tmp_path):
    """The limited API, the names of this build, a linked CUDA torch where there is one, and no rpath."""
    toolchain = fake_toolchain(tmp_path, torch=torch)
    layout = planned(project(), target, toolchain)
    for unit in layout.units.units:
        argv = compile_argv(unit, layout, toolchain)
        definitions = {
            f"-D{target.upper()}_KERNEL",
            "-DPy_LIMITED_API=3",
            "-DTORCH_TARGET_VERSION=0x20a000000000000",
        }
        assert definitions | {f"-DTORCH_EXTENSION_NAME={layout.ops_name}"} <= set(argv)
        assert ("-DUSE_CUDA=1" in argv) == (target == "cuda")
        assert ("stubs" in argv) == (target == "cuda" and "cpu" in torch)
        assert f"-ffile-prefix-map={tmp_path}/torch=torch" in argv
        assert f"source/{unit.source}" in argv and f"obj/{unit.source}/unit.o" in argv
    link = " ".join(link_argv(layout, toolchain))
    assert f"-shared -o {library_path(layout)} obj/torch-ext/torch_binding.cpp/unit.o" in link
    assert ("libtorch_cuda.so" in link) == (target == "cuda" and "cu130" in torch)
    assert ("libcudart.so" in link) == (target == "cuda") and "rpath" not in link


@pytest.mark.parametrize(("torch", "std"), [("2.11.9", "17"), ("2.12.0", "20")])
def test_the_standard_follows_torch(torch, std, tmp_path):
    """C++17 below torch 2.12, else C++20; nvcc without GNU extensions."""
    toolchain = fake_toolchain(tmp_path, torch=torch)
    layout = planned(project(), "cuda", toolchain)
    gxx, nvcc = (compile_argv(unit, layout, toolchain) for unit in layout.units.units)
    assert f"-std=gnu++{std}" in gxx and f"-std=c++{std}" in nvcc


def test_options_apply_to_their_component_only(tmp_path):
    """include, cxx-flags and cuda-flags; includes come before csrc, flags after ours."""
    toolchain = fake_toolchain(tmp_path)
    given = project(
        toml={
            'stable-abi = "2.10"': 'cxx-flags = ["-DBINDING"]\ninclude = ["torch-ext"]',
            'src = ["kernels/fill.cu", "kernels/fill.h"]': 'src = ["kernels/fill.cu", "kernels/fill.cpp"]\n'
            'include = [".", "kernels"]\ncxx-flags = ["-DHOST"]\ncuda-flags = ["-DDEVICE"]\n'
            'cuda-capabilities = ["9.0a", "8.0+PTX"]',
        }
    )
    layout = planned(given, "cuda", toolchain)
    binding, device, host = (compile_argv(u, layout, toolchain) for u in layout.units.units)
    assert [w for w in binding if w.startswith("-I")] == ["-Isource/torch-ext", "-Isource/csrc"]
    assert [w for w in device if w.startswith("-I")] == ["-Isource", "-Isource/kernels", "-Isource/csrc"]
    marks = {"-DBINDING", "-DHOST", "-DDEVICE"}
    assert [marks & set(argv) for argv in (binding, device, host)] == [
        {"-DBINDING"},
        {"-DDEVICE"},
        {"-DHOST"},
    ]
    assert not any("TORCH_TARGET_VERSION" in word for word in binding)
    tail = device[device.index("-gencode") :]
    assert tail == (
        *("-gencode", "arch=compute_90a,code=sm_90a"),
        *("-DDEVICE", "-x", "cu", "-c", "source/kernels/fill.cu", "-o", "obj/kernels/fill.cu/unit.o"),
    )
    assert "-gencode" not in host


def test_the_ninja_file_survives_two_shells(tmp_path):
    """Quotes and dollars in a macro reach the compiler as they were written."""
    toolchain = fake_toolchain(tmp_path)
    given = project(toml={'stable-abi = "2.10"': """cxx-flags = ['-DTEXT="a b"', "-DF(x)=x|x"]"""})
    layout = planned(given, "cpu", toolchain)
    text = ninja_file(layout, toolchain)
    line = next(t for t in text.splitlines() if "argv =" in t and "torch_binding" in t)
    words = shlex.split(line.partition("argv = ")[2].replace("$$", "$"))
    assert '-DTEXT="a b"' in words and "-DF(x)=x|x" in words
    assert text.endswith(f"default {library_path(layout)}\n")


def test_a_changed_recipe_needs_a_new_number(tmp_path):
    """Cached builds are only valid for the commands that made them: change both or neither."""
    texts = []
    for target in ("cpu", "cuda"):
        toolchain = fake_toolchain(tmp_path)
        layout = planned(project(), target, toolchain)
        texts.append(ninja_file(layout, toolchain).replace(str(tmp_path), "ROOT"))
        texts += [*layout.tree.values(), *layout.package.values()]
    assert (RECIPE, digest_of(texts)[:12]) == (8, "1a2dc418c0de")


CXX = {
    ("-O2", "-Ofast", "-g", "-w", "-pthread"): ("-O2", "-Ofast", "-g", "-w", "-pthread"),
    ("-std=c++17",): ("-std=c++17",),
    ("-DA", "-DA=1", "-D", "B=2", "-UC", '-DS="x y"'): ("-DA", "-DA=1", "-DB=2", "-UC", '-DS="x y"'),
    ("-Iinclude", "-I", "./a/b", "-I."): ("-Isource/include", "-Isource/a/b", "-Isource/."),
    ("-include", "kernels/fill.h"): ("-include", "source/kernels/fill.h"),
    ("-ffast-math", "-fno-math-errno", "-funroll-loops", "-fopenmp", "-fopenmp-simd"): None,
    ("-fvisibility=hidden", "-ffp-contract=fast", "-ftree-vectorize", "-fno-strict-aliasing"): None,
    ("-mavx2", "-mfma", "-mavx512f", "-mavx512bf16", "-march=x86-64-v4", "-mtune=sapphirerapids"): None,
    ("-mprefer-vector-width=512", "-mno-avx512f", "-mf16c", "-mamx-bf16"): None,
    ("-Wall", "-Wextra", "-Wno-unused-variable", "-Werror=return-type"): None,
}
CUDA = {
    ("--use_fast_math", "-use_fast_math", "-lineinfo", "--generate-line-info", "-G"): None,
    ("--maxrregcount=64",): None,
    ("-maxrregcount", "64", "--threads", "4"): ("-maxrregcount=64", "--threads=4"),
    ("--ptxas-options=-v", "-Xptxas", "-O3", "-Xptxas=-v,-dlcm=ca"): (
        "--ptxas-options=-v", "-Xptxas=-O3", "-Xptxas=-v", "-Xptxas=-dlcm=ca",
    ),
    ("-Xcompiler", "-fopenmp,-O3", "--compiler-options=-Wall"): (
        "-Xcompiler=-fopenmp", "-Xcompiler=-O3", "--compiler-options=-Wall",
    ),
    ("--expt-relaxed-constexpr", "--expt-extended-lambda", "-extended-lambda"): None,
    ("-gencode", "arch=compute_90a,code=sm_90a"): ("-gencode=arch=compute_90a,code=sm_90a",),
    ("-gencode=arch=compute_90,code=[sm_90,compute_90]", "-arch=sm_90a"): None,
    ("-Xcudafe", "--diag_suppress=177", "-diag-suppress=177"): (
        "-Xcudafe=--diag_suppress=177", "-diag-suppress=177",
    ),
    ("-U__CUDA_NO_HALF_OPERATORS__", "-std=c++17", "-O3", "--ftz=true", "-prec-div=false"): None,
    ("--ftemplate-backtrace-limit=0", "--ftemplate-depth=2048"): None,
    ("--ptxas-options", "--verbose,--warn-on-local-memory-usage"): (
        "--ptxas-options=--verbose", "--ptxas-options=--warn-on-local-memory-usage",
    ),
    ("-Xfatbin", "-compress-all", "-static-global-template-stub=false"): (
        "-Xfatbin=-compress-all", "-static-global-template-stub=false",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("nvcc", "flags", "expected"),
    [(False, *row) for row in CXX.items()] + [(True, *row) for row in CUDA.items()],
)
def test_allowed_flags(nvcc, flags, expected):
    """Ordinary flags pass, values joined, paths below the project, and those that nvcc passes on."""
    assert screen(flags, nvcc=nvcc).words == (expected or flags)


def _cases(table: str) -> list[list[str]]:
    return [case.split() for case in table.replace("\n", " ").split(" | ")]


REFUSED = [
    *_cases("""
    -fplugin=./evil.so | -fplugin-arg-x-y=1 | -wrapper sh,-c | @flags | -B. | -B . | -specs=x |
    --specs=x | -include /etc/passwd | -include ../x | -imacros x | -I/usr/include | -I ../.. |
    -Ia/../../b | -isystem /x | -iquote. | -idirafter x | -Wl,-rpath,/x | -Wa,-x | -Wp,-MD,/x |
    -Xlinker x | -Xassembler x | -L. | -shared | -static | -o x | -c | -E | -S |
    -MD | -MF x | -save-temps | -fdump-tree-all | -fprofile-generate | -fprofile-use=x |
    -ftest-coverage | -fsanitize=address | -flto | -x c | evil.cpp | - | -D -x | -D | -U1 |
    --sysroot=/ | -nostdinc | -mllvm | -I | -O9
"""),
    [""],
    ["-O3 -Wall"],
    ["-DX=\n"],
    ["-DX=$(touch x)"],
    ["-DX=`touch x`"],
    ["-DX=\\x"],
    ["-Dé"],
    ["-march=x y"],
]
REFUSED_CUDA = [
    *_cases("""
    -ccbin ./x | --compiler-bindir=./x | --compiler-bindir x | --run | -run |
    --options-file x | -optf x | -Xlinker x | -Xnvlink x | -Xarchive x | --keep |
    -keep-dir /x | -Xcompiler -fplugin=x | -Xcompiler=-wrapper,x | -Xcompiler -O3,-B. |
    -Xptxas -o,/x | -Xptxas=--input-as-string | -Xcudafe --output=x | --libdevice-directory=x |
    -ldir x | -dlto | --dryrun | -cubin | --ptx | -dc | -arch=native |
    -gencode arch=compute_90,code=$(x) | -Xcompiler | -maxrregcount -x |
    --fdevice-time-trace=x | --time=x | -Xcompiler -DX=$(x) | -t 4;x
"""),
    ["-Xcudafe", "--diag_suppress=1 --x"],
]


@pytest.mark.parametrize("flags", REFUSED, ids=" ".join)
def test_refused_by_both(flags):
    """What loads, runs, links, writes or leaves the project is refused for g++ and for nvcc."""
    for allowed in (screen(["-O2", *flags], nvcc=False), screen(["-O2", *flags], nvcc=True)):
        assert allowed.refused is not None and allowed.words == ()


@pytest.mark.parametrize("flags", REFUSED_CUDA, ids=" ".join)
def test_refused_by_nvcc(flags):
    """nvcc's own ways out, and whatever it would pass on."""
    assert screen(flags, nvcc=True).refused is not None


@pytest.mark.parametrize("nvcc", [False, True])
def test_a_library_on_a_compile_line_is_left_out(nvcc):
    """Compilers ignore it there, so published projects that write it build; a path to one stays refused."""
    allowed = screen(["-O2", "-lgomp"], nvcc=nvcc)
    assert allowed.words == ("-O2",) and allowed.refused is None
    assert '"-lgomp" is left out' in allowed.warnings[0]
    assert all(screen([flag], nvcc=nvcc).refused is not None for flag in ("-l/tmp/x", "-l"))


def test_messages_say_why():
    """A student can act on a refusal; -march=native is left out, as upstream does, with a warning."""
    for flag, part in {
        "-L.": "linker",
        "-O3 -Wall": 'write "-O3", "-Wall"',
        "-fplugin=x": "programs",
    }.items():
        assert part in (screen([flag], nvcc=False).refused or "")
    allowed = screen(["-march=native", "-O2"], nvcc=False)
    assert allowed.words == ("-O2",) and "left out" in allowed.warnings[0]
    assert screen(["-Xcompiler", "-march=native"], nvcc=True).words == ()


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (["9.0"], ["9.0"]),
        (["9.0", "9.0a"], ["9.0a"]),
        (["8.0"], []),
        (["7.5+PTX", "8.0+PTX", "8.6"], ["8.0+PTX"]),
        (["8.0+PTX", "9.0+PTX"], ["9.0+PTX"]),
        (["9.0a+PTX"], ["9.0a+PTX"]),
        (["10.0a", "12.0+PTX"], []),
        ([], []),
    ],
)
def test_what_serves_an_h100(kernel, expected):
    """As kernel-builder's loose intersection with 9.0."""
    assert list(loose_intersection(kernel, ("9.0",))) == expected


def test_capabilities_that_nvcc_does_not_know_are_left_out():
    """Of a kernel for other devices; the highest at or below each target of the same major version."""
    assert loose_intersection(("8.0", "12.0"), supported((12, 6))) == ("8.0",)
    assert loose_intersection(("8.0", "12.0"), supported((13, 0))) == ("8.0", "12.0")
    assert loose_intersection(("3.5", "5.0"), supported((13, 0))) == ()


def test_gencode_flags():
    """+PTX adds the virtual architecture."""
    assert gencode(["9.0a"]) == ("-gencode", "arch=compute_90a,code=sm_90a")
    assert gencode(["8.0+PTX"])[2:] == ("-gencode", "arch=compute_80,code=compute_80")
    unit = Unit(source="a.cu", language="cuda", capabilities=("8.0+PTX", "9.0"), flags=("-arch=sm_90a",))
    assert Units(units=(unit,)).architectures == ("sm_80", "compute_80", "sm_90", "sm_90a")
