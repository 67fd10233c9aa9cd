"""Wakes on news, as a property: an only creator that sees all ends never has more alive than the quota allows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine import Created, ObservedQuota, Ticket
from tests.kit.followed import Followed
from tests.kit.timeline import NS, QUOTA, amounts_of


class OnlyCreator:
    """A server whose quota controller counts from an old view, and an engine that alone creates there."""

    LIMIT = 4

    def __init__(self) -> None:
        self.line = Followed()
        self.sent: list[Ticket] = []
        self.charged: list[Ticket] = []
        self.alive: dict[str, None] = {}
        self.views = [0]  # pods alive, after each event of a pod so far
        self.view = 0  # up to which of these the controller has read
        self.used = 0
        for _ in range(40):
            self.line.submit(1)
        self.take_sent()

    def take_sent(self) -> None:
        """Note the creates that the engine has admitted."""
        known = {*self.sent, *self.charged}
        self.sent += [
            each for _, each in self.line.log if isinstance(each, Ticket) and not each.ended and each not in known
        ]

    def report(self, *, recounted: bool) -> None:
        """Report the quota."""
        four, by = amounts_of(self.LIMIT), frozenset({"cpu"} if recounted else ())
        self.line.controller.observe_quota(
            NS, QUOTA, ObservedQuota(four, four, amounts_of(self.used), recounted=by), self.line.now
        )

    def step(self, what: str, which: int) -> None:
        """Apply one random event, if it can be applied."""
        line = self.line
        if what == "charge" and self.sent:
            self.charged.append(ticket := self.sent.pop(which % len(self.sent)))
            self.used += 1
            self.alive[ticket.request.id] = None
            self.views.append(len(self.alive))
            self.report(recounted=False)
        elif what == "answer" and self.charged:
            ticket = self.charged.pop(which % len(self.charged))
            line.controller.settle(ticket, Created(stored=ticket.request.id), line.now)
        elif what == "end" and (over := [pod for pod in self.alive if self.is_answered(pod)]):
            pod = over[which % len(over)]
            del self.alive[pod]
            self.views.append(len(self.alive))
            line.controller.ended(NS, pod, line.now)
        elif what == "recount":
            self.view = min(len(self.views) - 1, self.view + which)
            self.used = self.views[self.view]
            self.report(recounted=True)
        line.later(0.003)
        self.take_sent()

    def is_answered(self, pod: str) -> bool:
        """Say whether its create was answered."""
        return all(ticket.request.id != pod for ticket in self.charged)


STEPS = st.lists(st.tuples(st.sampled_from(["charge", "answer", "end", "recount"]), st.integers(0, 9)), max_size=120)


@given(STEPS)
def test_an_only_creator_never_has_more_alive_and_in_flight_than_the_quota_allows(
    steps: list[tuple[str, int]],
) -> None:
    """However old the view that a recount is made from; and once all is counted, every create is stored."""
    world = OnlyCreator()
    for what, which in steps:
        world.step(what, which)
        assert len(world.alive) + len(world.sent) <= world.LIMIT

    for _ in range(60):
        for what in ("charge", "answer", "end"):
            world.step(what, 0)
        world.step("recount", 9)
    assert world.line.waiting() == 0
