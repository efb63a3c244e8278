"""The system calls that code in a sandbox can make."""

from __future__ import annotations

import base64
import copy
import errno
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import SandboxError
from sandboxes.host_job import profile_for
from sandboxes.job import Job, Limits
from sandboxes.seccomp import compile_filter, numbers, profile, without_hidden_memory
from tests.sandboxes import bpf
from tests.sandboxes.attempts import FILTERED, HERE, MARK, NEWER, calls, check, marked

HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
MACHINES = ["x86_64", "aarch64"]
WORDS = st.one_of(
    st.integers(0, 64),
    st.sampled_from([0, 0x5412, 0x541C, 0x5423, 0x7E020000, 0xFFFFFFFF, 1 << 32, bpf.MOST]),
    st.integers(0, bpf.MOST),
)
ARGS = st.tuples(*[WORDS] * 6)


def refusal(program: bytes, machine: str, name: str, *args: int) -> int | None:
    """The error that a call gets; None when it is allowed."""
    six = [*args, *[0] * (6 - len(args))]
    answer = bpf.run(program, bpf.AUDIT[machine], numbers(machine)[name], six)
    return None if answer == bpf.ALLOW else answer - bpf.ERRNO


@pytest.fixture(scope="module", params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    """Every machine that the profile is for."""
    return str(request.param)


@pytest.fixture(scope="module")
def program(machine: str) -> bytes:
    """The whole profile for that machine."""
    return compile_filter(profile(), machine)


def test_the_numbers_are_the_kernels() -> None:
    """Our table agrees with the headers of this machine."""
    if not HEADER.is_file():
        pytest.skip(f"{HEADER} is not here (package linux-libc-dev)")
    theirs = {m[1]: int(m[2]) for m in re.finditer(r"#define __NR_(\w+)\s+(\d+)", HEADER.read_text())}
    ours = numbers("x86_64")
    assert len(theirs) > 300
    assert {name: ours.get(name) for name in theirs} == theirs


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(data=st.data(), args=ARGS)
def test_a_program_says_what_the_profile_says(data: st.DataObject, args: tuple[int, ...]) -> None:
    """Compiled and read directly, the profile gives the same answer to any call."""
    machine = data.draw(st.sampled_from(MACHINES))
    named = st.sampled_from(sorted(numbers(machine).values()))
    number = data.draw(st.one_of(named, st.integers(0, 500), st.integers(0, 0xFFFFFFFF)))
    expected = bpf.answer(profile(), numbers(machine), number, args)
    assert bpf.run(compile_filter(profile(), machine), bpf.AUDIT[machine], number, args) == expected


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_masked_comparisons_have_64_bits(data: st.DataObject) -> None:
    """Any rules with any conditions mean the same compiled, at and around the values they compare with."""
    rules, interesting = [], {0, 1, bpf.MOST}
    for _ in range(data.draw(st.integers(1, 3))):
        drawn = data.draw(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6))
        rule = [
            {"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": wanted & mask}
            for index, (mask, wanted) in enumerate(drawn)
        ]
        interesting |= {(c["valueTwo"] + d) & bpf.MOST for c in rule for d in (-1, 0, 1, 1 << 32)}
        rules.append({"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": rule})
    made = {**profile(), "syscalls": [*rules, {"names": ["write"], "action": "SCMP_ACT_ALLOW"}]}
    args = data.draw(st.tuples(*[st.sampled_from(sorted(interesting))] * 6))
    for machine in MACHINES:
        number, known = numbers(machine)["read"], numbers(machine)
        program = compile_filter(made, machine)
        assert bpf.run(program, bpf.AUDIT[machine], number, args) == bpf.answer(made, known, number, args)


def test_calls_of_another_kind_of_machine_kill(program: bytes, machine: str) -> None:
    """Their numbers mean other calls: 32-bit code, and the other machine's."""
    for arch in (0x40000003, *(a for m, a in bpf.AUDIT.items() if m != machine)):
        assert bpf.run(program, arch, 1, [0] * 6) == bpf.KILL


def test_unknown_calls_do_not_exist(program: bytes, machine: str) -> None:
    """x32 calls and calls newer than the profile answer ENOSYS, on which programs fall back."""
    for number in (0x40000000 | 1, NEWER):
        assert bpf.run(program, bpf.AUDIT[machine], number, [0] * 6) == bpf.ERRNO | errno.ENOSYS


def test_more_can_be_refused(machine: str) -> None:
    """What is refused on top of the profile, and nothing else changes."""
    program = compile_filter(profile(), machine)
    less = compile_filter(profile(), machine, also_refuse=["setsid"], sockets=False)
    lost = {"setsid", "socket", "socketpair", "connect"}
    for name in numbers(machine):
        expected = errno.EPERM if name in lost else refusal(program, machine, name)
        assert refusal(less, machine, name) == expected, name


def test_memory_that_the_watchdog_does_not_see_is_refused(machine: str) -> None:
    """Memfds and anonymous shared mappings, where no control group counts them."""
    program = compile_filter(without_hidden_memory(profile()), machine)
    anonymous, shared, private = 0x20, 0x01, 0x02
    assert refusal(program, machine, "memfd_create") == errno.EPERM
    found = [
        refusal(program, machine, "mmap", 0, 4096, 3, flags)
        for flags in (anonymous | shared, anonymous | shared | private, anonymous | private, shared)
    ]
    assert found == [errno.EPERM, errno.EPERM, None, None]


def test_only_jobs_that_are_counted_or_have_a_gpu_may_hide_memory() -> None:
    """A sandbox without a control group installs the stricter profile."""
    job = Job(role="run", argv=[], limits=Limits(wall_s=1.0))
    for device, counted, refused in ((None, False, errno.EPERM), (None, True, None), ("0", False, None)):
        program = profile_for(replace(job, device=device), sockets=True, counted=counted)
        assert refusal(program, HERE, "memfd_create") == refused


def _changed(change: dict[str, Any]) -> dict[str, Any]:
    """The profile with one more rule for `read`."""
    made = copy.deepcopy(profile())
    made["syscalls"].append({"names": ["read"], "action": "SCMP_ACT_ALLOW", **change})
    return made


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"action": "SCMP_ACT_TRACE"}, "SCMP_ACT_TRACE is not supported"),
        ({"action": "SCMP_ACT_ERRNO", "errnoRet": 5}, "several answers"),
        ({"includes": {"caps": ["CAP_SYS_ADMIN"]}}, "includes"),
        ({"args": [{"index": 0, "op": "SCMP_CMP_GT", "value": 1}]}, "SCMP_CMP_GT'. are not supported"),
        ({"args": [{"index": 0, "op": "SCMP_CMP_MASKED_EQ", "value": v} for v in (1, 2)]}, "two conditions"),
    ],
)
def test_what_cannot_be_expressed_is_refused(change: dict[str, Any], complaint: str) -> None:
    """The compiler never approximates a rule."""
    with pytest.raises(ValueError, match=complaint):
        compile_filter(_changed(change), HERE)


def test_an_unknown_machine_or_name_is_refused() -> None:
    """No filter is better than none only when it is the right one."""
    with pytest.raises(SandboxError, match="riscv64"):
        compile_filter(profile(), "riscv64")
    with pytest.raises(ValueError, match="no system calls: setsidd"):
        compile_filter(profile(), HERE, also_refuse=["setsidd"])


def in_filter(program: bytes, *words: str) -> subprocess.CompletedProcess[str]:
    """Run filtered.py, away from any terminal."""
    command = [sys.executable, "-I", "-S", str(FILTERED), base64.b64encode(program).decode(), *words]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL
    )


def test_the_kernel_refuses_what_the_profile_refuses(tmp_path: Path) -> None:
    """About 90 forbidden calls are refused by the filter itself, and 24 that programs need are not."""
    refused, allowed = calls(str(tmp_path))
    done = in_filter(compile_filter(marked(), HERE), "call", json.dumps(refused + allowed))
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout), str(tmp_path), MARK)


@pytest.mark.slow
def test_torch_compile_works(tmp_path: Path) -> None:
    """Its workers, compiler and cache run: the reference may use it."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")
    script = (
        "import os; os.environ['TORCHINDUCTOR_CACHE_DIR'] = os.sys.argv[1]\n"
        "import torch; f = torch.compile(lambda x: (x * 2).sin().sum())\n"
        "print(round(float(f(torch.zeros(64))), 3))\n"
    )
    done = in_filter(
        compile_filter(profile(), HERE), "run", sys.executable, "-W", "ignore", "-c", script, str(tmp_path)
    )
    assert done.stdout == "0.0\n", done.stderr
