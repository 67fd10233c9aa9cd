"""What ``Controller.advance`` returns for a request: a ticket, which admits it once, or a refusal, which ends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backoff_ctrl.engine.facts.ceilings import send
from backoff_ctrl.engine.facts.requests import REQUESTS, Request
from backoff_ctrl.engine.facts.shapes import NeverFits, Shape

from .errors import TicketError
from .overload import Window


class Ticket:
    """One admission: send the create now, then report how it ended with ``Controller.settle``, exactly once.

    From the start the ticket holds the amounts that its create will be charged.
    """

    __slots__ = ("ended", "facts", "probe", "request", "sent", "shape", "unproven", "window")

    def __init__(
        self, request: Request, shape: Shape, window: Window, sent: float, facts: int, probe: bool, unproven: bool
    ) -> None:
        """Admit the request at ``sent``, in its flow's overload ``window``.

        ``facts``: how many states of quotas had been seen. ``unproven``: no quota is known that would charge it.
        """
        request.state = REQUESTS[request.state]["admit"]
        window.in_flight += 1
        send(shape.meets)
        self.request = request
        self.shape = shape
        self.window = window
        self.sent = sent
        self.facts = facts
        self.probe = probe
        self.unproven = unproven
        self.ended: Literal["", "settled", "lapsed"] = ""  # lapsed: ended by the engine; its sender may still report

    def end_again(self) -> None:
        """Take another end of a ticket that has ended: too late if the engine gave it up, else a ``TicketError``."""
        if self.ended != "lapsed":
            raise TicketError(f"the ticket of request {self.request.id} was settled before")

    def __repr__(self) -> str:
        return f"Ticket({self.request.id!r}, sent={self.sent}{', probe' if self.probe else ''})"


RefusalReason = Literal[
    "never-fits", "too-many-waiting", "waited-too-long", "quotas-unreadable", "given-back", "place-taken"
]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The engine itself refuses a request, which is over: its create is not sent. ``detail`` is for people.

    ``never`` is why one never fits: quota, resource, and what is asked, used and limited in nano-units.
    """

    request: Request
    reason: RefusalReason
    detail: str
    never: NeverFits | None = None
