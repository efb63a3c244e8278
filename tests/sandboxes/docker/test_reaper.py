"""Which containers are orphans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandboxes.docker.engine import DEADLINE_LABEL, OWNER_LABEL, is_orphan
from sandboxes.orphans import Owner

OURS = Owner.ours()
DEAD = replace(OURS, start=OURS.start - 1)
UNSEEN = replace(OURS, namespace=OURS.namespace + 1)


@pytest.mark.parametrize(
    ("owner", "now_s", "orphan"),
    [(OURS, 99.0, False), (OURS, 101.0, False), (DEAD, 99.0, True), (UNSEEN, 99.0, False),
     (UNSEEN, 101.0, True)],
    ids=["lives", "late", "dead", "unseen", "unseen and late"],
)  # fmt: skip
def test_orphans(owner: Owner, now_s: float, orphan: bool) -> None:
    """A living harness keeps its containers, a dead one does not; one that cannot be seen has a deadline."""
    assert is_orphan({OWNER_LABEL: str(owner), DEADLINE_LABEL: "100"}, now_s) is orphan


@pytest.mark.parametrize("labels", [{}, {OWNER_LABEL: str(OURS)}, {OWNER_LABEL: "x", DEADLINE_LABEL: "100"}])
def test_labels_that_nobody_of_ours_wrote(labels: dict[str, str]) -> None:
    """What carries our mark and names no owner or deadline has none."""
    assert is_orphan(labels, 0.0)
