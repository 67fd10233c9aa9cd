"""One create on its way, as everybody but its own life sees it."""

from __future__ import annotations

import random

from backoff_ctrl.k8s.gate.creates.actions import Call, Raise, Return, State
from backoff_ctrl.k8s.gate.creates.conversation import Conversation
from backoff_ctrl.k8s.gate.creates.creation import Creation, Mode
from backoff_ctrl.k8s.gate.creates.naming import Named, identify
from backoff_ctrl.k8s.gate.creates.ungated import Ungated
from backoff_ctrl.k8s.gate.creates.wait import PASSING, SAME_KEY, Wait, wait_of
from backoff_ctrl.k8s.kube.answers.answer import Answer, GateClosed
from backoff_ctrl.k8s.kube.answers.rejections import Rejection

from .any_gate import AnyGate
from .unfinished import Unfinished


class Create(Unfinished):
    """One create, from the moment it was asked for. Any thread may look at it; ``life`` alone changes it.

    ``machine`` decides what it does. One that waits for its first turn has no machine yet, nor a name: that takes a
    third of the memory of a crowd. ``in_doubt``: a send was not answered, so the object may be stored.
    """

    __slots__ = (
        "awaiting", "digits", "ending", "failures", "follows", "heard_a_list", "in_doubt", "ledger", "machine", "mode",
        "timed", "waited",
    )  # fmt: skip

    def __init__(self, gate: AnyGate, creation: Creation) -> None:
        self.ledger = ledger = gate.ledger
        Unfinished.__init__(self, creation, gate, ledger.now())
        self.mode: Mode = "off"
        self.digits = 0  # what its name and id are drawn from, once its life has begun
        self.machine: Conversation | Ungated | None = None
        self.awaiting: Call | None = None  # handed to the transport, and not answered yet
        self.ending: Return | Raise | None = None  # how it ends, as far as its life is concerned
        self.in_doubt = False
        self.timed = False  # it has waited, so that its time limit counts
        self.heard_a_list = False  # the quotas were listed for it, or while it waited
        self.waited = False  # it has stood in line
        self.failures = 0  # errors of ours
        self.follows = False

    def converse(self, rng: random.Random) -> Conversation:
        """Begin to decide what it does, under the name that its digits give. ``rng``: of the pauses."""
        ledger = self.ledger
        self.machine = machine = Conversation(self.creation, rng, ledger.signature, ledger.denials, self.digits)
        return machine

    # -- as others see it ---------

    @property
    def state(self) -> State:
        if self.machine is not None:
            return self.machine.state
        return State.NEW if self.request is None else State.LINE

    @property
    def sends(self) -> int:
        return 0 if self.machine is None else self.machine.sends

    @property
    def named(self) -> Named | None:
        """Its name and id, as far as they are drawn."""
        return None if self.machine is None else self.machine.named

    @property
    def create_id(self) -> str:
        named = self.creation.named if self.machine is None else self.machine.named
        if named is not None:
            return named.create_id
        if self.machine is not None or self.mode != "enforce":
            return ""
        return identify(self.creation.body, self.digits, self.ledger.signature)[0]

    @property
    def rejection(self) -> Rejection | None:
        return None if self.machine is None else self.machine.rejection

    def refusal(self, wait: Wait | None) -> Answer | None:
        """Return the refusal by the quota that it waits for, as the server gave it or would give it, or None."""
        return self.machine.refusal(wait) if isinstance(self.machine, Conversation) else None

    @property
    def label(self) -> str:
        return self.creation.label

    @property
    def seconds(self) -> float:
        return self.ledger.now() - self.began

    @property
    def late(self) -> bool:
        return self.until is not None and self.ledger.now() >= self.until

    @property
    def waits(self) -> bool:
        return not self.over and (self.follows or self.state is State.LINE)

    def wait(self) -> Wait:
        creation = self.creation
        return wait_of(
            (creation.namespace, creation.resource, creation.name),
            None if self.request is None else self.ledger.explain(self.request),
            reason=SAME_KEY if self.follows else PASSING,
            waited=self.seconds,
            priority=creation.priority,
            server=creation.server,
        )

    def describe(self) -> str:
        line = f"{self.label}: {self.state}, {self.seconds:.1f} s after it began"
        return f"{line} ({self.wait().why})" if self.waits else line

    def leave(self) -> bool:
        """Let it wait on unsent: its caller was asked to come again. False: it does not wait in line."""
        return self.ledger.line.leave(self)

    def come_back(self) -> None:
        """Let it be sent when its turn comes: its caller is there again."""
        self.ledger.line.come_back(self)

    def cancel(self, error: BaseException) -> None:
        self.gate = None
        self.ledger.line.stop([(self, error)], keep_seats=not self.away)  # its caller may come again

    def result(self) -> Answer:
        if self.answer is None:
            raise self.error or GateClosed(f"{self.label} ended without an answer")
        return self.answer
