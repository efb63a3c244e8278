"""The attack programs: name, family and promise by the first line of each file, and their compilation."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "attacks" / "programs"
_FIRST_LINE = re.compile(r"/\* (?P<family>[a-z]+): (?P<promise>.+) \*/")
_JOBS = 2
FAMILIES = (
    "writing",
    "reading",
    "descriptors",
    "network",
    "devices",
    "mounts",
    "namespaces",
    "processes",
    "kernel",
    "privileges",
    "deferral",
    "bombs",
    "lifetime",
    "results",
    "collector",
)
"""In the order of reports."""


@dataclass(frozen=True)
class Attack:
    """One attack."""

    name: str
    family: str
    promise: str
    """What holds against it."""

    @property
    def alone(self) -> bool:
        """Whether it needs its own job: it uses up resources, or is judged by how it ends."""
        return self.family in ("bombs", "lifetime", "results", "collector")


def all_attacks() -> list[Attack]:
    """Every attack, by family and name. Raises ValueError for a file without a promise."""
    found = []
    for path in sorted(FOLDER.glob("*.c")):
        if path.name == "battery.c":
            continue
        stated = _FIRST_LINE.match(path.read_text())
        if stated is None:
            raise ValueError(f"{path.name}: the first line must be `/* family: promise */`")
        if stated["family"] != "none":
            found.append(Attack(path.stem, stated["family"], stated["promise"]))
    return sorted(found, key=lambda attack: FAMILIES.index(attack.family))


def build_battery(folder: Path) -> Path:
    """Compile and link all attacks into one static program in `folder`. Raises CalledProcessError."""
    sources = sorted(FOLDER.glob("*.c"))
    names = [path.stem for path in sources if path.stem != "battery"]
    entries = folder / "entries.c"
    lines = [f"int attack_{name}(int, char **);" for name in names]
    lines += ["struct entry { const char *name; int (*run)(int, char **); };"]
    lines += ["const struct entry battery_entries[] = {"]
    # Most mains take no arguments; passing two is harmless.
    lines += [f'{{"{name}", (int (*)(int, char **))attack_{name}}},' for name in names]
    lines += ["{(void *)0, (void *)0}};"]
    entries.write_text("\n".join(lines) + "\n")
    for start in range(0, len(sources), _JOBS):
        running = [_compile(path, folder) for path in sources[start : start + _JOBS]]
        for one in running:
            if one.wait() != 0:
                raise subprocess.CalledProcessError(one.returncode, one.args)
    battery = folder / "battery"
    objects = [str(folder / f"{path.stem}.o") for path in sources]
    link = ["gcc", "-pthread", *objects, "-w", str(entries), "-o", str(battery)]
    static = subprocess.run([*link, "-static"], capture_output=True, check=False)
    if static.returncode != 0:
        subprocess.run(link, check=True)
    return battery


def _compile(path: Path, folder: Path) -> subprocess.Popen[bytes]:
    command = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-c", str(path)]
    command += ["-o", str(folder / f"{path.stem}.o")]
    if path.stem != "battery":
        command += [f'-DATTACK_NAME="{path.stem}"', f"-Dmain=attack_{path.stem}"]
    return subprocess.Popen(command)
