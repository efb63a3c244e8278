"""worker/library_loads.py: what a project's Python has the loader do, in its own process (a hook stays)."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import numpy
import pytest

_ROOT: Final = Path(__file__).parents[2]

# The project. `own.so` is a copy of a native module of numpy's, linked with libc.
_PACKAGE: Final = """
import _ctypes, ctypes, importlib, sys, threading
import torch
from pathlib import Path

OWN = str(Path(__file__).with_name("own.so"))

def opens(): ctypes.CDLL("libm.so.6").cos
def asks_the_process(): ctypes.CDLL(None).getpid
def keeps_to_functions(): _ctypes.dlsym(_ctypes.dlopen("libm.so.6", 2), "sin")
def calls_an_address():
    libc = ctypes.CDLL("libc.so.6")
    _ctypes.call_function(ctypes.cast(libc.getpid, ctypes.c_void_p).value, ())
def uses_its_own(): ctypes.CDLL(OWN).PyInit__pocketfft_umath
def goes_through_its_own(): ctypes.CDLL(OWN).malloc
def finds_nothing(): hasattr(ctypes.CDLL(OWN), "no_such_function")
def in_a_thread():
    thread = threading.Thread(target=ctypes.CDLL, args=("libm.so.6",))
    thread.start()
    thread.join()
def has_torch_load(): torch.ops.load_library(Path(torch.__file__).with_name("lib") / "libc10.so")
def imports_of_the_standard_library(): importlib.import_module("_lsprof")
def imports_another_package(): importlib.import_module("numpy.random")
def tells_nonsense(): sys.audit("ctypes.dlopen")
def asks_often():
    library = ctypes.CDLL("libm.so.6")
    for name in "cos sin tan exp log pow sqrt cbrt fabs ceil floor round trunc rint fmod".split():
        getattr(library, name), getattr(library, name + "f")
def computes(): torch.add(torch.ones(4), 1.0)
"""
_SCRIPT: Final = """
import importlib.util, json, sys
from pathlib import Path
from harness.worker.library_loads import Loads

spec = importlib.util.spec_from_file_location("project", sys.argv[1])
loads = Loads(Path(sys.argv[1]).parent)
project = importlib.util.module_from_spec(spec)
spec.loader.exec_module(project)
said, audited = {}, []
for name in sys.argv[2:]:
    fresh, loads._found = loads._found, {}
    getattr(project, name)()
    said[name] = loads.account()
sys.addaudithook(lambda event, arguments: audited.append(event))
project.computes()
seen = list(audited)
print(json.dumps({"said": said, "audited": seen}))
"""
_WANTED: Final[dict[str, list[str]]] = {
    "opens": ["ctypes: libm.so.6", "ctypes: cos of libm.so.6"],
    "asks_the_process": ["ctypes: the process itself", "ctypes: getpid of libc.so.6"],
    "keeps_to_functions": ["ctypes: libm.so.6", "ctypes: sin of libm.so.6"],
    "calls_an_address": [
        "ctypes: libc.so.6",
        "ctypes: getpid of libc.so.6",
        "ctypes: a function by its address",
    ],
    "uses_its_own": [],
    "goes_through_its_own": ["ctypes: malloc of libc.so.6"],
    "finds_nothing": [],
    "in_a_thread": ["ctypes: libm.so.6"],
    "has_torch_load": [],
    "imports_of_the_standard_library": [],
    "tells_nonsense": ["something that cannot be named (ctypes.dlopen: ValueError)"],
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    package = tmp_path_factory.mktemp("loads") / "project"
    package.mkdir()
    (package / "__init__.py").write_text(_PACKAGE)
    native = next((Path(numpy.__file__).parent / "fft").glob("_pocketfft_umath.*.so"))
    (package / "own.so").write_bytes(native.read_bytes())
    asked = [*_WANTED, "imports_another_package", "asks_often", "computes"]
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_SCRIPT), str(package / "__init__.py"), *asked],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


@pytest.mark.parametrize("name", _WANTED)
def test_what_python_opens_or_looks_up_is_noted(name: str, found: dict[str, Any]) -> None:
    """Libraries and functions by name; not the project's own, the standard library's, or torch's doing."""
    assert found["said"][name] == {"loads": _WANTED[name]}


def test_a_native_module_of_another_package_is_noted(found: dict[str, Any]) -> None:
    """An import that the project makes, of what torch has not imported already."""
    said = found["said"]["imports_another_package"]["loads"]
    assert "import of numpy.random.mtrand" in said


def test_the_list_is_bounded(found: dict[str, Any]) -> None:
    """The first 20."""
    assert len(found["said"]["asks_often"]["loads"]) == 20


def test_a_call_that_computes_is_not_audited(found: dict[str, Any]) -> None:
    """Python tells no hook of it, so that a timed call pays nothing."""
    assert found["audited"] == []
    assert found["said"]["computes"] == {"loads": []}
