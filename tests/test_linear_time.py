"""Text that a student, a model, a server, a skill or a tool may have written is read in linear time.

Each reader gets hostile texts of two sizes, made of one unit over and over; the CPU times are compared.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from harness import text as cleaning
from harness.builder import cubins, elf, symbol_classes
from harness.builder.build_toml import NoToml, key_lines, toml_fields
from harness.builder.check_build_toml import hints
from harness.builder.check_project import binding_warnings, python_facts
from harness.builder.compiler_output import (
    Step,
    clean,
    failed_steps,
    missing_header,
    step_seconds,
)
from harness.builder.diagnostics import diagnose, load_failure, refusal
from harness.cases.scoring import reply_files
from harness.errors import UsageError
from harness.grading import load as load_stage
from harness.judge.sanitizer import read_report
from harness.kernelbench import conversion
from harness.models import endpoint
from harness.models.messages import arguments_object
from harness.outcome import Cause
from harness.records import Finding, Reply, Skill
from harness.report.source import listing
from harness.skills import code_blocks, compile_blocks, fact_check, frontmatter, overlap, placebo, spec
from harness.student import feedback
from harness.student.answer import parse_reply
from harness.student.fences import fenced_blocks
from harness.teaching.traces import condense, events, faults, files, reading
from harness.teaching.workshop import DraftError, read_changes
from tests.fakes.projects import fake_toolchain

UNITS: Final = (
    "/* ", "//", '"', "'", 'R"(', "#", "#include ", '#include "a.h"\n', "#if 0\n", "\\\n", '"\\', "\\",
    "```\n", "``` a\n", "- ```\n", "`a` ", "~~~\n", "- a\n", "> a\n", "](", "[a](", "[", "{", "(", "<",
    "<a", "a", "1 ", "a.", "a/", "/a", ". ", "a:1: ", "a::", "a = 1\n", "x=", ",", "=", "|", "&", "$(",
    "> ", "\x1b[", "\x1b]", "\x00", "é", "\u2028", " ", "\t", "\n", " \n", "\r\n", "a\n\n", "error: ",
    "a.cu:1:1: error: x\n", "ptxas a, line 1; error   : Instruction 'zz' x\n", "FAILED: a\n",
    "g++: error: 'x'\n", "In file included from a:1:\n", "                 from ", "undefined symbol: ",
    "aoti_torch_library_", "aoti_torch_library_a(", "registered at a:1\n", '  File "a", line 1\n',
    "Traceback (most recent call last):\n", "eyJ-", "sk-", "KEY=", '<file path="a">\n', "<<EOF\n",
    "*** Add File: a\n", "## User\n", "tee -a ", "========= a at x+0x0\n", "exceeds ", "exceed", "context ",
    "messages ", "TORCH_LIBRARY(", 'm.def("', "1N", "a<", "speedup 1 ", "H100 has 80 SMs ", "no ",
    "a: &a [*a,*a]\n", '{"a":1}\n', '{"a":', "if (a) {", "for (;;)",
)  # fmt: skip
SMALL: Final = 8 << 10
LARGE: Final = 8 * SMALL
MOST_RATIO: Final = 20.0
"""CPU time for LARGE over that for SMALL: 8 if linear, 64 if quadratic."""
UNSUSPICIOUS_S: Final = 0.4
"""CPU seconds for LARGE up to which no ratio is measured: even quadratic, it would be 7 s for 256 KiB."""
BUDGET_S: Final = 20.0
"""CPU seconds after which one call is stopped."""


class TooSlow(BaseException):
    """No Exception: a reader that survives its own errors must not survive this one."""


@contextlib.contextmanager
def budget(cpu_s: float) -> Iterator[None]:
    """Raises TooSlow when the block has used that much CPU time of this process."""

    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class Readers:
    """Every reader of foreign text, as a function of one text; the name of a method names it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.toolchain = fake_toolchain(folder / "toolchain")

    def replies(self, text: str) -> None:
        named = f"```toml build.toml\n[general]\n```\n```cpp a.cpp\n{text}"
        for one in (text, named):
            reply = Reply(text=one, stop="end", model_label="m", created="2026-01-01T00:00:00+00:00")
            parse_reply(reply)
            with contextlib.suppress(DraftError):
                read_changes(reply)
            reply_files(one)

    def fences(self, text: str) -> None:
        fenced_blocks(f"```\n```\n{text}")
        for piece in events.pieces(f"{text}\n```cpp\n```\n"):
            assert piece.arguments is not None

    def sources(self, text: str) -> None:
        binding_warnings({"a.cpp": text})
        binding_warnings({"a.cpp": f"TORCH_BOX(&f) f(Tensor a{text}"})
        python_facts({"a.py": text})
        for name in ("a.cu", "a.py"):
            listing(name, text, {})
        conversion._MODEL_NEW.search(text)
        overlap.tokenize_code(text)
        sum(1 for _ in overlap.tokenize(text).ngrams())

    def build_toml(self, text: str) -> None:
        for one in (text, f"[general]\nname = {text}", f'a = "{text}', f"a = [{text}"):
            hints(one)
            key_lines(one)
            with contextlib.suppress(NoToml):
                toml_fields(one)

    def refusals(self, text: str) -> None:
        files = {"build.toml": text, "a.py": text}
        for message in (text, f"a.py:3: SyntaxError: {text}"):
            refusal(Finding(cause=Cause.BAD_BUILD_TOML, message=message), files)

    def compiler_output(self, text: str) -> None:
        files = {"a.cu": text, "build.toml": text}
        steps = [Step("obj/a.cu/unit.o", 1, text), Step("lib/x", 1, text)]
        diagnose(steps, files, {"obj/a.cu/unit.o": "a.cu"})
        for step in failed_steps(f"FAILED: obj/a \ncommand\n{text}", self.toolchain):
            assert step.message is not None and step.hit_limit in (True, False)
        clean(text, self.toolchain)
        missing_header(text)

    def load_errors(self, text: str) -> None:
        load_failure(text, {"a.cpp": text})
        load_failure(f"undefined symbol: {text}", {"a.cpp": text})
        load_stage._NO_GPU.search(text)

    def other_tools(self, text: str) -> None:
        step_seconds(text)
        read_report(text)
        cubins.count_instructions(text.split("\n"), {})
        for symbol in (text, f"_Z{text}", f"_ZN{text}"):
            symbol_classes.qualified(symbol)
            symbol_classes.last_part(symbol)
            symbol_classes.classify(symbol)
            symbol_classes.classify_operator(symbol)
            elf.only_in_cuda_torch(symbol)

    def quotations(self, text: str) -> None:
        feedback.own_trace(text, "m")
        feedback.without_numbers(text)
        feedback.without_places(text, "m")
        feedback.one_line(text)
        feedback.quotation([text, text], 500)
        cleaning.first_error(text)
        cleaning.message_of(text)

    def servers(self, text: str) -> None:
        endpoint.server_message({"error": {"message": text}})
        for pattern in (endpoint._TOO_LONG, endpoint._CONTEXT):
            pattern.search(text)
        arguments_object(text)

    def skill_text(self, text: str) -> None:
        code_blocks.shown_projects(code_blocks.code_blocks("SKILL.md", text))
        fact_check.fact_findings("SKILL.md", text)
        (self.folder / "SKILL.md").write_text(text)
        spec.link_findings(self.folder, ["SKILL.md"])

    def skill_header(self, text: str) -> None:
        with contextlib.suppress(frontmatter.FrontmatterError):
            frontmatter.parse(f"---\nname: a\n{text}\n---\nx")
        skill = f"---\nname: a\ndescription: b\n---\n{text}".encode()
        with contextlib.suppress(UsageError):
            frontmatter.edited(skill, "x", body=text, metadata_updates={"a": "b"})

    def skill_code(self, text: str) -> None:
        for language in ("python", "toml", "json", "yaml"):
            code_blocks.parse_block(code_blocks.CodeBlock("SKILL.md", 1, language, None, text))
        for language in ("cpp", "cuda"):
            list(compile_blocks.attempts(code_blocks.CodeBlock("SKILL.md", 1, language, None, text)))

    def placebos(self, text: str) -> None:
        for body in (text, f"```\n{text}"):
            placebo.placebo(
                Skill(name="a", description="b", body=body, files=(), digest="0" * 64, documents={})
            )

    def transcripts(self, text: str) -> None:
        for name in ("a.md", "a.jsonl", "a.log"):
            file = self.folder / name
            file.write_text(f"## User\nhi\n\n## Assistant\n{text}" if name == "a.md" else text)
            with contextlib.suppress(UsageError):
                condense.condense(reading.read_trace(file), 4000)

    def events(self, text: str) -> None:
        result = events.Event(0, "tool", "tool_result", text, "line 1")
        for fault in faults.faults_of(result):
            faults.signature(fault)
        cleaning.redact(text)
        for command in (text, f"cat > a <<EOF {text}", f"*** Begin Patch\n{text}"):
            call = events.Event(
                0, "assistant", "tool_call", "x", "line 1", tool="sh", arguments={"command": command}
            )
            files.programs(call)
            files.changes(call)


READERS: Final = [name for name in vars(Readers) if not name.startswith("_")]


def cpu_s(reader: Callable[[str], None], unit: str, size: int) -> float:
    """CPU seconds for so many characters."""
    text = unit * (size // len(unit))
    gc.disable()  # its cost depends on what other tests have left
    try:
        start = time.process_time()
        with budget(BUDGET_S):
            reader(text)
        return time.process_time() - start
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "sources")) for name in READERS]
)
def test_hostile_text_is_read(name: str, tmp_path: Path) -> None:
    """Every reader takes any unit, and survives it."""
    reader = getattr(Readers(tmp_path), name)
    for unit in UNITS:
        reader(unit)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_hostile_text_is_read_in_linear_time(name: str, tmp_path: Path) -> None:
    """Eight times the text takes about eight times as long; of two measurements the smaller ratio counts."""
    reader = getattr(Readers(tmp_path), name)
    for unit in UNITS:
        try:
            if cpu_s(reader, unit, LARGE) > UNSUSPICIOUS_S:
                ratio = min(cpu_s(reader, unit, LARGE) / cpu_s(reader, unit, SMALL) for _ in range(2))
                assert ratio < MOST_RATIO, f"{LARGE // SMALL} times {unit!r} takes {ratio:.1f} times as long"
        except TooSlow:
            pytest.fail(f"{LARGE >> 10} KiB of {unit!r} took over {BUDGET_S} CPU s")
