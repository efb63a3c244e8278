"""Graders behind the interface of one: each order goes to the least busy, and a lost grader is replaced.

A grader that dies, falls silent or disagrees with the others gets no more work; what it had under way is
given to another. No project is blamed for it, and nothing is graded twice: only an answer counts.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from harness.errors import DeviceError, DeviceLost, GraderRefused, InfraError, NoGraderLeft
from harness.files import write_atomically
from harness.fleet.agreement import disagreements
from harness.fleet.host_process import MemberLost
from harness.fleet.messages import Event, HostFacts, Order, TaskFiles
from harness.records import Finding, Grade, Project
from harness.suite.catalogue import LoadedTask

MOST_LOSSES: Final = 2
"""Graders that one order may lose before it is given up, for the run to try it again later."""
MOST_FAILURES: Final = 3
"""Failures of a grader in a row, without a grade between them, after which it is left out."""
ALONE_S: Final = 180.0
"""How long an order waits while no grader is open, but one is being opened."""
_PAUSE_S: Final = 2.0
"""Before a lost grader is opened again."""
_CLOSING_S: Final = 10.0
"""How long one that is being started may take to notice its end."""


class Member(Protocol):
    """One grader process, here or elsewhere."""

    def facts(self) -> HostFacts:
        """Wait until it is ready. Raises InfraError."""

    def ask(self, order: Order, stage: Callable[[str], None]) -> Event:
        """The order's last event. Raises MemberLost."""

    def kill(self) -> None:
        """End it, and what it started."""


@dataclass
class Place:
    """Where a grader runs; after a loss it is opened again, unless it failed too often."""

    name: str
    open: Callable[[], Member]
    """Starts a grader process. Raises InfraError."""
    at_once: int
    builds_only: bool = False
    member: Member | None = None
    facts: HostFacts | None = None
    busy: int = 0
    failures: int = 0
    out: str | None = None
    """Why it gets no more work."""
    graded: int = field(default=0)


class GraderPool:
    """A ProjectGrader over several processes. Close it when done."""

    def __init__(self, places: Sequence[Place], driver: HostFacts, say: Callable[[str], None]) -> None:
        """Opens all places and waits for the first that grades. Raises NoGraderLeft.

        `driver`: what the graders must agree with; their GPUs with that of the first.
        """
        self._places = list(places)
        self._say = say
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._lost: set[str] = set()
        self._closed = False
        self._first = driver
        self.notes: list[str] = []
        """What happened to graders, for the report."""
        self._told: Callable[[str], None] = lambda note: None
        self._starting: list[Member] = []
        self._openers: list[threading.Timer] = []
        for place in self._places:
            self._open_within(0.0, place)
        with self._changed:
            run = [p for p in self._places if not p.builds_only]
            self._changed.wait_for(lambda: self._open_graders() or all(p.out is not None for p in run))
        if not self._open_graders():
            self.close()
            raise NoGraderLeft(self._why_none())

    @property
    def facts(self) -> HostFacts:
        """Of the first grader; the others agree with it."""
        return self._first

    @property
    def at_once(self) -> int:
        """Orders that all graders together take."""
        return sum(place.at_once for place in self._places if not place.builds_only)

    @property
    def device_bytes(self) -> int | None:
        """Memory of the smallest GPU among the open graders."""
        with self._changed:
            sizes = [p.facts.device_bytes for p in self._open_graders() if p.facts is not None]
        known = [size for size in sizes if size is not None]
        return min(known) if known else None

    def grade(
        self,
        project: Project,
        loaded: LoadedTask,
        *,
        log: Path | None = None,
        observer: Callable[[str], None] = lambda stage: None,
    ) -> Grade:
        """Grade a project on any grader. `log` receives the build log. Raises InfraError and its kinds."""
        order = Order(
            number=0,
            what="grade",
            task=TaskFiles.of(loaded),
            project=project,
            lost_a_device=project.digest in self._lost,
        )
        order = order.model_copy(update={"package": self._package(order, observer)})
        try:
            event = self._carry_out(order, observer)
        except DeviceLost as error:
            self._lost.add(error.project)
            raise
        if log is not None and event.log is not None:
            write_atomically(log, event.log)
        return _grade_of(event)

    def no_project(self, finding: Finding, loaded: LoadedTask) -> Grade:
        order = Order(number=0, what="no_project", task=TaskFiles.of(loaded), finding=finding)
        return _grade_of(self._carry_out(order, lambda stage: None))

    @contextmanager
    def noting(self, note: Callable[[str], None]) -> Iterator[None]:
        """Has `note` called when something happens to a grader, at first with what has happened."""
        with self._changed:
            for line in self.notes:
                note(line)
            self._told = note
        try:
            yield
        finally:
            self._told = lambda line: None

    def lost_a_device(self, project: str) -> None:
        """Count a device lost under that project (digest) in an earlier session: its retry is spent."""
        self._lost.add(project)

    def close(self) -> None:
        """Kill all graders, those too that are being started."""
        with self._changed:
            self._closed = True
            members = [*self._starting, *(p.member for p in self._places if p.member is not None)]
            self._changed.notify_all()
        for member in members:
            member.kill()
        for opener in self._openers:  # none may use what the caller closes next
            opener.cancel()
            opener.join(_CLOSING_S)

    def _package(self, order: Order, observer: Callable[[str], None]) -> str | None:
        """The build, by a process that only builds; None where there is none, or it is lost."""
        if not any(place.builds_only and place.out is None for place in self._places):
            return None
        observer("build")
        try:
            return self._carry_out(order.model_copy(update={"what": "build"}), observer).package
        except MemberLost:
            return None  # the grader builds it itself

    def _carry_out(self, order: Order, observer: Callable[[str], None]) -> Event:
        """The answer of some grader. Raises what it failed with."""
        for loss in itertools.count(1):
            numbered = order.model_copy(update={"number": next(self._numbers)})
            with self._place_for(order) as place:
                assert place.member is not None
                member = place.member
                try:
                    event = member.ask(numbered, observer)
                except MemberLost as error:
                    self._lose(place, member, error)
                    if loss == MOST_LOSSES:
                        raise
                    continue
            if event.failure is None:
                place.failures, place.graded = 0, place.graded + 1
                return event
            failure = event.failure.error()
            if isinstance(failure, DeviceError):
                self._lose(place, member, failure)
            raise failure
        raise AssertionError

    @contextmanager
    def _place_for(self, order: Order) -> Iterator[Place]:
        """The least busy open place that can do it. Raises NoGraderLeft; for a build MemberLost."""
        fit = [p for p in self._places if p.builds_only == (order.what == "build")]
        with self._changed:
            alone_s = 0.0
            while not (ready := [p for p in fit if p.member is not None and p.busy < p.at_once]):
                began = time.monotonic()
                self._changed.wait(1.0)
                alone_s = 0.0 if any(p.member for p in fit) else alone_s + time.monotonic() - began
                if self._closed or all(p.out is not None for p in fit) or alone_s > ALONE_S:
                    why = self._why_none()
                    raise MemberLost(why) if order.what == "build" else NoGraderLeft(why)
            place = min(ready, key=lambda p: (p.busy, p.graded))
            place.busy += 1
        try:
            yield place
        finally:
            with self._changed:
                place.busy -= 1
                self._changed.notify_all()

    def _open(self, place: Place) -> None:
        """Open a place, or find out why it cannot be."""
        member: Member | None = None
        try:
            with self._changed:
                if self._closed:
                    return
                member = place.open()
                self._starting.append(member)
            facts = member.facts()
        except InfraError as error:
            if member is not None:
                member.kill()
            if isinstance(error, GraderRefused):
                self._leave_out(place, f"{error}")
            else:
                self._failed(place, f"{error}")
            return
        finally:
            if member is not None:
                self._starting.remove(member)
        with self._changed:
            refused = self._refused(place, facts)
            if refused is None and not self._closed:
                if not place.builds_only and self._first.device_bytes is None:
                    self._first = facts
                place.member, place.facts = member, facts
            self._changed.notify_all()
        if self._closed or refused is not None:
            member.kill()
        if refused is not None:
            self._leave_out(place, refused)

    def _refused(self, place: Place, facts: HostFacts) -> str | None:
        """Why a grader may not serve this run."""
        others = [p.facts for p in self._places if p is not place and p.member is not None]
        uuid = facts.machine.gpu_uuid
        if not place.builds_only and uuid and uuid in {one.machine.gpu_uuid for one in others if one}:
            return f"GPU {uuid} is graded on by another process already"
        found = disagreements(self._first, facts)
        return f"it differs: {', '.join(found)}" if found else None

    def _lose(self, place: Place, member: Member, error: InfraError) -> None:
        """Replace a member that failed; once, however many orders it had."""
        with self._changed:
            if place.member is not member or self._closed:
                return
            place.member = place.facts = None
        member.kill()
        self._failed(place, f"{error}")

    def _failed(self, place: Place, why: str) -> None:
        if self._closed:
            return
        place.failures += 1
        if place.failures >= MOST_FAILURES:
            self._leave_out(place, why)
            return
        self._note(f"{place.name} failed and is started again: {why}")
        self._open_within(_PAUSE_S, place)

    def _open_within(self, seconds: float, place: Place) -> None:
        timer = threading.Timer(seconds, self._open, args=(place,))
        timer.daemon = True
        with self._changed:
            if self._closed:
                return
            timer.start()
            self._openers = [*(one for one in self._openers if one.is_alive()), timer]

    def _leave_out(self, place: Place, why: str) -> None:
        with self._changed:
            place.out = why
            self._changed.notify_all()
        self._note(f"{place.name} is left out: {why}")

    def _note(self, line: str) -> None:
        with self._changed:
            self.notes.append(line)
            try:
                self._told(line)
            except OSError as error:
                self._say(f"what happened to a grader cannot be stored: {error}")
        self._say(line)

    def _open_graders(self) -> list[Place]:
        return [p for p in self._places if p.member is not None and not p.builds_only]

    def _why_none(self) -> str:
        why = "; ".join(f"{p.name}: {p.out}" for p in self._places if p.out is not None and not p.builds_only)
        return f"no grader is left ({why or 'none could be started'})"


def _grade_of(event: Event) -> Grade:
    assert event.grade is not None
    return event.grade
