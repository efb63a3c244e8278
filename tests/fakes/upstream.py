"""Upstream's own build.toml parser, asked about many texts at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_BATCH = """
import importlib.machinery, importlib.util, json, pathlib, sys
places = list(importlib.util.find_spec("kernels").submodule_search_locations)
spec = importlib.machinery.PathFinder.find_spec("kernels._rust", places)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
answers = []
for text in json.load(sys.stdin):
    (pathlib.Path(sys.argv[1]) / "build.toml").write_bytes(text.encode())
    try:
        module.Build.open(sys.argv[1])
    except ValueError as error:
        answers.append(str(error))
    else:
        answers.append(None)
print(json.dumps(answers))
"""


def ask_in_a_batch(batch: Sequence[str], directory: Path) -> list[str | None]:
    """Upstream's error for each text as directory/build.toml, None where it is content."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _BATCH, str(directory)],
        input=json.dumps(batch).encode(),
        capture_output=True,
        check=True,
    )
    answers: list[str | None] = json.loads(done.stdout)
    return answers
