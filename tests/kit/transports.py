"""Transports for tests of the gate: a server that stores everything, unless the test says otherwise; and a create."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.kube.answers.answer import Answer, status_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ABSENT: Final = status_answer(404, "NotFound", "not found", {})
INVALID: Final = status_answer(422, "Invalid", "spec: Required value", {})
FULL: Final = status_answer(
    403,
    "Forbidden",
    'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1',
    {},
)
POD: Final[dict[str, Any]] = {
    "kind": "Pod",
    "metadata": {"generateName": "p-"},
    "spec": {"containers": [{"name": "c"}]},
}


def stored(body: dict[str, Any]) -> Answer:
    """Return the answer to a create that was stored."""
    return Answer(201, {}, json.dumps(body).encode())


def creation(body: dict[str, Any] = POD, *, namespace: str = "team", **options: Any) -> Creation:
    """Ask for a pod."""
    return Creation("https://s", "me", namespace, "pods", body, **options)


class Transport:
    """A transport for threads. ``answer``: what a create is answered."""

    def __init__(self, answer: Callable[[dict[str, Any]], Answer] = stored) -> None:
        self.answer = answer
        self.sent: list[dict[str, Any]] = []

    def send(self, body: dict[str, Any]) -> Answer:
        """POST."""
        self.sent.append(body)
        return self.answer(body)

    def look_up(self, _: str) -> Answer:
        """GET."""
        return ABSENT


class AsyncTransport:
    """The same for asyncio. ``before``: what is awaited before a create is answered."""

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], Answer] = stored,
        before: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.answer = answer
        self.sent: list[dict[str, Any]] = []
        self._before = before

    async def send(self, body: dict[str, Any]) -> Answer:
        """POST."""
        self.sent.append(body)
        if self._before is not None:
            await self._before()
        return self.answer(body)

    async def look_up(self, _: str) -> Answer:
        """GET."""
        return ABSENT
