"""What a waiting create waits for, as data for people and programs: callbacks, errors, log lines, status. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from backoff_ctrl.engine.facts.quantities import quantity
from backoff_ctrl.engine.look.explaining import Explanation

SAME_KEY: Final = "same-key"
"""The reason of a create that waits for another one with its key."""
PASSING: Final = "its-turn"
"""The reason of a create that will be sent in a moment."""


SENTENCES: Final[Mapping[str, str]] = {
    "paused-by-operator": "an operator has paused the creates of its namespace",
    "first-contact": "its namespace is not known yet, so the first creates there are sent a few at a time",
    "overload": "the API server has asked for fewer requests",
    "namespace-slowed": "quota checks in its namespace conflict or time out, so creates there are slowed down",
    "not-counted-yet": "the quota controller has not counted this kind in its namespace yet",
    "comes-back": "its client was asked to send it again, and has not done so yet",
    PASSING: "it fits, and is sent as soon as those before it are",
    SAME_KEY: "another create with its key goes first",
}
"""Why a create waits for which no quota is the reason, as a sentence."""
_WORDS: Final = {"first-contact": "first requests to a namespace", "comes-back": "its client was asked to retry"}
"""Reasons whose codes are no words, for columns."""
LABEL_MAX: Final = 400
"""In characters: longer than any kind, namespace and name that the server accepts."""


def reason_words(reason: str) -> str:
    """Return a reason as people read it in a column; the API and logs of decisions have its code."""
    return _WORDS.get(reason) or reason.replace("-", " ")


def one_line(label: str) -> str:
    """Return a label as one line of plain text: a name is its creator's, and has not been checked by the server yet."""
    cut = label if len(label) <= LABEL_MAX else label[:LABEL_MAX] + "..."
    return cut if cut.isprintable() else ascii(cut)[1:-1]


@dataclass(frozen=True, slots=True)
class Wait:
    """One create that waits, and why.

    ``kind`` is the resource, ``pods`` or ``jobs.batch``. ``name`` ends with ``*`` where it is still to be drawn.
    ``reason``: ``quota``, ``paused`` (the quota's limit is 0), ``kept-for-another`` (the room is kept for one that
    waited longer), ``never-fits``, ``overload``, ``namespace-slowed``, ``not-counted-yet``, ``first-contact``,
    ``comes-back`` (its caller was asked to come again), ``same-key`` or ``its-turn``. Where a quota is the reason,
    ``quota`` and ``resource`` name it, else they are empty.
    ``asked``, ``left`` and ``limited`` are Quantities (``"1500m"``, ``"4Gi"``); ``*_nano`` are the same as integers of
    nano-units, and ``left_nano`` may be below 0. ``beside``: further resources of that quota without room, each with
    its amounts asked, left and limited in nano-units. ``place`` is 1 for the first in line. ``waited``: seconds since
    the create began.
    ``next_probe`` and ``estimate``: seconds from now, or None if unknown.
    """

    namespace: str
    kind: str
    name: str
    reason: str
    quota: str = ""
    resource: str = ""
    asked: str = "0"
    left: str = "0"
    limited: str = "0"
    asked_nano: int = 0
    left_nano: int = 0
    limited_nano: int = 0
    place: int = 1
    waited: float = 0.0
    next_probe: float | None = None
    estimate: float | None = None
    priority: int = 0
    server: str = ""
    beside: tuple[tuple[str, int, int, int], ...] = ()

    @property
    def label(self) -> str:
        return one_line(f"{self.kind} {self.namespace}/{self.name}")

    @property
    def why(self) -> str:
        if self.reason == SAME_KEY:
            return SENTENCES[SAME_KEY]
        if not self.quota:
            return f"{SENTENCES.get(self.reason, reason_words(self.reason))}; place {self.place} in line"
        amounts = f"asks {self.resource}={self.asked}, {self.left} left in quota {self.quota}"
        return f"{reason_words(self.reason)}: {amounts}; place {self.place} in line"


def wait_of(what: tuple[str, str, str], why: Explanation | None, *, reason: str = PASSING, **more: Any) -> Wait:
    """Describe what a create waits for. ``what`` is its namespace, kind and name. ``why`` is the engine's reason.

    None: the engine has no explanation, and ``reason`` is the reason. ``more``: the server, the priority, how long it
    has waited.
    """
    if why is None:
        return Wait(*what, reason, **more)
    return Wait(
        *what,
        why.reason,
        why.quota,
        why.resource,
        asked=quantity(why.asked, why.resource),
        left=quantity(max(0, why.left), why.resource),  # a probe in flight holds more than there is
        limited=quantity(why.limited, why.resource),
        asked_nano=why.asked,
        left_nano=why.left,
        limited_nano=why.limited,
        place=why.place,
        next_probe=why.next_probe,
        estimate=why.estimate,
        beside=why.beside,
        **more,
    )
