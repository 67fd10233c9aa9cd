"""A namespace with a watched quota and watched pod ends: the starting point of tests of live pods and doubted room."""

from __future__ import annotations

from backoff_ctrl.engine import Created, ObservedQuota, Ticket
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, amounts_of, tickets

SETTLED = 0.0025


class Followed(Timeline):
    """A watched namespace with a quota of four CPUs; ends are reported if ``told``. Creates are named a, b, c, ..."""

    def __init__(self, *, told: bool = True) -> None:
        super().__init__()
        self.observe(0, 4)
        self.watching()
        if told:
            self.controller.ends_told(NS, self.now, told=True)
        self.advance()

    def create(self, *names: str, cpu: float = 1) -> None:
        """Have creates of these names sent and answered; their charges have been observed."""
        used = self.cpu().used
        sent = [self.ticket_of(self.submit(cpu)) for _ in names]
        self.observe((used + sum(ticket.request.demand.amounts["cpu"] for ticket in sent)) / ONE, 4)
        for ticket, name in zip(sent, names, strict=True):
            self.settle(ticket, Created(stored=name))

    def fill(self, *, answered_after: float) -> None:
        """Have a, b, c and d answered this many seconds after they were sent, while others wait."""
        sent = [self.ticket_of(self.submit(1)) for _ in range(4)]
        self.wait_in_line()
        self.later(answered_after)
        self.observe(4, 4)
        for ticket, name in zip(sent, "abcd", strict=True):
            self.settle(ticket, Created(stored=name))

    def wait_in_line(self, waiters: int = 5) -> None:
        """Submit requests, all of which have to wait."""
        self.crowd(waiters)
        assert self.waiting() == waiters

    def count_again(self, used: float) -> list[Ticket]:
        """Observe a recount and let it settle; return the tickets that follow."""
        four, by = amounts_of(4), frozenset({"cpu"})
        seen = ObservedQuota(four, four, amounts_of(used), recounted=by)
        self.controller.observe_quota(NS, QUOTA, seen, self.now)
        return [*tickets(self.advance()), *tickets(self.later(SETTLED))]

    def end(self, name: str) -> list[Ticket]:
        """Report the end of a create; return the tickets that follow."""
        self.controller.ended(NS, name, self.now)
        return tickets(self.advance())


def full(*, told: bool = True) -> Followed:
    """Return a namespace whose quota is full with a, b, c and d, and five waiting requests."""
    line = Followed(told=told)
    line.create("a", "b", "c", "d")
    line.wait_in_line()
    return line
