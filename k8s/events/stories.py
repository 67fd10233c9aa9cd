"""Reports on creates that have to wait, for Kubernetes events: when they wait long, are created, or never fit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from backoff_ctrl.engine.explaining import Explanation
from backoff_ctrl.engine.quantities import format_quantity
from backoff_ctrl.engine.requests import Request
from backoff_ctrl.engine.tickets import Refusal
from backoff_ctrl.k8s.creates.creation import Owner, owner_of
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.gate.unfinished import Unfinished

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


class Stories(Subscriber):
    """Passes stories to ``hear``, and limits how often the engine is asked for reasons. Subscribe it to its ledger.

    ``hear`` must not block. An error here or in ``hear`` is logged once and harms no create. There is no lock: a race
    costs one more question.
    """

    def __init__(self, ledger: Ledger, hear: Callable[[Story], object]) -> None:
        """``hear`` is called with each story, from any thread."""
        self.ledger = ledger
        self._hear = hear
        self._failed = False
        self._tales: dict[Unfinished, _Tale] = {}
        self._known: dict[tuple[str, str], tuple[float, Explanation]] = {}
        self._asked: dict[str, float] = {}

    def waits(self, create: Unfinished) -> None:
        """Report it, once it has waited for a while."""
        with self.unharmed():
            if create not in self._tales:
                self._tales[create] = _Tale(self, create)

    def declined(self, create: Unfinished, refusal: Refusal) -> None:
        """Report a create that the engine refuses because it can never fit."""
        if refusal.reason == "never-fits":
            quota, resource, *_ = refusal.never or ("", refusal.detail)
            note = f"{_label(create)} was not created: it {refusal.detail}. Lower the request or raise the quota."
            namespace, owner = create.creation.namespace, owner_of(create.creation.body)
            self.tell(Story(Happening.NEVER_FITS, namespace, owner, quota, resource, lambda: note))

    def ended(self, create: Unfinished) -> None:
        """Report that it was created, if its waiting was reported."""
        tale = self._tales.pop(create, None)
        if tale is not None:
            with self.unharmed():
                tale.over(created=create.answer is not None and create.answer.ok)

    def forked(self) -> None:
        """Forget the parent's creates."""
        self._tales = {}

    def tell(self, story: Story) -> None:
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

    def reason(self, request: Request) -> Explanation | None:
        """Say why a request waits, or why another with the same demand did; None: not known now, ask later."""
        now = self.ledger.now()
        what = (request.namespace, request.demand.key)
        known = self._known.get(what)
        if known is not None and now - known[0] < KNOWN_FOR:
            return known[1]
        if now - self._asked.get(request.namespace, float("-inf")) < ASKING:
            return None
        if len(self._asked) >= REMEMBERED:
            self._asked.clear()
        self._asked[request.namespace] = now
        found = self.ledger.explain(request)
        if found is not None and found.quota:  # other reasons pass soon, and a quota may follow
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[what] = (now, found)
        return found


class _Tale:
    """The reports on one create: that it waits, once it has for a while, and that it was created in the end."""

    __slots__ = ("_alarm", "_create", "_pause", "_stories", "_told")

    def __init__(self, stories: Stories, create: Unfinished) -> None:
        self._stories = stories
        self._create = create
        self._told: Story | None = None
        self._pause = GRACE
        self._set_alarm(GRACE)

    def over(self, *, created: bool) -> None:
        self._alarm()
        told = self._told
        if told is not None and created:
            waited = f"after waiting {self._create.seconds:.1f} s for {told.resource} in quota {told.quota}"
            note = f"{_label(self._create)} was created {waited}"
            self._stories.tell(replace(told, happening=Happening.ADMITTED, note=lambda: note))

    def _set_alarm(self, seconds: float) -> None:
        ledger = self._stories.ledger
        self._alarm = ledger.call_at(ledger.now() + seconds, self._look)

    def _look(self) -> None:
        """Report that it waits, if a quota is the reason; else look again later."""
        with self._stories.unharmed():
            request = self._create.request
            why = self._stories.reason(request) if request is not None and request.state == "waiting" else None
            if request is None or why is None or not why.quota:
                self._pause = min(2 * self._pause, AGAIN)
                self._set_alarm(self._pause)
                return
            self._told = self._story(request, why)
            self._stories.tell(self._told)
            self._set_alarm(AGAIN)

    def _story(self, request: Request, why: Explanation) -> Story:
        happening = Happening.NEVER_FITS if why.reason == "never-fits" else Happening.WAITS
        label, creation = _label(self._create), self._create.creation

        def note() -> str:
            mine = self._stories.ledger.explain(request)
            return waiting_note(label, mine if mine is not None and mine.quota else why)

        return Story(happening, creation.namespace, owner_of(creation.body), why.quota, why.resource, note)


def waiting_note(label: str, why: Explanation) -> str:
    """Return an event's note: what a create waits for, how much it requests and how much is left, what happens next."""
    binary = "memory" in why.resource or "storage" in why.resource
    amounts = (why.asked, max(0, why.left), why.limited)  # a probe in flight makes ``left`` negative
    asked, left, limited = (format_quantity(amount, binary=binary) for amount in amounts)
    cause = _WAITS.get(why.reason, _NO_ROOM).format(quota=why.quota, left=left, limited=limited)
    return f"{label} is waiting: it requests {why.resource}={asked}, {cause} (place {why.place} in line)."


def _label(create: Unfinished) -> str:
    return f"{create.creation.resource} {create.creation.name}"
