"""`liftbench serve`: grades over HTTP, for training and other harnesses."""

from __future__ import annotations

import secrets
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import FleetOptions, GradingOptions, PatternsOption, TimedOption, make_setup, say
from harness.cli.tasks import chosen_tasks
from harness.errors import UsageError
from harness.suite.sizes import refuse_too_large

_LEAST_TOKEN = 16


def serve(
    *,
    tasks: PatternsOption = None,
    store: Annotated[Path, typer.Option(help="Folder of orders and grades; kept over restarts.")] = Path(
        "serve"
    ),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8642,
    token: Annotated[
        str | None, typer.Option(help="Of clients; better as LIFTBENCH_SERVE_TOKEN. Default: a new one.")
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Orders under way at once; at least four per GPU.")] = 4,
    max_waiting: Annotated[int, typer.Option(min=1, help="Unfinished orders; more get status 429.")] = 1000,
    timed: TimedOption = True,
    grading: GradingOptions,
    several: FleetOptions,
) -> int:
    """POST /grades, GET /grades/ID, GET /health: docs/fleet.md."""
    try:
        import uvicorn

        from harness.interop.service import Service
    except ImportError:
        raise UsageError("`serve` needs an ASGI server: pip install 'liftbench[serve]'") from None
    from harness.interop.order_book import OrderBook

    if grading.sandbox == "local":
        raise UsageError("--sandbox local: projects from a network run in a sandbox that isolates")
    if token is not None and len(token) < _LEAST_TOKEN:
        raise UsageError(f"--token: at least {_LEAST_TOKEN} characters")
    chosen = chosen_tasks(tasks or [], grading)
    by_id = {loaded.task.id: loaded for loaded in chosen if grading.target in loaded.task.dtypes}
    given = token or secrets.token_urlsafe(24)
    with closing(make_setup(grading, several, timed=timed)) as setup:
        refuse_too_large(list(by_id.values()), grading.target, setup.grader.device_bytes)
        at_once = max(at_once, setup.at_once)
        book = OrderBook(store, setup.grader, by_id, at_once=at_once, most_waiting=max_waiting, say=say)
        service = Service(book, by_id, grading.target, grading.protocol, given)
        config = uvicorn.Config(service.app(), host=host, port=port, log_level="warning", access_log=False)
        say(f"{len(by_id)} tasks on http://{host}:{port}, orders in {store}")
        if token is None:
            print(f"token: {given}", file=sys.stderr)
        with closing(book):
            uvicorn.Server(config).run()
    return 0 if book.lost is None else 1
