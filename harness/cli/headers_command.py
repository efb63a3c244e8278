"""`liftbench headers`: fetch header files that CUDA builds need and this machine lacks.

Only this command uses the network for headers; builds never do.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness.cli.setup import JsonOption

WHATS = "cuda, cutlass_3_5, cutlass_3_6, cutlass_3_8, cutlass_4_0 or all"


def headers(
    what: Annotated[list[str] | None, typer.Argument(help=f"{WHATS} (default: cuda).")] = None,
    json_output: JsonOption = False,
) -> None:
    """Fetch header files that CUDA builds need and this machine lacks.

    They come from PyPI wheels, and nothing else of the wheels is kept in the user's data folder.
    `cuda`: headers of cuBLAS, cuSPARSE and others for the nvcc in use, and those of torch that a
    CPU-only torch lacks. `cutlass_3_6` and the like: for projects whose build.toml depends on it.
    Another folder: LIFTBENCH_HEADERS. Another index: PIP_INDEX_URL.
    """
    import os

    from harness.builder.fetch_headers import Fetcher, index_url
    from harness.builder.headers import ON_PYPI, HeaderSet, headers_root
    from harness.builder.toolchain import find_toolchain
    from harness.errors import UsageError

    names = what or ["cuda"]
    if "all" in names:
        names = ["cuda", *ON_PYPI]
    unknown = [name for name in names if name != "cuda" and not name.startswith("cutlass_")]
    if unknown:
        raise UsageError(f"headers {unknown[0]}: there are {WHATS}")
    root = headers_root(os.environ)
    fetcher = Fetcher(root, index_url(os.environ), lambda line: print(line, file=sys.stderr, flush=True))
    found: list[HeaderSet] = []
    for name in dict.fromkeys(names):
        found += fetcher.cuda(find_toolchain()) if name == "cuda" else [fetcher.cutlass(name)]
    if json_output:
        import json

        print(json.dumps([headers.model_dump(mode="json") for headers in found], indent=1))
        return
    for headers in found:
        print(f"{headers.name}  {headers.root}  ({headers.sources})")
