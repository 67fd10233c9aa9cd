"""What all cases share: the gate, requests, what else is known, who gets notices, and what was done."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.gate.runtime.places import Places
from backoff_ctrl.k8s.kube.answers.fields import metadata_of
from backoff_ctrl.k8s.kube.charges.admission_rules import Item
from backoff_ctrl.k8s.kube.charges.parts import Part
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.kube.cluster.objects import ClusterError, Objects

from .children import Child, Children
from .kinds import AdmissibleKind, Subject
from .life import Seen

CONFLICT: Final = 409


@dataclass
class Counts:
    """What was done since the start, by kind (``jobs.batch``) where there is one."""

    admitted: Counter[str] = field(default_factory=Counter)
    ungated: Counter[str] = field(default_factory=Counter)
    """Those that were let in without room being reserved: the mode of their namespace, or an error of ours."""


class Patching:
    """Bounds the patches that are under way, and begins no further one once another process may lead."""

    def __init__(self, certain: Callable[[], bool], slots: asyncio.Semaphore) -> None:
        self._certain = certain
        self._slots = slots

    async def __aenter__(self) -> None:
        await self._slots.acquire()
        if not self._certain():
            self._slots.release()
            raise ClusterError("change an object", "this process may lead no more")

    async def __aexit__(self, *_: object) -> None:
        self._slots.release()


class Noted(Protocol):
    """Takes what a request has returned, which the watch may report later; returns what is kept of it.

    ``resumed``: it answers the patch that resumes the object. Its case does what follows, so the change is reported to
    it only where the object does not run by that answer.
    """

    def __call__(self, kind: AdmissibleKind, body: JSON, *, resumed: bool = False) -> Subject: ...


@dataclass(frozen=True, slots=True)
class Desk:
    """See the module."""

    gate: AsyncGate
    objects: Objects
    server: str
    limits: Callable[[str], Sequence[Item]]
    """The limits of a namespace's LimitRanges."""
    priority: Callable[[Subject, Sequence[Part]], Awaitable[tuple[int, str]]]
    """Returns it, and why its annotation does not count as it stands."""
    noted: Noted
    seen: Callable[[Subject], Awaitable[Seen]]
    maker: Callable[[AdmissibleKind, Mapping[str, Any]], tuple[AdmissibleKind, Mapping[str, Any]] | None]
    """Returns what says which pods come of an object: itself, or what its controller has made of it; None: not yet."""
    above: Callable[[str, Owner | None], Awaitable[Sequence[Owner]]]
    """Returns all controllers above what one of this namespace has made, and that one."""
    say: Callable[[Any, str, str], object]
    """Tells people of a case: a reason for machines, and a sentence."""
    pods: Callable[[str, Mapping[str, str]], Awaitable[Sequence[JSON]]]
    """Returns the pods of a namespace with these labels, as far as they are charged. Raises as ``ClusterSource``."""
    children: Children
    family: Callable[[Any, Container[str]], Awaitable[Sequence[Child]]]
    """Returns what controllers have made of a case's object, and of its pods, of these resources."""
    patching: Patching
    whole: Places
    """For objects of which the whole is needed for a moment, by their namespaces: each may take 20 MB."""
    counts: Counts = field(default_factory=Counts)

    async def stored(self, served: Kind, subject: Subject) -> JSON:
        """Return the whole of an object of which a shape is kept. Raises ``ClusterError``, also where it has changed.

        A patch from it names its version: an object that changes later conflicts.
        """
        found = await self.objects.read(served, subject.namespace, subject.name)
        if found is None or metadata_of(found).get("resourceVersion") != subject.version:
            raise ClusterError(f"read {subject.name} as it was", "it has changed meanwhile", CONFLICT)
        return found
