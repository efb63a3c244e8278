"""What an earlier build of a site made of a run, used again while nothing that it was made from has changed.

A site's folder is its owner's; nothing of a submission is read from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

import harness
from harness.board.pages import cell_path
from harness.board.runs import AUDIT, DELISTED, BoardRun, Suite
from harness.board.submission import MANIFEST, file_digests, has_submissions, refuse_unsafe
from harness.board.tables import Claim
from harness.files import write_atomically
from harness.records.base import digest_of

_CLAIMS: Final = TypeAdapter(list[Claim])


@dataclass(frozen=True)
class Kept:
    site: Path
    context: str
    """Digest of what all runs of a build have in common."""

    @classmethod
    def of(cls, site: Path, own: Sequence[BoardRun], suite: Suite | None) -> Kept:
        return cls(site, digest_of([_code(), [file_digests(one.store.folder) for one in own], suite]))

    def stamp(self, folder: Path) -> str:
        """Taken before a run is read. Raises UsageError for a submission that holds too much."""
        submitted = has_submissions(folder)
        if submitted:
            refuse_unsafe(folder)
        beside = (folder.with_name(folder.name + AUDIT), folder.with_name(DELISTED), folder / MANIFEST)
        words = [hashlib.sha256(one.read_bytes()).hexdigest() if one.is_file() else None for one in beside]
        return digest_of([self.context, folder.name, words, submitted, file_digests(folder)])

    def read(self, folder: Path, stamp: str) -> list[Claim] | None:
        """None where the run, the code or a page has changed."""
        try:
            stated, text = json.loads((self.site / "kept" / f"{folder.name}.json").read_text())
            if stated != stamp:
                return None
            claims = _CLAIMS.validate_json(text)
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        pages = (self.site / cell_path(one.entry, task) for one in claims for task in one.tasks)
        return claims if all(page.is_file() for page in pages) else None

    def write(self, folder: Path, stamp: str, claims: list[Claim]) -> None:
        place = self.site / "kept" / f"{folder.name}.json"
        write_atomically(place, json.dumps([stamp, _CLAIMS.dump_json(claims).decode()]))


@cache
def _code() -> str:
    every = Path(harness.__file__).parent.rglob("*.*")
    files = sorted(p for p in every if p.suffix in (".py", ".j2", ".css", ".js"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()
