"""What becomes of creates that have to wait, told to whoever listens: values, and the telling of one create."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.quantities import format_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from backoff_ctrl.engine.explaining import Explanation
    from backoff_ctrl.engine.requests import Request
    from backoff_ctrl.engine.tickets import Refusal
    from backoff_ctrl.k8s.creates.creation import Creation

    from .ledger import Desk

log = logging.getLogger(__name__)

GRACE: Final = 1.0
"""Seconds that a create may wait before it is a story: short waits are how a full quota works."""
AGAIN: Final = 300.0
"""Seconds after which a create that still waits is told of again: less than a series of events lasts (6 min)."""
KNOWN_FOR: Final = 5.0
"""Seconds for which one create's reason stands for all others that ask the same amounts."""
ASKING: Final = 0.1
"""Seconds between two questions to the engine of one namespace: an answer costs it O(waiters) of that."""
REMEMBERED: Final = 256
"""Shapes whose reason is kept, and namespaces whose last question is."""

_NEVER: Final = re.compile(r"asks ([^=\s]+)=\S+, but quota (\S+) allows ")
_VERDICTS: Final = {
    "never-fits": ", and can never hold it",
    "paused": ", which stops everything",
    "kept-for-another": ", kept for one that has waited longer",
}


class Happening(StrEnum):
    """What is told. The values are the reasons of the events."""

    WAITS = "WaitingForQuota"
    NEVER_FITS = "NeverFits"
    ADMITTED = "Admitted"


@dataclass(frozen=True, slots=True)
class Owner:
    """The object that made what waits, as an ownerReference names it; ``uid`` is empty where nobody said it."""

    api_version: str
    kind: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """One thing that happened to one create. Stories of equal ``key`` are the same news again.

    ``note`` is asked at most once, when somebody wants to write it down: it may cost O(waiters).
    """

    happening: Happening
    namespace: str
    owner: Owner | None
    quota: str
    resource: str
    note: Callable[[], str]

    @property
    def key(self) -> tuple[str, ...]:
        """What it is about, as ``(namespace, owner's uid or kind and name, happening, quota, resource)``."""
        owner = self.owner
        who = ("", "", "") if owner is None else (owner.uid, owner.kind, owner.name)
        return (self.namespace, *who, self.happening, self.quota, self.resource)


def owner_of(body: Mapping[str, Any]) -> Owner | None:
    """Return the controller that a manifest names, else its first owner; what is no ownerReference is none."""
    metadata = body.get("metadata")
    listed = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    references = [each for each in listed if _is_reference(each)] if isinstance(listed, list) else []
    chosen = next(
        (each for each in references if each.get("controller") is True), references[0] if references else None
    )
    if chosen is None:
        return None
    uid = chosen.get("uid")
    return Owner(chosen["apiVersion"], chosen["kind"], chosen["name"], uid if isinstance(uid, str) else "")


def _is_reference(found: object) -> bool:
    return isinstance(found, dict) and all(
        isinstance(found.get(name), str) and found[name] for name in ("apiVersion", "kind", "name")
    )


class Listener:
    """``Desk.on_story``: passes stories to ``hear``, and asks the engine for reasons with measure.

    ``hear`` must not block. An error of ours or of ``hear`` is logged once and harms no create. Without a lock: a
    race costs one question more.
    """

    def __init__(self, hear: Callable[[Story], object]) -> None:
        """Begin with nothing known."""
        self._hear = hear
        self._failed = False
        self._known: dict[tuple[str, str], tuple[float, Explanation]] = {}
        self._asked: dict[str, float] = {}

    def __call__(self, story: Story) -> None:
        """Tell."""
        with self.unharmed():
            self._hear(story)

    @contextmanager
    def unharmed(self) -> Iterator[None]:
        """Let an error end the telling, not the create."""
        try:
            yield
        except Exception:
            if not self._failed:
                self._failed = True
                log.exception("telling what waits failed; creates are not concerned (logged once)")

    def reason(self, desk: Desk, request: Request) -> Explanation | None:
        """Say why a request waits, or why another did that asks the same; None: nobody knows now, ask later."""
        now = desk.timers.now()
        what = (request.namespace, request.demand.key)
        known = self._known.get(what)
        if known is not None and now - known[0] < KNOWN_FOR:
            return known[1]
        if now - self._asked.get(request.namespace, float("-inf")) < ASKING:
            return None
        if len(self._asked) >= REMEMBERED:
            self._asked.clear()
        self._asked[request.namespace] = now
        found = desk.explain(request)
        if found is not None and found.quota:  # what is no quota's doing passes soon, and may become one's
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[what] = (now, found)
        return found


class Tale:
    """What is told of one create that waits: that it does, once it has for a while, and that it got in."""

    def __init__(self, desk: Desk, listener: Listener, creation: Creation, began: float) -> None:
        """Prepare; ``waits`` begins."""
        self._desk = desk
        self._listener = listener
        self._creation = creation
        self._began = began
        self._request: Request | None = None
        self._told: Story | None = None
        self._pause = GRACE
        self._alarm: Callable[[], object] | None = None

    def waits(self, request: Request) -> None:
        """It stands in line, perhaps again."""
        with self._listener.unharmed():
            self._request = request
            if self._alarm is None:
                self._set_alarm(GRACE)

    def over(self, *, created: bool) -> None:
        """Nothing more will happen. That it was created is told only where it was told to wait."""
        with self._listener.unharmed():
            self._request = None
            if self._alarm is not None:
                self._alarm()
            told = self._told
            if told is None or not created:
                return
            seconds = self._desk.timers.now() - self._began
            waited = f"after waiting {seconds:.1f} s for {told.resource} of quota {told.quota}"
            note = f"{_label(self._creation)} was created {waited}"
            self._listener(replace(told, happening=Happening.ADMITTED, note=lambda: note))

    def _set_alarm(self, seconds: float) -> None:
        self._alarm = self._desk.timers.call_at(self._desk.timers.now() + seconds, self._look)

    def _look(self) -> None:
        with self._listener.unharmed():
            request = self._request
            if request is not None:
                self._look_at(request)

    def _look_at(self, request: Request) -> None:
        """Tell that it waits, if a quota is the reason; else look again later."""
        why = self._listener.reason(self._desk, request) if request.state == "waiting" else None
        if why is None or not why.quota:
            self._pause = min(2 * self._pause, AGAIN)
            self._set_alarm(self._pause)
            return
        self._told = self._story(request, why)
        self._listener(self._told)
        self._set_alarm(AGAIN)

    def _story(self, request: Request, why: Explanation) -> Story:
        happening = Happening.NEVER_FITS if why.reason == "never-fits" else Happening.WAITS
        label = _label(self._creation)

        def note() -> str:
            mine = self._desk.explain(request)
            return waiting_note(label, mine if mine is not None and mine.quota else why)

        owner = owner_of(self._creation.body)
        return Story(happening, self._creation.namespace, owner, why.quota, why.resource, note)


def tell_refusal(listener: Listener, creation: Creation, refusal: Refusal) -> None:
    """Tell that the engine refuses a create for good, if that is what it does."""
    if refusal.reason != "never-fits":
        return
    with listener.unharmed():
        named = _NEVER.match(refusal.detail)
        resource, quota = (named[1], named[2]) if named else (refusal.detail, "")
        note = f"{_label(creation)} was not created: it {refusal.detail}"
        owner = owner_of(creation.body)
        listener(Story(Happening.NEVER_FITS, creation.namespace, owner, quota, resource, lambda: note))


def waiting_note(label: str, why: Explanation) -> str:
    """Say what a create waits for, for people who read events."""
    binary = "memory" in why.resource or "storage" in why.resource
    amounts = (why.asked, max(0, why.left), why.limited)  # a probe under way holds more than there is
    asked, left, limited = (format_quantity(amount, binary=binary) for amount in amounts)
    room = f"quota {why.quota} has {left} of {limited} left{_VERDICTS.get(why.reason, '')}"
    return f"{label} waits: it asks {why.resource}={asked}, {room}; place {why.place} in line"


def _label(creation: Creation) -> str:
    metadata = creation.body.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = metadata.get("name") or f"{metadata.get('generateName') or ''}*"
    return f"{creation.resource} {name}"
