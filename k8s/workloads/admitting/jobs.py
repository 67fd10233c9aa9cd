"""Listing and releasing what waits, through the API server alone: it works where no operator runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.answers.fields import mappings, metadata_of, text
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.kube.cluster.misspelt import CHOOSE, no_namespace
from backoff_ctrl.k8s.kube.cluster.objects import FORBIDDEN, ClusterError, Objects
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.paths import PathError, path_to
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from backoff_ctrl.k8s.kube.watching.objects import WatchAbsentError, WatchBrokenError, WatchedKind, WatchForbiddenError

from .kinds import (
    DIGITS_MAX,
    JOB,
    KINDS,
    WAITING_NAMESPACES,
    WAITS_FOR,
    AdmissibleKind,
    Subject,
    asks,
    left_waiting,
    noted_at,
    subject_of,
)
from .life import Seen, seen_of
from .patches import released
from .shape import identified

log = logging.getLogger(__name__)

AT_A_TIME: Final = 16
"""Objects that are released at a time."""
TRIES: Final = 5
CONFLICT: Final = 409
NOT_FOUND: Final = 404
WORDS: Final = frozenset({"reason", "message", "quota", "resource", "asked", "left"})
NUMBERS: Final = frozenset({"place", "estimate"})
"""What the operator says of an object that waits."""
MOST: Final = 10**DIGITS_MAX
NAMESPACES: Final = WatchedKind("/api/v1", "namespaces", frozenset({"Namespace"}), namespaced=False)


class JobsError(Exception):
    """What was asked for can't be done; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """An object that waits suspended.

    ``waits_for`` is what its annotation says; empty: the operator has not written it yet.
    """

    kind: AdmissibleKind
    body: JSON = field(repr=False)
    namespace: str
    name: str
    created: str
    waits_for: Mapping[str, Any]

    @property
    def label(self) -> str:
        return f"{self.kind.kind} {self.namespace}/{self.name}"

    def document(self) -> dict[str, Any]:
        """Return it for lists and pages, as ``Admitting.waiting`` does."""
        about = {"kind": self.kind.kind, "resource": self.kind.resource, "namespace": self.namespace}
        return {**self.waits_for, **about, "name": self.name, "created": self.created}


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A kind whose waiting objects are unknown: its list was refused, or can't be read."""

    resource: str
    where: str
    why: str

    def __str__(self) -> str:
        remedy = f"; ask for a role that allows list on {self.resource}" if self.why.startswith(str(FORBIDDEN)) else ""
        return f"can't list {self.resource} in {self.where}: {self.why}{remedy}"


@dataclass(slots=True)
class Listing:
    """What waits suspended, the eldest first, as far as it could be listed."""

    jobs: list[WaitingJob] = field(default_factory=list)
    unlisted: list[Unlisted] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    """A sentence for each namespace that was asked for and does not exist."""


@dataclass(frozen=True, slots=True)
class Released:
    """How the release of one object ended, or of all of a kind: ``error`` is empty unless something still waits."""

    label: str
    error: str = ""
    gone: bool = False
    """It was deleted meanwhile."""


async def list_jobs(
    configuration: Any, *, namespaces: Iterable[str] = (), kinds: Sequence[AdmissibleKind] = KINDS
) -> Listing:
    """Return what waits suspended; ``namespaces``: empty means all.

    Kinds that the server lacks are left out. Raises ``JobsError`` where Jobs can't be listed.
    """
    async with ClusterSession(configuration) as session:
        return await _listed(session, tuple(namespaces), kinds)


async def release(
    configuration: Any,
    name: str = "",
    *,
    by: str,
    namespaces: Iterable[str] = (),
    kinds: Sequence[AdmissibleKind] = KINDS,
    goes: Callable[[WaitingJob], bool] = lambda _: True,
) -> list[Released]:
    """Let in what waits without any room being reserved: what has this name, or (empty) all of it that ``goes``.

    A name may begin with its kind, ``job/train`` or ``jobset.jobset.x-k8s.io/train``. ``by`` is noted on the object.
    Where all are to be let in, kinds that can't be listed count as not released. Raises ``JobsError`` where no object
    of this name waits, for a namespace that does not exist, and as ``list_jobs`` does.
    """
    places = tuple(namespaces)
    async with ClusterSession(configuration) as session:
        found = await _listed(session, places, kinds)
        if found.absent:
            raise JobsError(found.absent[0])
        wanted, _, plain = name.rpartition("/")
        jobs = filter(goes, found.jobs)
        chosen = [each for each in jobs if not name or (each.name == plain and _is_called(each.kind, wanted))]
        if name and not chosen:
            unknown = "".join(f"; {each}" for each in found.unlisted)
            where = f" in namespace {', '.join(places)}" if places else ""
            raise JobsError(
                f"nothing of the name {name} waits{where}: `backoff-ctrl jobs list -A` shows what waits{unknown}"
            )
        objects, gate = Objects(session), asyncio.Semaphore(AT_A_TIME)
        released = await asyncio.gather(*(release_one(objects, gate, each, by) for each in chosen))
        missed = [] if name else [Released(f"{each.resource} in {each.where}", each.why) for each in found.unlisted]
        return [*released, *missed]


def _is_called(kind: AdmissibleKind, word: str) -> bool:
    words = {"", kind.kind, kind.plural, kind.resource, f"{kind.kind}.{kind.group}"}
    return word.lower() in {each.lower() for each in words}


async def _listed(session: ClusterSession, namespaces: Sequence[str], kinds: Sequence[AdmissibleKind]) -> Listing:
    source, listing = ClusterSource(session), Listing()
    waiting_in = await _waiting_in(session, source, namespaces, listing.absent)
    found: dict[str, WaitingJob] = {}
    for kind in kinds:
        for place in namespaces or (None,):
            try:
                async for body in _identified(source, kind, place):
                    subject = subject_of(kind, body)
                    left = left_waiting(subject, kinds=kinds, waiting_in=waiting_in)
                    if seen_of(subject, left) is Seen.SUSPENDED:
                        found[subject.uid] = _waiting_job(subject)
            except WatchAbsentError:
                continue
            except (WatchForbiddenError, WatchBrokenError) as error:
                unlisted = Unlisted(kind.resource, place or "all namespaces", str(error))
                if kind is JOB:
                    raise JobsError(str(unlisted)) from error
                if await _is_served(Objects(session), kind):
                    listing.unlisted.append(unlisted)
    listing.jobs = sorted(found.values(), key=lambda each: (each.created, each.namespace, each.name))
    return listing


async def _waiting_in(
    session: ClusterSession, source: ClusterSource, namespaces: Sequence[str], absent: list[str]
) -> set[str]:
    """Return which of these namespaces (empty: of all) ask for waiting, as far as this account may read them.

    A sentence about each that does not exist is added to ``absent``.
    """
    found: set[str] = set()
    try:
        if not namespaces:
            async for page in source.pages(WAITING_NAMESPACES, None):
                found |= {text(metadata_of(body).get("name")) for body in mappings(page.get("items"))}
        for each in namespaces:
            answer = await Objects(session).ask("GET", _path_of(each))
            if answer.status == NOT_FOUND and (answer.json() or {}).get("kind") == "Status":
                absent.append(no_namespace(each, await _namespaces(source)))
            if answer.ok and asks(answer.json() or {}):
                found.add(each)
    except (WatchForbiddenError, WatchBrokenError, NotSent, OutcomeUnknown) as error:
        log.info("which namespaces ask for waiting is not known: %s", error)
    return found


def _path_of(namespace: str) -> str:
    try:
        return path_to("/api/v1", "namespaces", name=namespace)
    except PathError:
        raise JobsError(f"no namespace is called {printable(namespace[:80])!r}: {CHOOSE}") from None


async def _namespaces(source: ClusterSource) -> list[str]:
    """Return the namespaces that this account may list, as far as they are answered."""
    found: list[str] = []
    with suppress(WatchForbiddenError, WatchBrokenError):
        async for page in source.pages(NAMESPACES, None):
            found += [text(metadata_of(body).get("name")) for body in mappings(page.get("items"))]
    return found


async def _is_served(objects: Objects, kind: AdmissibleKind) -> bool:
    """Return whether the server has a kind: an account that may not list it is refused where it has not, too."""
    try:
        answer = await objects.ask("GET", kind.path)
    except (NotSent, OutcomeUnknown):
        return True
    if not answer.ok:
        return answer.status != NOT_FOUND
    return any(each.get("name") == kind.plural for each in mappings((answer.json() or {}).get("resources")))


async def _identified(source: ClusterSource, kind: AdmissibleKind, place: str | None) -> AsyncIterator[JSON]:
    """Yield what identifies each object of a kind: who releases a thousand of a megabyte has no room for the rest."""
    watched = WatchedKind(kind.path, kind.plural, frozenset({kind.kind}))
    async for page in source.pages(watched, place, partial(identified, kind)):
        for body in mappings(page.get("items")):
            yield dict(body)


def _waiting_job(found: Subject) -> WaitingJob:
    return WaitingJob(found.kind, found.body, found.namespace, found.name, found.created, _said(found.body))


def _said(body: JSON) -> dict[str, Any]:
    """Return what the annotation says as far as it is as the operator writes it: its user may write there, too."""
    said = noted_at(body, WAITS_FOR)
    words = {key: said[key] for key in WORDS & said.keys() if isinstance(said[key], str)}
    numbers = {key: said[key] for key in NUMBERS & said.keys() if isinstance(said[key], int)}
    return words | {key: number for key, number in numbers.items() if 0 <= number < MOST}


async def release_one(objects: Objects, gate: asyncio.Semaphore, job: WaitingJob, by: str) -> Released:
    """Resume what was listed, in a place of the ``gate``, and note who did so.

    One that is edited all the time is resumed at last as it is by then: its user could keep ``uninstall`` from ending.
    """
    served, body = Kind(job.kind.api_version, job.kind.kind, job.kind.plural), job.body
    async with gate:
        for number in range(TRIES):
            try:
                as_seen = number < TRIES - 2
                patch = released(subject_of(job.kind, body), by, objects.now(), as_seen=as_seen)
                answer = await objects.patch(served, body, patch)
                return Released(job.label, gone=answer is None)
            except ClusterError as error:
                if error.status != CONFLICT or number == TRIES - 1:
                    return Released(job.label, str(error))
            try:
                found = await objects.read(served, job.namespace, job.name)
            except ClusterError as error:
                return Released(job.label, str(error))
            if found is None or not job.kind.is_suspended(found):
                return Released(job.label, gone=found is None)  # or others have let it in
            body = {"apiVersion": job.kind.api_version, "kind": job.kind.kind, **found}
    raise AssertionError("each try returns, or is followed by another")
