"""Outcomes: how a create ended, as reported to ``Controller.settle``. Each class is one way for a ticket to end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from .demand import Demand
from .requests import Identity, RequestEvent

Scope = Literal["flow", "namespace", "quota"]


class Outcome:
    """How a ticket ended; see the subclasses. ``event`` is the outcome's name in the table ``REQUESTS``."""

    __slots__ = ()
    event: ClassVar[RequestEvent]


class Created(Outcome):
    """The server stored the object. ``charged`` is what the stored object is charged, where the answer shows it.

    ``stored`` is the name under which ``Controller.ended`` will report its end; empty if no end will be reported.
    """

    __slots__ = ("charged", "stored")
    event: ClassVar[RequestEvent] = "created"

    def __init__(self, charged: Demand | None = None, stored: str = "") -> None:
        self.charged = charged
        self.stored = stored


class Rejected(Outcome):
    """A quota refused the create. Amounts are nano-units by resource.

    The server names only the first quota that the create violates, and of that only the exceeded resources.
    ``sent`` is when the refused create was really sent, if that was later than its ticket.
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
        self.quota = quota
        self.requested = requested
        self.used = used
        self.limited = limited
        self.sent = sent

    def shows(self) -> Literal["room", "full", "never"]:
        """Say what follows from the refusal's own figures. ``never``: even the empty quota is too small."""
        requested, used = self.requested, self.used
        found: Literal["room", "full"] = "room"
        for name, limited in self.limited.items():
            asked = requested.get(name, 0)
            if asked + used.get(name, limited) > limited:
                if asked > limited > 0:  # a limit of zero means paused
                    return "never"
                found = "full"
        return found


class Overloaded(Outcome):
    """No object was stored; the create has to be sent again later.

    ``scope`` says what is overloaded. ``"flow"``: the server, which asked for patience. ``"quota"``: the create lost
    a race to update a quota object. ``"namespace"``: anything else that concerns one namespace only, such as a failing
    webhook.
    """

    __slots__ = ("retry_after", "scope")
    event: ClassVar[RequestEvent] = "overloaded"

    def __init__(self, retry_after: float | None = None, scope: Scope = "flow") -> None:
        """Record the server's Retry-After in seconds, if it sent one, and what is overloaded."""
        self.retry_after = retry_after
        self.scope = scope


class Uncounted(Outcome):
    """No object was stored: a quota names what the create asks, and the quota controller has not counted that yet.

    Creates of other shapes go on. This one is sent again after a pause, or once news of a quota comes.
    """

    __slots__ = ()
    event: ClassVar[RequestEvent] = "overloaded"


class Failed(Outcome):
    """The server refused the create for good: no object was stored, and the request is over."""

    __slots__ = ()
    event: ClassVar[RequestEvent] = "failed"


class Abandoned(Outcome):
    """The caller gave up before the create was sent; the request is over.

    ``seat`` and ``retry_after`` as in ``Controller.withdraw``.
    """

    __slots__ = ("retry_after", "seat")
    event: ClassVar[RequestEvent] = "abandoned"

    def __init__(self, seat: Identity | None = None, retry_after: float = 0.0) -> None:
        """Record for whom the place in line is kept, if for anybody."""
        self.seat = seat
        self.retry_after = retry_after


class Expired(Outcome):
    """It stayed unknown whether the object was stored; the request is over."""

    __slots__ = ()
    event: ClassVar[RequestEvent] = "expired"
