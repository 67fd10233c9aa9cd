"""The handler of a namespace, and its gangs, as the controller hands them out: each call moves time on, never back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.engine import (
    Controller,
    Demand,
    Draw,
    Grant,
    Identity,
    ObservedQuota,
    Parts,
    Policy,
    Request,
    Reservation,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine.gangs.gang import Gang

POD = Demand({"pods": 10**9})
ANN = Identity("ann", "p")
LATER = 12.0


class Namespace:
    """A namespace with a waiting request and an admitted gang that keeps its room; the time is 0."""

    def __init__(self) -> None:
        """Admit the gang, then fill the quota."""
        self.controller = controller = Controller()
        two = {"pods": 2 * 10**9}
        controller.observe_quota("team", "q", ObservedQuota(two, two, {"pods": 0}), 0.0)
        controller.watching(0.0)
        parts = Parts([(POD, 2)])
        controller.of("team").reserve(Reservation("g", "team", parts, keeps=True), 0.0, standing=True)
        controller.of("team").reserve(Reservation("h", "team", parts), 0.0, standing=True)
        (grant, other) = controller.advance(0.0)
        assert isinstance(grant, Grant)
        assert isinstance(other, Grant)
        self.gang, self.other = grant.gang, other.gang
        self.request = Request("a", "team", POD)
        controller.submit(self.request, 0.0)
        assert controller.advance(0.0) == []

    def new(self, number: str = "n") -> Request:
        """Return a new request."""
        return Request(number, "team", POD)


def of(name: str, *given: object) -> Callable[[Namespace], object]:
    """Call a method of the handler with the waiting request."""
    return lambda at: getattr(at.controller.of("team"), name)(at.request, *given)


def gangs(call: Callable[[Controller, Gang, Gang], object]) -> Callable[[Namespace], object]:
    """Call a method of the gangs."""
    return lambda at: call(at.controller, at.gang, at.other)


CALLS: dict[str, Callable[[Namespace], object]] = {
    "withdraw": of("withdraw", LATER),
    "leave": of("leave", LATER, ANN, 1.0),
    "come_back": of("come_back", LATER),
    "prioritize": of("prioritize", 3, LATER),
    "force": lambda at: at.controller.of("team").force(at.new(), LATER),
    "reserve": lambda at: at.controller.of("team").reserve(Reservation("i", "team", Parts([(POD, 2)])), LATER),
    "draw": lambda at: at.controller.of("team").draw(Draw("d", at.gang, 0), LATER),
    "give_back": gangs(lambda engine, gang, _: engine.gangs_of("team").give_back(gang, LATER)),
    "appeared": gangs(lambda engine, gang, _: engine.gangs_of("team").appeared(gang, "u", POD, LATER)),
    "adopt": gangs(lambda engine, gang, _: engine.gangs_of("team").adopt(gang, "u", POD, LATER)),
    "resize": gangs(lambda engine, gang, _: engine.gangs_of("team").resize(gang, [1], LATER)),
    "absorb": gangs(lambda engine, gang, other: engine.gangs_of("team").absorb(gang, other, LATER)),
    "follow_members": gangs(lambda engine, *_: engine.gangs_of("team").follow_members(LATER, told=True)),
    "looked": gangs(lambda engine, *_: engine.gangs_of("team").looked(LATER, readable=True)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_call_moves_time_on(call: Callable[[Namespace], object]) -> None:
    """For all namespaces: what is told with an earlier time later on happens at the latest one."""
    at = Namespace()
    call(at)

    assert at.controller.of("other").force(Request("o", "other", POD), LATER - 1).sent == LATER


def test_no_call_moves_time_back() -> None:
    """A clock that is behind another thread's is no error."""
    at = Namespace()
    at.controller.advance(LATER + 1)

    assert [at.controller.of("team").force(at.new(name), LATER).sent for name in "bc"] == [LATER + 1] * 2


def test_a_namespace_has_one_handler_and_one_line_of_gangs() -> None:
    """They are made when they are asked for first."""
    controller = Controller()
    handler = controller.of("team")

    assert handler.gangs is None
    assert controller.gangs_of("team") is handler.gangs
    assert controller.of("team") is handler
    assert controller.names() == ["team"]


def test_a_handler_that_is_asked_for_before_any_time_is_forgotten_as_late_as_any_other() -> None:
    """Its first call tells the time."""
    controller = Controller(Policy(idle_ttl=100.0))
    controller.of("team").withdraw(Request("a", "team", POD), 5.0)
    controller.advance(5.0)

    assert (controller.names(), controller.next_deadline()) == (["team"], 105.0)
