"""Condensing a trace into a budget of tokens."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.teaching.traces.condense import Condensed, condense
from harness.teaching.traces.reading import read_trace
from harness.text import estimate_tokens
from tests.teaching.traces.sessions import FORMATS, TASK, lines

PLANTED = 'src/late.cu(77): error: identifier "planted" is undefined'


def condensed(tmp_path: Path, text: str, budget: int) -> Condensed:
    """This trace in this budget."""
    path = tmp_path / "trace"
    path.write_text(text, encoding="utf-8")
    return condense(read_trace(path), budget)


def long_session(size: int, at: float, error: str = PLANTED) -> str:
    """A session of about `size` characters with one error at this fraction of it."""
    draw = random.Random(7)
    words = ["load", "store", "tile", "warp", "kernel", "time", "0.5", "ok", "reading", "src/a.cu", "é"]
    records: list[object] = [{"role": "user", "content": TASK}]
    length, planted = 0, False
    while length < size:
        output = "\n".join(" ".join(draw.choices(words, k=12)) for _ in range(60))
        if not planted and length >= at * size - 4_500:
            output, planted = f"{output}\n{error}\n{output}", True
        call = {"id": f"c{len(records)}", "function": {"name": "bash", "arguments": '{"command": "make"}'}}
        records.append({"role": "assistant", "content": "Next.", "tool_calls": [call]})
        records.append({"role": "tool", "tool_call_id": call["id"], "content": output})
        length += len(output)
    return lines(*records)


@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_a_short_trace_is_told_whole(tmp_path: Path, make: Callable[[], str]) -> None:
    """Task, error, figure and outline; nothing is left out, and the accounting says so."""
    text = make()
    found = condensed(tmp_path, text, 8_000)
    assert 'identifier "warpSize32" is undefined' in found.text
    assert "1.43x" in found.text  # in the outline
    assert "left out" not in found.text
    assert found.summary.startswith(f"{len(text):,} characters read, ")
    assert found.summary.endswith(
        " events, 1 error in 1 group, all 1 kept, "
        f"{estimate_tokens(found.text):,} of 8,000 tokens (estimated)"
    )
    assert estimate_tokens(found.text) <= 8_000


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(at=st.floats(0, 1), budget=st.integers(500, 30_000))
def test_an_error_anywhere_in_a_long_trace_survives(
    tmp_path_factory: pytest.TempPathFactory, at: float, budget: int
) -> None:
    """One error at any place of a long session is told, in any budget, and the budget holds."""
    found = condensed(tmp_path_factory.mktemp("long"), long_session(300_000, at), budget)
    assert 'error: identifier "planted" is undefined' in found.text
    assert "1 error in 1 group, all 1 kept" in found.summary
    assert estimate_tokens(found.text) <= budget
    assert found == condensed(tmp_path_factory.mktemp("again"), long_session(300_000, at), budget)


@pytest.mark.parametrize("budget", [500, 6_000, 40_000])
def test_a_budget_always_holds(tmp_path: Path, budget: int) -> None:
    """Many errors, long names, files and figures: never more than asked for, and every cut is told."""
    records: list[object] = [{"role": "user", "content": "T" * 50_000}]
    body = "x = 1; // é\n" * 40
    for i in range(300):
        name = "".join(chr(97 + int(c)) for c in str(i))
        command = f"cat > f{name}.cu <<'EOF'\n{body}EOF\nnvcc f{name}.cu"
        call = {"id": f"c{i}", "function": {"name": "bash", "arguments": json.dumps({"command": command})}}
        records.append({"role": "assistant", "content": "语" * 99, "tool_calls": [call]})
        out = f'f.cu({i}): error: identifier "{name}" is undefined\nkernel {name}: {i}.5 us\n' + "y" * 3_000
        records.append({"role": "tool", "tool_call_id": f"c{i}", "content": out})
    found = condensed(tmp_path, lines(*records), budget)
    assert estimate_tokens(found.text) <= budget
    assert "300 errors in 300 groups" in found.summary
    kept = found.text.count(" is undefined (line")
    assert "characters left out]" in found.text
    if kept < 300:
        assert f"[{300 - kept:,} more groups of errors left out]" in found.text
        assert f"{kept:,} kept, {300 - kept:,} left out" in found.summary
    if budget >= 6_000:
        assert estimate_tokens(found.text) > budget * 0.8
        assert all(f"## {part}" in found.text for part in ("Task", "Files", "Outline"))


def test_what_was_not_found_or_not_read_is_told(tmp_path: Path) -> None:
    """A trace without errors says so; torn lines and unknown records stand in the head."""
    found = condensed(tmp_path, "## User\n\nhi\n\n## Assistant\n\nhello\n", 1_000)
    assert "no error found" in found.text and "no error found" in found.summary
    assert "## Errors" not in found.text
    found = condensed(tmp_path, FORMATS["claude_code"]() + "{torn", 4_000)
    assert "Torn or malformed JSON records that were skipped: 1." in found.text
    assert "never-heard-of (1)" in found.text
    assert "skipped" not in condensed(tmp_path, FORMATS["codex"](), 4_000).text  # its bookkeeping is known


@pytest.mark.parametrize(
    ("said", "secret", "kept"),
    [
        (f"sk-ant-{'aB3d' * 10}", "aB3d", ""),
        (f"hf_{'aB3d' * 9}", "aB3d", ""),
        (f"eyJ{'hb' * 8}.{'c3' * 9}.{'zz9' * 9}", "zz9", ""),
        (f"Authorization: Bearer {'q7' * 20}", "q7", "Authorization: [secret]"),
        (f"export WANDB_API_KEY={'ab12' * 10}", "ab12", "export WANDB_API_KEY=[secret]"),
        (f"MY_TOKEN='{'ab12' * 10}'", "ab12", "MY_TOKEN='[secret]'"),
        (f"aws_secret_access_key = {'wJ/7' * 10}", "wJ/7", "aws_secret_access_key = [secret]"),
        (f"-----BEGIN PRIVATE KEY-----\n{'MIIE' * 16}\n{'Qx0=' * 5}\n-----END", "Qx0=", "-----END"),
    ],
)
def test_keys_are_not_passed_on(tmp_path: Path, said: str, secret: str, kept: str) -> None:
    """Keys of providers, tokens, private keys, and the values of variables with such names."""
    found = condensed(tmp_path, f"## User\n\nrun it with {said}\n## Tool result\n\nerror: {said}", 2_000)
    assert secret not in found.text
    assert "[secret]" in found.text and kept in found.text
    assert "Redacted: " in found.text


def test_no_part_of_a_key_survives_a_cut(tmp_path: Path) -> None:
    """A key at the place where a long text is cut has no beginning left to be known by."""
    key = f"sk-ant-{'Q7zK' * 25}"
    for after in range(0, 300, 20):
        words = f"{'word ' * 4_000}{key}{' tail' * (after // 5)}"
        assert "Q7zK" not in condensed(tmp_path, f"## User\n\n{words}\n", 600).text


def test_code_about_tokens_is_not_a_secret(tmp_path: Path) -> None:
    """Names with `token` in them, as kernels for language models have, stay."""
    code = "sk-learn hf_hub max_tokens = compute_number_of_tokens(x); token = tokenizer_decode_it"
    found = condensed(tmp_path, f"## User\n\n{code}; N_TOKENS=16; Bearer of news\n", 2_000)
    assert "Redacted" not in found.text and code in found.text
