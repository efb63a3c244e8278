"""Words of others in what a student is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.student.excerpts import (
    LINE_CHARS,
    one_line,
    own_trace,
    quotation,
    without_numbers,
    without_places,
)
from harness.text import estimate_tokens

TRACE = """\
RuntimeError: the rows must divide by 4
Traceback (most recent call last):
  File "/srv/liftbench/harness/worker/__main__.py", line 198, in serve
    answer = pool.measure(contender, message)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/tmp/lb-8f/box/project/__init__.py", line 7, in softmax
    ops.softmax(out, x)
  File "/venv/lib/python3.11/site-packages/torch/_ops.py", line 1209, in __call__
    return self._op(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: the rows must divide by 4
Exception raised from run at /tmp/lb-8f/box/tree/src/softmax.cpp:31 (most recent call first):
frame #0: c10::Error::Error() + 0x95 (0x7f in /venv/lib/python3.11/site-packages/torch/lib/libc10.so)
"""


def test_only_the_students_frames_are_left_of_a_trace() -> None:
    """With paths as in its project; none of ours, of torch's or of the machine."""
    text = own_trace(TRACE, "softmax_kernel")
    assert 'File "torch-ext/softmax_kernel/__init__.py", line 7, in softmax\n    ops.softmax(out, x)' in text
    assert text.startswith("RuntimeError: the rows must divide by 4\n")
    assert "raised from run at softmax.cpp:31" in text
    for word in (
        "worker.py",
        "pool.measure",
        "_ops.py",
        "self._op",
        "/tmp",
        "/venv",
        "frame #0",
        "Traceback",
    ):
        assert word not in text


def test_numbers_are_taken_out_of_what_is_said_and_not_of_where() -> None:
    """A message may quote what it was given; a line of code does not."""
    lines = without_numbers(own_trace(TRACE, "m")).splitlines()
    assert lines[0] == "RuntimeError: the rows must divide by #"
    assert lines[1:3] == ['  File "torch-ext/m/__init__.py", line 7, in softmax', "    ops.softmax(out, x)"]
    assert not any(char.isdigit() for line in lines[3:] for char in line)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/tmp/x/project/sub/a.py is bad", "torch-ext/m/sub/a.py is bad"),
        ("in '/venv/lib/site-packages/torch/nn.py'", "in 'torch/nn.py'"),
        ("cannot open /home/user/secret/thing.so: no", "cannot open thing.so: no"),
        ("a / b and 3 /n, src/a.cu:3, ~/x/y", "a / b and 3 /n, src/a.cu:3, ~/x/y"),
        ("see https://example.org/a/b // and /* this */", "see https://example.org/a/b // and /* this */"),
    ],
)
def test_paths_of_the_machine_are_taken_out(text: str, left: str) -> None:
    """What is no absolute path stays as it is."""
    assert without_places(text, "m") == left


def test_parts_are_whole_and_in_order_until_the_room_is_used_up() -> None:
    """What is left out is counted."""
    parts = ["first\n    of two lines", *("x" * 70 for _ in range(9))]
    lines = quotation(parts, 60).splitlines()
    assert lines[:2] == ["> first", ">     of two lines"]
    assert lines[-1] == "> ... (7 more left out)"


def test_a_first_part_that_is_too_long_is_cut() -> None:
    """Something is always shown."""
    lines = quotation(["\n".join(f"line {n}" for n in range(1000)), "second"], 40).splitlines()
    assert lines[0] == "> line 0"
    assert lines[-2].endswith("more lines left out)") and lines[-1] == "> ... (1 more left out)"


@given(st.lists(st.text(max_size=300), max_size=8), st.integers(20, 500))
def test_no_quotation_can_pass_for_ours(parts: list[str], tokens: int) -> None:
    """Every line that any reader may see begins with the mark, and the room is kept."""
    text = quotation(parts, tokens)
    assert all(line.startswith("> ") for line in text.splitlines())
    assert estimate_tokens(text) <= tokens + 30


@given(st.text())
def test_one_line_is_one_line(text: str) -> None:
    """Bounded, and without what could begin another."""
    assert len(one_line(text).splitlines()) <= 1
    assert len(one_line(text)) <= LINE_CHARS
