"""One quota of a namespace: its ceilings, which creates it applies to, and the states it was observed in."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .ceilings import Ceiling
from .demand import Selector
from .holds import Holds
from .outcomes import Rejected

HISTORY: Final = 16  # observed states kept to recognise a stale refusal; at 200 changes/s that is 80 ms
STALE_FOR: Final = 1.0  # seconds: no server still decides by a state that was replaced longer ago than this


@dataclass(frozen=True, slots=True)
class ObservedQuota:
    """A quota object as read or watched: nano-units by resource.

    ``spec`` is what its owner asks for (it settles never-fits), ``hard`` what is enforced now, ``used`` what is
    charged; ``selector`` says which scope classes it applies to. ``recounted`` are the resources whose ``used`` was
    last changed by the quota controller's recount rather than by a charge, where the object shows that.
    """

    spec: Mapping[str, int]
    hard: Mapping[str, int]
    used: Mapping[str, int]
    selector: Selector = field(default_factory=Selector)
    recounted: frozenset[str] = frozenset()


class Quota:
    """What is known of one quota. ``classes`` are the scope classes that it was found to apply to, or not to."""

    __slots__ = ("ceilings", "classes", "history", "holds", "name", "observed", "selector", "spec", "stale")

    def __init__(self, name: str) -> None:
        """Start with the name only: no ceiling is known."""
        self.name = name
        self.ceilings: dict[str, Ceiling] = {}
        self.classes: dict[frozenset[str], bool] = {}
        self.selector: Selector | None = None
        self.spec: Mapping[str, int] = {}
        self.observed = False
        self.history: deque[tuple[float, dict[str, tuple[int, int]]]] = deque(maxlen=HISTORY)
        self.holds = Holds()
        self.stale = 0  # refusals by a state that was older than ours

    def applies(self, scopes: frozenset[str]) -> bool | None:
        """Say whether creates of this scope class are charged here; None while that is unknown."""
        if self.selector is None or self.classes.get(scopes):  # a refusal proves yes, whatever the spec says
            return self.classes.get(scopes)
        return self.selector.applies(scopes)

    def note_history(self, now: float) -> None:
        """Keep the state that is replaced at ``now``, so that a later refusal by it is recognised as stale."""
        self.history.append((now, {name: (c.seen, c.limited) for name, c in self.ceilings.items()}))

    def stale_since(self, rejected: Rejected, sent: float) -> float | None:
        """Return when the state that this refusal speaks of was last replaced, if the refusal is stale.

        None: it speaks of the present state, or of one that was not replaced shortly before the create was ``sent``.
        """
        named = {name: (used, rejected.limited.get(name)) for name, used in rejected.used.items()}
        now = {name: (c.seen, c.limited) for name, c in self.ceilings.items()}
        if not named or all(now.get(name) == state for name, state in named.items()):
            return None
        for replaced, old in reversed(self.history):
            if all(old.get(name) == state for name, state in named.items()):
                return replaced if sent <= replaced + STALE_FOR else None
        return None
