"""The Docker engine: connecting, refusing unsuitable ones, explaining errors, removing orphaned containers.

An accepted engine runs on this machine's kernel, since descriptors are passed over unix sockets.
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

_MARK: Final = "org.liftbench.job"
_OWNER: Final = "org.liftbench.owner"
_DEADLINE: Final = "org.liftbench.deadline"
"""Seconds since 1970, for owners that are not visible (in another container with the engine's socket)."""

_DEFAULT_SOCKET: Final = "unix:///var/run/docker.sock"
_CALL_S: Final = 120.0  # starting a container took 8 s on a machine with a load of 8
_CONNECTIONS: Final = 64  # each live container holds one in wait(); room for 32 containers and as many calls
_BRIDGES: Final = "descriptors cannot be passed to processes of another machine"
_INSTEAD: Final = "use an engine on this machine, or --sandbox bubblewrap"
# An APIError is both; broken connections and timeouts of `requests` are OSErrors.
ENGINE_ERRORS: Final = (docker.errors.DockerException, OSError)


@dataclass(frozen=True)
class DockerEngine:
    """A connected engine."""

    client: docker.DockerClient
    address: Path
    """Its socket."""
    info: Mapping[str, Any]
    """What its API reports of it."""

    @classmethod
    def connect(cls, environment: Mapping[str, str]) -> DockerEngine | str:
        """The engine that `environment` (DOCKER_HOST) names, or why it cannot be used, with advice."""
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
        return self.client.api

    def facts(self) -> dict[str, str]:
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
    """Why an engine with this `info` cannot be used, or None."""
    kernel, security = info.get("KernelVersion"), _security(info)
    if info.get("OSType", "linux") != "linux":
        return f"runs {info['OSType']} containers: {_INSTEAD}"
    if kernel != os.uname().release:
        return f"runs on another kernel ({kernel}), as Docker Desktop does: {_BRIDGES}; {_INSTEAD}"
    if "rootless" in security:
        return (
            "is rootless: its users are not those of this machine, so a job's files could not be filled "
            "or read. --sandbox bubblewrap isolates as well without root"
        )
    if "userns" in security:
        return (
            "maps users (userns-remap): its users are not those of this machine, so the user that "
            "connects could not be checked. Start a second engine without userns-remap and set DOCKER_HOST"
        )
    if "seccomp" not in security:
        return f"has no seccomp: it cannot refuse system calls; {_INSTEAD}"
    if not info.get("MemoryLimit", True) or not info.get("PidsLimit", True):
        return f"cannot limit memory or processes (no control groups); {_INSTEAD}"
    return None


def _security(info: Mapping[str, Any]) -> list[str]:
    """Names of its security options, from words such as `name=seccomp,profile=default`."""
    options = [str(option) for option in info.get("SecurityOptions") or []]
    return [option.removeprefix("name=").partition(",")[0] for option in options]


@contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Turn the engine's failures into SandboxError, with advice."""
    try:
        yield
    except ENGINE_ERRORS as error:
        raise SandboxError(f"the Docker engine failed to {what}: {explained(error)}") from error


def explained(error: Exception) -> str:
    """An engine's error in one line, with advice."""
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


# --- containers of dead harnesses --------------------------------------------------------------


def owner_labels(mark: str, life_s: float) -> dict[str, str]:
    """Labels of a container that this process creates for at most `life_s`."""
    return {_MARK: mark, _OWNER: str(Owner.current()), _DEADLINE: str(int(time.time() + life_s))}


def is_orphan(labels: Mapping[str, str], now_s: float) -> bool:
    """Whether a container has outlived its owner or, where that is not visible, its deadline."""
    owner = Owner.parse(labels.get(_OWNER, ""))
    deadline = labels.get(_DEADLINE, "")
    if owner is None or not deadline.isdigit():
        return True  # it has our mark but no valid owner
    return owner.is_dead() if owner.is_visible() else now_s > int(deadline)


def remove_orphan_containers(engine: DockerEngine) -> list[str]:
    """Remove containers of dead harnesses; returns their names. Raises SandboxError."""
    removed = []
    with engine_errors("list containers"):
        found = engine.api.containers(all=True, filters={"label": _MARK})
    for entry in found:
        if not is_orphan(entry.get("Labels") or {}, time.time()):
            continue
        with engine_errors("remove a container of a dead harness"):
            try:
                engine.api.remove_container(entry["Id"], force=True, v=True)
            except docker.errors.NotFound:
                continue  # removed by somebody else
            except docker.errors.APIError as error:
                if error.status_code != 409:  # "removal is already in progress"
                    raise
        removed.append(str(entry["Names"][0]).lstrip("/"))
    return removed
