"""A request: one create's whole life in the engine, as a state machine written down as a table."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Literal, NamedTuple

from backoff_ctrl.engine.errors import TicketError

from .demand import Demand

RequestState = Literal["new", "waiting", "sent", "over"]
RequestEvent = Literal[
    "submit", "admit", "grant", "withdraw", "refuse",
    "created", "rejected", "overloaded", "failed", "abandoned", "expired",
]  # fmt: skip

REQUESTS: Final[dict[RequestState, dict[RequestEvent, RequestState]]] = {
    "new": {"submit": "waiting", "admit": "sent", "grant": "over", "refuse": "over"},
    "waiting": {
        "admit": "sent",
        "grant": "over",  # a whole gang was admitted: its members are drawn, each as a request of its own
        "withdraw": "over",
        "refuse": "over",
    },
    "sent": {
        "created": "over",
        "rejected": "waiting",  # back in line, at its old place
        "overloaded": "waiting",
        "failed": "over",
        "abandoned": "over",
        "expired": "over",
    },
    "over": {},
}
"""The state that each event leads to. The six events of ``sent`` end the request's ticket, exactly once."""


class Identity(NamedTuple):
    """By what a caller is recognised when it comes again: who asks, and for what. Both are opaque."""

    who: Hashable
    what: Hashable


class Request:
    """One create, over as many tickets as it takes.

    ``id`` is the caller's; ``priority`` an integer, higher first; ``flow`` names the overload window it is sent
    under (server, credential and priority level; an opaque text here). The engine sets all other fields.
    """

    __slots__ = (
        "demand", "flow", "id", "joined", "namespace", "overtaken", "overtaken_since", "priority", "rank", "row",
        "seq", "state",
    )  # fmt: skip

    passes_line = False  # it overtakes no request: it takes room of its own
    has_own_room = False  # no request overtakes it: its room is kept for it elsewhere
    row_mark = ""  # with whom it waits in one row, beside those of equal demand and priority; empty: of equal flow

    def __init__(self, id: str, namespace: str, demand: Demand, priority: int = 0, flow: str = "") -> None:  # noqa: A002
        """Describe the create; ``Controller.submit`` begins it."""
        self.id = id
        self.namespace = namespace
        self.demand = demand
        self.priority = priority
        self.flow = flow
        self.state: RequestState = "new"
        self.row: object = None  # the ``line.Row`` it waits in; None while it does not wait
        self.overtaken = 0

    overtaken_since: float  # when it was first overtaken
    joined: float  # when it was submitted
    rank: float  # orders the line, earliest first: ``joined`` less ``age_step`` per step of priority
    seq: int  # orders equal ranks

    def happens(self, event: RequestEvent) -> None:
        """Move to the state that the table gives. An event that it does not list is a caller's bug: ``TicketError``."""
        try:
            self.state = REQUESTS[self.state][event]
        except KeyError:
            raise TicketError(f"request {self.id} is {self.state}: {event!r} is not allowed in that state") from None

    def __repr__(self) -> str:
        return f"Request({self.id!r}, {self.namespace!r}, {self.state})"
