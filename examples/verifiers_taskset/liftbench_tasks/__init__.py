"""Tasks of liftbench for verifiers 0.4: prompts and grades come from `liftbench serve`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

import httpx
import verifiers.v1 as vf

__all__ = ["LiftbenchTaskset"]

REWARDS = ("compiled", "correct", "speedup", "sol")
_PAUSE_S = 1.0


class LiftbenchConfig(vf.TasksetConfig):
    """Where the service is, and what is asked."""

    url: str = os.environ.get("LIFTBENCH_URL", "http://localhost:8642")
    briefing: str = "contract"
    tasks: tuple[str, ...] = ()
    """Task ids; all of the service's without them."""


class LiftbenchData(vf.TaskData):
    """One task of the service at `url`."""

    url: str
    family: str


def _headers() -> dict[str, str]:
    return {"Authorization": f"Bearer {os.environ['LIFTBENCH_SERVE_TOKEN']}"}


class LiftbenchTask(vf.Task[LiftbenchData]):
    """A kernel to write."""

    @vf.reward
    async def graded(self, trace: vf.Trace) -> dict[str, float]:
        """The rewards that were measured. Raises RuntimeError for an infrastructure failure."""
        async with httpx.AsyncClient(base_url=self.data.url, headers=_headers(), timeout=90) as client:
            submission = {"task": self.data.id, "reply": trace.last_reply}
            order = await _patient(client, "POST", "/grades", submission)
            while order["status"] != "done":
                order = await _patient(client, "GET", f"/grades/{order['id']}?wait=30")
        if order["unscored"] is not None:
            raise RuntimeError(f"liftbench could not grade it: {order['unscored']}")
        trace.info["liftbench"] = {"verdict": order["grade"]["verdict"], "order": order["id"]}
        return {name: order["rewards"][name] for name in REWARDS if order["rewards"][name] is not None}


async def _patient(client: httpx.AsyncClient, method: str, path: str, data: object = None) -> dict:
    """One request; again while the queue is full or the service is restarted."""
    while True:
        try:
            answer = await client.request(method, path, json=data)
        except httpx.TransportError:
            await asyncio.sleep(_PAUSE_S)
            continue
        if answer.status_code not in (429, 503):
            answer.raise_for_status()
            return answer.json()
        await asyncio.sleep(_PAUSE_S)


class LiftbenchTaskset(vf.Taskset[LiftbenchTask, LiftbenchConfig]):
    """The tasks of a service."""

    def load(self) -> Iterable[LiftbenchTask]:
        """One request for all of them."""
        config = self.config
        answer = httpx.get(f"{config.url}/tasks", params={"briefing": config.briefing}, headers=_headers())
        answer.raise_for_status()
        for one in answer.json():
            if config.tasks and one["id"] not in config.tasks:
                continue
            system, user = (message["content"] for message in one["messages"])
            data = LiftbenchData(
                id=one["id"],
                name=one["id"],
                prompt=user,
                system_prompt=system,
                url=config.url,
                family=one["family"],
            )
            yield LiftbenchTask(data, config.task)
