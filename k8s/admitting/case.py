"""One object from when it is first seen until it is gone: its place in line, its patch, and its room while it runs.

``step`` looks into the table of ``life`` and does what it says. What takes time runs in one task of the object's own:
first its wait in line and its patch, later its growth.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final

from backoff_ctrl.engine.backoff import full_jitter
from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.parts import MEMBERS_MAX
from backoff_ctrl.k8s.answers.fields import FieldError, annotations_of, labels_of, mapping, metadata_of, text
from backoff_ctrl.k8s.charges.live import is_released
from backoff_ctrl.k8s.charges.parts import Part
from backoff_ctrl.k8s.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.creates.wait import Wait
from backoff_ctrl.k8s.gate.any_gate import NAMES
from backoff_ctrl.k8s.gate.gangs import AdmittedGang, GangAsked, GangRefused, GangWait
from backoff_ctrl.k8s.gate.subscribers import Verdict
from backoff_ctrl.k8s.plugins.manager.objects import ClusterError, CreateTransport
from backoff_ctrl.k8s.plugins.protocol import JSON
from backoff_ctrl.k8s.plugins.protocol import Kind as Served
from backoff_ctrl.k8s.status.bodies import found_at
from backoff_ctrl.k8s.watching.objects import is_older

from .again import SuspendedAgain, Suspender, suspender_of, with_note
from .asking import (
    Elastic,
    as_elastic,
    elastic_of,
    for_one_more,
    gang_for,
    more_of,
    pods_of,
    same_parts,
    succeeded_of,
    templates_of,
)
from .children import Child
from .desk import CONFLICT, Desk
from .kinds import ADMITTED, AdmissibleKind, field_at
from .life import Act, Seen, State, step
from .needs import Needs
from .patches import admitted_gang, grown, noted, replaces_list, resumed
from .shape import shaped

log = logging.getLogger(__name__)

GROWTH: Final = 0.02
"""Seconds for which an elastic Job looks how many more pods fit, before it begins."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 10.0
"""Seconds between two tries of a patch that was not answered, or not taken; the first and the longest."""
TRIES: Final = 5
"""Tries to note what is not worth waiting for."""
DENIALS: Final = frozenset({400, 401, 403, 405, 415, 422})
"""Answers to a patch that will not change by themselves."""

VERDICTS: Final[Mapping[str, Verdict]] = {"now": "create", "unknown": "create", "wait": "wait", "never": "refuse"}


class Case:
    """See the module. ``uid`` is the object's."""

    def __init__(self, kind: AdmissibleKind, body: JSON, desk: Desk) -> None:
        metadata = metadata_of(body)
        self.kind = kind
        self.served = Served(kind.api_version, kind.kind, kind.plural)
        self.body = body
        self.uid = text(metadata.get("uid"))
        self.namespace, self.name = text(metadata.get("namespace")), text(metadata.get("name"))
        self.state = State.NEW
        self.gang: AdmittedGang | None = None
        self.refusal = ""
        """Why it can't be let in, as things are."""
        self._desk = desk
        self._wait: GangWait | None = None
        self._asked: GangAsked | None = None
        self._parts: tuple[Part, ...] = ()
        self._size: tuple[int, ...] = ()
        self._needs = Needs(kind, self.uid, self.namespace, self.name, desk)
        self._priority = 0
        self._elastic: Elastic | None = None
        self._again: SuspendedAgain | None = None
        self._sent: set[str] = set()  # what our patches note on it, by which they are known
        self._task: asyncio.Task[None] | None = None
        self._growing: asyncio.Task[None] | None = None
        self._succeeded: set[str] = set()
        self._base, self._since = 0, ""  # of its pods that had succeeded, by its status of this version
        self._acts: Mapping[Act, Callable[[], object]] = {
            Act.DROP: self._drop,
            Act.JOIN: lambda: self._begin(self._join()),
            Act.COMPARE: self._compare,
            Act.RESUME: lambda: None,  # the task that waited goes on
            Act.STAND: lambda: self._begin(self._stand()),
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
        wait = self._wait
        return wait.wait() if wait is not None and not wait.over and self.state is State.WAITING else None

    def pod_over(self, uid: str, phase: str, version: str) -> None:
        """Note that a pod of it has ended: one that has succeeded is not made again."""
        if phase == "Succeeded" and not is_older(version, self._since):
            self._succeeded.add(uid)
            if self.state is State.RUNNING:
                self._follow()

    def is_forgotten(self) -> bool:
        """Return whether the engine that reserved its room has failed: the new one knows nothing of it."""
        gang = self.gang
        failed = gang is not None and gang.gang is not None and gang.engine is not self._desk.gate.ledger.controller
        return self.state is State.RUNNING and failed

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
            if await self._is_loop():
                self.step(Seen.REFUSAL)
                return
            asked = await self._ask()
            if asked is not None:
                self.gang = await self._gang(asked)
        except GangRefused as error:
            self.refusal = f"it can't be let in as a whole: {error.detail}"
            if error.reason == "never-fits":
                self.refusal = f"it never fits: {error.detail}"
            self._desk.say(self, error.reason, self.refusal)
            self.step(Seen.REFUSAL)
            return
        except (FieldError, GangError) as error:
            self._desk.say(self, "unreadable", f"it is let in without waiting, since it can't be read: {error}")
        except Exception as error:  # noqa: BLE001 - law 18: a bug of ours stops no Job
            self._desk.gate.ledger.failed_open(error)
        self.step(Seen.GRANT)
        if self._elastic is not None and self._wants_more():
            self._grow()
            await asyncio.sleep(GROWTH)
        await self._let_in()

    async def _is_loop(self) -> bool:
        """Tell of one that is suspended although it was let in; return whether it is not let in again."""
        again = SuspendedAgain.of(self.body)
        if again is not None and again.generation is None:
            again = await self._note_again(again)
        if again is None or again.has_changed(self.body):
            return False
        self._again = again
        loop, said = again.is_loop, again.sentence(self.kind)
        self._desk.say(self, "not-again" if loop else "suspended-again", said)
        if loop:
            self.refusal, self._asked = said, None  # whatever changes of it, it is looked at again
        return loop

    async def _note_again(self, again: SuspendedAgain) -> SuspendedAgain | None:
        """Find out who has suspended it, and note that on it, so that whoever leads next counts on."""
        desk, read = self._desk, self.body
        for tries in range(1, TRIES + 1):
            try:
                with suppress(RecursionError):  # its managedFields are its user's to nest
                    found = await desk.objects.read(self.served, self.namespace, self.name)
                    if found is None or SuspendedAgain.of(found) is None or not self.kind.is_suspended(found):
                        return None  # it has changed once more
                    read = found
                noted_again = again.seen(read, suspender_of(self.kind, read), datetime.now(UTC))
                async with desk.patching:
                    answer = await desk.objects.patch(self.served, self.body, with_note(read, noted_again))
            except ClusterError as error:
                log.info("it is not noted on %s that it is suspended again: %s", self.label, error)
                if error.status in DENIALS or tries == TRIES:
                    break
                await asyncio.sleep(full_jitter(tries, FIRST_PAUSE, LONGEST_PAUSE, NAMES))
            else:
                if answer is not None:
                    self.body = shaped(self.kind, answer)
                    desk.noted(self.kind, self.body)
                return noted_again
        return again.seen(self.body, Suspender(), datetime.now(UTC))

    async def _ask(self) -> GangAsked | None:
        """Return what to ask of the line; None: it makes no pods."""
        self._elastic = elastic_of(self.kind, self.body)
        if self._elastic is not None and self._elastic.wrong:
            self._desk.say(self, "min-parallelism", self._elastic.wrong)
        body = self._least()
        self._asked = None
        needs = self._needs
        await needs.look_around(body, waits=True)
        enforced = self._desk.gate.mode(self.namespace) == "enforce"
        if enforced and (said := needs.why_never(body)):
            raise GangRefused(said, "never-fits", f"{said}; make it smaller, or ask for a larger quota")
        self._parts = needs.still_to_come(body)
        self._size = needs.counts(body, self._parts)
        if not any(self._size):
            return None
        if max(self._size) > MEMBERS_MAX and enforced:
            said = f"it asks for {max(self._size)} objects of one kind, and {MEMBERS_MAX} are let in together at most"
            raise GangRefused(said, "never-fits", said)  # not let in as what can't be read: it would pass the line
        self._priority, ignored = await self._ask_priority()
        if ignored:
            self._desk.say(self, "priority", ignored)
        self._asked = gang_for(
            self.kind,
            self.body,
            self._parts,
            self._size,
            server=self._desk.server,
            priority=self._priority,
            label=admitted_gang(self.body),
        )
        if self._desk.gate.mode(self.namespace) == "shadow":
            self._count_shadow(self._asked)
        return self._asked

    def _least(self) -> Mapping[str, Any]:
        """Return it with what it may begin with."""
        elastic = elastic_of(self.kind, self.body)
        return self.body if elastic is None else as_elastic(self.kind, self.body, elastic.least)

    async def _ask_priority(self) -> tuple[int, str]:
        return await self._desk.priority(self._needs.maker(self.body)[1], self._parts)

    def _count_shadow(self, asked: GangAsked) -> None:
        """Say what would become of it if its namespace were enforced."""
        ledger = self._desk.gate.ledger
        found = ledger.look(lambda engine, now: engine.outlook(self.namespace, asked.parts.parts, now))
        ledger.tell("shadowed", self.namespace, VERDICTS[found.prospect])

    async def _gang(self, asked: GangAsked, *, apart: bool = False) -> AdmittedGang:
        """Wait for a gang. ``apart``: it is another one than that of the whole."""

        def begun(wait: GangWait) -> None:
            if not apart:
                self._wait = wait

        desk = self._desk
        transport = CreateTransport(desk.objects, self.served, self.namespace)
        async with desk.gate.gang(asked, transport, begun) as gang:
            return gang

    def _compare(self) -> None:
        """Join again if what it makes has changed: it was edited, or a LimitRange was."""
        with suppress(FieldError, GangError):
            if self._asked is None or self._needs.still_to_come(self._least()) != self._parts:
                self._drop()
                self.state = State.WAITING
                self._begin(self._join())

    # -- what controllers make beside its pods ---------

    def child_made(self, child: Child) -> bool:
        """Note what a controller has made of it, or of a pod of it; return whether it counts as a part of its gang."""
        if self.state in (State.WAITING, State.REFUSED):
            self._needs.made_more.set()
            with suppress(FieldError, GangError):
                lacks = self._needs.lacks
                if self._asked is not None and lacks and self._needs.lacking(self._least()) != lacks:
                    self._drop()
                    self.state = State.WAITING
                    self._begin(self._join())
            return False
        return self._count(child, lived=False)

    def _count(self, child: Child, *, lived: bool) -> bool:
        charged = child.charge(self._needs.devices)
        if self.gang is None or charged is None or all(part.resource != child.resource for part in self._parts):
            return False
        self.gang.charged(child.uid, charged, child.resource, lived=lived)
        return True

    def settle(self) -> None:
        """Reserve no longer, once it has pods, what is not followed: nobody says when that was made."""
        gang = self.gang
        if self.state is not State.RUNNING or gang is None or gang.over or not gang.drawn:
            return
        size = self._needs.followed(self._parts, self._size)
        if size != self._size:
            gang.resize(size)
            self._size = size

    # -- the patch ---------

    async def _let_in(self) -> None:
        """Resume it: one patch, if it is still as it was seen; else look again."""
        desk, tries, with_label = self._desk, 0, field_at(self.body, "status.startTime") is None
        while self.state is State.GRANTED:
            try:
                body = await self._patched(with_label=with_label)
                async with desk.patching:
                    if self.state is not State.GRANTED:
                        return
                    patch = self._patch(body, with_label=with_label)
                    self._sent.add(patch["metadata"]["annotations"][ADMITTED])
                    answer = await desk.objects.patch(self.served, self.body, patch)
            except ClusterError as error:
                tries += 1
                if error.status in DENIALS and with_label:
                    with_label = False  # its templates may not change: its pods are known by their owners
                    continue
                if error.status in DENIALS:
                    self.refusal = str(error)
                    desk.say(self, "denied", self.refusal)
                    self.step(Seen.DENIAL)
                    return
                if error.status != CONFLICT or tries > 1:
                    await asyncio.sleep(full_jitter(tries, FIRST_PAUSE, LONGEST_PAUSE, NAMES))
                await self._look()
                continue
            if answer is None:
                self.step(Seen.GONE)
            elif self.state is State.GRANTED:  # else the watch was faster
                self.body = shaped(self.kind, answer)
                self._resumed()
        await self._change(self._wider)  # it may have grown while the patch was under way

    async def _patched(self, *, with_label: bool) -> JSON:
        """Return what the patch is made from: where that replaces a list, the object as it is stored."""
        replaces = with_label and self._has_reserved() and replaces_list(templates_of(self.kind, self._parts))
        return await self._desk.stored(self.served, self.body) if replaces else self.body

    def _has_reserved(self) -> bool:
        return self.gang is not None and self.gang.gang is not None

    def _patch(self, body: JSON, *, with_label: bool) -> JSON:
        gang, elastic, reserved = self.gang, self._elastic, self._has_reserved()
        pods = pods_of(self._parts, self._size)
        granted: dict[str, Any] = {"pods": pods} if reserved else {"mode": self._desk.gate.mode(self.namespace)}
        if self._again is not None and not self._again.has_changed(self.body):
            granted["times"] = self._again.times
        return resumed(
            self.kind,
            body,
            now=datetime.now(UTC),
            granted=granted,
            label=gang.label if reserved and gang is not None else "",
            templates=templates_of(self.kind, self._parts) if with_label else (),
            parallelism=None if elastic is None or not reserved else (pods, elastic.most),
        )

    def _confirm(self) -> None:
        """Tell whether our patch resumed it, answered or not; pods of what others resume have no label of our gang."""
        if annotations_of(self.body).get(ADMITTED) in self._sent:
            self._resumed()
        else:
            self._drop()
            self._begin(self._stand())

    def _resumed(self) -> None:
        (self._desk.counts.admitted if self._has_reserved() else self._desk.counts.ungated)[self.kind.resource] += 1
        self._note_root()
        self._desk.say(self, "admitted", "")
        self.step(Seen.RESUMED)
        self._desk.noted(self.kind, self.body)

    async def _look(self) -> None:
        """Read it again after a conflict, or where nobody knows what became of the patch."""
        with suppress(ClusterError):
            found = await self._desk.objects.read(self.served, self.namespace, self.name)
            if found is None or text(metadata_of(found).get("uid")) != self.uid:
                self.step(Seen.GONE)
                return
            before, self.body = self._parts, shaped(self.kind, found)
            self._desk.noted(self.kind, self.body)
            self.step(await self._desk.seen(self.kind, self.body))
            if self.state is State.GRANTED:
                with suppress(FieldError, GangError):
                    if self._needs.still_to_come(self._least()) != before:
                        self.state = State.WAITING
                        self._drop()
                        self._begin(self._join())

    def _note_root(self) -> None:
        """Let its pods be known: by its gang's label, or as its own."""
        self._base, self._since = succeeded_of(self.body), text(metadata_of(self.body).get("resourceVersion"))
        if self.gang is not None:
            self.gang.stored(self.body, self.kind.resource)

    # -- while it runs ---------

    async def _stand(self) -> None:
        """Reserve what a running object makes without waiting, and take in those of its pods that live."""
        desk = self._desk
        try:
            needs = self._needs
            await needs.look_around(self.body, waits=False)
            self._parts = needs.still_to_come(self.body)
            self._size = needs.counts(self.body, self._parts)
            self._elastic = elastic_of(self.kind, self.body)
            if any(self._size):
                label = self._known_label()
                self._priority, _ = await self._ask_priority()
                self._asked = gang_for(
                    self.kind,
                    self.body,
                    self._parts,
                    [max(1, size) for size in self._size],
                    server=desk.server,
                    label=label,
                    standing=True,
                )
                self.gang = await self._gang(self._asked)
                self._note_root()
                await self._adopt(label)
                for child in await desk.family(self, {part.resource for part in self._parts}):
                    self._count(child, lived=True)
                self.gang.resize(self._size)
        except (FieldError, GangError, GangRefused) as error:
            log.warning("no room is kept for %s, which runs: %s", self.label, error)
        except Exception as error:  # noqa: BLE001 - law 18
            desk.gate.ledger.failed_open(error)
        self._follow()
        await self._change(self._note)

    def _known_label(self) -> str:
        for template in sorted(templates_of(self.kind, self._parts)):
            found = text(labels_of(mapping(found_at(template, self.body))).get(GANG_LABEL))
            if found:
                return found
        return admitted_gang(self.body)

    async def _adopt(self, label: str) -> None:
        """Take in the pods that live: what they are charged would count twice. Asks until there is an answer."""
        if self.gang is None or (self.kind.labelled and not label):
            return
        marked = {GANG_LABEL: label} if self.kind.labelled else {}
        for tries in count(1):
            try:
                pods = await self._desk.objects.pods(self.namespace, marked)
            except ClusterError as error:
                if error.status in DENIALS:
                    log.warning("the pods of %s, which runs, can't be read: %s", self.label, error)
                    return
                await asyncio.sleep(full_jitter(tries, FIRST_PAUSE, LONGEST_PAUSE, NAMES))
                continue
            for pod in pods:
                if not is_released(pod) and (marked or await self._has_made(pod)):
                    self.gang.adopt(text(metadata_of(pod).get("uid")), pod)
            return

    async def _has_made(self, pod: JSON) -> bool:
        """Return whether a pod without the gang's label is of this object, by who controls what controls it."""
        return any(owner.uid == self.uid for owner in await self._desk.above(pod))

    def _note(self) -> JSON | None:
        """Return what notes that others have resumed it."""
        again = SuspendedAgain.of(self.body)
        known = again is not None and again.generation is None
        return None if known else noted(self.body, now=datetime.now(UTC), granted={"by": "others"})

    async def _change(self, patch: Callable[[], JSON | None]) -> bool:
        """Patch what runs; if nobody answers, or it has changed meanwhile, again, as it is by then.

        Return False if the API server denies it.
        """
        for tries in count(1):
            change = patch() if self.state is State.RUNNING else None
            if change is None:
                break
            try:
                async with self._desk.patching:
                    answer = await self._desk.objects.patch(self.served, self.body, change)
            except ClusterError as error:
                if error.status in DENIALS:
                    log.warning("%s, which runs, can't be changed: %s", self.label, error)
                    return False
                await asyncio.sleep(full_jitter(tries, FIRST_PAUSE, LONGEST_PAUSE, NAMES))
                continue
            if answer is not None:
                self.body = shaped(self.kind, answer)
                self._desk.noted(self.kind, self.body)
            break
        return True

    def _follow(self) -> None:
        """Keep room for no more than it still makes; ask for more if it grows."""
        gang = self.gang
        if gang is None or gang.gang is None:
            return
        if self.is_forgotten():
            self._drop()
            self._begin(self._stand())
            return
        with suppress(FieldError, GangError):
            parts, counts = self._wanted()
            if parts and not same_parts(parts, self._parts):
                self._drop()
                self._begin(self._stand())
                return
            size = tuple(map(min, self._size, counts or [0] * len(self._size)))
            if size != self._size:
                gang.resize(size)
                self._size = size
            if self._exceeds(counts):
                self._grow()

    def _wanted(self) -> tuple[tuple[Part, ...], tuple[int, ...]]:
        """Return what a running object makes, and how many pods of each part it should have if there were room."""
        self._elastic = elastic_of(self.kind, self.body)
        body = self.body if self._elastic is None else as_elastic(self.kind, self.body, self._elastic.most)
        parts = self._needs.still_to_come(body)
        return parts, self._needs.counts(body, parts, self._base + len(self._succeeded))

    # -- growth ---------

    def _wants_more(self) -> bool:
        with suppress(FieldError, GangError):
            return self._exceeds(self._wanted()[1])
        return False

    def _exceeds(self, counts: Sequence[int]) -> bool:
        """Return whether it should have more pods than are reserved; only kinds with equal pods grow."""
        if not self.kind.parallelism or for_one_more(self.body, self._parts) is None or len(counts) != len(self._parts):
            return False
        return pods_of(self._parts, counts) > pods_of(self._parts, self._size) > 0

    def _grow(self) -> None:
        if self._growing is None or self._growing.done():
            self._growing = asyncio.create_task(self._growth())

    async def _growth(self) -> None:
        """Reserve what fits now, else one pod more, behind those who wait, and let the Job have it: one patch each."""
        try:
            while self._asked is not None and self.gang is not None and not self.gang.over and self._wants_more():
                each = for_one_more(self.body, self._parts)
                if each is None:
                    return
                most = pods_of(*self._wanted()) - pods_of(self._parts, self._size)
                number = self._needs.fitting(self._parts, each, most)
                more = await self._gang(more_of(self._asked, each, number, self._priority), apart=True)
                if more.gang is None:
                    return
                self.gang.absorb(more)
                self._size = tuple(size + number * count for size, count in zip(self._size, each, strict=True))
                if not await self._change(self._wider):
                    return
        except GangRefused as error:
            self._desk.say(self, error.reason, f"it does not grow: {error}")
        except (FieldError, GangError, ClusterError) as error:
            log.info("%s does not grow further now: %s", self.label, error)
        except Exception as error:  # noqa: BLE001 - law 18
            self._desk.gate.ledger.failed_open(error)

    def _wider(self) -> JSON | None:
        """Return what gives a Job that runs the parallelism that is reserved for it."""
        elastic, now = self._elastic, field_at(self.body, self.kind.parallelism)
        pods = pods_of(self._parts, self._size)
        if elastic is None or (isinstance(now, int) and now >= pods):
            return None
        return grown(self.kind, pods, elastic.most)

    # -- the end ---------

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(work)

    def _drop(self) -> None:
        """Leave the line, and give back what is reserved. Twice is no error."""
        current = asyncio.current_task()
        for task in (self._task, self._growing):
            if task is not None and task is not current:
                task.cancel()
        gang, self.gang, self._wait, self._growing = self.gang, None, None, None
        self._succeeded.clear()
        if gang is not None:
            self._desk.gate.ledger.object_ended(self.uid)
            gang.give_back()
