"""What operators do to the line: halt a namespace and let it go on, move a waiting request forward or back."""

from __future__ import annotations

from abc import abstractmethod

from .handler import ComputeResourceAwareBackOffHandler as Handler
from .pages import Pages
from .requests import Request


class Operating(Pages):
    """The part of a controller that operators use. ``now`` is as everywhere."""

    _halted: dict[str, None]

    @abstractmethod
    def _handler(self, namespace: str) -> Handler:
        """Return the handler of a namespace that is about to change; the first time, make it."""

    def halt(self, namespace: str, now: float) -> None:
        """Admit no request of a namespace until ``resume``: they wait. Limits of waiting go on; ``force`` is not held.

        The halt holds for a namespace that is forgotten meanwhile, or not yet known.
        """
        now = self._clock(now)
        self._halted[namespace] = None
        self._handler(namespace).halt(now, halted=True)

    def resume(self, namespace: str, now: float) -> None:
        """End a halt: whoever fits is admitted, in order."""
        now = self._clock(now)
        if self._halted.pop(namespace, False) is None:
            self._handler(namespace).halt(now, halted=False)

    def is_halted(self, namespace: str) -> bool:
        """Say whether a namespace is halted."""
        return namespace in self._halted

    def halted(self) -> list[str]:
        """Return the halted namespaces."""
        return list(self._halted)

    def prioritize(self, request: Request, priority: int, now: float) -> bool:
        """Give a waiting request another priority, as if it had joined with it; False: it does not wait."""
        now = self._clock(now)
        if request.state != "waiting":
            return False
        self._handler(request.namespace).prioritize(request, priority, now)
        return True
