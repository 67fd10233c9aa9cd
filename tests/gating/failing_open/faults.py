"""Finds the functions of ours that run during a call, and lets one of them fail as soon as it is called."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from tests.gating.failing_open.in_memory import Server

ROOMS = tuple(f"backoff_ctrl.{room}" for room in ("engine", *(
    f"k8s.{room}" for room in ("runtime", "gate", "gated", "creates", "charges", "answers", "sharing")
)))  # fmt: skip


TIMERS = "backoff-ctrl"


class Place(NamedTuple):
    """The first call of a function of ours while the server sees the create at this stage."""

    module: str
    function: str
    stage: str


class InjectedError(Exception):
    """The bug."""


@dataclass
class Tracer:
    """Notes which functions run; if a ``place`` is given, the call at that place raises, once."""

    server: Server
    place: Place | None = None
    seen: dict[Place, None] = field(default_factory=dict)
    fired: bool = False
    _begun: set[FrameType] = field(default_factory=set)

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """Be told of a call. Coroutines and generators are called once, and go on later."""
        module = frame.f_globals.get("__name__", "")
        if event != "call" or not module.startswith(ROOMS) or frame in self._begun:
            return
        if frame.f_code.co_flags & 0x1A0:  # a generator, a coroutine or an asynchronous generator
            self._begun.add(frame)
        if self.server.answered and threading.current_thread().name == TIMERS:
            return  # nobody waits for it any more
        place = Place(module.removeprefix("backoff_ctrl."), frame.f_code.co_qualname, self.server.stage)
        self.seen.setdefault(place)
        if place == self.place and not self.fired:
            self.fired = True
            _fail(place)

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace this thread, and those that it starts."""
        here, others = sys.gettrace(), threading.gettrace()  # of a coverage tool
        threading.settrace(self)
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(here)
            threading.settrace(others)


def _failing() -> Callable[[Place], None]:
    """Return a function that raises as one of ours would: the gate tells its own errors by the frame that raises."""
    names: dict[str, Any] = {"__name__": "backoff_ctrl.injected", "InjectedError": InjectedError}
    exec("def fail(place):\n    raise InjectedError(place.module + '.' + place.function)", names)
    fail: Callable[[Place], None] = names["fail"]
    return fail


_fail = _failing()
