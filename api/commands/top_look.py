"""The data of ``backoff-ctrl top``: one snapshot of an instance, also as JSON; and snapshots in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.status.client import FAILURES, FROM_THE_OLDEST, ClientError, Instance, Listed, Stream, read_time
from backoff_ctrl.k8s.status.shapes import Ceiling, Decision, Gate, Waiting

from .ceilings import fullest_first

if TYPE_CHECKING:
    from backoff_ctrl.k8s.kube.cluster.finding import ClusterAccess
    from backoff_ctrl.k8s.workloads.admitting.jobs import WaitingJob

    Jobs = Callable[[], Sequence[WaitingJob]]

WAITING_SHOWN: Final = 1000
"""Waiting creates that the screen reads."""
JOBS_EVERY: Final = 5.0
"""Seconds for which a list of Jobs is new: it takes a request for each kind."""
DECISIONS: Final = 100
"""Decisions that the JSON document holds, unless ``--limit`` says otherwise."""
AGAIN: Final = 2.0
"""Seconds before a broken stream is opened again."""
SHARE: Final = 4
"""A slow snapshot is followed by a pause of so many times its length: looking must not be the load."""


@dataclass(frozen=True, slots=True)
class Look:
    at: datetime
    ceilings: list[Ceiling]
    """The fullest first."""
    waiting: list[Waiting]
    """The first ones in line."""
    waiting_in_all: int
    """The number at all gates of the instance, in all namespaces."""
    note: str | None = None
    """A note that no gate is connected: then it is unknown who waits."""
    jobs: Sequence[WaitingJob] = ()
    """What waits suspended in the cluster, if that is asked."""


class JobsSeen:
    """The Jobs that wait suspended in a cluster, listed anew when they are old."""

    def __init__(self, place: ClusterAccess, namespace: str | None) -> None:
        self._place = place
        self._namespaces = () if namespace is None else (namespace,)
        self._found: Sequence[WaitingJob] = ()
        self._until = 0.0

    def __call__(self) -> Sequence[WaitingJob]:
        """Return them. Raises ``BadInput``."""
        import asyncio  # noqa: PLC0415 - slow to load, as the next one

        from backoff_ctrl.k8s.workloads.admitting.jobs import JobsError, list_jobs  # noqa: PLC0415 - imports aiohttp

        if time.monotonic() >= self._until:
            try:
                self._found = asyncio.run(list_jobs(self._place.configuration, namespaces=self._namespaces)).jobs
            except JobsError as error:
                raise BadInput(str(error)) from None
            self._until = time.monotonic() + JOBS_EVERY
        return self._found


def look(instance: Instance, namespace: str | None, jobs: Jobs = lambda: ()) -> Look:
    """Look once. Raises ``BadInput``."""
    ceilings: Listed[Ceiling] = instance.everything("/v1/ceilings", {"namespace": namespace}, Ceiling)
    waiting: Listed[Waiting] = instance.everything("/v1/waiting", {"namespace": namespace}, Waiting, WAITING_SHOWN)
    gates: Listed[Gate] = instance.whole("/v1/gates", Gate)
    try:
        order = fullest_first(ceilings.items)
        for each in waiting.items:  # check now what is drawn later
            read_time(each.since)
    except ValueError as error:
        raise instance.not_ours(str(error)) from None
    fullest, in_all = [ceilings.items[number] for number in order], sum(gate.waiting for gate in gates.items)
    found = jobs()
    listed = {(each.kind.resource, each.namespace, each.name) for each in found}
    creates = [each for each in waiting.items if (each.kind, each.namespace, each.name) not in listed]
    return Look(ceilings.at, fullest, creates, in_all, waiting.note, found)


def document(instance: Instance, namespace: str | None, limit: int | None, jobs: Jobs | None = None) -> dict[str, Any]:
    """Return ceilings, waiting creates and the latest decisions as one document. Raises ``BadInput``."""
    ceilings: Listed[Ceiling] = instance.everything("/v1/ceilings", {"namespace": namespace}, Ceiling)
    waiting: Listed[Waiting] = instance.everything("/v1/waiting", {"namespace": namespace}, Waiting)
    try:
        fullest = [ceilings.documents[number] for number in fullest_first(ceilings.items)]
        decisions = instance.latest(namespace, waiting.at, limit or DECISIONS)
    except FAILURES as error:
        url = instance.place.url
        raise BadInput(printable(f"the decisions of {url} can't be followed ({error}): try again")) from None
    return {
        "as_of": ceilings.as_of,
        "ceilings": fullest[:limit],
        "waiting": waiting.documents[:limit],
        "decisions": [vars(each) for each in decisions],
        "more": {
            "ceilings": len(fullest) - len(fullest[:limit]),
            "waiting": len(waiting.documents) - len(waiting.documents[:limit]),
        },
        **({} if jobs is None else {"jobs": [each.document() for each in jobs()[:limit]]}),
        **({"note": waiting.note} if waiting.note else {}),
    }


class Feed:
    """Two daemon threads, which call ``seen``, ``heard`` and ``lost`` (with a sentence)."""

    def __init__(
        self,
        instance: Instance,
        namespace: str | None,
        every: float,
        jobs: Jobs,
        *,
        seen: Callable[[Look], object],
        heard: Callable[[Decision], object],
        lost: Callable[[str], object],
    ) -> None:
        """``every``: seconds between two snapshots."""
        self._instance = instance
        self._namespace = namespace
        self._every = every
        self._jobs = jobs
        self._seen, self._heard, self._lost = seen, heard, lost
        self._stopped = threading.Event()
        self._stream: Stream | None = None

    def start(self) -> None:
        """Start both threads; they end with the program, or after ``stop``."""
        for run in (self._look, self._follow):
            threading.Thread(target=run, name="backoff-ctrl-top", daemon=True).start()

    def stop(self) -> None:
        """End: no callback is called any more, except one under way."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.close()

    def _look(self) -> None:
        pause = self._every
        while not self._stopped.wait(pause):
            began = time.monotonic()
            try:
                self._seen(look(self._instance, self._namespace, self._jobs))
            except ClientError as error:
                self._lost(str(error))
            pause = max(self._every, SHARE * (time.monotonic() - began))

    def _follow(self) -> None:
        last = FROM_THE_OLDEST
        while not self._stopped.is_set():
            try:
                stream = self._stream = self._instance.decisions(self._namespace, last)
                for decision in stream:
                    last = stream.last
                    self._heard(decision)
                    if self._stopped.is_set():
                        return
            except FAILURES as error:
                if not self._stopped.is_set():  # ``stop`` breaks the stream, too
                    self._lost(f"the stream of decisions broke, and is opened again: {error}")
            self._stopped.wait(AGAIN)
