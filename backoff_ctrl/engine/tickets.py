"""A request's life and the tickets it is given: a state machine as a table, and the outcomes that end a ticket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from .errors import TicketError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .demand import Demand
    from .line import Row, Shape

RequestState = Literal["new", "waiting", "sent", "over"]
RequestEvent = Literal[
    "submit", "admit", "withdraw", "refuse",
    "created", "rejected", "overloaded", "failed", "abandoned", "expired",
]  # fmt: skip
Scope = Literal["flow", "namespace", "quota"]

REQUESTS: Final[dict[RequestState, dict[RequestEvent, RequestState]]] = {
    "new": {"submit": "waiting", "admit": "sent", "refuse": "over"},
    "waiting": {"admit": "sent", "withdraw": "over", "refuse": "over"},
    "sent": {
        "created": "over",
        "rejected": "waiting",  # back in line, in its old place
        "overloaded": "waiting",
        "failed": "over",
        "abandoned": "over",
        "expired": "over",
    },
    "over": {},
}
"""What each event makes of a request. Its ticket ends with the six events of ``sent``, exactly once."""


class Request:
    """One create that wants in: the handle of its whole life, over as many tickets as it takes.

    ``id`` is the caller's; ``priority`` an integer, higher first; ``flow`` names the overload window it is sent
    under (server, credential and priority level, opaque here). The other fields are the engine's.
    """

    __slots__ = (
        "demand", "flow", "id", "joined", "namespace", "overtaken", "overtaken_since", "priority", "rank", "row",
        "seq", "state",
    )  # fmt: skip

    def __init__(self, id: str, namespace: str, demand: Demand, priority: int = 0, flow: str = "") -> None:  # noqa: A002
        """Describe the create; nothing happens before ``Controller.submit``."""
        self.id = id
        self.namespace = namespace
        self.demand = demand
        self.priority = priority
        self.flow = flow
        self.state: RequestState = "new"
        self.row: Row | None = None
        self.overtaken = 0

    overtaken_since: float  # when it was first overtaken
    joined: float  # when it was submitted
    rank: float  # its place in line: earlier is first; joined, less age_step per step of priority
    seq: int

    def happens(self, event: RequestEvent) -> None:
        """Take one step of the table; a step it does not list is the caller's bug: ``TicketError``."""
        try:
            self.state = REQUESTS[self.state][event]
        except KeyError:
            raise TicketError(f"request {self.id} is {self.state}: it cannot be {event}") from None

    def __repr__(self) -> str:
        """Show who it is."""
        return f"Request({self.id!r}, {self.namespace!r}, {self.state})"


class Ticket:
    """One admission: an effect of ``Controller.advance``, ended once by ``Controller.settle``.

    From the start it holds what its create will be charged.
    """

    __slots__ = ("ended", "probe", "request", "sent", "shape", "unproven")

    def __init__(self, request: Request, shape: Shape, sent: float, probe: bool, unproven: bool) -> None:
        """Admit the request at ``sent``."""
        request.state = REQUESTS[request.state]["admit"]
        for ceiling, amount in shape.meets:
            ceiling.held += amount
            ceiling.room -= amount
        self.request = request
        self.shape = shape
        self.sent = sent
        self.probe = probe
        self.unproven = unproven
        self.ended: Literal["", "settled", "lapsed"] = ""  # lapsed: by the engine; its sender may still report

    def __repr__(self) -> str:
        """Show what was admitted."""
        return f"Ticket({self.request.id!r}, sent={self.sent}{', probe' if self.probe else ''})"


RefusalReason = Literal["never-fits", "too-many-waiting", "waited-too-long"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The engine's own no: an effect of ``Controller.advance``; the request is over."""

    request: Request
    reason: RefusalReason
    detail: str


class Outcome:
    """How a ticket ended; see the subclasses."""

    __slots__ = ()
    event: ClassVar[RequestEvent]


class Created(Outcome):
    """The server stored it. ``charged`` is what the stored object is charged, where the answer tells.

    ``stored`` is the name that its end is told by (``Controller.ended``); empty where it is not.
    """

    __slots__ = ("charged", "stored")
    event: ClassVar[RequestEvent] = "created"

    def __init__(self, charged: Demand | None = None, stored: str = "") -> None:
        """Keep what the answer tells."""
        self.charged = charged
        self.stored = stored


class Rejected(Outcome):
    """A quota refused it: nano-units by resource, only the exceeded ones of the first quota it violated.

    ``sent`` is when the refused request was really sent, if later than its ticket.
    """

    __slots__ = ("limited", "quota", "requested", "sent", "used")
    event: ClassVar[RequestEvent] = "rejected"

    def __init__(
        self,
        quota: str,
        requested: Mapping[str, int],
        used: Mapping[str, int],
        limited: Mapping[str, int],
        sent: float | None = None,
    ) -> None:
        """Keep what the refusal says."""
        self.quota = quota
        self.requested = requested
        self.used = used
        self.limited = limited
        self.sent = sent

    def shows_full(self) -> bool:
        """Say whether its figures are those of a full quota."""
        asked, used = self.requested, self.used
        for name, limited in self.limited.items():  # noqa: SIM110 - on the hot path, where a generator costs 0.5 us
            if asked.get(name, 0) + used.get(name, limited) > limited:
                return True
        return False


class Overloaded(Outcome):
    """Patience was asked for, and nothing stored: by the server (``scope="flow"``), or by what is this namespace's own.

    ``"quota"``: the create raced for a quota's object and lost. ``"namespace"``: all else, as webhooks that fail.
    """

    __slots__ = ("retry_after", "scope")
    event: ClassVar[RequestEvent] = "overloaded"

    def __init__(self, retry_after: float | None = None, scope: Scope = "flow") -> None:
        """Keep the server's Retry-After, in seconds, where it sent one."""
        self.retry_after = retry_after
        self.scope = scope


class Failed(Outcome):
    """A permanent answer; nothing stored, the request is over."""

    __slots__ = ()
    event: ClassVar[RequestEvent] = "failed"


class Abandoned(Outcome):
    """Never sent, by the caller's wish; the request is over."""

    __slots__ = ()
    event: ClassVar[RequestEvent] = "abandoned"


class Expired(Outcome):
    """Whether it was stored stayed unknown; the request is over."""

    __slots__ = ()
    event: ClassVar[RequestEvent] = "expired"
