"""Whether one create of a namespace may be sent now: by room, by pace, by the overload window.

This is the part of the handler that the scan of the line (``scanning``) and gangs (``gang_admission``) ask to send, to
refuse, and to scan the line again. It owns what a namespace knows and who waits there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from backoff_ctrl.engine.facts.quotas import Settling
from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.facts.roll import Place
from backoff_ctrl.engine.facts.shapes import NeverFits, Shape
from backoff_ctrl.engine.line.blocks import Block, Probing
from backoff_ctrl.engine.line.keeping import Keeping
from backoff_ctrl.engine.line.knowledge import Knowledge
from backoff_ctrl.engine.line.order import Line
from backoff_ctrl.engine.line.pace import Pace

from .backoff import FOREVER
from .overload import Window
from .shared import Shared
from .tickets import Refusal, RefusalReason, Ticket

NO_BLOCKS: Final[list[Block]] = []


class Admission(ABC):
    """The facts and the line of one namespace, and the decision about a single create.

    ``scan_due`` asks for a scan from the head of the line, ``resume`` for one from this place on. ``advance`` is due at
    ``wake_at``.
    """

    __slots__ = (
        "keeping",
        "knowledge",
        "line",
        "namespace",
        "pace",
        "policy",
        "probing",
        "resume",
        "scan_due",
        "settling",
        "shared",
        "wake_at",
    )

    def __init__(self, namespace: str, shared: Shared, *, observing: bool, ends_told: bool = False) -> None:
        """``observing``: changes of quotas are reported; ``ends_told``: ends of creates."""
        self.namespace = namespace
        self.policy = shared.policy
        self.shared = shared
        self.knowledge = Knowledge(observing=observing, ends_told=ends_told)
        self.line = Line(shared.policy.waiters_max)
        self.keeping = Keeping(self.policy)
        self.probing = Probing(namespace, self.knowledge, shared)
        self.settling = Settling()
        self.pace = Pace(self.policy, shared.rng)
        self.resume: Place | None = None
        self.scan_due = False
        self.wake_at = FOREVER

    @abstractmethod
    def advance(self, now: float) -> None:
        """Do all that is due by ``now``."""

    @abstractmethod
    def take_turn(self, window: Window, place: Place, now: float) -> None:
        """Send at most one create through ``window``, starting at the place that asked for the turn."""

    def number(self, request: Request, now: float) -> None:
        """Give a new request its place in the order of the namespace."""
        request.joined = now
        request.rank = now - request.priority * self.policy.age_step
        self.line.seq = request.seq = self.line.seq + 1

    def try_to_admit(  # noqa: C901, PLR0912 - written out: every create passes here
        self, request: Request, shape: Shape, now: float, blocks: list[Block] | None = None
    ) -> bool:
        """Admit the request if it may be sent now, as a probe if need be; say whether it was admitted.

        ``blocks``: those that it is to probe, or ``NO_BLOCKS``, where its room was weighed before.
        """
        knowledge = self.knowledge
        if shape.resend_at and now < shape.resend_at:
            self.probing.suspect_at = min(self.probing.suspect_at, shape.resend_at)
            return False
        if blocks is None:
            if self.keeping.kept and self.keeping.closes(shape, request):
                return False
            blocks = NO_BLOCKS
            for ceiling, amount in shape.meets:
                if amount > ceiling.room:
                    found = self.probing.ready_blocks(shape, now)
                    if found is None:
                        return False
                    blocks = found
                    break
        pace = self.pace
        unproven = not shape.meets and not knowledge.observing
        if unproven and pace.unproven >= pace.window:
            return False
        shared = self.shared
        window = shared.flows.get(request.flow) or shared.flow(request.flow)
        outstanding = knowledge.outstanding
        if (
            pace.brake is not None
            or pace.halted
            or window.turns
            or window.in_flight + 1 > window.size
            or now < window.not_before
        ) and not pace.allows(self, window, shared.contended, len(outstanding), (request.rank, request.seq), now):
            return False
        ticket = Ticket(request, shape, window, now, blocks is not NO_BLOCKS, unproven)
        for block in blocks:
            block.sends(ticket)
        if shape.resend_at:
            shape.resend_at = now + self.policy.ticket_max  # one at a time, until it is answered
        if not outstanding and self.wake_at > now + self.policy.ticket_max:
            shared.wake(self, now + self.policy.ticket_max)
        outstanding[ticket] = None
        if unproven:
            pace.unproven += 1
        shared.effects.append(ticket)
        if self.line.rows:
            self._overtake(ticket, now)
        return True

    def _overtake(self, ticket: Ticket, now: float) -> None:
        """Take an admitted request out of the line, and count whom it overtook.

        A probe overtakes no one: no room was known that it could have taken.
        """
        request = ticket.request
        if request.row is not None:
            self.line.dequeue(request)
        if (
            self.keeping.next_for
            and not ticket.probe
            and not request.passes_line
            and self.keeping.overtook(ticket.shape, request, now)
        ):
            self.rescan(now)

    def refuse(self, request: Request, reason: RefusalReason, detail: str, never: NeverFits | None = None) -> None:
        """End a request without sending it."""
        request.happens("refuse")
        if request.row is not None:
            self.line.dequeue(request)
        self.shared.effects.append(Refusal(request, reason, detail, never))

    def rescan(self, now: float) -> None:
        """Scan the line from its head at the next ``advance``."""
        self.scan_due = True
        if now < self.wake_at:
            self.shared.wake(self, now)
