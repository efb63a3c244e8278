"""Compiled kernels in words, on the card and on the page."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, Group

from harness.cli.card import kernel_table
from harness.records import DeviceKernel
from harness.report.evidence import all_counts, notable, short_name, spills, total
from harness.report.html import render_html
from harness.report.summary import summarise
from tests.report import factories as make


def kernel(name: str = "f(float*)", **more: object) -> DeviceKernel:
    """One with 32 registers and nothing else."""
    values = {"name": name, "architecture": "sm_90a", "registers": 32, "shared_bytes": 0, "stack_bytes": 0}
    return DeviceKernel.model_validate(values | more)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void (anonymous namespace)::rotate<float, 4>(float*, long)", "rotate<float, 4>"),
        ("a::k<(a::mode)2>(int (*)(int))", "a::k<(a::mode)2>"),
        ("copy(float4*)", "copy"),
        ("_Z9unmangled", "_Z9unmangled"),
        ("(odd", "(odd"),
        ("k<" + "x" * 200 + "...", "k<" + "x" * 43 + "..."),
        ("a\x1b[31mb(int)", "ab"),
    ],
)
def test_names_are_shortened(name, short):
    """Without return type, unnamed namespaces and parameters; template arguments stay."""
    assert short_name(name) == short


def test_what_is_worth_naming():
    """Tensor cores and copies are counted, global accesses by the share that is 128 bits wide."""
    counts = {"HGMMA": 12, "TMA": 8, "LDG.128": 3, "LDG.32": 1, "FFMA": 9, "all": 33}
    one = kernel(instructions=counts)
    assert notable(one) == "HGMMA 12, TMA 8, LDG.128 75%" and total(one) == "33"
    assert all_counts(one) == "HGMMA 12, TMA 8, FFMA 9, LDG.32 1, LDG.128 3, all 33"


def test_unknown_is_not_zero():
    """What no tool said is not measured; a real zero is `none`."""
    assert spills(kernel()) == notable(kernel()) == total(kernel()) == "not measured"
    assert spills(kernel(spill_store_bytes=0, spill_load_bytes=0)) == "none"
    assert spills(kernel(spill_store_bytes=8, spill_load_bytes=0)) == "8 / 0 B"


def test_a_card_shows_six_kernels_and_show_all():
    """The rest is counted."""
    kernels = tuple(kernel(f"k{i}(int)", instructions={"LDS": i, "all": i}) for i in range(8))

    def shown(everything: bool) -> str:
        console = Console(file=io.StringIO(), width=140)
        console.print(Group(*kernel_table(kernels, everything)))
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    assert "k5" in shown(False) and "k6" not in shown(False) and "and 2 shorter ones" in shown(False)
    assert "k7" in shown(True) and "LDS 7" in shown(True) and "shorter" not in shown(True)
    assert kernel_table((), False) == []


def test_the_page_has_a_table_of_kernels():
    """In the trial's details: at most 12, names escaped, the rest counted; report.json has all."""
    tasks = make.families(1)
    counts = {"HGMMA": 4, "LDG.128": 1, "all": 5}
    kernels = tuple(kernel(f"<b>k{i}</b>(int)", instructions=counts) for i in range(14))
    (task,) = tasks
    trial = make.trial(task, make.WITH, build=make.build(kernels=kernels))
    summary = summarise(make.run(tasks), [trial], tasks)
    assert summary.trials[0].kernels == kernels
    page = render_html(summary)
    assert page.count("HGMMA 4, LDG.128 100%") == 12 and "and 2 shorter ones" in page
    assert "&lt;b&gt;k0&lt;/b&gt;" in page and "<b>k0" not in page
    plain = summarise(make.run(tasks), [make.trial(task, make.WITH)], tasks)
    assert "Kernels as compiled" not in render_html(plain)
