"""Errors and their fixes, figures, and files as they were left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.teaching.traces.events import Event
from harness.teaching.traces.faults import Lesson, faults_of, lessons
from harness.teaching.traces.files import follow
from harness.teaching.traces.reading import read_trace
from tests.teaching.traces.sessions import COMMAND, FILE, FINAL, FORMATS, NEW, OLD, TASK

TRACEBACK = "Traceback (most recent call last):\n  File 'a', line 1\n"


def printed(text: str, *, is_error: bool = False, call: str | None = None) -> Event:
    """What a tool printed."""
    return Event(0, "tool", "tool_result", text, "line 1", is_error=is_error, call=call)


def headlines(text: str, **marked: bool) -> list[str]:
    """Of the errors in what a tool printed."""
    return [fault.headline for fault in faults_of(printed(text, **marked))]


def call(tool: str, call_id: str | None = None, **given: object) -> Event:
    """A tool call."""
    return Event(0, "assistant", "tool_call", str(given), "line 1", tool, call=call_id, arguments=given)


def session(*steps: tuple[str, str] | Event) -> list[Lesson]:
    """The lessons of commands and their outputs, or of whole events, after a first line."""
    events = [Event(0, "user", "text", TASK, "line 1")]
    for step in steps:
        place = f"line {len(events) + 1}"
        if isinstance(step, Event):
            events.append(step)
        else:
            events.append(replace(call("bash", command=step[0]), text=step[0], place=place))
            events.append(replace(printed(step[1]), place=place))
    numbered = [replace(event, index=index) for index, event in enumerate(events)]
    return lessons(numbered, follow(numbered)[1])


SHOWN = """
compile: src/a.cu(12): |error: identifier "x" is undefined
compile: a.cu:1:10: |fatal error: cute/a.hpp: No such file
compile: ptxas error   : |Feature 'wgmma' not supported
link: a.o: in function `f':~a.cpp:(.text+0x1): |undefined reference to `g()'
link: ImportError: /tmp/x.so: |undefined symbol: _ZN3c10
build: ninja: error: |'a.cu', needed by 'a.o', missing and no known rule to make it
build.toml: |Unknown field capabilities. Expected one of minver, maxver
python: Traceback (most recent call last):~  File a.py~    f()~|ValueError: bad 'x'
cuda: Traceback (most recent call last):~  File a.py~RuntimeError: |CUDA error: an illegal memory access
python: |torch._dynamo.exc.Unsupported: error in call_function
wrong result: E       |AssertionError: Tensor-likes are not close!
wrong result: |allclose: False (max diff 0.5)
crash: |Segmentation fault (core dumped)
timeout: |Command timed out after 120s
exit: |Process exited with code 137
other: |bash: line 1: nvcc: command not found
"""
"""Category, and what is printed; ~ is a line break, | the beginning of the headline."""


@pytest.mark.parametrize("shown", SHOWN.strip().split("\n"))
@pytest.mark.parametrize("around", ["fine\n{}\nfine", "     \x1b[31m{}\x1b[0m"], ids=repr)
def test_what_tools_print_is_recognized(shown: str, around: str) -> None:
    """The category and the line that names it, wherever and however it stands."""
    category, _, text = shown.partition(": ")
    indent = "     " if around.startswith(" ") else ""
    body = around.format(text.replace("|", "").replace("~", f"\n{indent}"))
    found = faults_of(printed(body))
    assert [(f.category, f.headline) for f in found] == [(category, text.partition("|")[2])]


def test_words_about_errors_are_not_errors() -> None:
    """Neither in output, nor in an agent's talk, nor in what it is about to do."""
    for text in (
        "0 errors, 0 warnings",
        'throw std::runtime_error("CUDA error in launch");',
        "all tests passed, exit code 0",
        "allclose: True",
    ):
        assert headlines(text) == [], text
    said = Event(0, "assistant", "text", "error: I think it timed out, exit code 1", "line 1")
    assert faults_of(said) == []
    quoted = replace(said, text="I see:\n  a.cu(3): error: no")  # a compiler's own line counts
    assert [f.headline for f in faults_of(quoted)] == ["error: no"]
    assert faults_of(replace(quoted, kind="tool_call")) == []


def test_a_consequence_counts_only_alone() -> None:
    """`ninja: build stopped` and torch's own exception say nothing beside the compiler's error."""
    stopped = "ninja: build stopped: subcommand failed."
    raised = "RuntimeError: Error compiling objects for extension"
    assert headlines(f"a.cu(1): error: no\n{stopped}\n{TRACEBACK}{raised}") == ["error: no"]
    assert headlines(stopped) == [stopped]
    assert headlines(TRACEBACK + raised) == [raised]
    assert headlines("\nString to replace not found", is_error=True) == ["String to replace not found"]


def test_every_exception_of_a_chain_counts() -> None:
    """Both of a chain; a traceback without its last line is an error, too."""
    chained = f"{TRACEBACK}KeyError: 'x'\n\nDuring handling of it:\n\n{TRACEBACK}TypeError: 'x'\n"
    assert headlines(chained) == ["KeyError: 'x'", "TypeError: 'x'"]
    assert headlines(TRACEBACK) == ["Traceback (most recent call last):"]


@pytest.mark.parametrize("make", [f for n, f in FORMATS.items() if n != "codex_stream"])
def test_the_error_of_every_format_is_found_once_and_resolved(
    tmp_path: Path, make: Callable[[], str]
) -> None:
    """One lesson, with its command and the edit; the file as it was left; the figure."""
    path = tmp_path / "trace"
    path.write_text(make())
    events = read_trace(path).events
    files, diffs = follow(events)
    (lesson,) = lessons(events, diffs)
    assert (lesson.category, lesson.count, lesson.resolved) == ("compile", 1, True)
    assert lesson.error == 'error: identifier "warpSize32" is undefined'
    assert lesson.command is not None and lesson.command.startswith(COMMAND)
    assert lesson.fix is not None and OLD in lesson.fix and NEW in lesson.fix
    assert [(f.path, f.text, f.complete) for f in files] == [(FILE, FINAL, True)]


def test_equal_errors_are_counted_and_keep_both_ends() -> None:
    """Whatever their folders, numbers and addresses; first and last place, the last one's context."""
    last = "before\n/a/b.cu(9): error: x is 2 at 0x7f01 in /p/h.cuh\nafter"
    first = "a.cu(1): error: x is 1 at 0xdead in /q/r/h.cuh"
    (lesson,) = session(("make", first), ("ls", "a.cu"), ("make", last))
    assert (lesson.count, lesson.first, lesson.last) == (2, "line 2", "line 6, its line 2")
    assert (lesson.resolved, lesson.command, lesson.fix) == (False, "make", None)
    assert lesson.context == last


def test_only_a_run_of_the_same_program_resolves() -> None:
    """Listing files or another program proves nothing; the fix is the edit, or the command that worked."""
    failed = ("python test.py", "allclose: False")
    assert not session(failed, ("ls", "ok"), ("python other.py", "ok"))[0].resolved
    fixed = call("Edit", file_path="a.cu", old_string="a", new_string="b")
    (lesson,) = session(failed, fixed, ("cd x && FOO=1 python ./test.py -v | tail -3", "ok"))
    assert (lesson.resolved, lesson.fix) == (True, "a.cu:\n-a\n+b")
    (lesson,) = session(("nvcc a.cu", "a.cu(1): error: x"), ("nvcc -arch=sm_90a a.cu", "ok"))
    assert lesson.fix == "the command became: nvcc -arch=sm_90a a.cu"


def test_a_run_that_fails_earlier_does_not_resolve() -> None:
    """A wrong result is not fixed by a build that breaks; a later stage's failure does show progress."""
    wrong, broken = ("make test", "allclose: False"), ("make test", "a.cu(1): error: x")
    assert [x.resolved for x in session(wrong, broken)] == [False, False]
    resolved = {x.category: x.resolved for x in session(broken, wrong)}
    assert resolved == {"compile": True, "wrong result": False}


def test_unresolved_errors_come_first_then_the_frequent_then_the_grave() -> None:
    """The order in which a teacher reads them."""
    found = session(
        ("nvcc a.cu", "a.cu(1): error: fixed"),
        ("nvcc a.cu", "ok"),
        ("python a.py", "ValueError: x"),
        ("python b.py", "Segmentation fault"),
        ("python c.py", "a.cu(1): error: twice"),
        ("python c.py", "a.cu(1): error: twice"),
    )
    order = ["error: twice", "Segmentation fault", "ValueError: x", "error: fixed"]
    assert [x.error for x in found] == order


def left(*events: Event) -> dict[str, tuple[str, bool]]:
    """The files as they were left, and whether they are complete."""
    numbered = [replace(event, index=index) for index, event in enumerate(events)]
    return {f.path: (f.text or "", f.complete) for f in follow(numbered)[0]}


def test_files_follow_writes_edits_patches_and_here_documents() -> None:
    """Each way in which agents write files."""
    shell = "mkdir -p d && cat > d/a.txt <<'EOF'\none\ntwo\nEOF\necho done"
    assert left(call("bash", command=shell)) == {"d/a.txt": ("one\ntwo\n", True)}
    assert left(call("bash", command="python - <<EOF > out.txt\nx\nEOF")) == {}
    first = call("Write", file_path="f", content="a b\n")
    edits = [
        {"old_string": "a", "new_string": "b"},
        {"old_string": "b", "new_string": "c", "replace_all": True},
    ]
    assert left(first, call("MultiEdit", file_path="f", edits=edits)) == {"f": ("c c\n", True)}
    patch = "*** Begin Patch\n*** Update File: f\n@@ def\n one\n-two\n+2\n*** Delete File: g\n*** End Patch"
    assert left(
        call("Write", file_path="f", content="zero\none\ntwo\n"),
        call("Write", file_path="g", content="x"),
        call("apply_patch", input=patch),
    ) == {"f": ("zero\none\n2\n", True)}


def test_a_change_whose_place_is_unknown_makes_a_file_incomplete() -> None:
    """The last full version stays until the next full one; a change that failed is not applied."""
    first = call("Write", "w", file_path="f", content="a\n")
    strange = call("Edit", file_path="f", old_string="not there", new_string="x")
    assert left(first, strange) == {"f": ("a\n", False)}
    assert left(first, strange, call("Write", file_path="f", content="b\n")) == {"f": ("b\n", True)}
    assert left(strange) == {}
    edit = call("Edit", "e", file_path="f", old_string="a", new_string="b")
    assert left(first, edit, printed("no", is_error=True, call="e")) == {"f": ("a\n", True)}
