"""Which files an object depends on: nothing that could matter is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.builder.layout import Layout, plan_layout
from harness.builder.reuse.reachable import Reachable, reachable
from tests.fakes.projects import fake_toolchain, project, toml_of

BINDING, KERNEL = "torch-ext/torch_binding.cpp", "kernels/fill.cpp"


def layout_of(tmp_path: Path, changes: dict[str, str | None], toml: dict[str, str] | None = None) -> Layout:
    """The tiny project for the CPU with changes; `toml` replaces text of its build.toml."""
    given = project(changes, toml=toml)
    layout = plan_layout(given, toml_of(given), "cpu", fake_toolchain(tmp_path))
    assert isinstance(layout, Layout), layout
    return layout


def seen(
    tmp_path: Path,
    source: str,
    changes: dict[str, str | None] | None = None,
    toml: dict[str, str] | None = None,
) -> Reachable:
    """What the unit `source` reaches."""
    layout = layout_of(tmp_path, changes or {}, toml)
    return reachable(next(u for u in layout.units.units if u.source == source), layout)


def test_a_kernel_sees_its_headers_and_no_more(tmp_path):
    """The binding may change without the kernel's object; the name belongs to the binding."""
    assert seen(tmp_path, KERNEL) == Reachable(("source/kernels/fill.cpp", "source/kernels/fill.h"), False)
    binding = seen(tmp_path, BINDING)
    assert binding.named and binding.paths == (
        "source/kernels/fill.h",
        "source/torch-ext/registration.h",
        "source/torch-ext/torch_binding.cpp",
    )


def test_headers_of_headers_count(tmp_path):
    """Also in a circle, and where the name is mentioned two headers away."""
    text = '#include "fill.h"\n'
    changes: dict[str, str | None] = {
        "kernels/fill.h": '#include "deep.h"\n',
        "kernels/deep.h": '#include "fill.h"\nconst char* name = TEXT(TORCH_EXTENSION_NAME);\n',
        KERNEL: text,
    }
    both = {'src = ["kernels/fill.cpp", ': 'src = ["kernels/fill.cpp", "kernels/deep.h", '}
    found = seen(tmp_path, KERNEL, changes, toml=both)
    assert "source/kernels/deep.h" in found.paths and found.named


INCLUDES = [
    '#if 0\n#include "extra.h"\n#endif\n',
    "#include <extra.h>\n",
    '  #  include "extra.h"\n',
    '#include/* why */"extra.h"\n',
    '#include \\\n"extra.h"\n',
    '#inc\\\nlude "extra.h"\n',
    '%:include "extra.h"\n',
    '/* */ #include "extra.h"\n',
    '#include "../kernels/./extra.h"\n',
    '#include_next "extra.h"\n',
    '#define X "extra.h"\n#include X\n',
    '#if __has_include("extra.h")\n#endif\n',
    '??=include "extra.h"\n',
    '#embed "extra.h"\n',
    '#import "extra.h"\n',
    '#pragma GCC dependency "extra.h"\n',
    'asm(".incbin \\"kernels/extra.h\\"");\n',
    '__asm__(".inc" "bin \\"kernels/extra.h\\"");\n',
    'asm(".in\\x63bin \\"kernels/extra.h\\"");\n',
    'asm(".macro m a\\n.\\\\a \\"kernels/extra.h\\"\\n.endm\\nm incbin");\n',
]


@pytest.mark.parametrize("text", INCLUDES)
def test_every_way_to_read_a_file_counts(text, tmp_path):
    """Conditional, spelt oddly, computed, asked for, or assembled."""
    changes: dict[str, str | None] = {KERNEL: text, "kernels/extra.h": ""}
    both = {'src = ["kernels/fill.cpp", ': 'src = ["kernels/fill.cpp", "kernels/extra.h", '}
    found = seen(tmp_path, KERNEL, changes, toml=both)
    assert "source/kernels/extra.h" in found.paths


def test_ptx_in_asm_is_no_file(tmp_path):
    """Kernels with inline PTX still share their objects."""
    text = '#include "fill.h"\nvoid f() { asm volatile("cp.async.wait_group 0;\\n\\t" ::: "memory"); }\n'
    assert len(seen(tmp_path, KERNEL, {KERNEL: text}).paths) == 2


def test_what_a_system_header_could_find_counts(tmp_path):
    """A project's own `vector`, in a directory of the unit, is found before the library's."""
    own = {'src = ["kernels/fill.cpp", ': 'include = ["."]\nsrc = ["kernels/fill.cpp", "c10/x.h", '}
    found = seen(tmp_path, KERNEL, {"c10/x.h": ""}, toml=own)
    assert "source/c10/x.h" in found.paths and "source/torch-ext/torch_binding.cpp" not in found.paths


def test_forced_includes_and_flags_count(tmp_path):
    """-include names a file; a macro may name the extension."""
    source = 'src = ["kernels/fill.cpp", '
    forced = {source: f'cxx-flags = ["-include", "kernels/fill.h"]\n{source}'}
    plain: dict[str, str | None] = {KERNEL: "int x;\n"}
    assert "source/kernels/fill.h" in seen(tmp_path, KERNEL, plain, toml=forced).paths
    assert "source/kernels/fill.h" not in seen(tmp_path, KERNEL, plain).paths
    named = {source: f'cxx-flags = ["-DNAME=TORCH_EXTENSION_NAME"]\n{source}'}
    assert seen(tmp_path, KERNEL, plain, toml=named).named


def test_a_name_that_is_pasted_together_is_a_name(tmp_path):
    """Half of the macro is enough."""
    text = "#define J(a, b) a##b\nconst int x = J(TORCH_, EXTENSION_NAME);\n"
    assert seen(tmp_path, KERNEL, {KERNEL: text}).named
