"""metadata.json of a variant, as kernel-builder writes it.

Upstream's own reader accepts the file.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.builder.config.schema import General
from harness.builder.depends import kernel_depends, python_depends
from harness.records import Target

NAME: Final = "metadata.json"


def metadata(general: General, target: Target, ops_name: str, archs: Sequence[str] | None) -> str:
    """The file without its digest. `archs`: CUDA capabilities, None where nothing says for which."""
    backend: dict[str, Any] = {"type": target}
    if archs is not None:
        backend["archs"] = list(archs)
    depends = [d.model_dump(exclude_none=True) for d in kernel_depends(general, target)]
    fields: dict[str, Any] = {
        "name": general.name,
        "id": ops_name,
        "version": general.version,
        "license": general.license,
        "upstream": general.upstream,
        "source": general.source,
        "python-depends": python_depends(general, target),
        "kernel-depends": depends,
        "backend": backend,
    }
    return _dumped({key: value for key, value in fields.items() if value is not None})


def with_digest(text: str, files: Mapping[str, bytes]) -> str:
    """`text` with the SHA-256 (base64) of each file of the variant, by path relative to it."""
    hashes = {
        path: base64.b64encode(hashlib.sha256(files[path]).digest()).decode()
        for path in sorted(files)
        # What upstream's loader leaves out when it compares.
        if path != NAME and not path.endswith(".pyc") and "__pycache__" not in path.split("/")
    }
    return _dumped({**json.loads(text), "digest": {"algorithm": "sha256", "files": hashes}})


def _dumped(fields: dict[str, Any]) -> str:
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
