"""The Docker engine that we talk to: finding it, what it can do, and what its errors mean.

An engine that is accepted runs on this machine's kernel: descriptors and sockets cross only within one
kernel.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker
import docker.errors

from harness.errors import SandboxError
from sandboxes.orphans import Owner

_DEFAULT_SOCKET: Final = "unix:///var/run/docker.sock"
_CALL_S: Final = 120.0  # starting a container took 8 s on a machine with a load of 8
_CONNECTIONS: Final = 64  # each live container holds one, in wait(); 32 containers and as many calls
_BRIDGES: Final = "another machine's processes cannot be given descriptors of ours"
_INSTEAD: Final = "use an engine on this machine, or --sandbox bubblewrap"
# An APIError is both; broken connections and timeouts of `requests` are OSErrors.
ENGINE_ERRORS: Final = (docker.errors.DockerException, OSError)


@dataclass(frozen=True)
class DockerEngine:
    """An engine that answers."""

    client: docker.DockerClient
    address: Path
    """Its socket."""
    info: Mapping[str, Any]
    """What its API says of itself."""

    @classmethod
    def connect(cls, environment: Mapping[str, str]) -> DockerEngine | str:
        """The engine that `environment` (DOCKER_HOST) names, or why it cannot be used, and what to do."""
        address = environment.get("DOCKER_HOST") or _DEFAULT_SOCKET
        if not address.startswith("unix://"):
            return f"DOCKER_HOST is {address}: {_BRIDGES}; {_INSTEAD}"
        path = Path(address.removeprefix("unix://"))
        unreachable = _unreachable(path)
        if unreachable is not None:
            return unreachable
        try:
            client = docker.DockerClient(
                base_url=address, version="auto", timeout=_CALL_S, max_pool_size=_CONNECTIONS
            )
            info = client.info()
        except ENGINE_ERRORS as error:
            return f"the Docker engine at {path} does not answer ({error}): is it running?"
        refused = refusal(info)
        if refused is not None:
            client.close()
            return f"the Docker engine at {path} {refused}"
        return cls(client, path, info)

    @property
    def api(self) -> docker.APIClient:
        """One call for one request: the client's own objects ask again for what we know."""
        return self.client.api

    def facts(self) -> dict[str, str]:
        """What it is, for the record."""
        info = self.info
        return {
            "engine": f"docker {info.get('ServerVersion', '?')}",
            "engine_cgroups": f"version {info.get('CgroupVersion', '1')}, {info.get('CgroupDriver', '?')}",
            "engine_security": ", ".join(_security(info)),
            "engine_runtime": str(info.get("DefaultRuntime", "?")),
            "engine_storage": str(info.get("Driver", "?")),
            "engine_cdi": "on" if info.get("CDISpecDirs") else "off",
        }

    def close(self) -> None:
        """Let its connections go."""
        self.client.close()


def _unreachable(path: Path) -> str | None:
    try:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.settimeout(_CALL_S)
            tried.connect(str(path))
    except PermissionError:
        return (
            f"no permission to use the Docker engine at {path}: add yourself to the group docker "
            f"(sudo usermod -aG docker $USER, then log in again); that group is as powerful as root"
        )
    except FileNotFoundError:
        return (
            f"there is no Docker engine at {path}: apt-get install docker.io and start it, "
            f"or set DOCKER_HOST to the socket of one"
        )
    except OSError as error:
        return f"the Docker engine at {path} does not answer ({error.strerror or error}): is it running?"
    return None


def refusal(info: Mapping[str, Any]) -> str | None:
    """Why an engine that says `info` of itself cannot be used, or None."""
    kernel, security = info.get("KernelVersion"), _security(info)
    if info.get("OSType", "linux") != "linux":
        return f"runs {info['OSType']} containers: {_INSTEAD}"
    if kernel != os.uname().release:
        return f"runs on another kernel ({kernel}), as Docker Desktop does: {_BRIDGES}; {_INSTEAD}"
    if "rootless" in security:
        return (
            "is rootless: its users are not those of this machine, so that nobody could fill or read a "
            "job's files. --sandbox bubblewrap isolates as well without root"
        )
    if "userns" in security:
        return (
            "maps users (userns-remap): its users are not those of this machine, so that nobody could "
            "check who connects. Start a second engine without userns-remap and set DOCKER_HOST"
        )
    if "seccomp" not in security:
        return f"has no seccomp: it cannot refuse system calls; {_INSTEAD}"
    if not info.get("MemoryLimit", True) or not info.get("PidsLimit", True):
        return f"cannot limit memory or processes (no control groups); {_INSTEAD}"
    return None


def _security(info: Mapping[str, Any]) -> list[str]:
    """Names of its security options; the API says `name=seccomp,profile=default`."""
    options = [str(option) for option in info.get("SecurityOptions") or []]
    return [option.removeprefix("name=").partition(",")[0] for option in options]


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turn the engine's failures into SandboxError, with advice where there is some."""
    try:
        yield
    except ENGINE_ERRORS as error:
        raise SandboxError(f"the Docker engine failed to {what}: {explained(error)}") from error


def explained(error: Exception) -> str:
    """An engine's error in one line, and what to do about it."""
    text = " ".join(str(getattr(error, "explanation", None) or error).split())
    for sign, advice in _ADVICE.items():
        if sign in text.lower():
            return f"{text}: {advice}"
    return text


_ADVICE: Final = {
    "no space left": "its disk is full; docker system df shows on what, docker system prune makes room",
    "no such image": "make image",
    "could not select device driver": "install the NVIDIA Container Toolkit and restart the engine",
    "docker-init": "its package lacks docker-init (tini); install it beside dockerd",
    "connection aborted": "it is gone; start it again, the trial will be repeated",
    "timed out": "restart it",
    "connection refused": "it is gone; start it again, the trial will be repeated",
}


MARK_LABEL: Final = "org.liftbench.job"
OWNER_LABEL: Final = "org.liftbench.owner"
DEADLINE_LABEL: Final = "org.liftbench.deadline"
"""Seconds since 1970. For owners that cannot be seen: in another container with the engine's socket."""


def remove_orphan_containers(engine: DockerEngine) -> list[str]:
    """Names of those that were removed. Raises SandboxError when the engine fails."""
    removed = []
    with asking("list containers"):
        found = engine.api.containers(all=True, filters={"label": MARK_LABEL})
    for entry in found:
        if not is_orphan(entry.get("Labels") or {}, time.time()):
            continue
        with asking("remove a container of a dead harness"):
            try:
                engine.api.remove_container(entry["Id"], force=True, v=True)
            except docker.errors.NotFound:
                continue  # somebody else was quicker
            except docker.errors.APIError as error:
                if error.status_code != 409:  # "removal is already in progress"
                    raise
        removed.append(str(entry["Names"][0]).lstrip("/"))
    return removed


def is_orphan(labels: Mapping[str, str], now_s: float) -> bool:
    """Whether what carries these labels has outlived its harness, or its time where that cannot be seen."""
    owner = Owner.parse(labels.get(OWNER_LABEL, ""))
    deadline = labels.get(DEADLINE_LABEL, "")
    if owner is None or not deadline.isdigit():
        return True  # marked as ours, by nobody of ours
    return owner.is_dead() if owner.is_visible() else now_s > int(deadline)
