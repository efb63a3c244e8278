"""Dockerfile.cuda and the scripts around it: what can be said without an engine, and what the images hold."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import __version__
from harness.errors import SandboxError

ROOT = Path(__file__).resolve().parent.parent
ROLES = ("build", "run", "run_jit")


def instructions() -> list[str]:
    """The Dockerfile's instructions, each on one line, without comments."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile.cuda").read_text(), flags=re.M)
    return [" ".join(one.split()) for one in text.replace("\\\n", " ").splitlines() if one.strip()]


def stages() -> dict[str, list[str]]:
    """Name of a stage -> its instructions, FROM first."""
    found: dict[str, list[str]] = {}
    for one in instructions():
        if one.startswith("FROM "):
            found[one.rpartition(" AS ")[2]] = []
        if found:
            found[list(found)[-1]].append(one)
    return found


def test_both_bases_are_pinned_by_digest_unless_one_is_named():
    """BASE stands for both; RUNTIME_BASE alone changes its own."""
    arguments = [one for one in instructions() if one.startswith("ARG ")][:3]
    assert arguments[0] == "ARG BASE"
    for argument, kind in zip(arguments[1:], ("devel", "runtime"), strict=True):
        pattern = rf"ARG \w+=\$\{{BASE:-nvidia/cuda:13\.\d\.\d-{kind}-ubuntu24\.04@sha256:[0-9a-f]{{64}}\}}"
        assert re.fullmatch(pattern, argument), argument


@pytest.mark.parametrize("role", ROLES)
def test_each_role_is_a_stage_of_an_unprivileged_user(role):
    """Labelled with role and version, nothing setuid, /root passable and empty, nobody at the end."""
    stage = stages()[role]
    assert f"org.liftbench.image.role={role}" in " ".join(stage)
    assert "org.liftbench.image.version=${VERSION}" in " ".join(stage)
    assert "chmod a-s" in " ".join(stage) and "install -d -m 755 /root" in " ".join(stage)
    assert stage[-1] == "USER 65534:65534"
    assert not re.search(r"COPY [^;]* (harness|sandboxes) ", " ; ".join(stage))  # only in `describe`


def test_what_is_installed_is_pinned():
    """Every package that the image names stands in constraints.txt, as do those of the extra `cuda`."""
    pins = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["cuda"]
    named = {re.match(r"[\w-]+", one)[0] for one in extra}  # type: ignore[index]
    commands = "\n".join(instructions())
    for command in re.findall(r"/opt/pip/bin/pip (?:--python \S+ )?install ([^&\n]*)", commands):
        assert "--constraint" in command
        words = re.sub(r"--(find-links|constraint|target|requirement) \S+", "", command).split()
        named |= {word for word in words if not word.startswith("-")}
    assert {"torch", "kernels", "numpy", "ninja"} <= named
    assert {name.lower() for name in named} <= pins


def test_only_what_is_copied_is_sent_to_the_engine():
    """.dockerignore lets through exactly the sources of COPY."""
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    copies = [one.split()[1:-1] for one in instructions() if re.match("COPY (?!--from)", one)]
    assert allowed == {word.replace("[e]", "e") for words in copies for word in words}


@pytest.mark.parametrize("script", sorted((ROOT / ".ci").iterdir()), ids=lambda path: path.name)
def test_scripts_can_be_run(script):
    """Executable, and read by the shell without an error."""
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script], capture_output=True, check=False).stderr == b""


def images(**environment: str) -> subprocess.CompletedProcess[str]:
    """What `make image` runs."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")} | environment
    return subprocess.run([ROOT / ".ci/images"], env=env, capture_output=True, text=True, check=False)


def fake_client(folder: Path, *, build: str) -> str:
    """A docker command whose engine answers; `build` is what it does when it is to build."""
    script = folder / "docker"
    script.write_text(
        '#!/bin/sh\necho "$@" >> "$0.log"\n'
        'case "$1" in\n'
        "version) echo 20.10.24 ;;\n"
        "buildx) exit 1 ;;\n"
        f"build) {build} ;;\n"
        'image) echo "sha256:0123456789abcdef 1277000000" ;;\n'
        "esac\n"
    )
    script.chmod(0o755)
    return str(script)


def test_three_images_are_made_and_told(tmp_path):
    """By role and version, with ID and size; both bases are handed on."""
    done = images(DOCKER=fake_client(tmp_path, build="exit 0"), BASE="my/base:1", IMAGE="mine")
    assert done.returncode == 0, done.stderr
    told = {" ".join(line.split()[:4]) for line in done.stdout.splitlines()}
    assert told == {f"mine/{role}:{__version__} 0123456789ab 1277 MB" for role in ROLES}
    builds = re.findall("^build .*", (tmp_path / "docker.log").read_text(), re.M)
    assert len(builds) == 3
    assert all("--build-arg BASE=my/base:1" in one and f"VERSION={__version__}" in one for one in builds)


def test_what_is_missing_is_named(tmp_path):
    """Exit code 2: the package of the client, the socket of an engine, wheels of a wheelhouse."""
    done = images(DOCKER="/nonexistent/docker")
    assert done.returncode == 2 and "apt-get install docker.io" in done.stderr
    done = images(DOCKER=fake_client(tmp_path, build="exit 0"), WHEELHOUSE=str(tmp_path))
    assert done.returncode == 2 and "holds no wheels" in done.stderr
    if shutil.which("docker") is not None:
        done = images(DOCKER_HOST=f"unix://{tmp_path}/none.sock")
        assert done.returncode == 2 and f"engine answers at unix://{tmp_path}/none.sock" in done.stderr


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """An engine with the images of this version; skips where there is none."""
    from sandboxes.docker.engine import DockerEngine

    try:
        engine = DockerEngine.connect(os.environ)
    except SandboxError as error:
        pytest.skip(str(error))
    with contextlib.closing(engine):
        here = {tag for image in engine.client.images.list() for tag in image.tags}
        if lacking := {f"liftbench/{role}:{__version__}" for role in ROLES} - here:
            pytest.skip(f"no image {', '.join(lacking)}: make image")
        yield engine.client


def said(client: Any, role: str, script: str) -> str:
    """What a shell script prints in the image of `role`, as its own user, without a network."""
    output = client.containers.run(
        f"liftbench/{role}:{__version__}",
        ["sh", "-c", script],
        network_mode="none",
        read_only=True,
        remove=True,
        stderr=True,
    )
    return str(output.decode()).strip()


@pytest.mark.docker
@pytest.mark.parametrize("role", ROLES)
def test_an_image_holds_nothing_that_it_should_not(client, role):
    """No setuid program, nothing of ours or in /root, no pip; torch imports as nobody."""
    assert said(client, role, "find / -xdev -type f -perm /6000 2>/dev/null; true") == ""
    ours = r"find / -xdev \( -path '*harness/worker/__main__.py' -o -path '/root/*' \) 2>/dev/null | head"
    assert said(client, role, ours) == ""
    assert said(client, role, "command -v pip pip3; ls -ld /root | cut -c1-10") == "drwxr-xr-x"
    python = "/opt/liftbench/venv/bin/python"
    code = "import os, torch, kernels, numpy, ninja; print(os.getuid(), torch.__version__.split('+')[0])"
    assert said(client, role, f'{python} -c "{code}"').split()[0] == "65534"


@pytest.mark.docker
def test_compilers_are_where_they_belong(client):
    """None in run; g++ and ptxas in run_jit; all in build."""
    tools = "for t in gcc g++ cc ld as nvcc ptxas; do command -v $t; done; true"
    assert said(client, "run", tools) == ""
    hidden = r"find / -xdev \( -name ptxas -o -name nvcc -o -name cicc \) 2>/dev/null; true"
    assert said(client, "run", hidden) == ""
    assert {"/usr/bin/g++", "/usr/local/bin/ptxas"} <= set(said(client, "run_jit", tools).split())
    nvcc = "import json; print(json.load(open('/opt/liftbench/toolchain.json'))['toolchain']['cuda']['nvcc'])"
    found = said(client, "build", f'command -v g++; $(python3 -c "{nvcc}") --version')
    assert found.startswith("/usr/bin/g++") and "Cuda compilation tools, release 13" in found
