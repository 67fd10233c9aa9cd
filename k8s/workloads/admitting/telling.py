"""What people see of objects that wait: an annotation, Kubernetes events, and documents for lists and pages.

The annotation is written where something has changed that a person would notice, at most every ten seconds for each
object, and at most ``RATE`` a second for all: each write also wakes the controllers that watch the kind.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final
from weakref import WeakKeyDictionary

from backoff_ctrl.engine.backoff import Bucket
from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.gate.creates.wait import Wait, one_line
from backoff_ctrl.k8s.gate.events.correlator import Reason, Report
from backoff_ctrl.k8s.gate.events.sender import EventSender
from backoff_ctrl.k8s.kube.cluster.objects import ClusterError, Objects

from .case import Case
from .kinds import WAITS_FOR
from .life import State
from .patches import waiting

log = logging.getLogger(__name__)

GRACE: Final = 2.0
"""Seconds for which an object may wait before people are notified."""
PAUSE: Final = 10.0
"""Seconds between two annotations of one object."""
EVENT_AGAIN: Final = 300.0
"""Seconds between two events about one object that still waits: less than a series of events lasts."""
RATE: Final = 20.0
BURST: Final = 50
"""Annotations a second for all objects together, and at once."""
AT_A_TIME: Final = 100
"""Objects that are looked at before the event loop gets a turn: each costs the engine a question."""
EXACT_PLACES: Final = 10
"""The place in line from which on only a move by a tenth is news."""
EVENTS: Final = {
    "admitted": Reason.ADMITTED,
    "never-fits": Reason.NEVER_FITS,
    "waits": Reason.WAITS,
    "min-parallelism": Reason.IGNORED,
    "priority": Reason.IGNORED,
    "suspended-again": Reason.SUSPENDED_AGAIN,
    "not-again": Reason.NOT_AGAIN,
    "too-large": Reason.TOO_LARGE,
}
"""Reasons that have events of their own; all others are notices."""


@dataclass(slots=True)
class _Last:
    """What was last written about an object. ``news``: what it waited for, as the annotation has it."""

    since: float
    news: object = None
    annotated: float = -math.inf
    event: float = -math.inf
    sentences: dict[str, str] = field(default_factory=dict)
    """The last one, by its reason."""


class Teller:
    """Tells people. Everything happens on the event loop of the one who admits."""

    def __init__(self, objects: Objects, sender: EventSender | None) -> None:
        self._objects = objects
        self._sender = sender
        self._bucket = Bucket(RATE, BURST)
        self._clock = asyncio.get_running_loop().time
        self._tell: WeakKeyDictionary[Case, _Last] = WeakKeyDictionary()
        self._forbidden: set[str] = set()  # kinds whose annotations may not be written
        self._tasks: set[asyncio.Task[None]] = set()

    def say(self, case: Case, reason: str, sentence: str) -> None:
        """Report what has become of an object, a sentence once until another one of its reason follows."""
        last = self._last(case)
        if reason == "admitted":
            if last.event > -math.inf:
                waited = self._clock() - last.since
                self._report(case, reason, f"{case.label} was let in after waiting {waited:.1f} s")
            del self._tell[case]
            return
        if last.sentences.get(reason) != sentence:
            last.sentences[reason] = sentence
            log.info("%s: %s", case.label, one_line(sentence))
            self._report(case, reason, f"{case.label}: {sentence}")

    async def look(self, cases: Iterable[Case]) -> None:
        """Tell of what waits now, where there is news: in turn by namespace, so that many of one delay no others."""
        for number, case in enumerate(in_turn(cases)):
            if number % AT_A_TIME == AT_A_TIME - 1:
                await asyncio.sleep(0)
            if case.state is State.WAITING or (case.state is State.REFUSED and case.refusal):
                self._look_at(case)

    async def aclose(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _look_at(self, case: Case) -> None:
        last, now = self._last(case), self._clock()
        if case.state is State.REFUSED:
            news: object = case.refusal
            if news != last.news and now - last.annotated >= PAUSE:
                self._annotate(case, last, news, {"reason": "refused", "message": case.refusal})
            return
        if now - last.since < GRACE or now - last.annotated < PAUSE:
            return
        wait = case.waits()
        if wait is None:
            return
        news = (wait.reason, wait.quota, wait.resource, _rough(wait.place))
        if news != last.news:
            self._annotate(case, last, news, document(wait))
        if wait.quota and now - last.event >= EVENT_AGAIN:
            last.event = now
            self._report(case, "waits", f"{case.label} waits: {wait.why}", wait)

    def _last(self, case: Case) -> _Last:
        found = self._tell.get(case)
        if found is None:
            found = self._tell[case] = _Last(self._clock())
        return found

    def _annotate(self, case: Case, last: _Last, news: object, wait_document: dict[str, Any]) -> None:
        now, written = self._clock(), json.dumps(wait_document)
        if case.kind.resource in self._forbidden or self._bucket.level(now) < 1:
            return
        last.news, last.annotated = news, now
        if case.subject.annotations.get(WAITS_FOR) == written:
            return
        self._bucket.take(now)
        task = asyncio.create_task(self._write(case, written))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, case: Case, written: str) -> None:
        try:
            await self._objects.patch(case.served, case.subject.body, waiting(written))
        except ClusterError as error:
            if error.status == 403 and case.kind.resource not in self._forbidden:
                self._forbidden.add(case.kind.resource)
                log.warning("no annotation says what objects wait for: %s", error)

    def _report(self, case: Case, reason: str, note: str, wait: Wait | None = None) -> None:
        if self._sender is None:
            return
        owner = Owner(case.kind.api_version, case.kind.kind, case.name, case.uid)
        quota, resource = ("", "") if wait is None else (wait.quota, wait.resource)
        kind = EVENTS.get(reason, Reason.NOTICE)
        self._sender.report(Report(kind, case.namespace, owner, quota, resource, lambda: note))


def document(wait: Wait) -> dict[str, Any]:
    """Return what an object waits for, as its annotation says it: ``estimate`` is in seconds."""
    wait_document = {
        "reason": wait.reason,
        "quota": wait.quota,
        "resource": wait.resource,
        "asked": wait.asked if wait.quota else "",
        "left": wait.left if wait.quota else "",
        "place": wait.place,
        "estimate": None if wait.estimate is None else math.ceil(wait.estimate),
    }
    return {key: value for key, value in wait_document.items() if value not in ("", None)}


def waiting_document(case: Case) -> dict[str, Any]:
    """Return an object that waits, for lists and pages."""
    wait = case.waits()
    about = {
        "kind": case.kind.kind,
        "resource": case.kind.resource,
        "namespace": case.namespace,
        "name": case.name,
        "uid": case.uid,
        "created": case.subject.created,
        "state": str(case.state),
    }
    if case.state is State.REFUSED:
        return {**about, "reason": "refused", "message": case.refusal}
    return about if wait is None else {**about, **document(wait), "waited": round(wait.waited, 1)}


def _rough(place: int) -> int:
    return place if place <= EXACT_PLACES else round(10 * math.log(place))


def in_turn(cases: Iterable[Case]) -> list[Case]:
    """Return them so that the first of each namespace come first, then the second of each, and so on."""
    by_namespace: dict[str, list[Case]] = {}
    for case in cases:
        by_namespace.setdefault(case.namespace, []).append(case)
    return [case for row in zip_longest(*by_namespace.values()) for case in row if case is not None]
