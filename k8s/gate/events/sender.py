"""Reports on creates that have to wait, and writes the reports as events to the API server, on the runtime.

A create is reported when it waits long, when it is created after that, and when it can never fit. No create waits for
this or fails because of it. If events are forbidden, that is logged once and tried again after 5 minutes. Events are
never gated (``calls.URGENT``): these calls do not pass through the gate at all.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.look.explaining import Explanation
from backoff_ctrl.engine.tickets import Refusal
from backoff_ctrl.k8s.gate.creates.creation import Owner, owner_of
from backoff_ctrl.k8s.gate.creates.wait import wait_of
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.runtime.host import LOADING, RUNTIME, Task, after_fork
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.gate.unfinished import Unfinished
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.paths import PathError, path_to

from .correlator import Ended, EventCorrelator, EventCounts, Limits, Reason, Report, Write, instance_name

log = logging.getLogger(__name__)

GRACE: Final = 1.0  # seconds that a create may wait before it is reported: short waits are normal under a full quota
AGAIN: Final = 300.0
"""Seconds between two reports of a create that still waits: less than a series of events lasts (6 min)."""
KNOWN_FOR: Final = 5.0
"""Seconds for which the reason found for one create is used for all others that ask the same amounts."""
ASKING: Final = 0.1  # seconds between two questions about one namespace: the engine's answer costs O(its waiters)
REMEMBERED: Final = 256  # shapes whose reason is kept, and namespaces whose last question is kept

_WAITS: Final = {
    "never-fits": "but quota {quota} allows only {limited} in total. It can be created only if the quota is raised",
    "paused": "but quota {quota} has a limit of {limited}, which pauses creates. It will be created when the quota is "
    "raised and has room",
    "kept-for-another": "but what is left in quota {quota} ({left} of {limited}) is kept for a request that has waited "
    "longer. It will be created when there is room",
}
_NO_ROOM: Final = "but quota {quota} has {left} of {limited} left. It will be created when there is room"
PATIENCE: Final = 10.0  # seconds after which a request without an answer is given up
LAST: Final = 1.0  # seconds for writing the remaining events at the end
TEXT_MAX: Final = 300  # bytes of an answer that are read: enough for an error message, however long the answer is
_LOGGED_MAX: Final = 20


@dataclass(slots=True, eq=False)
class _Waiting:
    """The last report on a waiting create, and the timer that looks at it again after ``pause`` seconds."""

    pause: float = GRACE
    reported: Report | None = None
    cancel: Callable[[], object] = field(init=False)


class Reporter(Subscriber):
    """Passes reports to ``report``, and limits how often the engine is asked for reasons. Subscribe it to its ledger.

    ``report`` is called from any thread and must not block. An error of it is logged once and harms no create. There is
    no lock: a race costs one more question.
    """

    def __init__(self, ledger: Ledger, report: Callable[[Report], object]) -> None:
        self.ledger = ledger
        self._report = report
        self._failed = False
        self._waiting: dict[Unfinished, _Waiting] = {}
        self._known: dict[tuple[str, str], tuple[float, Explanation]] = {}
        self._asked: dict[str, float] = {}

    def waits(self, create: Unfinished) -> None:
        if create not in self._waiting:
            waiting = _Waiting()
            self._look_in(self._until_late(create), create, waiting)
            self._waiting[create] = waiting

    def _until_late(self, create: Unfinished) -> float:  # noqa: ARG002 - of any
        """Return the seconds until a create that begins to wait has waited so long that it is reported."""
        return GRACE

    def _about(self, create: Unfinished) -> tuple[str, Owner | None]:
        """Return what an event about a create is about: a namespace, and an object there."""
        return create.creation.namespace, owner_of(create.creation.body)

    def _is_told(self, why: Explanation) -> bool:
        """Return whether this reason is reported: others pass soon."""
        return bool(why.quota)

    def declined(self, create: Unfinished, refusal: Refusal) -> None:
        """Report a create that the engine refuses because it can never fit."""
        if refusal.reason == "never-fits":
            quota, resource, *_ = refusal.never or ("", refusal.detail)
            note = f"{_label(create)} was not created: it {refusal.detail}. Lower the request or raise the quota."
            self._pass_on(Report(Reason.NEVER_FITS, *self._about(create), quota, resource, lambda: note))

    def ended(self, create: Unfinished) -> None:
        """Report that it was created, if its waiting was reported."""
        waiting = self._waiting.pop(create, None)
        if waiting is None:
            return
        waiting.cancel()
        reported, answer = waiting.reported, create.answer
        if reported is not None and answer is not None and answer.ok:
            what = f" for {reported.resource} in quota {reported.quota}" if reported.quota else ""
            waited = f"after waiting {create.seconds:.1f} s{what}"
            note = f"{_label(create)} was created {waited}"
            self._pass_on(replace(reported, reason=Reason.ADMITTED, note=lambda: note))

    def forked(self) -> None:
        self._waiting = {}

    def _look_in(self, seconds: float, create: Unfinished, waiting: _Waiting) -> None:
        waiting.cancel = self.ledger.call_at(self.ledger.now() + seconds, partial(self._look, create, waiting))

    def _look(self, create: Unfinished, waiting: _Waiting) -> None:
        """Report that it waits, if a quota is the reason; else look again later."""
        if create not in self._waiting:  # it ended a moment ago
            return
        request = create.request
        why = self._why(request) if request is not None and request.state == "waiting" else None
        if request is None or why is None or not self._is_told(why):
            waiting.pause = min(2 * waiting.pause, AGAIN)
            self._look_in(waiting.pause, create, waiting)
            return
        self._look_in(AGAIN, create, waiting)
        reason = Reason.NEVER_FITS if why.reason == "never-fits" else Reason.WAITS
        note = partial(self._note, _label(create), request, why)
        waiting.reported = Report(reason, *self._about(create), why.quota, why.resource, note)
        self._pass_on(waiting.reported)

    def _note(self, label: str, request: Request, why: Explanation) -> str:
        own = self.ledger.explain(request)
        return waiting_note(label, own if own is not None and own.quota else why)

    def _why(self, request: Request) -> Explanation | None:
        """Return why a request waits, or why another with the same demand did; None: not known now, ask later."""
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

    def _pass_on(self, report: Report) -> None:
        try:
            self._report(report)
        except Exception:
            if not self._failed:
                self._failed = True
                log.exception("reporting on waiting creates failed; the creates themselves continue (logged once)")


def waiting_note(label: str, why: Explanation) -> str:
    """Return an event's note: what a create waits for, how much it requests and how much is left, what happens next."""
    shown = wait_of(("", "", ""), why)
    if not why.quota:
        return f"{label} is waiting: {shown.why}."
    cause = _WAITS.get(why.reason, _NO_ROOM).format(quota=why.quota, left=shown.left, limited=shown.limited)
    return f"{label} is waiting: it requests {why.resource}={shown.asked}, {cause} (place {why.place} in line)."


def _label(create: Unfinished) -> str:
    return f"{create.creation.resource} {create.creation.name}"


class EventSender:
    """Takes reports from any thread and writes events. It begins to run with the first report.

    ``configuration``, from the sync or the asyncio client, has the server and the credentials.
    """

    def __init__(self, configuration: Any, *, limits: Limits | None = None) -> None:
        self._configuration = configuration
        self._limits = limits
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        instance = instance_name(socket.gethostname(), os.getpid())
        epoch = lambda: time.time() - time.monotonic()  # noqa: E731
        self._events = EventCorrelator(instance, epoch, random.Random(), self._limits)
        self._task: Task | None = None
        self._stopped = False
        self._logged: set[str] = set()

    @property
    def counts(self) -> EventCounts:
        return self._events.counts

    def report(self, report: Report) -> None:
        """Take in a report and return at once."""
        if self._stopped:
            return
        if self._task is None:
            with LOADING:  # the first of several threads
                if self._task is None:
                    self._task = RUNTIME.spawn(self._run, LAST)
        self._task.post(self._take, report)
        self._task.wake()

    def stop(self) -> None:
        """Take no more reports and return at once. What can be written within ``LAST`` seconds still is."""
        self._stopped = True
        if self._task is not None:
            self._task.stop()

    def finish(self) -> None:
        """Stop, and wait until the remaining events are written, at most ``2 * LAST`` seconds."""
        self.stop()
        if self._task is not None:
            self._task.join(2 * LAST)

    # -- on the runtime ---------

    def _take(self, report: Report) -> None:
        self._events.report(report, time.monotonic())

    async def _run(self, task: Task) -> None:
        try:
            async with ClusterSession(self._configuration, hooks_block=True) as session:
                while (write := await self._next(task)) is not None:
                    how, retry_after = await self._send(session, write)
                    self._events.ended(how, time.monotonic(), retry_after)
        except Exception:
            log.exception("an internal error ended the writing of Kubernetes events; creates continue")
            self._stopped = True

    async def _next(self, task: Task) -> Write | None:
        """Wait for the next write; None: it is time to end."""
        while True:
            now = time.monotonic()
            try:
                write = self._events.next(now)
            except Exception as error:  # noqa: BLE001 - a note failed: it concerns this event only
                self._log_once(logging.ERROR, "note", f"an internal error kept an event from being written: {error!r}")
                continue
            if write is not None or task.ending:
                return write
            due = self._events.next_due()
            await task.wait(None if due is None else max(0.0, due - now))

    async def _send(self, session: ClusterSession, write: Write) -> tuple[Ended, float]:
        """Do one write; return its result, and the server's Retry-After in seconds, or 0."""
        method, name, kind = "POST", None, "application/json"
        if write.verb == "patch":
            method, name, kind = "PATCH", write.name, "application/merge-patch+json"
        try:
            path = path_to("/apis/events.k8s.io/v1", "events", namespace=write.namespace, name=name)
            response = await session.request(
                method, path, headers={"Content-Type": kind}, body=write.body, timeout=PATIENCE
            )
            async with response:
                text = (await response.content.read(TEXT_MAX)).decode("utf-8", "replace")
        except PathError as error:
            self._log_once(logging.INFO, "path", f"could not write a Kubernetes event ({error})")
            return Ended.FAILED, 0.0
        except Exception as error:  # noqa: BLE001 - any error concerns this event only
            why = f"{type(error).__name__}: {error}"
            self._log_once(logging.INFO, why, f"could not write a Kubernetes event ({why})")
            return Ended.LATER, 0.0
        how = ended_by(write, response.status)
        if how is Ended.FORBIDDEN:
            text = f"not allowed to write Kubernetes events ({response.status}: {text}); trying again in 5 minutes"
            self._log_once(logging.WARNING, "forbidden", text)
        elif how is Ended.FAILED:
            said = f"the server rejected an event ({response.status}: {text})"
            self._log_once(logging.WARNING, f"failed {response.status}", said)
        asked = response.headers.get("Retry-After", "")
        return how, float(asked) if asked.isdecimal() else 0.0

    def _log_once(self, level: int, about: str, sentence: str) -> None:
        if about not in self._logged and len(self._logged) < _LOGGED_MAX:
            self._logged.add(about)
            log.log(level, "%s", sentence)


def ended_by(write: Write, status: int) -> Ended:
    """Return the result that the answer's HTTP status means for a write."""
    if 200 <= status < 300:
        return Ended.DONE
    if status == 409 and write.verb == "create":
        return Ended.DONE  # an earlier try succeeded and its answer was lost: the name is unique to this sender
    if status == 404 and write.verb == "patch":
        return Ended.GONE
    if status in (401, 403):
        return Ended.FORBIDDEN
    return Ended.LATER if status in (408, 409, 429) or status >= 500 else Ended.FAILED


class _Shared:
    def __init__(self, ledger: Ledger, configuration: Any) -> None:
        self.users = 0
        self.sender = EventSender(configuration)
        self.unsubscribe = ledger.subscribe(Reporter(ledger, self.sender.report))


_SHARED: weakref.WeakKeyDictionary[Ledger, _Shared] = weakref.WeakKeyDictionary()


def send_events(ledger: Ledger, configuration: Any) -> Callable[[], None]:
    """Write events about creates waiting at this ledger; return a function that ends it.

    Callers with the same ledger share a sender, with the first caller's credentials, until the last one ends it.
    """
    with LOADING:  # the first of several threads
        shared = _SHARED.get(ledger)
        if shared is None:
            shared = _SHARED[ledger] = _Shared(ledger, configuration)
        shared.users += 1

    def end() -> None:
        with LOADING:
            shared.users -= 1
            if shared.users:
                return
            _SHARED.pop(ledger, None)
        shared.unsubscribe()
        shared.sender.stop()

    return end
