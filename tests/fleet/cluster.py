"""A Ray cluster of several nodes on this machine, and what its graders leave behind."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# Ray reads them when it is imported.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
ray = pytest.importorskip("ray", reason="needs Ray (pip install 'liftbench[ray]')")

from sandboxes.cgroups import Cgroups
from sandboxes.orphans import is_orphan, remove_orphans
from tests.fakes.processes import processes_naming

HOST = "harness.fleet.host"
LEFT_S = 90.0
STORE_BYTES = 80 << 20
"""Of each node's object store: Ray wants 75 MiB at least."""


def until(condition: Callable[[], object], seconds: float = LEFT_S) -> None:
    """Wait for what other processes do."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.1)


@contextmanager
def three_nodes() -> Iterator[Any]:
    """A head without work, and two unequal nodes; their object stores do not spill to disk."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    head["_system_config"] = {
        "automatic_object_spilling_enabled": False,
        "local_fs_capacity_threshold": 0.001,
    }
    made = Cluster(initialize_head=True, head_node_args=head)
    for cpus in (1, 2):
        join(made, cpus)
    yield made
    ray.shutdown()
    made.shutdown()


def join(cluster: Any, cpus: int, **more: Any) -> Any:
    """Another node."""
    return cluster.add_node(num_cpus=cpus, object_store_memory=STORE_BYTES, **{"num_gpus": 1} | more)


def abandoned_groups() -> set[str]:
    """Control groups of processes that have ended."""
    found = Cgroups.find()
    folders = set() if found is None else set(found.folders.values())
    return {path.name for one in folders for path in one.glob("liftbench-*") if is_orphan(path.name)}


@contextmanager
def nothing_left(folder: Path, *, next_start: bool = False) -> Iterator[None]:
    """Afterwards no grader process, nothing that works in the folder, and no control group is left.

    `next_start`: groups of killed graders are removed by the next start on their node, which is tried here.
    """
    before = abandoned_groups()
    yield
    until(lambda: not processes_naming(HOST) and not processes_naming(str(folder)))
    if next_start:
        remove_orphans(groups=Cgroups.find())
    until(lambda: abandoned_groups() <= before)
