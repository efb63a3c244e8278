"""build.toml: records, validity by kernel-builder's parser, and advice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.builder.build_toml import BuildToml, CudaKernel, NoToml, key_lines, toml_fields, version_parts
from harness.builder.check_build_toml import read_build_toml
from harness.outcome import Cause
from harness.records import Finding
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


def refused(text: str, backend: str = "cuda", **how: Callable[[str], str | None]) -> str:
    """The message about a file that is not valid."""
    finding = read_build_toml(text.encode(), backend, **how)
    assert isinstance(finding, Finding) and finding.cause is Cause.BAD_BUILD_TOML, finding
    return finding.message


def test_records_and_upstreams_parser_agree_and_every_error_is_explained(tmp_path) -> None:
    """Both call the same files valid; a refusal has upstream's words, the line and what was meant."""
    texts = VALID_FILES | {name: text for name, (text, _) in INVALID.items()}
    answers = ask_in_a_batch(list(texts.values()), tmp_path)
    for (name, text), error in zip(texts.items(), answers, strict=True):
        ours = read_build_toml(text.encode(), upstream=lambda _: None)
        valid = name in VALID_FILES
        assert (error is None, isinstance(ours, BuildToml)) == (valid, valid), f"{name}: {error} {ours}"
        message = "" if valid else refused(text, upstream=lambda _, error=error: error)
        for part in INVALID[name][1] if not valid else ():
            assert part in message, f"{name}: {part!r} is not in\n{message}"


def test_without_advice_the_reason_comes_first():
    """The first line is the whole message, or the reason that stands below a drawing."""
    answers = {
        "Name must:\n- Start well\n- End well": "Name must: - Start well - End well",
        "TOML parse error at line 8, column 9\n  |\n8 | src = [\n  |   ^\ninvalid array\nexpected `]`": (
            "invalid array, expected `]` (at line 8, column 9)"
        ),
    }
    for message, first in answers.items():
        told = refused(KERNEL, upstream=lambda _, message=message: message)
        assert told.partition("\n")[0] == f"build.toml is not valid: {first}"


def test_upstreams_own_parser_decides():
    """Its words follow the advice, cut and without our paths."""
    assert isinstance(read_build_toml(KERNEL.encode()), BuildToml)
    assert len(refused("a = " + "[" * 20_000)) < 2_500
    message = refused(INVALID["v3"][0])
    assert message.startswith("build.toml is not valid: line ") and "\nkernel-builder says: " in message
    assert "/tmp" not in message


@pytest.mark.parametrize(
    ("data", "part"),
    [(GENERAL.encode() + b"# \xff\n", "line 7 is not UTF-8 text"), (b"#" * ((4 << 20) + 1), "larger than 4")],
)
def test_files_that_no_parser_is_asked_about(data, part):
    """Not text, or far above every published file."""
    finding = read_build_toml(data)
    assert isinstance(finding, Finding) and part in finding.message


def test_an_integer_that_python_does_not_print_is_no_toml():
    """tomllib reads long hexadecimal integers, and every message about one would raise."""
    with pytest.raises(NoToml, match="1,000 digits"):
        toml_fields(f"[general]\nversion = 0x{'f' * 6000}\n")


def test_lines_are_found_by_path():
    """The same key in another table, in quotes, dotted, or in a list of tables."""
    text = 'a.b = 1\n[b]\nx = [\n  1, # [c]\n  "]",\n]\n"y z" = { p = 1 }\n[[ c . "d.e" ]]\nx = 3\n'
    assert key_lines(text) == {
        ("a", "b"): 1, ("b",): 2, ("b", "x"): 3, ("b", "y z"): 7, ("c", "d.e", 0): 8, ("c", "d.e", 0, "x"): 9,
    }  # fmt: skip


def test_what_upstream_accepts_must_fit_the_records():
    """A file that only we refuse is refused as such: no project can end as a failure of ours by it."""
    message = refused("[general]\nname = 5\n", upstream=lambda _: None)
    assert "kernel-builder accepts it, but liftbench cannot build it" in message


def test_records_hold_every_key():
    """The whole table of the schema, read back from its own dump; versions compare by number."""
    toml = read_build_toml(dumped(VALID).encode())
    assert isinstance(toml, BuildToml) and BuildToml.model_validate(toml.model_dump()) == toml
    kernel = toml.kernel["a"]
    assert isinstance(kernel, CudaKernel) and kernel.cuda_capabilities == ("9.0a",)
    assert toml.general.module == "my_kernel"
    assert toml.torch is not None
    assert toml.torch.stable_abi_for("cuda") == (2, 11)
    assert toml.torch.stable_abi_for("xpu") is None
    assert version_parts("2.10") > version_parts("2.9")


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_advice_is_for_the_target(backend: str) -> None:
    """What is missing is named for the target that is built, not for a GPU that the task does not have."""
    message = refused('[general]\nname = "a-b"\n[torch]\n[kernel.a]\ndepends = []\n', backend)
    assert f'needs `backends = ["{backend}"]`' in message
    assert f'needs `backend = "{backend}"`' in message
    assert backend == "cuda" or "cuda" not in message
