"""What each flag of a grade means. A flag is shown beside a verdict and never is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.records.grade import KNOWN_SEED, LITTLE_OF_ITS_OWN, LOADS_CODE, REPEATED, SANITIZER_TOOLS, SCALED
from harness.records.project import COPIED
from harness.records.timing import NOISY

FLAGS: Final[Mapping[str, str]] = {
    "calls PyTorch operators": "The compiled library calls PyTorch operators that compute.",
    "calls a library": "It calls a vendor's library, such as cuBLAS, cuDNN or MKL.",
    "may call any operator": "It can call PyTorch operators by name; the binary does not show which ones.",
    LOADS_CODE: "It can load more code while it runs (dlopen), or its Python did.",
    "calls unknown": "What the library calls could not be read.",
    "imports NumPy": "Its Python imports NumPy, which may do the work.",
    "dispatches PyTorch operators": "A traced call ran PyTorch operators that compute.",
    "little device time in its own kernels": "In a traced call its own kernels had less than "
    f"{LITTLE_OF_ITS_OWN:.0%} of the device time.",
    "differs when traced": "The traced call gave wrong outputs, although the check's were right.",
    "not traced": "No call could be traced.",
    **{f"{tool} findings": f"compute-sanitizer's {tool} reported errors." for tool in SANITIZER_TOOLS},
    COPIED: "Much of its source equals one of liftbench's expert kernels.",
    NOISY: "The machine disturbed the timing: the speedup is shown and counted, never ranked.",
    "clock_mismatch": "The process claims times that contradict the judge's clock: the slower one is scored.",
    "outside_clock": "The judge's clock is not sharp enough here to confirm the process's own times, so both "
    "sides are scored by the judge's.",
    "cheaper_in_batches": "Calls are cheaper in batches than alone, as if calls had been fused: single calls "
    "are scored.",
    "unresolved": "Over half of a measured time is the cost of measuring: the speedup has no interval.",
    "interval not reached": "The time for measuring ended before the interval was as narrow as intended.",
    "interference": "References were slower beside the project's stopped process: they are scored by their "
    "times without it.",
    "above the limit": "Faster than the board's datasheet allows for the bytes or operations of the task.",
    "suspiciously fast": "More than 10 times as fast as the reference: a person should read the source.",
    KNOWN_SEED: "The check drew shapes and inputs of a seed that was given to it, not of a secret one.",
    REPEATED: "A process was killed from outside once; the stage was repeated in a fresh one.",
    SCALED: "Measured on smaller sizes than the task's own, which do not fit here.",
}
