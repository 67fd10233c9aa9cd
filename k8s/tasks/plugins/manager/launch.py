"""One create in the background: it waits its turn at the gate, however long that takes, while steps continue.

An object that controllers make pods of is a gang: room for all of them is reserved with it, and again after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.facts.parts import Parts
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.clients.session_transport import CreateTransport
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.creates.actions import State as CreateState
from backoff_ctrl.k8s.gate.creates.creation import Creation, KeyReusedError
from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.gate.gangs import GangAsked, GangRefused, GangWait, gang_of
from backoff_ctrl.k8s.kube.answers.answer import (
    SERVER_LIMIT,
    Answer,
    GateClosed,
    NotSent,
    OutcomeUnknown,
    WaitedTooLong,
)
from backoff_ctrl.k8s.kube.answers.fields import metadata_of
from backoff_ctrl.k8s.kube.answers.objects import Object, object_of
from backoff_ctrl.k8s.kube.answers.rejections import rejection_of
from backoff_ctrl.k8s.kube.charges.parts import Part
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind
from backoff_ctrl.k8s.kube.operators.sections import format_duration
from backoff_ctrl.k8s.kube.pauses import Pauses
from backoff_ctrl.k8s.tasks.plugins.marks import Key, key_of
from backoff_ctrl.k8s.tasks.plugins.phases import (
    PLUGIN_FAILED,
    TIMED_OUT,
    PhaseInfo,
    failed,
    not_ready,
    system_failure,
    waiting,
)

from .outcomes import NEVER_FITS, UNREADABLE, Meaning, failure, failure_of, never_answered, taken

log = logging.getLogger(__name__)

PAUSE_FIRST: Final = 1.0
PAUSE_LONGEST: Final = 30.0
"""Seconds between two tries while the API server can't be reached, or the line is full; the first and the longest."""
LOOK_PAUSE: Final = 2.0
"""Seconds between two checks of an object that is in the way of a gang."""


class LaunchStopped(Exception):  # noqa: N818 - a wish, not a mistake
    """The create is no longer wanted: its task was aborted, its object exists already, or the manager ends."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A requested create; its key is the same in every process."""

    key: Key
    creation: Creation
    makes: Callable[[JSON], tuple[Part, ...]] = lambda _: ()
    """Returns what controllers will make of an object."""
    limit: float | None = None
    """Seconds without a new pod after which the reservation for the rest ends; None: the engine's default."""
    error_limit: timedelta = timedelta(0)
    """How long the API server may answer with errors until the create has failed; 0: for ever."""
    known: bool = False
    """Whether a watch would show an object with this key: then its name need not be looked up first."""


class Launch:
    """A create under way. At its end it has a ``made`` object or a ``failure``; neither: it was stopped.

    It keeps its place in line while it lives, and ends with the first final answer: a temporary problem is retried
    here, and costs the task no retry.
    """

    def __init__(self, asked: Asked, gate: AsyncGate, transport: CreateTransport, wake: Callable[[], object]) -> None:
        """Begin. ``wake`` is called when there is something new to report."""
        self.asked = asked
        self.name, self.label = asked.creation.name, asked.creation.label
        self.made: Object | None = None
        self.failure: PhaseInfo | None = None
        self.created = False
        """Whether this create made the object; else an earlier one did."""
        self.in_doubt = False
        """Whether a send was not answered: the object may be stored although the create has failed."""
        self.told: object = None
        """The last report of its wait, to recognise news."""
        self._gate = gate
        self._transport = transport
        self._wake = wake
        self._current: Create | None = None
        self._gang_wait: GangWait | None = None
        self._trouble = ""
        self._errors_since: float | None = None  # when the first of errors came that only a quota has interrupted
        self._stopped = False
        self._looked = False
        self._task = asyncio.create_task(self._run())

    # -- its state ---------

    @property
    def over(self) -> bool:
        return self._task.done() or self._final

    @property
    def _final(self) -> bool:
        return self.made is not None or self.failure is not None

    @property
    def sent(self) -> bool:
        """Whether it may be stored: it was sent at least once."""
        return self._current is not None and self._current.sends > 0

    def wait(self) -> Wait | None:
        """Return what it waits for in line; None: it does not wait."""
        create, gang = self._current, self._gang_wait
        if create is not None and create.waits:
            return create.wait()
        return gang.wait() if gang is not None and gang.waits else None

    def info(self, now: datetime, wait: Wait | None) -> PhaseInfo:
        """Return the phase of a create that is under way; ``wait``: what it waits for."""
        if wait is not None:
            next_try = None if wait.next_probe is None else now + timedelta(seconds=wait.next_probe)
            return waiting(f"{self.label} waits: {wait.why}", wait, next_try)
        if self._trouble:
            return not_ready(self._trouble)
        going = self._transport.going
        if going is not None:
            return not_ready(_in_the_way(self.label, going))
        return not_ready(f"{self.label} is being created")

    # -- from outside ---------

    async def stop(self) -> None:
        """End it, and wait until it can have no more effect: a sent create is answered first."""
        self._stopped = True
        create = self._current
        if create is not None and create.state in (CreateState.SENDING, CreateState.LOOKING):
            create.cancel(LaunchStopped("its task was aborted"))
        else:
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=SERVER_LIMIT)

    def adopt(self, found: Object) -> None:
        """Take an object with its key that a watch has shown, instead of waiting to create it.

        Not while it is creating the object itself: its own answer keeps the reservation for the pods of that object.
        """
        create = self._current
        stored = create is not None and create.answer is not None and create.answer.ok
        if self.over or stored or (create is not None and create.state is CreateState.SENDING):
            return
        self.made = found
        self._stopped = True
        self._task.cancel()

    # -- its course ---------

    async def _run(self) -> None:
        try:
            await self._until_final()
        except LaunchStopped:
            log.debug("%s: the create was stopped", self.label)
        except asyncio.CancelledError:
            self._take_late_answer()
            if not self._stopped:
                raise
        except Exception as error:
            log.exception("%s: an internal error ended the create", self.label)
            self.failure = system_failure(PLUGIN_FAILED, f"an internal error of the manager: {error!r}")
        finally:
            self._note_doubt()
            self._wake()

    def _take_late_answer(self) -> None:
        answer = None if self._current is None else self._current.answer
        if self.made is None and answer is not None and answer.ok:
            self.made, self.created = object_of(answer.json() or {}), not answer.made_here

    def _note_doubt(self) -> None:
        self.in_doubt = self.in_doubt or (self._current is not None and self._current.in_doubt)

    async def _until_final(self) -> None:
        pauses = Pauses(PAUSE_FIRST, PAUSE_LONGEST)
        while not self._final:
            pause = 0.0
            try:
                answer = await self._once()
            except (NotSent, OutcomeUnknown) as error:
                self._errors_since = None
                self._trouble = f"{self.label}: the API server can't be reached ({error}); it is retried"
            except KeyReusedError:
                await self._find_made()
                continue
            except WaitedTooLong as error:
                self.failure = failed(TIMED_OUT, str(error))
            except GangRefused as error:
                self.failure = _gang_refused(error)
                self._trouble = "" if self.failure is not None else f"{error}; it is retried"
            except GateClosed as error:
                self._trouble = str(error)
                return
            else:
                pause = self._judge(answer)
            if not self._final:
                self._note_doubt()
                self._wake()
                await pauses.after_failure(pause)

    def _judge(self, answer: Answer) -> float:
        """Take an answer; return the seconds that it asks to wait, if it is not final."""
        if answer.ok:
            self.made, self._trouble = object_of(answer.json() or {}), ""
            self.created = not answer.made_here
            return 0.0
        if not (answer.made_here and answer.status == 429):
            self.failure = failure_of(answer, self.label)
        rejection = rejection_of(answer)
        said = rejection.message or str(answer.status)
        self._trouble = f"{self.label}: {said}; it is retried"
        if answer.status < 500:
            self._errors_since = None
        elif self._has_failed_for_long():
            self.failure = self.failure or never_answered(self.label, format_duration(self.asked.error_limit), said)
        return rejection.retry_after or 0.0

    def _has_failed_for_long(self) -> bool:
        """Take note of an error of the server; return whether it has given only errors for too long."""
        now = asyncio.get_running_loop().time()
        if self._errors_since is None:
            self._errors_since = now
        limit = self.asked.error_limit.total_seconds()
        return limit > 0 and now - self._errors_since >= limit

    async def _once(self) -> Answer:
        """Wait in line and send, once; before a gang, look for an object in its way."""
        creation = self._creation()
        parts = await self._transport.weighed(self.asked.creation.body, creation.resource, self.asked.makes)
        gang = gang_to_create(creation, parts, self.asked.limit)
        if gang is None:
            return await self._create(creation)
        if not (self.asked.known or self._looked) or self.in_doubt:
            found = await self._look()
            if found is not None:
                return found
        return await self._create_whole(creation, gang)

    async def _create_whole(self, creation: Creation, gang: GangAsked) -> Answer:
        async with self._gate.gang(gang, self._transport, self._waits_whole) as admitted:
            self._gang_wait = None
            if self._stopped:
                raise LaunchStopped
            labelled = admitted.labelled(creation.resource, creation.body)
            answer = await self._create(replace(creation, gang=admitted, asked=creation.body, body=labelled))
            if not answer.ok:
                admitted.give_back()
            return answer

    def _waits_whole(self, wait: GangWait) -> None:
        self._gang_wait = wait
        self._trouble = ""
        asyncio.get_running_loop().call_soon(self._wake)

    async def _create(self, creation: Creation) -> Answer:
        self._current = create = Create(self._gate, creation)
        await self._gate.run(create, self._transport)
        return create.result()

    def _creation(self) -> Creation:
        creation = self.asked.creation
        if not self.asked.known or self.in_doubt or self._looked:
            return replace(creation, on_wait=self._waits)
        # A watch would show an object with this key: the name need not be looked up before the first send.
        named = creation.draw(random.Random(), self._gate.ledger.signature)
        return replace(creation, on_wait=self._waits, key=None, named=replace(named, keyed=False))

    def _waits(self, wait: Wait) -> None:
        self._trouble = ""
        if wait.quota:  # the server counts, and says that there is no room
            self._errors_since = None
        self._wake()

    # -- objects that exist ---------

    async def _look(self) -> Answer | None:
        """Return the answer to a create whose object exists, ours or another's; None: it does not exist. Waits out one
        that is being deleted.
        """
        while True:
            answer = await self._transport.look_up(self.name)
            self._looked = True
            read = answer.json() if answer.ok else None
            if read is None:
                return None
            found = object_of(read)
            if not found.is_going:
                break
            self._wake()
            await asyncio.sleep(LOOK_PAUSE * random.uniform(0.5, 1.0))
        if key_of(found) == self.asked.key:
            return Answer(201, answer.headers, answer.body, made_here=True)
        self.failure = taken(self.label)
        raise LaunchStopped

    async def _find_made(self) -> None:
        """Take over the object that an earlier process made, perhaps with another configuration."""
        answer = await self._transport.look_up(self.name)
        read = answer.json() if answer.ok else None
        found = None if read is None else object_of(read)
        if found is not None and key_of(found) == self.asked.key and not found.is_going:
            self.made = found
        elif found is not None and not found.is_going:
            self.failure = taken(self.label)
        self._wake()


def _gang_refused(error: GangRefused) -> PhaseInfo | None:
    """Return what a refused gang means; None: it is requested again."""
    if error.reason == "never-fits":
        return failure(Meaning(NEVER_FITS, advice="request less, or have the quota raised"), str(error))
    if error.reason == "quotas-unreadable":
        advice = "allow the manager's account to list and watch resourcequotas, or set gang_blind to one_by_one"
        return failure(Meaning(UNREADABLE, ErrorKind.SYSTEM, True, advice), str(error))
    if error.reason == "waited-too-long":
        return failed(TIMED_OUT, str(error))
    return None


def _in_the_way(label: str, going: JSON) -> str:
    finalizers: Any = metadata_of(going).get("finalizers") or ()
    held = f" (its finalizers: {', '.join(map(str, finalizers))})" if finalizers else ""
    return f"{label}: an object of this name is being deleted{held}; the create waits until it is gone"


def gang_to_create(creation: Creation, parts: tuple[Part, ...], limit: float | None) -> GangAsked | None:
    """Describe a create as a gang; None: no pods are made of its object, or only the cluster knows how many.

    ``limit``: seconds without a new pod after which the reservation for the rest ends.
    """
    if not _pods(parts):
        return None
    try:
        return gang_of(
            creation.namespace,
            [(creation.body, 1)],
            resource=creation.resource,
            name=creation.name,
            server=creation.server,
            credential=creation.credential,
            priority=creation.priority,
            timeout=creation.timeout,
            limit=limit,
            makes=lambda _manifest, _resource: parts,
        )
    except GangError as error:
        log.warning("%s is not admitted as a whole: %s", creation.label, error)
        return None


def gang_that_stands(
    namespace: str,
    resource: str,
    stored: Mapping[str, Any],
    made_of_it: tuple[Part, ...],
    *,
    server: str,
    priority: int,
    limit: float | None = None,
) -> GangAsked | None:
    """Describe what controllers may still make of a living object, after a restart; None: they make no more pods."""
    made = _pods(made_of_it)
    if not made:
        return None
    try:
        asked = Parts((part.demand, part.count or 1) for part in made)
    except GangError as error:
        log.warning("no room is reserved for further pods of %s in %s: %s", resource, namespace, error)
        return None
    return GangAsked(
        Creation(server, "", namespace, resource, dict(stored), priority),
        asked,
        limit,
        standing=True,
        pods_made=frozenset(range(len(made))),
        titles=tuple(f"the {part.kind}s of {part.made_by}" for part in made),
        made_from=stored,
    )


def _pods(parts: tuple[Part, ...]) -> list[Part]:
    """Return the pods that controllers make; empty if their number is not known."""
    made = [part for part in parts if not part.suspended and part.kind == "Pod"]
    return [] if any(part.count is None for part in made) else made
