"""build.toml: records, validity by upstream's parser, and advice."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from harness.builder.build_toml import ABSENT, check, read_build_toml, validate
from harness.builder.hints import hints, line_of
from harness.builder.schema import BuildToml, CudaKernel, version_parts
from harness.errors import HarnessBug
from harness.outcome import Cause
from tests.fakes.projects import BUILD_TOML

GENERAL = """\
[general]
name = "ab"
version = 1
edition = 5
license = "x"
backends = ["cuda"]
"""
BASE = GENERAL + "[torch]\n"
V4 = BASE.replace("edition = 5\n", "")
KERNEL = BASE + '[kernel.a]\nbackend = "cuda"\ndepends = ["torch"]\nsrc = ["a.cu"]\n'
BLOG = """\
[general]
name = "a_b"
backends = ["cuda"]
[general.cuda]
capabilities = ["9.0"]
[torch]
"""
FULL = """\
[general]
name = "my-kernel"
version = 3
edition = 5
license = "MIT"
backends = ["cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu"]
upstream = "https://github.com/a/b"
source = "git@github.com:a/b.git"
python-depends = ["einops"]
kernel-depends = [{repo-id = "a/b", version = 1}, {repo-id = "a/c", revision = "main"}]
[general.hub]
repo-id = "a/b"
branch = "main"
[general.cuda]
minver = "12.8"
maxver = "13.9"
python-depends = ["nvidia-cutlass-dsl"]
kernel-depends = []
[general.neuron]
python-depends = ["nki"]
kernel-depends = []
[general.tpu]
python-depends = []
[general.xpu]
python-depends = ["onednn"]
kernel-depends = []
[torch]
src = ["torch-ext/b.cpp"]
include = ["."]
pyext = ["py", "json"]
cxx-flags = ["-O3"]
minver = "2.10"
maxver = "2.99"
stable-abi = {cpu = "2.10", cuda = "2.11"}
[kernel.a]
backend = "cuda"
depends = ["torch", "cutlass_3_8"]
src = ["a.cu"]
include = ["inc"]
cxx-flags = ["-O3"]
cuda-flags = ["-lineinfo"]
cuda-capabilities = ["9.0a"]
cuda-minver = "12.8"
[kernel.b]
backend = "cpu"
depends = []
src = []
[kernel.c]
backend = "metal"
depends = ["metal-cpp"]
src = []
[kernel.d]
backend = "rocm"
depends = []
src = []
rocm-archs = ["gfx942"]
hip-flags = []
[kernel.e]
backend = "xpu"
depends = ["sycl_tla"]
src = []
sycl-flags = []
"""

# Every one is asked of upstream's parser too: both must agree.
CASES = {
    "minimal": KERNEL,
    "full": FULL,
    "tiny project": BUILD_TOML,
    "v4": V4,
    "noarch": GENERAL + '[torch-noarch]\npyext = ["py"]\ncuda_capabilities = ["9.0"]\nrocm_archs = []\n',
    "noarch kebab": GENERAL + '[torch-noarch]\ncuda-capabilities = ["9.0"]\n',
    "tvm-ffi": GENERAL + "[tvm-ffi]\nsrc = []\ninclude = []\ncxx-flags = []\n",
    "tvm-ffi without src": GENERAL + "[tvm-ffi]\n",
    "no framework": GENERAL,
    "two frameworks": BASE + "[torch-noarch]\n",
    "top-level table": BASE + "[tool.x]\na = 1\n",
    "blog form": BLOG,
    "blog keys, edition 5": BASE + '[general.cuda]\ncapabilities = ["9.0"]\n',
    "underscore": BASE.replace('"ab"', '"my_kernel"'),
    "capitals": BASE.replace('"ab"', '"Ab"'),
    "one letter": BASE.replace('"ab"', '"a"'),
    "final dash": BASE.replace('"ab"', '"ab-"'),
    "name with newline": BASE.replace('"ab"', '"ab\\n"'),
    "no license": BASE.replace('license = "x"\n', ""),
    "no version": BASE.replace("version = 1\n", ""),
    "no backends": BASE.replace('backends = ["cuda"]\n', ""),
    "negative version": BASE.replace("version = 1", "version = -1"),
    "version as string": BASE.replace("version = 1", 'version = "1"'),
    "hex version": BASE.replace("version = 1", "version = 0x10"),
    "unknown backend": BASE.replace('["cuda"]', '["triton"]'),
    "empty backends": BASE.replace('["cuda"]', "[]"),
    "edition as string": BASE.replace("edition = 5", 'edition = "5"'),
    "edition as bool": BASE.replace("edition = 5", "edition = true"),
    "edition 4": BASE.replace("edition = 5", "edition = 4"),
    "edition 6": BASE.replace("edition = 5", "edition = 6"),
    "no depends": KERNEL.replace('depends = ["torch"]\n', ""),
    "no backend": KERNEL.replace('backend = "cuda"\n', ""),
    "no src": KERNEL.replace('src = ["a.cu"]\n', ""),
    "kernel backend triton": KERNEL.replace('= "cuda"', '= "triton"'),
    "snake case": KERNEL + 'cuda_capabilities = ["9.0"]\n',
    "floats": KERNEL + "cuda-capabilities = [9.0]\n",
    "odd capability": KERNEL + 'cuda-capabilities = ["sm_90"]\n',
    "cuda key on cpu": KERNEL.replace('= "cuda"', '= "cpu"') + "cuda-flags = []\n",
    "unknown cutlass": KERNEL.replace('["torch"]', '["cutlass_4_2"]'),
    "legacy language": KERNEL.replace("backend = ", "language = "),
    "v3": V4.replace('license = "x"\n', ""),
    "v4 with tpu": V4 + "[general.tpu]\n",
    "v4 with kernel-depends": V4.replace("license", "kernel-depends = []\nlicense"),
    "v4 with a stable-abi table": V4 + 'stable-abi = {cuda = "2.11"}\n',
    "v4 with stable-abi": V4 + 'stable-abi = "2.11"\n',
    "stable-abi": BASE + 'stable-abi = "2.11"\n',
    "stable-abi of an unknown backend": BASE + 'stable-abi = {npu = "2.11"}\n',
    "stable-abi float": BASE + "stable-abi = 2.1\n",
    "minver float": BASE + "minver = 2.1\n",
    "minver words": BASE + 'minver = "new"\n',
    "minver empty": BASE + 'minver = ""\n',
    "minver with spaces": BASE + 'minver = " 2.1 "\n',
    "dependency without version": BASE.replace("license", 'kernel-depends = [{repo-id = "a"}]\nlicense'),
    "dependency with both": BASE.replace(
        "license", 'kernel-depends = [{repo-id = "a", version = 1, revision = "b"}]\nlicense'
    ),
    "ftp": BASE.replace("license", 'upstream = "ftp://x/y"\nlicense'),
    "no url": BASE.replace("license", 'upstream = "x"\nlicense'),
    "scp url": BASE.replace("license", 'upstream = "git@h:x/y"\nlicense'),
    "src of integers": BASE + "src = [1]\n",
    "kernel is a list": BASE + "[[kernel]]\na = 1\n",
    "kernel is a number": BASE + "[kernel]\na = 1\n",
    "byte order mark": "\ufeff" + BASE,
    "crlf": BASE.replace("\n", "\r\n"),
    "broken": BASE + "src = [\n",
    "multi-line inline table": BASE + 'stable-abi = {\n  cuda = "2.11"\n}\n',
    "duplicate key": BASE + "src = []\nsrc = []\n",
    "empty": "",
}  # fmt: skip


def absent(directory: Path) -> dict[str, str]:
    """Upstream's parser is not installed."""
    return {"absent": "ModuleNotFoundError"}


@pytest.fixture
def put(tmp_path: Path):
    """Writes a build.toml and returns its directory."""

    def write(text: str) -> Path:
        (tmp_path / "build.toml").write_bytes(text.encode())
        return tmp_path

    return write


@pytest.mark.parametrize("name", CASES)
def test_our_records_agree_with_upstreams_parser(name, put):
    """For every defect and every form, both say the same of its validity."""
    build = pytest.importorskip("kernels._rust", reason="the kernels package is absent").Build
    directory = put(CASES[name])
    try:
        build.open(str(directory))
    except ValueError:
        valid = False
    else:
        valid = True
    ours = check(directory, upstream=absent)
    assert (ours.finding is None) == valid
    assert ours.warnings == (ABSENT,)
    if valid:
        read_build_toml((directory / "build.toml").read_bytes())


def test_our_records_name_a_misspelt_key(put):
    """Without upstream's parser both sides of the mistake are named: what is missing, and what is there."""
    finding = check(put(KERNEL.replace("src =", "sources =")), upstream=absent).finding
    assert finding is not None
    assert "src: Field required" in finding.message and "sources: Extra inputs" in finding.message


ADVICE = {
    "blog form": ['line 2: write the name with dashes: name = "a-b"', "line 5: capabilities belong"],
    "blog keys, edition 5": ["Unknown field capabilities", "line 9: capabilities belong to a kernel"],
    "underscore": ["Invalid kernel name `my_kernel`", 'line 2: write the name with dashes: name = "my-k'],
    "no license": ["Missing field license", '`license = "Apache-2.0"`'],
    "unknown backend": ["Unknown variant triton", "line 6: triton is no backend"],
    "kernel backend triton": ["line 9: triton is no backend"],
    "floats": ["Invalid type floating point", 'line 12: capabilities are strings: "9.0"'],
    "snake case": ["Unknown field cuda_capabilities", "line 12: keys have dashes here: `cuda-capabilities`"],
    "edition as string": ["line 4: write `edition = 5` (an integer)"],
    "no depends": ["Missing field depends", "line 10: [kernel.a] needs `depends"],
    "legacy language": ["line 9: write `backend"],
    "v3": ["legacy format", "edition = 5", "license"],
    "stable-abi float": ['line 8: versions are strings: stable-abi = "2.1"'],
    "two frameworks": ["line 8: keep one of [torch] and [torch-noarch]"],
    "broken": ["TOML parse error at line 8"],
}  # fmt: skip


@pytest.mark.parametrize("name", ["blog form", "underscore", "v3"])
def test_the_verdict_is_upstreams_own_message_with_advice(name, put):
    """The child's message reaches the student, with hints and without our paths."""
    pytest.importorskip("kernels._rust", reason="the kernels package is absent")
    directory = put(CASES[name])
    finding = validate(directory)
    assert finding is not None and finding.cause is Cause.BAD_BUILD_TOML
    for part in ADVICE[name]:
        assert part in finding.message
    assert str(directory) not in finding.message
    assert finding.message.startswith("build.toml is not valid: ")


@pytest.mark.parametrize("name", ADVICE)
def test_advice_names_the_line(name):
    """Each known mistake gets its line and its remedy."""
    advice = "\n".join(hints(CASES[name]))
    for part in ADVICE[name]:
        if part.startswith("line "):
            assert part in advice


def test_a_valid_file_passes_in_the_child(put):
    """Upstream's parser accepts the tiny project's file."""
    assert validate(put(BUILD_TOML)) is None


def test_a_missing_file_is_a_finding(tmp_path):
    """Nothing to parse is the student's fault, too."""
    finding = validate(tmp_path)
    assert finding is not None and "missing" in finding.message


def test_long_messages_are_cut(put):
    """Upstream quotes the offending line, however long it is."""
    pytest.importorskip("kernels._rust", reason="the kernels package is absent")
    finding = validate(put("a = " + "[" * 20_000))
    assert finding is not None and len(finding.message) < 2_500


@pytest.mark.parametrize("text", ["\x00", "general = 5", "[general]\nbackends = 5", "kernel = [1]", "=" * 10])
def test_hints_never_raise(text):
    """Advice is given on anything."""
    assert isinstance(hints(text), list)


def test_lines_are_found_by_table():
    """The same key in another table is not mistaken for it."""
    text = "[a]\nx = 1\n[b]\ny = 2\nx = 3\n"
    assert (line_of(text, "b", "x"), line_of(text, "b", "z"), line_of(text, "c", "x")) == (5, 3, None)


def test_what_upstream_accepts_must_fit_the_records():
    """A file that only we refuse is a bug of ours, not the student's fault."""
    with pytest.raises(HarnessBug, match="does not fit our records"):
        read_build_toml(b"[general]\nname = 5\n")


def test_records_hold_every_key():
    """The whole table of the schema, read back from its own dump."""
    toml = read_build_toml(FULL.encode())
    assert BuildToml.model_validate(toml.model_dump()) == toml
    kernel = toml.kernel["a"]
    assert isinstance(kernel, CudaKernel) and kernel.cuda_capabilities == ("9.0a",)
    assert toml.general.module == "my_kernel"
    assert toml.torch is not None
    assert toml.torch.stable_abi_for("cuda") == (2, 11)
    assert toml.torch.stable_abi_for("xpu") is None


def test_versions_compare_by_number():
    """2.10 is newer than 2.9."""
    assert version_parts("2.10") > version_parts("2.9")


def test_the_validator_needs_no_environment(monkeypatch):
    """Nothing of ours reaches the child."""
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "build.toml").write_text(KERNEL)
        assert validate(Path(name)) is None
