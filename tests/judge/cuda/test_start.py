"""CUDA starts in a worker before a project is loaded, and a start that fails is no project's fault."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.errors import DeviceError, SandboxError
from harness.judge.shared_memory import CudaTransport
from harness.judge.worker_client import Source, WorkerClient, WorkerPlace
from tests.fakes.cuda_driver import FakeDriver
from tests.fakes.sandbox import exit_facts
from tests.fakes.worker import ThreadSandbox, receive, send

NO_CUDA = "RuntimeError: cuDevicePrimaryCtxRetain failed with CUresult 46"


def refusing(channel: socket.socket) -> None:
    while message := receive(channel)[0]:
        send(channel, {"error": NO_CUDA} if message["op"] == "start" else {"ok": True})


def dying(channel: socket.socket) -> None:
    receive(channel)


def talking(channel: socket.socket) -> None:
    receive(channel)
    channel.send(b"no json")


@pytest.mark.parametrize("kind", ["project", "null"])
@pytest.mark.parametrize(
    ("script", "said"), [(refusing, NO_CUDA), (dying, "killed by SIGKILL"), (talking, "7 bytes of its own")]
)
def test_a_start_that_fails_is_infra(
    driver: FakeDriver, script: Callable[[socket.socket], None], said: str, kind: Literal["project", "null"]
) -> None:
    """Refused, killed or garbled, in a student's worker or ours: infra without a device to blame, since a
    device lost twice is held against the project; and nothing was loaded."""

    def worker(channel: socket.socket) -> None:
        send(channel, {"hello": "2.10", "pid": 1})
        script(channel)

    transport = CudaTransport(driver=driver, tensors=torch.device("cpu"))
    sandbox = ThreadSandbox(worker, exit_facts("signal", signal=9))
    source = Source(kind, Path(__file__), "scale", "scale", repeatable=True)
    expected = pytest.raises(SandboxError, match=f"CUDA did not start in a worker.*{said}")
    with WorkerClient(source, sandbox, WorkerPlace(()), wall_s=60, transport=transport) as client:
        with expected as caught:
            client.load()
        assert not isinstance(caught.value, DeviceError) and client.operators is None
    transport.close()
