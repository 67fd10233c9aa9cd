"""Those who look at an engine from outside: one follows the changes, another pages through the waiters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backoff_ctrl.engine import Controller, Request
    from backoff_ctrl.engine.look.explaining import NamespaceSnapshot
    from backoff_ctrl.engine.look.pages import Cursor


def timeless(shown: NamespaceSnapshot) -> NamespaceSnapshot:
    """Return a snapshot without what changes by time alone: ages, and times until something."""
    quotas = {
        name: {resource: replace(c, age=0.0, next_probe=None) for resource, c in ceilings.items()}
        for name, ceilings in shown.quotas.items()
    }
    brake = None if shown.brake is None else replace(shown.brake, closed_for=0.0)
    gangs = tuple(replace(gang, until=0.0) for gang in shown.gangs)
    return replace(shown, quotas=quotas, brake=brake, seats=0, oldest=None, gangs=gangs)


class Follower:
    """Keeps what it was told last of each namespace, without what changes by time alone."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.told: dict[str, NamespaceSnapshot] = {}
        self._upto = 0

    def catch_up(self, controller: Controller, now: float) -> None:
        """Ask for what has changed since the last time, one namespace after the other."""
        more = True
        while more:
            page = controller.changes(self._upto, 1, now)
            assert not page.lost
            self.told |= {name: timeless(shown) for name, shown in page.items.items()}
            for name in page.gone:
                del self.told[name]
            self._upto, more = page.upto, page.more


def waiting_by_pages(controller: Controller, now: float) -> list[Request]:
    """List the waiting requests as the pages show them, of which no two ask for as many."""
    after: Cursor | None = None
    shown: list[Request] = []
    while True:
        page = controller.waiting(after, 1 + len(shown) % 3, now)
        shown += [item.request for item in page.items]
        after = page.next
        if after is None:
            return shown
