"""All that is asked of a GPU, most important first."""

from __future__ import annotations

from collections.abc import Sequence

from tools.gpu_check.ceilings import CEILINGS
from tools.gpu_check.item import Item
from tools.gpu_check.judge_items import FIRST, OTHER_SANDBOXES, task_items
from tools.gpu_check.machine_items import MACHINE
from tools.gpu_check.sandbox_items import SANDBOX_ITEMS


def all_items(zoo: Sequence[Item] = ()) -> tuple[Item, ...]:
    """In order. `zoo`: projects that need a GPU, where the tests are at hand. Raises UsageError for a broken
    task."""
    by_task = task_items()
    return (
        MACHINE,
        *FIRST,
        CEILINGS,
        *by_task["builds"],
        *by_task["expert"],
        *zoo,
        *by_task["time"],
        *SANDBOX_ITEMS,
        *OTHER_SANDBOXES,
        *by_task["full"],
    )
