"""Runs nvcc's own steps for one file, the host half in parallel to the device half. Runs inside the sandbox.

Object, messages and exit code equal nvcc's. Where the plan is unknown, nvcc itself runs; where the module id
was guessed wrong, the device half runs again, in nvcc's order.

    host:    preprocess, cudafe++            \\
    device:  preprocess, cicc                 }  then ptxas, fatbinary, g++

cicc needs the module id, which nvcc lets cudafe++ compute first. cicc can compute the same id by itself (from
the file's name and names in the file); both are compared afterwards.

Usage: python -I -S nvcc_steps.py NVCC ARGUMENT...
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

_ID = re.compile(r'--module_id_file_name "([^"]+)"')
_TOOLS = (r"-E ", r"cudafe\+\+ ", r"-E ", r'"\$CICC_PATH/cicc" ', r"ptxas ", r"fatbinary ", r"-c -x c\+\+ ")


class _Done(NamedTuple):
    code: int
    output: bytes


def main() -> int:
    """The exit code of the first step that failed, as nvcc returns it; 0 if none did."""
    command = sys.argv[1:]
    plan = subprocess.run(
        [command[0], "--dryrun", *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    steps, variables = _parsed(plan.stderr.decode(errors="surrogateescape"))
    known = len(steps) == len(_TOOLS) and all(map(re.search, _TOOLS, steps))
    ids = [_ID.search(step) for step in steps]
    if plan.returncode != 0 or not known or ids[1] is None or ids[3] is None:
        os.execv(command[0], command)
    environment = os.environ | variables
    return _run(steps, ids[1][1], environment)


def _parsed(text: str) -> tuple[list[str], dict[str, str]]:
    """The commands of a dry run, and the variables before them."""
    steps: list[str] = []
    variables: dict[str, str] = {}
    for line in text.splitlines():
        body = line.removeprefix("#$ ")
        assignment = re.fullmatch(r"([A-Za-z_]+)=(.*)", body)
        if assignment is not None and not steps:
            variables[assignment[1]] = assignment[2]
        elif body != line:
            steps.append(body)
    return steps, variables


def _run(steps: list[str], shared: str, environment: dict[str, str]) -> int:
    own = f"{shared}.device"
    guess = steps[3].replace(
        f'--module_id_file_name "{shared}"', f'--gen_module_id_file --module_id_file_name "{own}"'
    )
    with ThreadPoolExecutor(1) as pool:
        device = pool.submit(_series, [steps[2], guess], environment)
        host = _series(steps[:2], environment)
        ahead = device.result()
    if host.code != 0:  # nvcc would have stopped here
        return _report(host)
    if ahead.code != 0 or _text(shared) != _text(own):
        ahead = _series(steps[2:4], environment)
    return _report(host) or _report(ahead) or _report(_series(steps[4:], environment))


def _series(steps: list[str], environment: dict[str, str]) -> _Done:
    """Run steps until one fails; exit code and output."""
    output = b""
    for step in steps:
        done = subprocess.run(
            ["/bin/sh", "-c", step],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        output += done.stdout
        if done.returncode != 0:
            code = done.returncode if done.returncode > 0 else 255
            return _Done(code, output + _signal_message(step, done.returncode))
    return _Done(0, output)


def _signal_message(step: str, returncode: int) -> bytes:
    """nvcc's message about a step that a signal ended."""
    signal = -returncode if returncode < 0 else returncode - 128
    if not 0 < signal < 65:
        return b""
    tool = re.search(r"(cudafe\+\+|cicc|ptxas|fatbinary)", step)
    name = tool[1] if tool is not None else "g++"
    return f"nvcc error   : '{name}' died due to signal {signal}\n".encode()


def _report(done: _Done) -> int:
    sys.stderr.buffer.write(done.output)
    sys.stderr.flush()
    return done.code


def _text(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main())
