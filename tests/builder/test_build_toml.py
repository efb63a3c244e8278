"""build.toml: records, validity by kernel-builder's parser, and advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.builder.build_toml import check, read_build_toml
from harness.builder.schema import BuildToml, CudaKernel, key_lines, version_parts
from harness.errors import HarnessBug
from harness.outcome import Cause
from tests.fakes.projects import BUILD_TOML
from tests.fakes.toml_documents import NOARCH, VALID, ask_in_a_batch, dumped

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
BLOG = '[general]\nname = "a_b"\nbackends = ["cuda"]\n[general.cuda]\ncapabilities = ["9.0"]\n[torch]\n'

VALID_FILES = {
    "every key": dumped(VALID),
    "every key of a universal project": dumped(NOARCH),
    "minimal": KERNEL,
    "tiny project": BUILD_TOML,
    "v4 with stable-abi": V4 + 'stable-abi = "2.11"\n',
    "hex version": BASE.replace("version = 1", "version = 0x10"),
    "empty backends": BASE.replace('["cuda"]', "[]"),
    "odd capability": KERNEL + 'cuda-capabilities = ["sm_90"]\n',
    "minver with spaces": BASE + 'minver = " 2.1 "\n',
    "scp url": BASE.replace("license", 'upstream = "git@h:x/y"\nlicense'),
    "byte order mark": "\ufeff" + BASE,
    "crlf": BASE.replace("\n", "\r\n"),
}
# (text, parts of the message): each is refused by kernel-builder's parser and by our records.
INVALID: dict[str, tuple[str, list[str]]] = {
    "noarch kebab": (GENERAL + '[torch-noarch]\ncuda-capabilities = ["9.0"]\n',
        ["line 8: keys have underscores here: `cuda_capabilities`"]),
    "no framework": (GENERAL, ["no variant of enum Framework", "add a [torch] table", "[torch-noarch]"]),
    "top-level table": (BASE + "[tool.x]\na = 1\n",
        ["line 8: `tool` is unknown in the file; known there: general, kernel, torch"]),
    "blog form": (BLOG, ['line 2: write the name with dashes: name = "a-b"', "line 5: capabilities belong"]),
    "underscore": (BASE.replace('"ab"', '"my_kernel"'),
        ["Invalid kernel name `my_kernel`", 'line 2: write the name with dashes: name = "my-k']),
    "no license": (BASE.replace('license = "x"\n', ""),
        ["Missing field license", 'line 1: [general] needs `license = "Apache-2.0"`']),
    "negative version": (BASE.replace("version = 1", "version = -1"),
        ["line 3: `version` must be greater than or equal to 0, not -1"]),
    "unknown backend": (BASE.replace('["cuda"]', '["triton"]'),
        ["Unknown variant triton", "line 6: triton is no backend", "[torch-noarch]"]),
    "edition as string": (BASE.replace("edition = 5", 'edition = "5"'),
        ["line 4: write `edition = 5` (an integer"]),
    "no backend": (KERNEL.replace('backend = "cuda"\n', ""),
        ["Missing field backend", 'line 8: [kernel.a] needs `backend = "cuda"`']),
    "snake case": (KERNEL + 'cuda_capabilities = ["9.0"]\n',
        ["Unknown field cuda_capabilities", "line 12: keys have dashes here: `cuda-capabilities`"]),
    "floats": (KERNEL + "cuda-capabilities = [9.0]\n",
        ["Invalid type floating point", 'line 12: `cuda-capabilities` must be text: write "9.0" for 9.0']),
    "cuda key on cpu": (KERNEL.replace('= "cuda"', '= "cpu"') + "cuda-flags = []\n",
        ['line 12: `cuda-flags` is for kernels with backend = "cuda" only']),
    "unknown cutlass": (KERNEL.replace('["torch"]', '["cutlass_4_2"]'),
        ['line 10: "cutlass_4_2" is no possible value of `depends`; known: ', "; did you mean cutlass_4_"]),
    "legacy language": (KERNEL.replace("backend = ", "language = "),
        ['write `backend = "cuda"` and `depends = ["torch"]` for `language`']),
    "v3": (V4.replace('license = "x"\n', ""),
        ["legacy format", "line 1: write `edition = 5`", "line 1: [general] needs `license"]),
    "backend in capitals": (KERNEL.replace('= "cuda"', '= "Cuda"'),
        ['line 9: "Cuda" is no possible value of `backend`; known: cpu, cuda', "did you mean cuda"]),
    "dependency without version": (BASE.replace("license", 'kernel-depends = [{repo-id = "a"}]\nlicense'),
        ["line 5: `kernel-depends`: exactly one of version and revision is needed"]),
    "kernel is a number": (BASE + "[kernel]\na = 1\n",
        ["line 9: every kernel is a table with a name of its own"]),
    "broken": (BASE + "src = [\n", ["TOML parse error at line 8"]),
    "duplicate key": (BASE + "src = []\nsrc = []\n", ["TOML parse error at line 9", "duplicate key `src`"]),
    "deep key": (BASE + "a." * 100 + "a = 1\n", ["TOML parse error at line 8"]),
    "empty": ("", ["Missing field general", "a [general] table is needed"]),
}  # fmt: skip


@pytest.fixture
def put(tmp_path: Path):
    """Writes a build.toml and returns its directory."""

    def write(text: str) -> Path:
        (tmp_path / "build.toml").write_bytes(text.encode())
        return tmp_path

    return write


def test_records_and_upstreams_parser_agree_and_every_error_is_explained(put, tmp_path_factory) -> None:
    """Both call the same files valid; a refusal has upstream's words, the line and what was meant."""
    texts = VALID_FILES | {name: text for name, (text, _) in INVALID.items()}
    answers = ask_in_a_batch(list(texts.values()), tmp_path_factory.mktemp("corpus"))
    for (name, text), error in zip(texts.items(), answers, strict=True):
        directory = put(text)
        ours = check(directory, upstream=lambda _: None)
        assert (error is None, ours is None) == (name in VALID_FILES,) * 2, f"{name}: {error} {ours}"
        if error is None:
            read_build_toml(text.encode())
            continue
        finding = check(directory, upstream=lambda _, error=error: error)
        assert finding is not None and str(directory) not in finding.message
        for part in INVALID[name][1]:
            assert part in finding.message, f"{name}: {part!r} is not in\n{finding.message}"


def test_without_advice_the_reason_comes_first(tmp_path):
    """The first line is the whole message, or the reason that stands below a drawing."""
    (tmp_path / "build.toml").write_text(KERNEL)
    answers = {
        "Name must:\n- Start well\n- End well": "Name must: - Start well - End well",
        "TOML parse error at line 8, column 9\n  |\n8 | src = [\n  |   ^\ninvalid array\nexpected `]`": (
            "invalid array, expected `]` (at line 8, column 9)"
        ),
    }
    for message, first in answers.items():
        finding = check(tmp_path, upstream=lambda _, message=message: message)
        assert finding is not None
        assert finding.message.partition("\n")[0] == f"build.toml is not valid: {first}"


def test_upstreams_own_parser_decides(put, monkeypatch):
    """In a relative directory too; its words follow the advice, cut and without our paths."""
    directory = put(KERNEL)
    monkeypatch.chdir(directory.parent)
    assert check(Path(directory.name)) is None
    finding = check(put(INVALID["v3"][0] + "a = " + "[" * 20_000))
    assert finding is not None and finding.cause is Cause.BAD_BUILD_TOML
    assert str(directory) not in finding.message and len(finding.message) < 2_500
    finding = check(put(INVALID["v3"][0]))
    assert finding is not None and "\nkernel-builder says: " in finding.message
    assert finding.message.startswith("build.toml is not valid: line ")


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (None, "missing"),
        (GENERAL.encode() + b"# \xff\n", "line 7 is not UTF-8 text"),
        (b"#" * ((4 << 20) + 1), "larger than 4 MiB"),
    ],
)
def test_files_that_no_parser_is_asked_about(data, part, tmp_path):
    """Absent, not text, or far above every published file."""
    if data is not None:
        (tmp_path / "build.toml").write_bytes(data)
    finding = check(tmp_path)
    assert finding is not None and part in finding.message


def test_lines_are_found_by_path():
    """The same key in another table, in quotes, dotted, or in a list of tables."""
    text = 'a.b = 1\n[b]\nx = [\n  1, # [c]\n  "]",\n]\n"y z" = { p = 1 }\n[[ c . "d.e" ]]\nx = 3\n'
    assert key_lines(text) == {
        ("a", "b"): 1, ("b",): 2, ("b", "x"): 3, ("b", "y z"): 7, ("c", "d.e", 0): 8, ("c", "d.e", 0, "x"): 9,
    }  # fmt: skip


def test_what_upstream_accepts_must_fit_the_records(tmp_path):
    """A file that only we refuse is refused as such: no project can end as a failure of ours by it."""
    (tmp_path / "build.toml").write_text("[general]\nname = 5\n")
    finding = check(tmp_path, upstream=lambda directory: None)
    assert finding is not None and finding.cause is Cause.BAD_BUILD_TOML
    assert "kernel-builder accepts it, but liftbench cannot build it" in finding.message
    with pytest.raises(HarnessBug, match="does not fit our records"):
        read_build_toml(b"[general]\nname = 5\n")


def test_records_hold_every_key():
    """The whole table of the schema, read back from its own dump; versions compare by number."""
    toml = read_build_toml(dumped(VALID).encode())
    assert BuildToml.model_validate(toml.model_dump()) == toml
    kernel = toml.kernel["a"]
    assert isinstance(kernel, CudaKernel) and kernel.cuda_capabilities == ("9.0a",)
    assert toml.general.module == "my_kernel"
    assert toml.torch is not None
    assert toml.torch.stable_abi_for("cuda") == (2, 11)
    assert toml.torch.stable_abi_for("xpu") is None
    assert version_parts("2.10") > version_parts("2.9")


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_advice_is_for_the_target(tmp_path: Path, backend: str) -> None:
    """What is missing is named for the target that is built, not for a GPU that the task does not have."""
    (tmp_path / "build.toml").write_text('[general]\nname = "a-b"\n[torch]\n[kernel.a]\ndepends = []\n')
    finding = check(tmp_path, backend)
    assert finding is not None
    assert f'needs `backends = ["{backend}"]`' in finding.message
    assert f'needs `backend = "{backend}"`' in finding.message
    assert backend == "cuda" or "cuda" not in finding.message
