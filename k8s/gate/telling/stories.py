"""Reports on creates that have to wait, for Kubernetes events: when they wait long, are created, or never fit."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from backoff_ctrl.engine.quantities import format_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from backoff_ctrl.engine.explaining import Explanation
    from backoff_ctrl.engine.requests import Request
    from backoff_ctrl.engine.tickets import Refusal
    from backoff_ctrl.k8s.creates.creation import Creation
    from backoff_ctrl.k8s.gate.timers import Timers

log = logging.getLogger(__name__)

GRACE: Final = 1.0
"""Seconds that a create may wait before it is reported: short waits are normal under a full quota."""
AGAIN: Final = 300.0
"""Seconds between two reports of a create that still waits: less than a series of events lasts (6 min)."""
KNOWN_FOR: Final = 5.0
"""Seconds for which the reason found for one create is used for all others that ask the same amounts."""
ASKING: Final = 0.1
"""Seconds between two questions about one namespace: the engine's answer costs O(its waiters)."""
REMEMBERED: Final = 256
"""Shapes whose reason is kept, and namespaces whose last question is kept."""

_WAITS: Final = {
    "never-fits": "but quota {quota} allows only {limited} in total. It can be created only if the quota is raised",
    "paused": "but quota {quota} has a limit of {limited}, which pauses creates. It will be created when the quota is "
    "raised and has room",
    "kept-for-another": "but what is left in quota {quota} ({left} of {limited}) is kept for a request that has waited "
    "longer. It will be created when there is room",
}
_NO_ROOM: Final = "but quota {quota} has {left} of {limited} left. It will be created when there is room"


class Happening(StrEnum):
    """What is reported. The values are the reasons of the events."""

    WAITS = "WaitingForQuota"
    NEVER_FITS = "NeverFits"
    ADMITTED = "Admitted"


@dataclass(frozen=True, slots=True)
class Owner:
    """The object that owns the waiting one, as an ownerReference names it; ``uid`` is empty if it is not given."""

    api_version: str
    kind: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """One report on one create. Stories of equal ``key`` repeat the same news.

    ``note`` is called, from any thread, when the text is to be written: it may cost O(waiters).
    """

    happening: Happening
    namespace: str
    owner: Owner | None
    quota: str
    resource: str
    note: Callable[[], str]

    @property
    def key(self) -> tuple[str, ...]:
        """The subject: ``(namespace, owner's uid, kind and name, happening, quota, resource)``."""
        owner = self.owner
        who = ("", "", "") if owner is None else (owner.uid, owner.kind, owner.name)
        return (self.namespace, *who, self.happening, self.quota, self.resource)


def owner_of(body: Mapping[str, Any]) -> Owner | None:
    """Return the controller that a manifest names, else its first owner. Malformed ownerReferences are skipped."""
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


class Explaining(Protocol):
    """What is asked of the ledger."""

    timers: Timers

    def explain(self, request: Request) -> Explanation | None:
        """Say why a request waits; None: it does not."""


class Listener:
    """``Ledger.on_story``: passes stories to ``hear``, and limits how often the engine is asked for reasons.

    ``hear`` must not block. An error here or in ``hear`` is logged once and harms no create. There is no lock: a race
    costs one more question.
    """

    def __init__(self, hear: Callable[[Story], object]) -> None:
        """``hear`` is called with each story, from any thread."""
        self._hear = hear
        self._failed = False
        self._known: dict[tuple[str, str], tuple[float, Explanation]] = {}
        self._asked: dict[str, float] = {}

    def __call__(self, story: Story) -> None:
        """Pass a story on."""
        with self.unharmed():
            self._hear(story)

    @contextmanager
    def unharmed(self) -> Iterator[None]:
        """Log an error (once) instead of raising it: the report is lost, the create goes on."""
        try:
            yield
        except Exception:
            if not self._failed:
                self._failed = True
                log.exception("reporting on waiting creates failed; the creates themselves go on (logged once)")

    def reason(self, ledger: Explaining, request: Request) -> Explanation | None:
        """Say why a request waits, or why another with the same demand did; None: not known now, ask later."""
        now = ledger.timers.now()
        what = (request.namespace, request.demand.key)
        known = self._known.get(what)
        if known is not None and now - known[0] < KNOWN_FOR:
            return known[1]
        if now - self._asked.get(request.namespace, float("-inf")) < ASKING:
            return None
        if len(self._asked) >= REMEMBERED:
            self._asked.clear()
        self._asked[request.namespace] = now
        found = ledger.explain(request)
        if found is not None and found.quota:  # other reasons pass soon, and a quota may follow
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[what] = (now, found)
        return found


class Tale:
    """The reports on one create: that it waits, once it has for a while, and that it was created in the end."""

    def __init__(self, ledger: Explaining, listener: Listener, creation: Creation, began: float) -> None:
        """Prepare. ``began`` is when the create began; nothing is reported before ``waits``."""
        self._ledger = ledger
        self._listener = listener
        self._creation = creation
        self._began = began
        self._request: Request | None = None
        self._told: Story | None = None
        self._pause = GRACE
        self._alarm: Callable[[], object] | None = None

    def waits(self, request: Request) -> None:
        """The create waits in line, perhaps again."""
        with self._listener.unharmed():
            self._request = request
            if self._alarm is None:
                self._set_alarm(GRACE)

    def over(self, *, created: bool) -> None:
        """The create has ended. Its creation is reported only if its waiting was."""
        with self._listener.unharmed():
            self._request = None
            if self._alarm is not None:
                self._alarm()
            told = self._told
            if told is None or not created:
                return
            seconds = self._ledger.timers.now() - self._began
            waited = f"after waiting {seconds:.1f} s for {told.resource} in quota {told.quota}"
            note = f"{_label(self._creation)} was created {waited}"
            self._listener(replace(told, happening=Happening.ADMITTED, note=lambda: note))

    def _set_alarm(self, seconds: float) -> None:
        self._alarm = self._ledger.timers.call_at(self._ledger.timers.now() + seconds, self._look)

    def _look(self) -> None:
        with self._listener.unharmed():
            request = self._request
            if request is not None:
                self._look_at(request)

    def _look_at(self, request: Request) -> None:
        """Report that it waits, if a quota is the reason; else look again later."""
        why = self._listener.reason(self._ledger, request) if request.state == "waiting" else None
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
            mine = self._ledger.explain(request)
            return waiting_note(label, mine if mine is not None and mine.quota else why)

        owner = owner_of(self._creation.body)
        return Story(happening, self._creation.namespace, owner, why.quota, why.resource, note)


def tell_refusal(listener: Listener, creation: Creation, refusal: Refusal) -> None:
    """Report a create that the engine refuses because it can never fit."""
    if refusal.reason != "never-fits":
        return
    with listener.unharmed():
        quota, resource, *_ = refusal.never or ("", refusal.detail)
        note = f"{_label(creation)} was not created: it {refusal.detail}. Lower the request or raise the quota."
        owner = owner_of(creation.body)
        listener(Story(Happening.NEVER_FITS, creation.namespace, owner, quota, resource, lambda: note))


def waiting_note(label: str, why: Explanation) -> str:
    """Return an event's note: what a create waits for, how much it requests and how much is left, what happens next."""
    binary = "memory" in why.resource or "storage" in why.resource
    amounts = (why.asked, max(0, why.left), why.limited)  # a probe in flight makes ``left`` negative
    asked, left, limited = (format_quantity(amount, binary=binary) for amount in amounts)
    cause = _WAITS.get(why.reason, _NO_ROOM).format(quota=why.quota, left=left, limited=limited)
    return f"{label} is waiting: it requests {why.resource}={asked}, {cause} (place {why.place} in line)."


def _label(creation: Creation) -> str:
    return f"{creation.resource} {creation.name}"
