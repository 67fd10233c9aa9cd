"""What a gate reports to whoever keeps its status: each step of a create that others want to know of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backoff_ctrl.engine.quotas import ObservedQuota
    from backoff_ctrl.engine.requests import Request
    from backoff_ctrl.engine.tickets import Refusal
    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.answers.rejections import Rejection
    from backoff_ctrl.k8s.creates.creation import Creation
    from backoff_ctrl.k8s.creates.wait import Wait

Verdict = Literal["create", "wait", "refuse"]


class Seen(Protocol):
    """A create as an observer sees it. ``noted`` is the observer's own, for what it remembers of this create."""

    creation: Creation
    answer: Answer | None
    error: BaseException | None
    noted: Any

    @property
    def waits(self) -> bool:
        """Whether it waits in line, or for another create with its key."""

    def wait(self) -> Wait:
        """Say what it waits for."""

    @property
    def request(self) -> Request | None:
        """Its request in the waiting line, or the last one it had there."""

    @property
    def create_id(self) -> str:
        """The id in its object's annotation; empty if it has none."""


class Observer(Protocol):
    """Is told what happens, by any thread. An error of its own is counted, and harms no create."""

    def begun(self, create: Seen) -> None:
        """It was asked for: in the thread, task and context of its caller."""

    def waits(self, create: Seen, request: Request) -> None:
        """It joined the line, perhaps again."""

    def admitted(self, create: Seen) -> None:
        """It left the line with a ticket."""

    def answered(self, create: Seen, answer: Answer, rejection: Rejection | None, *, probe: bool) -> None:
        """The server answered it; ``rejection`` is what a refusal says."""

    def declined(self, create: Seen, refusal: Refusal) -> None:
        """The engine will not admit it."""

    def ended(self, create: Seen) -> None:
        """It has its answer or its error."""

    def shadowed(self, namespace: str, verdict: Verdict) -> None:
        """Shadow mode sends a create; ``verdict`` is what enforce mode would have done with it."""

    def observed(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
        """A quota is reported as it is now."""

    def decided(self, seconds: float) -> None:
        """The engine took so long for one decision or piece of news."""

    def figures(self) -> Iterable[tuple[str, tuple[str, ...], float]]:
        """Return samples of its own for the metrics: name without prefix, labels, value."""
        return ()


class Unheeding(Observer):
    """Heeds nothing, for observers that heed some of it."""

    def begun(self, create: Seen) -> None: ...
    def waits(self, create: Seen, request: Request) -> None: ...
    def admitted(self, create: Seen) -> None: ...
    def answered(self, create: Seen, answer: Answer, rejection: Rejection | None, *, probe: bool) -> None: ...
    def declined(self, create: Seen, refusal: Refusal) -> None: ...
    def ended(self, create: Seen) -> None: ...
    def shadowed(self, namespace: str, verdict: Verdict) -> None: ...
    def observed(self, namespace: str, quota: str, seen: ObservedQuota) -> None: ...
    def decided(self, seconds: float) -> None: ...
