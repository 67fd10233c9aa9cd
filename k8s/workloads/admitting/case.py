"""One object from when it is first seen until it is gone: its place in line, its patch, and its end.

``step`` looks into the table of ``life`` and does what it says. What takes time runs in one task of the object's own:
first its wait in line and its patch, later its growth. What is asked of the line and reserved for it is its ``Room``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.k8s.gate.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.gate.gangs import GangRefused
from backoff_ctrl.k8s.kube.answers.fields import FieldError, metadata_of, text
from backoff_ctrl.k8s.kube.charges.live import is_released
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.kube.cluster.objects import ClusterError
from backoff_ctrl.k8s.kube.pauses import Pauses
from backoff_ctrl.k8s.kube.watching.objects import WatchAbsentError, WatchBrokenError, WatchForbiddenError

from .again import SuspendedAgain, Suspender, suspender_of, with_note
from .children import Child
from .desk import CONFLICT, Desk
from .kinds import ADMITTED, Subject, controller_of, field_at, subject_of
from .life import Act, Seen, State, step
from .needs import Needs
from .patches import grown, noted, replaces_list, resumed
from .room import Next, Room
from .shape import shaped
from .stubs import Stub

log = logging.getLogger(__name__)

GROWTH: Final = 0.02
"""Seconds for which an elastic Job looks how many more pods fit, before it begins."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
"""Seconds between two tries of a patch that was not answered, or not taken; the first and the longest."""
TRIES: Final = 5
"""Tries to note what is not worth waiting for."""
DENIALS: Final = frozenset({400, 401, 403, 405, 415, 422})
"""Answers to a patch that will not change by themselves."""


class Case:
    """See the module. ``subject`` is the object as it was last seen; ``uid`` is the object's."""

    def __init__(self, subject: Subject, desk: Desk) -> None:
        kind = self.kind = subject.kind
        self.served = Kind(kind.api_version, kind.kind, kind.plural)
        self.subject = subject
        self.uid, self.namespace, self.name = subject.uid, subject.namespace, subject.name
        self.state = State.NEW
        self.refusal = ""
        """Why it can't be let in, as things are."""
        self._desk = desk
        needs = Needs(kind, self.uid, self.namespace, self.name, desk)
        self.room = Room(kind, self.served, needs, desk, partial(desk.say, self))
        self._again: SuspendedAgain | None = None
        self._sent: set[str] = set()  # what our patches note on it, by which they are known
        self._task: asyncio.Task[None] | None = None
        self._growing: asyncio.Task[None] | None = None
        self._acts: Mapping[Act, Callable[[], object]] = {
            Act.DROP: self._drop,
            Act.JOIN: self._queue,
            Act.COMPARE: self._compare,
            Act.RESUME: lambda: None,  # the task that waited goes on
            Act.STAND: self._reserve,
            Act.CONFIRM: self._confirm,
            Act.FOLLOW: self._follow,
        }

    @property
    def label(self) -> str:
        return f"{self.kind.kind} {self.namespace}/{self.name}"

    def step(self, seen: Seen) -> None:
        self.state, acts = step(self.state, seen)
        for act in acts:
            self._acts[act]()

    @property
    def work(self) -> asyncio.Task[None] | None:
        """What takes time and is under way: a wait in line, a patch, or the reservation of what runs."""
        return self._task if self._task is not None and not self._task.done() else None

    def waits(self) -> Wait | None:
        """Return what it waits for; None: it does not wait."""
        return self.room.waits() if self.state is State.WAITING else None

    def pod_over(self, uid: str, phase: str, version: str) -> None:
        """Note that a pod of it has ended: one that has succeeded is not made again."""
        if phase == "Succeeded" and self.room.succeeded(uid, version) and self.state is State.RUNNING:
            self._follow()

    def is_forgotten(self) -> bool:
        """Return whether the engine that reserved its room has failed."""
        return self.state is State.RUNNING and self.room.is_forgotten

    async def aclose(self) -> None:
        """Leave the line, and give back what is reserved: another leader goes on."""
        tasks = [task for task in (self._task, self._growing) if task is not None]
        self._drop()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- in line ---------

    async def _join(self) -> None:
        """Wait in line, then let it in."""
        self.refusal = ""
        self._sent.clear()
        self._again = None
        try:
            if self._is_beyond() or await self._is_loop():
                self.step(Seen.REFUSAL)
                return
            await self.room.join(self.subject)
        except GangRefused as error:
            self.refusal = f"it can't be let in as a whole: {error.detail}"
            if error.reason == "never-fits":
                self.refusal = f"it never fits: {error.detail}"
            self._desk.say(self, error.reason, self.refusal)
            self.step(Seen.REFUSAL)
            return
        except (FieldError, GangError) as error:
            self.room.forget_parts()
            self._desk.say(self, "unreadable", f"it is let in without waiting, since it can't be read: {error}")
        except Exception as error:  # noqa: BLE001 - fails open: a bug of ours stops no Job
            self._desk.gate.ledger.failed_open(error)
        self.step(Seen.GRANT)
        if self.room.elastic is not None and self.room.wants_more(self.subject):
            self._grow()
            await asyncio.sleep(GROWTH)
        await self._let_in()

    def _is_beyond(self) -> bool:
        """Tell of one that is too large to be kept; return whether it is, and so waits where that is enforced."""
        stub = self._stub()
        if stub is None or self._desk.gate.mode(self.namespace) != "enforce":
            return False
        self.refusal, self.room.asked = stub.sentence, None
        self._desk.say(self, "too-large", stub.sentence)
        return True

    def _stub(self) -> Stub | None:
        """Return what is kept of it, or of what says which pods come of it, if that is beyond a bound."""
        maker = self._desk.maker(self.kind, self.subject.body)
        kept = (self.subject.body, None if maker is None else maker[1])
        return next((each for each in kept if isinstance(each, Stub)), None)

    async def _is_loop(self) -> bool:
        """Tell of one that is suspended although it was let in; return whether it is not let in again."""
        again = SuspendedAgain.of(self.subject)
        if again is not None and again.generation is None:
            again = await self._note_again(again)
        if again is None or again.has_changed(self.subject):
            return False
        self._again = again
        loop, said = again.is_loop, again.sentence(self.kind)
        self._desk.say(self, "not-again" if loop else "suspended-again", said)
        if loop:
            self.refusal, self.room.asked = said, None  # after any change of it, it is looked at again
        return loop

    async def _note_again(self, again: SuspendedAgain) -> SuspendedAgain | None:
        """Find out who has suspended it, and note that on it, so that the next leader counts on."""
        pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE)
        for left in reversed(range(TRIES)):
            try:
                found = await self._suspended()
                if found is None:
                    return None  # it has changed once more
                seen = again.seen(found[0], found[1], self._desk.objects.now())
                async with self._desk.patching:
                    answer = await self._desk.objects.patch(self.served, self.subject.body, with_note(found[0], seen))
                    if answer is not None:
                        self.subject = self._desk.noted(self.kind, answer)
                    return seen
            except ClusterError as error:
                log.info("it is not noted on %s that it is suspended again: %s", self.label, error)
                if error.status in DENIALS or not left:
                    break
            await pauses.after_failure()
        return again.seen(self.subject, Suspender(), self._desk.objects.now())

    async def _suspended(self) -> tuple[Subject, Suspender] | None:
        """Return it as it is stored, and who has suspended it. None: it is not suspended again."""
        async with self._desk.whole.of(self.namespace):
            try:
                found = await self._desk.objects.read(self.served, self.namespace, self.name)
            except RecursionError:  # its managedFields are its user's to nest
                return self.subject, Suspender()
            if found is None:
                return None
            stored, by = subject_of(self.kind, shaped(self.kind, found)), suspender_of(self.kind, found)
            return (stored, by) if stored.admitted and stored.is_suspended else None

    def _compare(self) -> None:
        """Join again if what it makes has changed."""
        with suppress(FieldError, GangError):
            if self.room.asked is None or self._makes_else():
                self._join_anew()

    def _makes_else(self) -> bool:
        return self._stub() is not None or self.room.makes_else(self.subject)

    def _join_anew(self) -> None:
        self._drop()
        self.state = State.WAITING
        self._queue()

    # -- what controllers make beside its pods ---------

    def child_made(self, child: Child) -> bool:
        """Note what a controller has made of it, or of a pod of it; return whether it counts as a part of its gang."""
        if self.state in (State.WAITING, State.REFUSED):
            with suppress(FieldError, GangError):
                if self.room.lacks_else(self.subject):
                    self._join_anew()
            return False
        return self.room.count(child, lived=False)

    def settle(self) -> None:
        """Reserve no longer, once it has pods, what is not followed."""
        if self.state is State.RUNNING:
            self.room.settle()

    # -- the patch ---------

    async def _let_in(self) -> None:
        """Resume it: one patch, if it is still as it was seen; else look again."""
        desk, failed, with_label = self._desk, False, field_at(self.subject.body, "status.startTime") is None
        pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE)
        while self.state is State.GRANTED:
            answer = await self._resume(with_label=with_label)
            if answer is None:
                self.step(Seen.GONE)
            elif not isinstance(answer, ClusterError):
                if self.state is State.GRANTED:  # else the watch was faster
                    self.subject = answer
                    self._resumed()
            elif answer.status in DENIALS and with_label:
                failed, with_label = True, False  # its templates may not change: its pods are known by their owners
            elif answer.status in DENIALS:
                self.refusal = str(answer)
                desk.say(self, "denied", self.refusal)
                self.step(Seen.DENIAL)
                return
            else:
                if failed or answer.status != CONFLICT:
                    await pauses.after_failure()
                failed = True
                await self._look()
        if self.room.elastic is not None:
            await self._change(self._wider)  # it may have grown while the patch was under way

    async def _resume(self, *, with_label: bool) -> Subject | ClusterError | None:
        """Send the patch, unless it waits no more; return what is kept of the answer. None: it is gone.

        An error is returned without its frames: the whole object, which may have 20 MB, is not there while it waits.
        """
        desk = self._desk
        try:
            async with self._patched(with_label=with_label) as body, desk.patching:
                if self.state is not State.GRANTED:
                    return self.subject
                patch = self._patch(body, with_label=with_label)
                self._sent.add(patch["metadata"]["annotations"][ADMITTED])
                answer = await desk.objects.patch(self.served, self.subject.body, patch)
                in_time = self.state is State.GRANTED  # else the watch was faster
                return None if answer is None else desk.noted(self.kind, answer, resumed=in_time)
        except ClusterError as error:
            return error.with_traceback(None)

    @asynccontextmanager
    async def _patched(self, *, with_label: bool) -> AsyncIterator[JSON]:
        """Yield what the patch is made from: where that replaces a list, the object as it is stored."""
        if with_label and self.room.is_reserved and replaces_list(self.room.templates):
            async with self._desk.whole.of(self.namespace):
                yield await self._desk.stored(self.served, self.subject)
        else:
            yield self.subject.body

    def _patch(self, body: JSON, *, with_label: bool) -> JSON:
        room, reserved = self.room, self.room.is_reserved
        granted: dict[str, Any] = {"pods": room.pods} if reserved else {"mode": self._desk.gate.mode(self.namespace)}
        if self._again is not None and not self._again.has_changed(self.subject):
            granted["times"] = self._again.times
        return resumed(
            self.subject,
            body,
            now=self._desk.objects.now(),
            granted=granted,
            label=room.gang.label if reserved and room.gang is not None else "",
            templates=room.templates if with_label else (),
            parallelism=None if room.elastic is None or not reserved else (room.pods, room.elastic.most),
        )

    def _confirm(self) -> None:
        """Tell whether our patch resumed it, answered or not; pods of what others resume have no label of our gang."""
        if self.subject.annotations.get(ADMITTED) in self._sent:
            self._resumed()
        else:
            self._stand_anew()

    def _resumed(self) -> None:
        counts = self._desk.counts
        (counts.admitted if self.room.is_reserved else counts.ungated)[self.kind.resource] += 1
        self.room.let_in(self.subject)
        self._desk.say(self, "admitted", "")
        self.step(Seen.RESUMED)

    async def _look(self) -> None:
        """Read it again after a conflict, or where the outcome of the patch is unknown."""
        with suppress(ClusterError):
            found = await self._desk.objects.read(self.served, self.namespace, self.name)
            if found is None or text(metadata_of(found).get("uid")) != self.uid:
                self.step(Seen.GONE)
                return
            self.subject = self._desk.noted(self.kind, found)
            del found
            self.step(await self._desk.seen(self.subject))
            if self.state is State.GRANTED:
                with suppress(FieldError, GangError):
                    if self._makes_else():
                        self._join_anew()

    # -- while it runs ---------

    async def _stand(self) -> None:
        """Reserve what a running object makes without waiting, and take in those of its pods that live."""
        desk, room = self._desk, self.room
        if (stub := self._stub()) is not None:
            desk.say(self, "no-room", f"no room is kept for the pods that it still makes, since {stub.cause}")
            await self._change(self._note)
            return
        try:
            label = await room.stand(self.subject)
            if label is not None:
                await self._adopt(label)
                for child in await desk.family(self, room.resources):
                    room.count(child, lived=True)
                room.fit()
        except (FieldError, GangError, GangRefused) as error:
            room.forget_parts()
            log.warning("no room is kept for %s, which runs: %s", self.label, error)
        except Exception as error:  # noqa: BLE001 - fails open
            desk.gate.ledger.failed_open(error)
        self._follow()
        await self._change(self._note)

    def _stand_anew(self) -> None:
        self._drop()
        self._reserve()

    async def _adopt(self, label: str) -> None:
        """Take in the pods that live: what they are charged would count twice. Asks until there is an answer."""
        gang = self.room.gang
        if gang is None or (self.kind.labelled and not label):
            return
        marked = {GANG_LABEL: label} if self.kind.labelled else {}
        pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            try:
                pods = await self._desk.pods(self.namespace, marked)
            except (WatchForbiddenError, WatchAbsentError) as error:
                log.warning("the pods of %s, which runs, can't be read: %s", self.label, error)
                return
            except WatchBrokenError as error:
                log.info("the pods of %s, which runs, are read again: %s", self.label, error)
                await pauses.after_failure()
                continue
            for pod in pods:
                if not is_released(pod) and (marked or await self._has_made(pod)):
                    gang.adopt(text(metadata_of(pod).get("uid")), pod)
            return

    async def _has_made(self, pod: JSON) -> bool:
        """Return whether a pod without the gang's label is of this object, by who controls what controls it."""
        return any(owner.uid == self.uid for owner in await self._desk.above(self.namespace, controller_of(pod)))

    def _note(self) -> JSON | None:
        """Return what notes that others have resumed it."""
        again = SuspendedAgain.of(self.subject)
        known = again is not None and again.generation is None
        return None if known else noted(self.subject, now=self._desk.objects.now(), granted={"by": "others"})

    async def _change(self, patch: Callable[[], JSON | None]) -> bool:
        """Patch what runs; if no answer comes, or it has changed meanwhile, again, as it is by then.

        Return False if the API server denies it.
        """
        pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            change = patch() if self.state is State.RUNNING else None
            if change is None:
                break
            try:
                async with self._desk.patching:
                    answer = await self._desk.objects.patch(self.served, self.subject.body, change)
            except ClusterError as error:
                if error.status in DENIALS:
                    log.warning("%s, which runs, can't be changed: %s", self.label, error)
                    return False
                await pauses.after_failure()
                continue
            if answer is not None:
                self.subject = self._desk.noted(self.kind, answer)
            break
        return True

    def _follow(self) -> None:
        """Keep room for no more than it still makes; ask for more if it grows."""
        if not self.room.is_reserved or self._stub() is not None:
            return  # what is reserved of one that has become too large stays
        if self.is_forgotten():
            self._stand_anew()
            return
        with suppress(FieldError, GangError):
            match self.room.follow(self.subject):
                case Next.STAND:
                    self._stand_anew()
                case Next.GROW:
                    self._grow()

    # -- growth ---------

    def _grow(self) -> None:
        if self._growing is None or self._growing.done():
            self._growing = asyncio.create_task(self._growth())

    async def _growth(self) -> None:
        """Let the Job have more pods as room for them is reserved: one patch each time."""
        try:
            while await self.room.grow(self.subject):
                if not await self._change(self._wider):
                    return
        except GangRefused as error:
            self._desk.say(self, error.reason, f"it does not grow: {error}")
        except (FieldError, GangError, ClusterError) as error:
            log.info("%s does not grow further now: %s", self.label, error)
        except Exception as error:  # noqa: BLE001 - fails open
            self._desk.gate.ledger.failed_open(error)

    def _wider(self) -> JSON | None:
        """Return what gives a Job that runs the parallelism that is reserved for it."""
        elastic = self.room.elastic
        if elastic is None:
            return None
        pods, now = self.room.pods, field_at(self.subject.body, self.kind.parallelism)
        if isinstance(now, int) and now >= pods:
            return None
        return grown(self.kind, pods, elastic.most)

    # -- the end ---------

    def _queue(self) -> None:
        self._task = asyncio.create_task(self._join())

    def _reserve(self) -> None:
        self._task = asyncio.create_task(self._stand())

    def _drop(self) -> None:
        """Leave the line, and give back what is reserved. Twice is no error."""
        current = asyncio.current_task()
        for task in (self._task, self._growing):
            if task is not None and task is not current:
                task.cancel()
        self._growing = None
        self.room.give_back(self.uid)
