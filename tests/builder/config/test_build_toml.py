"""build.toml: records, validity by upstream's parser, and advice."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest

from harness.builder.build_toml import ABSENT, check, hints, read_build_toml, validate
from harness.builder.parsing import key_lines
from harness.builder.schema import BuildToml, CudaKernel, version_parts
from harness.errors import HarnessBug
from harness.outcome import Cause
from tests.fakes.projects import BUILD_TOML
from tests.fakes.toml_documents import NOARCH, TVM_FFI, VALID, dumped, paths
from tests.fakes.upstream import ask_in_a_batch

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
    "edition 1": BASE.replace("edition = 5", "edition = 1"),
    "edition 3": BASE.replace("edition = 5", "edition = 3"),
    "v1": V4.replace("[torch]", '[torch]\nname = "ab"\nuniversal = true\n')
    + KERNEL.partition("[torch]\n")[2].replace("backend =", "language ="),
    "v2 universal": V4.replace("[torch]", "").replace("license", "universal = true\nlicense"),
    "v2 minver": V4.replace("license", 'cuda-minver = "12.8"\nlicense'),
    "triton, no framework": GENERAL.replace('["cuda"]', '["triton"]'),
    "capabilities in torch": BASE + 'cuda-capabilities = ["9.0"]\n',
    "capabilities in general": BASE.replace("license", 'cuda_capabilities = ["9.0"]\nlicense'),
    "capabilities as a string": KERNEL + 'cuda-capabilities = "9.0"\n',
    "floats over lines": KERNEL + 'cuda-capabilities = [\n  "8.0",\n  9.0,\n]\n',
    "misspelt table": GENERAL + "[torchs]\n",
    "underscore table": GENERAL + "[torch_noarch]\n",
    "misspelt general key": BASE.replace("license", "licence"),
    "misspelt kernel key": KERNEL.replace("depends", "depend"),
    "general key in torch": BASE + "backends = []\n",
    "dotted keys": KERNEL.replace("[torch]", "torch.srcs = []").replace("[general]", "").replace(
        GENERAL.partition("\n")[2], "".join(f"general.{line}\n" for line in GENERAL.splitlines()[1:])
    ),
    "pytorch": KERNEL.replace('["torch"]', '["pytorch"]'),
    "backend gpu": KERNEL.replace('= "cuda"', '= "Cuda"'),
    "backends as a string": BASE.replace('["cuda"]', '"cuda"'),
    "three numbers": BASE + 'minver = "2.10.1"\n',
    "one number": BASE + 'minver = "2"\n',
    "big version": BASE + 'minver = "99999999999.1"\n',
    "url with capitals": BASE.replace("license", 'upstream = "HTTPS://X/y"\nlicense'),
    "url without slashes": BASE.replace("license", 'upstream = "a:b"\nlicense'),
    "Python's true": BASE + "src = True\n",
    "no quotes": BASE.replace('"ab"', "ab"),
    "yaml": BASE.replace('name = "ab"', "name: ab"),
    "fence": "```toml\n" + BASE,
    "template": "{% if a %}\n" + BASE,
    "deep key": BASE + "a." * 100 + "a = 1\n",
    "huge integer": BASE.replace("version = 1", "version = 1" + "0" * 5_000),
}  # fmt: skip

# Every key of the schema with a value of the wrong kind; the valid one is in VALID, NOARCH or TVM_FFI.
_TREES = {"torch": VALID, "noarch": NOARCH, "tvm-ffi": TVM_FFI}
CASES |= {f"all of {name}": dumped(tree) for name, tree in _TREES.items()}
WRONG: dict[str, tuple[str, int]] = {}


def _wrong_kinds() -> None:
    for name, tree in _TREES.items():
        for path in paths(tree):
            if not path or (name != "torch" and path[0] == "general"):
                continue
            changed = copy.deepcopy(tree)
            parent: Any = changed
            for part in path[:-1]:
                parent = parent[part]
            parent[path[-1]] = 5 if not isinstance(parent[path[-1]], int) else "5"
            text = dumped(changed)
            label = f"{name}: {'.'.join(map(str, path))}"
            CASES[label] = text
            WRONG[label] = _where(text, path)


def _where(text: str, path: tuple[str | int, ...]) -> tuple[str, int]:
    """The key that a message must name, and its line: `dumped` writes one line for each key of a table."""
    header = f"[{path[0]}]"
    lines = text.splitlines()
    if header not in lines:
        return str(path[0]), next(n for n, line in enumerate(lines, 1) if line.startswith(f"{path[0]} ="))
    start = lines.index(header)
    number = next(n for n, line in enumerate(lines, 1) if n > start + 1 and line.startswith(f"{path[1]} ="))
    return str(next(part for part in reversed(path) if isinstance(part, str))), number


_wrong_kinds()


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


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str | None]]:
    """What upstream's parser says of every case, and in which directory."""
    pytest.importorskip("kernels._rust", reason="the kernels package is absent")
    directory = tmp_path_factory.mktemp("corpus")
    return directory, dict(zip(CASES, ask_in_a_batch(list(CASES.values()), directory), strict=True))


def test_our_records_agree_with_upstreams_parser(answers) -> None:
    """For every defect and every form, both say the same of its validity."""
    directory, said = answers
    assert len(said) >= 90
    for name, error in said.items():
        (directory / "build.toml").write_bytes(CASES[name].encode())
        ours = check(directory, upstream=absent)
        assert (ours.finding is None) == (error is None), f"{name}: upstream {error}, ours {ours.finding}"
        assert ours.warnings == (ABSENT,)
        if error is None:
            read_build_toml(CASES[name].encode())


def test_every_invalid_file_is_explained(answers) -> None:
    """Upstream's own words first, then the line and what was meant."""
    directory, said = answers
    assert set(ADVICE) | set(WRONG) == {name for name, error in said.items() if error is not None}
    for name, error in said.items():
        if error is None:
            continue
        (directory / "build.toml").write_bytes(CASES[name].encode())
        finding = check(directory, upstream=lambda _, error=error: {"error": error}).finding
        assert finding is not None
        assert str(directory) not in finding.message
        if name in WRONG:
            key, line = WRONG[name]
            assert any(
                row.removeprefix("build.toml is not valid: ").startswith(f"line {line}: ") and key in row
                for row in finding.message.splitlines()
            ), f"{name}, line {line}: {finding.message}"
        for part in ADVICE.get(name, []):
            assert part in finding.message, f"{name}: {part!r} is not in\n{finding.message}"


def test_a_misspelt_key_is_named_without_upstreams_parser(put):
    """Both sides of the mistake: what is missing, and what is there."""
    finding = check(put(KERNEL.replace("src =", "sources =")), upstream=absent).finding
    assert finding is not None
    assert "line 8: [kernel.a] needs `src" in finding.message
    assert "line 11: `sources` is unknown in [kernel.a]: did you mean `src`?" in finding.message


ADVICE = {
    "noarch kebab": ["line 8: keys have underscores here: `cuda_capabilities`"],
    "tvm-ffi without src": ["Missing field src", "line 7: [tvm-ffi] needs `src"],
    "no framework": ["no variant of enum Framework", "add a [torch] table", "[torch-noarch]"],
    "two frameworks": ["line 8: keep one of [torch] and [torch-noarch]"],
    "top-level table": ["line 8: `tool` is unknown in the file; known there: general, kernel, torch"],
    "blog form": ['line 2: write the name with dashes: name = "a-b"', "line 5: capabilities belong"],
    "blog keys, edition 5": ["Unknown field capabilities", "line 9: capabilities belong to a kernel"],
    "underscore": ["Invalid kernel name `my_kernel`", 'line 2: write the name with dashes: name = "my-k'],
    "capitals": ['line 2: write the name with dashes: name = "ab"'],
    "one letter": ["line 2: `name`: at least two lowercase letters"],
    "final dash": ['line 2: write the name with dashes: name = "ab"'],
    "name with newline": ['line 2: write the name with dashes: name = "ab"'],
    "no license": ["Missing field license", 'line 1: [general] needs `license = "Apache-2.0"`'],
    "no version": ["line 1: [general] needs `version = 1`"],
    "no backends": ['line 1: [general] needs `backends = ["cuda"]`'],
    "negative version": ["line 3: `version` must be greater than or equal to 0, not -1"],
    "version as string": ["line 3: `version` is an integer, without quotes"],
    "unknown backend": ["Unknown variant triton", "line 6: triton is no backend"],
    "edition as string": ["line 4: write `edition = 5` (an integer"],
    "edition as bool": ["line 4: write `edition = 5` (an integer"],
    "edition 1": ["unsupported build edition 1", "line 4: write `edition = 5` (the formats before"],
    "edition 3": ["unsupported build edition 3", "line 4: write `edition = 5` (the formats before"],
    "edition 4": ["line 4: write `edition = 5` (the formats before"],
    "edition 6": ["line 4: write `edition = 5` (an integer, and the newest there is)"],
    "no depends": ["Missing field depends", "line 8: [kernel.a] needs `depends"],
    "no backend": ["Missing field backend", 'line 8: [kernel.a] needs `backend = "cuda"`'],
    "no src": ["line 8: [kernel.a] needs `src = "],
    "kernel backend triton": ["line 9: triton is no backend"],
    "snake case": ["Unknown field cuda_capabilities", "line 12: keys have dashes here: `cuda-capabilities`"],
    "floats": ["Invalid type floating point", 'line 12: capabilities are strings: "9.0"'],
    "floats over lines": ['line 14: capabilities are strings: "9.0"'],
    "cuda key on cpu": ['line 12: `cuda-flags` is for kernels with backend = "cuda" only'],
    "unknown cutlass": ['line 10: "cutlass_4_2" is no possible value of `depends`: did you mean "cutlass_4_'],
    "legacy language": ['line 9: write `backend = "cuda"` and `depends = ["torch"]` for `language`'],
    "v1": ["`name` is gone", "`universal` is gone", "for `language`"],
    "v2 universal": ["`universal` is gone: use [torch-noarch] and `backends`"],
    "v2 minver": ["line 4: write it as `minver` under [general.cuda]"],
    "v3": ["legacy format", "line 1: write `edition = 5`", "line 1: [general] needs `license"],
    "v4 with tpu": ["line 1: write `edition = 5`"],
    "v4 with kernel-depends": ["line 1: write `edition = 5`"],
    "v4 with a stable-abi table": ["line 1: write `edition = 5`"],
    "triton, no framework": ["line 6: triton is no backend", "[torch-noarch]"],
    "capabilities in torch": ["line 8: capabilities belong to a kernel"],
    "capabilities in general": ["line 5: capabilities belong to a kernel"],
    "capabilities as a string": ['line 12: `cuda-capabilities` is a list: cuda-capabilities = ["9.0"]'],
    "misspelt table": ["did you mean [torch]?"],
    "underscore table": ["did you mean [torch-noarch]?"],
    "misspelt general key": ["line 5: `licence` is unknown in [general]: did you mean `license`?"],
    "misspelt kernel key": ["line 10: `depend` is unknown in [kernel.a]: did you mean `depends`?"],
    "general key in torch": ["line 8: `backends` does not belong to [torch]: move it under [general]"],
    "dotted keys": ["line 7: `srcs` is unknown in [torch]: did you mean `src`?"],
    "pytorch": ['line 10: "pytorch" is no possible value of `depends`: did you mean "torch"?'],
    "backend gpu": ['line 9: "Cuda" is no possible value of `backend`: did you mean "cuda"?'],
    "backends as a string": ['line 6: `backends` is a list: backends = ["cuda"]'],
    "stable-abi of an unknown backend": ['line 8: "npu" is no possible value of `stable-abi`'],
    "stable-abi float": ['line 8: versions are strings: stable-abi = "2.1"'],
    "minver float": ['line 8: versions are strings: minver = "2.1"'],
    "minver words": ["Version must consist of numbers", "line 8: `minver`: expected a version"],
    "minver empty": ["line 8: `minver`: expected a version"],
    "three numbers": ["line 8: `minver`: expected a version of two numbers, such as 12.8: '2.10.1'"],
    "one number": ["line 8: `minver`: expected a version of two numbers, such as 12.8: '2'"],
    "dependency without version": ["line 5: `kernel-depends`: exactly one of version and revision is needed"],
    "dependency with both": ["line 5: `kernel-depends`: exactly one of version and revision is needed"],
    "ftp": ["unsupported scheme `ftp`", "line 5: `upstream`: expected a git URL"],
    "no url": ["invalid git URL `x`", "line 5: `upstream`: expected a git URL"],
    "url without slashes": ["line 5: `upstream`: expected a git URL"],
    "src of integers": ['line 8: `src` is a list of strings: write "1" for 1'],
    "kernel is a list": ["line 8: every kernel is a table with a name of its own: [kernel.NAME]"],
    "kernel is a number": ["line 9: every kernel is a table with a name of its own: [kernel.a]"],
    "broken": ["TOML parse error at line 8"],
    "multi-line inline table": ["TOML parse error at line 8"],
    "duplicate key": ["TOML parse error at line 9", "duplicate key `src`"],
    "Python's true": ["TOML parse error at line 8", "line 8: TOML writes true and false"],
    "no quotes": ["TOML parse error at line 2", 'line 2: text needs quotes: name = "ab"'],
    "yaml": ["line 2: TOML has `key = value`, not `key: value`"],
    "fence": ["line 1: the Markdown fence is part of the file"],
    "template": ["line 1: a placeholder of a template is left in"],
    "deep key": ["TOML parse error at line 8"],
    "huge integer": ["TOML parse error at line 3"],
    "empty": ["Missing field general", "a [general] table is needed"],
}  # fmt: skip


@pytest.mark.parametrize("name", ["blog form", "underscore", "v3"])
def test_the_verdict_is_upstreams_own_message_with_advice(name, put):
    """Advice first, then the child's whole message, without our paths."""
    pytest.importorskip("kernels._rust", reason="the kernels package is absent")
    directory = put(CASES[name])
    finding = validate(directory)
    assert finding is not None and finding.cause is Cause.BAD_BUILD_TOML
    for part in ADVICE[name]:
        assert part in finding.message
    assert str(directory) not in finding.message
    first, _, rest = finding.message.partition("\n")
    assert first.startswith("build.toml is not valid: line ")
    assert "kernel-builder says: " in rest


def test_a_reason_that_ends_in_a_list_is_not_cut(tmp_path):
    """Without advice the first line is the whole message, or the reason that stands below a drawing."""
    (tmp_path / "build.toml").write_text(KERNEL)
    said = {
        "Name must:\n- Start well\n- End well": "Name must: - Start well - End well",
        "TOML parse error at line 8, column 9\n  |\n8 | src = [\n  |   ^\ninvalid array\nexpected `]`": (
            "invalid array, expected `]` (at line 8, column 9)"
        ),
    }
    for message, first in said.items():
        finding = check(tmp_path, upstream=lambda _, message=message: {"error": message}).finding
        assert finding is not None
        assert finding.message.partition("\n")[0] == f"build.toml is not valid: {first}"


def test_a_relative_directory_is_the_same(put, monkeypatch):
    """The child stands in another directory than we do."""
    directory = put(KERNEL)
    monkeypatch.chdir(directory.parent)
    assert validate(Path(directory.name)) is None
    monkeypatch.chdir(directory)
    assert validate(Path()) is None
    put(CASES["underscore"])
    finding = validate(Path())
    assert finding is not None and "Invalid kernel name" in finding.message
    assert str(directory) not in finding.message


def test_bytes_that_are_no_text_have_a_line(tmp_path):
    """Neither parser is asked."""
    (tmp_path / "build.toml").write_bytes(GENERAL.encode() + b"# \xff\n")
    for upstream in (None, absent):
        finding = check(tmp_path, upstream=upstream).finding
        assert finding is not None and finding.message.endswith("line 7 is not UTF-8 text")


def test_a_file_above_the_limit_is_not_parsed(tmp_path):
    """Published ones stay far below."""
    (tmp_path / "build.toml").write_bytes(b"#" * ((4 << 20) + 1))
    finding = check(tmp_path).finding
    assert finding is not None and "larger than 4 MiB" in finding.message


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


def test_lines_are_found_by_path():
    """The same key in another table, in quotes, in an inline table or over several lines."""
    text = """\
a.b = 1
[b]
x = [
  1, # [c]
  "]",
]
"y z" = { p = 1, q = '''
''' , r = 2 }
[[ c . "d.e" ]]
x = 3
"""
    found = key_lines(text)
    assert found[("a", "b")] == 1 and found[("b",)] == 2 and found[("b", "x", 1)] == 5
    assert (found[("b", "y z")], found[("b", "y z", "q")], found[("b", "y z", "r")]) == (7, 7, 8)
    assert (found[("c", "d.e", 0)], found[("c", "d.e", 0, "x")]) == (9, 10)


def test_what_upstream_accepts_must_fit_the_records(tmp_path):
    """A file that only we refuse is refused as such: no project can end as a failure of ours by it."""
    (tmp_path / "build.toml").write_text("[general]\nname = 5\n")
    finding = check(tmp_path, upstream=lambda directory: {}).finding
    assert finding is not None and finding.cause is Cause.BAD_BUILD_TOML
    assert "kernel-builder accepts it, but liftbench cannot build it" in finding.message
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


@pytest.mark.parametrize("backend", ["cpu", "rocm", "xpu", "cuda"])
def test_advice_is_for_the_target(tmp_path: Path, backend: str) -> None:
    """What is missing is named for the target that is built, not for a GPU that the task does not have."""
    (tmp_path / "build.toml").write_text('[general]\nname = "a-b"\n[torch]\n[kernel.a]\ndepends = []\n')
    finding = check(tmp_path, backend).finding
    assert finding is not None
    assert f'needs `backends = ["{backend}"]`' in finding.message
    assert f'needs `backend = "{backend}"`' in finding.message
    assert backend == "cuda" or "cuda" not in finding.message
    triton = '[general]\nname = "a-b"\nbackends = ["cuda", "rocm"]\n[torch]\n[kernel.a]\nbackend = "triton"\n'
    assert any('has backends = ["cuda", "rocm"]' in line for line in hints(triton, backend))
