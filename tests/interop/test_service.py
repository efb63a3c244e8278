"""The grading service over a real HTTP server: what is accepted is graded once, and survives a restart."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from examples.liftbench_client import Client
from harness.errors import NoGraderLeft, SandboxError
from harness.interop.order_book import Answer, GradeOrder, OrderBook, QueueFull, Rewards
from harness.interop.service import Service
from harness.outcome import Cause
from harness.records import Finding
from harness.suite.catalogue import LoadedTask, load_task
from tests.fakes.overlays import TASKS
from tests.fakes.tiny import project_reply
from tests.fakes.trials import FakeGrader, build_result, grade

TOKEN = "a token of the test"
REPLY = project_reply("scale")


@pytest.fixture
def tasks() -> dict[str, LoadedTask]:
    loaded = load_task(TASKS / "t/scale")
    return {loaded.task.id: loaded}


def book_of(folder: Path, tasks: dict[str, LoadedTask], grader: Any, most: int = 10) -> OrderBook:
    """An order book with one thread that says nothing."""
    return OrderBook(folder, grader, tasks, at_once=1, most_waiting=most, say=lambda line: None)


@contextmanager
def served(book: OrderBook, tasks: dict[str, LoadedTask]) -> Iterator[str]:
    """The address of a server of this book."""
    app = Service(book, tasks, "cpu", "quick", TOKEN).app()
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    socket = server.config.bind_socket()
    running = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    running.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        book.close()
        server.should_exit = True
        running.join()


def ask(url: str, data: object = None, token: str = TOKEN) -> tuple[int, Any]:
    """Status and JSON."""
    body = data if isinstance(data, bytes) or data is None else json.dumps(data).encode()
    request = urllib.request.Request(url, body, {"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_reply_is_graded_once_and_its_rewards_have_names(
    tmp_path: Path, tasks: dict[str, LoadedTask]
) -> None:
    """Two orders of the same project are one; the answer has the whole grade, and rewards by name."""
    grader = FakeGrader()
    with served(book_of(tmp_path, tasks, grader), tasks) as url:
        client = Client(url, TOKEN)
        key = client.submit("t/scale", REPLY)
        answer = client.grade(key)
        assert client.submit("t/scale", f"Some words.\n\n{REPLY}") == key
        assert answer["grade"]["verdict"] == "build_failed"
        assert answer["rewards"] == {
            "compiled": 0.0,
            "correct": 0.0,
            "correct_emulated": None,
            "speedup": 0.0,
            "sol": 0.0,
        }
    assert grader.graded == 1


def test_a_batch_is_answered_in_its_order(tmp_path: Path, tasks: dict[str, LoadedTask]) -> None:
    """A list of submissions, with files or replies, gets a list; a reply without a project scores 0."""
    with served(book_of(tmp_path, tasks, FakeGrader()), tasks) as url:
        files = {"build.toml": "[general]\n"}
        status, answers = ask(
            f"{url}/grades", [{"task": "t/scale", "files": files}, {"task": "t/scale", "reply": "No."}]
        )
        assert status == 202
        found = [Client(url, TOKEN).grade(answer["id"]) for answer in answers]
    assert [one["grade"]["verdict"] for one in found] == ["build_failed", "no_project"]
    assert found[1]["rewards"]["compiled"] == 0.0


def test_tasks_are_listed_with_their_prompts(tmp_path: Path, tasks: dict[str, LoadedTask]) -> None:
    """A client needs nothing of liftbench: the service gives the messages that a student gets."""
    with served(book_of(tmp_path, tasks, FakeGrader()), tasks) as url:
        status, (listed,) = ask(f"{url}/tasks")
        assert ask(f"{url}/tasks?briefing=none")[0] == 400
    assert (status, listed["id"], listed["digest"]) == (200, "t/scale", tasks["t/scale"].task.digest)
    assert [message["role"] for message in listed["messages"]] == ["system", "user"]


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        (b"{", 400, "not JSON"),
        ({"task": "t/scale"}, 400, "give either"),
        ({"task": "t/none", "reply": "x"}, 400, "no task 't/none'"),
        ({"task": "t/scale", "files": {"../x": ""}}, 400, "leaves the project"),
        ({"task": "t/scale", "reply": "\ud800"}, 400, "half of a character"),
        (b"[" * 200_000, 400, "nested too deeply"),
        ([{"task": "t/scale", "reply": "x"}] * 11, 413, "at most 10"),
        ([{"task": "t/scale", "reply": "x"}, {"task": "t/none", "reply": "x"}], 400, "no task"),
        (b" " * (33 << 20), 413, "32 MiB"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    tmp_path: Path, tasks: dict[str, LoadedTask], data: object, status: int, said: str
) -> None:
    """They are refused by name, and nothing is stored."""
    with served(book_of(tmp_path, tasks, FakeGrader()), tasks) as url:
        try:
            got, answer = ask(f"{url}/grades", data)
        except (ConnectionError, urllib.error.URLError):  # refused before all of it was sent
            assert status == 413
        else:
            assert got == status
            assert said in answer["error"]
    assert list(tmp_path.iterdir()) == []


def test_a_list_that_the_queue_cannot_take_is_refused_whole(
    tmp_path: Path, tasks: dict[str, LoadedTask]
) -> None:
    """Nothing of it is accepted, so that it can be sent again; what is known already takes no room."""
    slow = Slow()
    with served(book_of(tmp_path, tasks, slow, most=3), tasks) as url:
        a, b, c, d = ({"task": "t/scale", "files": {"build.toml": word}} for word in "abcd")
        assert ask(f"{url}/grades", [a, b])[0] == 202
        assert ask(f"{url}/grades", [c, d])[0] == 429
        assert ask(f"{url}/health")[1]["waiting"] == len(list(tmp_path.glob("*/*/order.json"))) == 2
        assert ask(f"{url}/grades", [b, c, c])[0] == 202
        slow.go.set()


def test_those_that_wait_hold_nobody_up(tmp_path: Path, tasks: dict[str, LoadedTask]) -> None:
    """While more clients wait for a grade than there are threads, an order is accepted and a wait can end."""
    slow = Slow()
    with served(book_of(tmp_path, tasks, slow), tasks) as url, ThreadPoolExecutor(60) as pool:
        key = ask(f"{url}/grades", {"task": "t/scale", "reply": "a"})[1]["id"]
        waiting = [pool.submit(ask, f"{url}/grades/{key}?wait=60") for _ in range(60)]
        assert ask(f"{url}/grades", {"task": "t/scale", "files": {"build.toml": "b"}})[0] == 202
        assert ask(f"{url}/grades/{key}?wait=0.2")[1]["status"] in ("queued", "running")
        for wrong in ("nan", "inf", "soon"):
            assert ask(f"{url}/grades/{key}?wait={wrong}")[0] == 400
        assert not any(one.done() for one in waiting)
        slow.go.set()
        assert {one.result()[1]["status"] for one in waiting} == {"done"}


def test_without_the_token_nothing_is_told(tmp_path: Path, tasks: dict[str, LoadedTask]) -> None:
    """Orders and answers need it; health does not."""
    with served(book_of(tmp_path, tasks, FakeGrader()), tasks) as url:
        assert ask(f"{url}/grades", {"task": "t/scale", "reply": "x"}, token="wrong")[0] == 401
        assert ask(f"{url}/grades/abc", token="wrong")[0] == 401
        assert ask(f"{url}/grades/abc")[0] == 404
        assert ask(f"{url}/grades/..%2f..%2fetc")[0] == 404
        assert ask(f"{url}/health", token="wrong")[1]["status"] == "ok"


def order(tasks: dict[str, LoadedTask], words: str) -> GradeOrder:
    """An order of a reply without a project."""
    finding = Finding(cause=Cause.NO_FILES, message=words)
    digest = tasks["t/scale"].task.digest
    return GradeOrder(task="t/scale", task_digest=digest, target="cpu", protocol="quick", given=finding)


class Slow(FakeGrader):
    """Takes no further order until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def no_project(self, finding: Finding, loaded: LoadedTask) -> Any:
        self.go.wait()
        return super().no_project(finding, loaded)

    def grade(self, *given: Any, **more: Any) -> Any:
        self.go.wait()
        return super().grade(*given, **more)


def accept(book: OrderBook, given: GradeOrder) -> Answer:
    """One order."""
    return book.accept_all([given])[0]


def answered(book: OrderBook, key: str) -> Answer | None:
    """What is known of an order when it is finished, or after 30 s."""
    give_up = time.monotonic() + 30.0
    while book.under_way(key) and time.monotonic() < give_up:
        time.sleep(0.01)
    return book.answer(key)


def test_a_full_queue_refuses_and_a_restart_loses_nothing(
    tmp_path: Path, tasks: dict[str, LoadedTask]
) -> None:
    """Above its limit a book refuses; the next process grades what the first accepted."""
    slow = Slow()
    first = book_of(tmp_path, tasks, slow, most=2)
    keys = [accept(first, order(tasks, words)).id for words in ("a", "b")]
    with pytest.raises(QueueFull):
        accept(first, order(tasks, "c"))
    assert accept(first, order(tasks, "a")).status in ("queued", "running")  # known already
    first.close()
    second = book_of(tmp_path, tasks, FakeGrader(), most=1)
    for key in keys:
        answer = answered(second, key)
        assert answer is not None
        assert answer.rewards.correct == 0.0
    slow.go.set()


def test_our_own_failure_is_unscored_and_may_be_ordered_again(
    tmp_path: Path, tasks: dict[str, LoadedTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After two failed attempts an order has no rewards but a reason; a new order tries again."""
    monkeypatch.setattr("harness.interop.order_book._PAUSE_S", 0.0)
    errors = [SandboxError("no memory"), SandboxError("no memory")]

    class Failing(FakeGrader):
        def no_project(self, finding: Finding, loaded: LoadedTask) -> Any:
            if errors:
                raise errors.pop()
            return super().no_project(finding, loaded)

    book = book_of(tmp_path, tasks, Failing())
    key = accept(book, order(tasks, "a")).id
    answer = answered(book, key)
    assert answer is not None
    assert (answer.unscored, answer.rewards) == ("no memory", Rewards())
    accept(book, order(tasks, "a"))
    answer = answered(book, key)
    assert answer is not None
    assert answer.unscored is None


def test_a_full_disk_and_a_strange_order_stop_no_thread(
    tmp_path: Path, tasks: dict[str, LoadedTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grade that cannot be stored is made again; an order of another version is unscored."""
    monkeypatch.setattr("harness.interop.order_book._PAUSE_S", 0.0)
    strange = tmp_path / "ab" / "abcd"
    strange.mkdir(parents=True)
    (strange / "order.json").write_text("{}")

    class Full(FakeGrader):
        def no_project(self, finding: Finding, loaded: LoadedTask) -> Any:
            made = super().no_project(finding, loaded)
            if not blocked.exists():
                blocked.mkdir()  # nothing can be renamed to its name
                (blocked / "x").touch()
            else:
                (blocked / "x").unlink(missing_ok=True)
                blocked.rmdir()
            return made

    given = order(tasks, "a")
    blocked = tmp_path / given.id[:2] / given.id / "grade.json"
    book = book_of(tmp_path, tasks, Full())
    found = answered(book, "abcd")
    assert found is not None and (found.unscored or "").startswith("the order cannot be read")
    accept(book, given)
    answer = answered(book, given.id)
    assert answer is not None and answer.grade is not None


def test_orders_are_kept_when_all_graders_are_lost(tmp_path: Path, tasks: dict[str, LoadedTask]) -> None:
    """The book says so, and the next process grades the order."""

    class Lost(FakeGrader):
        def no_project(self, finding: Finding, loaded: LoadedTask) -> Any:
            raise NoGraderLeft("no grader is left (head lost)")

    book = book_of(tmp_path, tasks, Lost())
    key = accept(book, order(tasks, "a")).id
    assert answered(book, key) is None
    assert book.lost == "no grader is left (head lost)"
    answer = answered(book_of(tmp_path, tasks, FakeGrader()), key)
    assert answer is not None
    assert answer.status == "done"


def test_what_was_not_measured_is_no_reward() -> None:
    """A project that was only built has a reward for compiling, and none for what no device said."""
    built = grade(Cause.NO_CUDA_DEVICE).model_copy(update={"build": build_result()})
    assert Rewards.of(built) == Rewards(compiled=1.0)
