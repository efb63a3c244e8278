"""The `docker` backend: every job in its own container.

Not protected: the kernel and the GPU driver are shared with this machine. Jobs never see the engine's socket.
A job's argv and environment are data for inside.py, never options, variables or commands of its container.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from docker.types import LogConfig, Mount, Ulimit

from harness.errors import SandboxError
from sandboxes.docker.container import SOCKET, Container
from sandboxes.docker.engine import DockerEngine, Image, owner_labels, reference, remove_orphan_containers
from sandboxes.docker.gpu import cdi_of_engine, docker_gpu_arguments, find_toolkit
from sandboxes.gpu import find_gpus, slot_named
from sandboxes.host_job import FreeUsers, spec_for
from sandboxes.host_process import INSIDE
from sandboxes.job import IMAGES_FACT, Job, RoleName
from sandboxes.seccomp import job_filter, profile

PYTHON: Final = "/opt/liftbench/venv/bin/python"
SCRATCH: Final = "/scratch"
_INSIDE: Final = "/liftbench/inside.py"
_ROLES: Final[tuple[RoleName, ...]] = ("build", "run", "run_jit")
_SHM_BYTES: Final = 16 << 20
# inside.py prints here before it becomes the job, and a job may be able to.
_LOG: Final = {"max-size": "1m", "max-file": "1"}


class DockerBackend:
    name = "docker"
    python = Path(PYTHON)

    def __init__(self, engine: DockerEngine, images: Mapping[RoleName, Image]) -> None:
        self._engine = engine
        self._images = images
        self._users = FreeUsers()
        self._toolkit = find_toolkit()
        self._seccomp = json.dumps(profile())
        remove_orphan_containers(engine)

    @classmethod
    def open(cls, environment: Mapping[str, str], version: str) -> DockerBackend:
        """With the images that `make image` built for this version. Raises SandboxError, with advice."""
        engine = DockerEngine.connect(environment)
        try:
            return cls(engine, {role: Image(engine.client, reference(role, version)) for role in _ROLES})
        except BaseException:
            engine.close()
            raise

    def facts(self) -> dict[str, str]:
        facts = {
            "user": "unprivileged, one per process" if os.geteuid() == 0 else "same as the judge",
            "network": "none",
            "files": "an image, read-only",
            "limits": "cgroups, sized tmpfs, rlimits, wall clock",
            **self._engine.facts(),
            "nvidia_toolkit": str(self._toolkit.version) if self._toolkit else "none found",
        }
        layers = {role: image.layers for role, image in sorted(self._images.items())}
        facts[IMAGES_FACT] = hashlib.sha256(json.dumps(layers).encode()).hexdigest()
        for role, image in self._images.items():
            facts |= {f"{role}_{name}": value for name, value in image.provenance().items()}
        return facts

    @property
    def image(self) -> Image | None:
        return self._images.get("build")

    def close(self) -> None:
        self._engine.close()

    def spawn(self, job: Job) -> Container:
        """Raises SandboxError, and DeviceError for a GPU that is not there."""
        image = self._images.get(job.role)
        if image is None:
            raise SandboxError(f"there is no image for the role {job.role}: make image")
        own = self._users.take()
        uid, gid = (os.geteuid(), os.getegid()) if own is None else (own, own)
        gpu = self._gpu(job)
        variables = gpu.get("environment", {})
        spec = spec_for(
            job,
            channel=SOCKET,
            scratch=SCRATCH,
            variables=variables,
            # The engine installs the profile; its own first process needs what this refuses.
            seccomp=job_filter(job, os.uname().machine),
            caps_memory=True,  # by the control group, which limits processes too
            processes=None,
            counted=["/dev/shm"],
            die_with_parent=False,
        )
        settings = {
            "image": image.id,
            "entrypoint": [PYTHON, "-I", "-S", _INSIDE],
            "command": [spec],
            "user": f"{uid}:{gid}",
            "environment": variables,
            "working_dir": "/",
            "hostname": "liftbench",
            "labels": owner_labels(job.role),
        }
        host = self._restrictions(job, uid, gid) | {"device_requests": gpu.get("device_requests")}
        return Container(self._engine, uid, settings, host)

    def _restrictions(self, job: Job, uid: int, gid: int) -> dict[str, Any]:
        limits, memory = job.limits, job.limits.memory_bytes
        if memory is not None:
            memory += limits.scratch_bytes  # its pages are charged to the job
        scratch = f"rw,exec,nosuid,nodev,size={limits.scratch_bytes},nr_inodes={limits.scratch_files}"
        return {
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges", f"seccomp={self._seccomp}"],
            "network_mode": "none",
            "ipc_mode": "private",
            "cgroupns": "private",
            "init": True,  # else a job that is process 1 ignores its own signals, and exits with code 0
            "pids_limit": limits.processes,
            "mem_limit": memory,
            "memswap_limit": memory,
            "cpuset_cpus": ",".join(str(n) for n in sorted(job.cpus)) if job.cpus else None,
            "shm_size": _SHM_BYTES,
            "ulimits": [Ulimit(name="core", soft=0, hard=0), Ulimit(name="nofile", soft=1024, hard=1024)],
            "log_config": LogConfig(type=LogConfig.types.JSON, config=_LOG),
            "tmpfs": {SCRATCH: f"{scratch},uid={uid},gid={gid},mode=0700"},
            "mounts": [
                Mount(target, str(source), type="bind", read_only=True, propagation="rprivate")
                for target, source in ((_INSIDE, INSIDE), *((str(path), path) for path in job.readable))
            ],
        }

    def _gpu(self, job: Job) -> dict[str, Any]:
        """The SDK's arguments `device_requests` and `environment`; empty without a GPU."""
        if job.device is None:
            return {}
        slot = slot_named(job.device, find_gpus())
        return docker_gpu_arguments(slot, cdi_of_engine(slot, self._engine.info), self._toolkit)
