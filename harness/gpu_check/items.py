"""All that is asked of a GPU, most important first.

Owns: the list and its order. Does not own: any item. To owe something new, append it here.
"""

from __future__ import annotations

from typing import Final

from harness.gpu_check.item import Item
from harness.gpu_check.machine_items import MACHINE
from harness.gpu_check.sandbox_items import SANDBOX_ITEMS

ITEMS: Final[tuple[Item, ...]] = (MACHINE, *SANDBOX_ITEMS)
