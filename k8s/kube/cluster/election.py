"""Leader election by a Lease: of several replicas one leads, as long as it can prove it.

The rules are client-go's (``tools/leaderelection/leaderelection.go`` and ``resourcelock/leaselock.go``), so that what
people know of kube-controller-manager holds here. A candidate takes the Lease if it is free, or if it has not
changed for its whole duration *by the candidate's own clock*: the times that a record names are shown to people and
never compared, since the clocks of two nodes may differ. Each write names the resourceVersion that it was made from, so
that of two candidates one gets a 409. The holder renews it every ``retry`` seconds; one that could not do so within
``deadline`` stops acting, well before anybody else may begin. An orderly end gives the Lease back.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.answers.fields import mapping, metadata_of, text, written_back
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.paths import group_path, path_to

from .session import ClusterSession

log = logging.getLogger(__name__)

JITTER: Final = 0.2
"""The share of ``retry`` that a pause may be longer by: two candidates do not stay in step."""
GONE: Final = 404
CONFLICT: Final = 409
_API: Final = "coordination.k8s.io/v1"
_STATUS_MAX: Final = 300


TIMES_AT_MOST: Final = 10
"""A Lease counts for no longer than so many durations of ours, even if it says more: its writer may be wrong."""


class StuckError(RuntimeError):
    """The work of a leader does not end: this process can't take part any longer, and has to end."""


class ElectionError(Exception):
    """The Lease can't be read or written now. The message says what the API server answered."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The times of an election, in seconds: how long a Lease lasts, until when it must be renewed, how often it is.

    ``leaving``: how long the work of a leader may take to end. Until then the Lease is renewed, after that it is not.
    """

    duration: float = 10.0
    deadline: float = 7.0
    retry: float = 1.5
    leaving: float = 10.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless duration > deadline > retry with its jitter."""
        if not self.duration > self.deadline > self.retry * (1 + JITTER) > 0:
            raise ValueError(f"a Lease must last longer than its deadline, and that longer than a retry: {self}")


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says. ``version``: its resourceVersion; empty: there is no Lease yet.

    ``lease`` is the object that it was read from: its labels and annotations are others', such as Helm's.
    """

    holder: str = ""
    duration: float = 0.0
    acquired: str = ""
    transitions: int = 0
    version: str = ""
    lease: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


def read_record(lease: object) -> Record:
    """Read a Lease. What is malformed counts as not set."""
    found = mapping(lease)
    spec = mapping(found.get("spec"))
    seconds, times = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    return Record(
        text(spec.get("holderIdentity")) or "",
        float(seconds) if isinstance(seconds, int) else 0.0,
        text(spec.get("acquireTime")) or "",
        times if isinstance(times, int) else 0,
        text(metadata_of(found).get("resourceVersion")) or "",
        found,
    )


class Candidate:
    """One replica's view of a Lease. Pure: ``now`` is a monotonic clock's, in seconds."""

    def __init__(self, who: str, terms: Terms) -> None:
        self.who = who
        self.terms = terms
        self.record = Record()
        self._observed = 0.0
        self._renewed = -float("inf")

    def saw(self, record: Record, now: float) -> None:
        """Note the Lease as it was read. Its time counts from when it was first seen as it is now.

        Unlike client-go, one that was deleted still counts until it would have lapsed: its holder leads on
        until it knows, and makes it anew.
        """
        if not record.version and not self.may_take(now):
            return
        if record != self.record:
            self.record, self._observed = record, now

    def may_take(self, now: float) -> bool:
        """Return whether the Lease may be taken, or renewed, by this replica."""
        record = self.record
        ours = self.terms.duration
        lasts = min(record.duration, TIMES_AT_MOST * ours) if record.duration > 0 else ours
        return record.holder in ("", self.who) or now >= self._observed + lasts

    def wrote(self, record: Record, asked: float) -> None:
        """Note that this replica holds the Lease by a write that was sent at ``asked``."""
        self.record, self._observed, self._renewed = record, asked, asked

    def lost(self) -> None:
        """Note that it no longer leads."""
        self._renewed = -float("inf")

    def leads(self, now: float) -> bool:
        """Return whether it may act as the leader: no other replica can have the Lease yet."""
        return now < self._renewed + self.terms.deadline

    def next_spec(self, wall: str) -> dict[str, Any]:
        """Return the Lease that makes this replica the holder; ``wall`` is the time that people read, in RFC 3339."""
        record, ours = self.record, self.record.holder == self.who
        return {
            "holderIdentity": self.who,
            "leaseDurationSeconds": round(self.terms.duration),
            "acquireTime": record.acquired if ours and record.acquired else wall,
            "renewTime": wall,
            "leaseTransitions": record.transitions if ours or not record.version else record.transitions + 1,
        }


class Election:
    """Takes part in the election of one Lease. On one event loop."""

    def __init__(
        self,
        session: ClusterSession,
        namespace: str,
        name: str,
        who: str,
        *,
        terms: Terms | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """``who`` names this replica in the Lease, and must be no other's. Raises ``PathError`` for a wrong name."""
        self._session = session
        self._leases = path_to(group_path(_API), "leases", namespace=namespace)
        self._lease = path_to(group_path(_API), "leases", namespace=namespace, name=name)
        self._name = name
        self._namespace = namespace
        self._clock = clock
        self._rng = rng or random.Random()
        self._candidate = Candidate(who, terms or Terms())
        self._said = ""
        self._turned: float | None = None

    @property
    def leader(self) -> str:
        """The replica that has the Lease as it was last seen; empty: the Lease is free, or was not read yet."""
        return self._candidate.record.holder

    def certain(self) -> bool:
        """Return whether this replica may act as the leader now."""
        return self._candidate.leads(self._clock())

    def stuck(self) -> str:
        """Return why this replica neither leads nor can: it does not try to; empty: it does, or was not begun.

        An API server that is away is no reason: each try ends, with or without an answer.
        """
        silent = 0.0 if self._turned is None else self._clock() - self._turned
        limit = 3 * self._candidate.terms.duration
        return f"the Lease was not asked for since {silent:.0f} s" if silent > limit else ""

    async def attempt(self) -> bool:
        """Try once to take or renew the Lease; return whether this replica has it. Raises ``ElectionError``."""
        if self.certain() and await self._write():  # the holder knows what it wrote, and saves the read
            return True
        candidate = self._candidate
        lease = await self._ask("GET", self._lease, None, without=(GONE,))
        candidate.saw(read_record(lease), self._clock())
        if candidate.record.holder not in ("", candidate.who):
            candidate.lost()
        return candidate.may_take(self._clock()) and await self._write()

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the Lease, lead as long as it can be renewed, and wait again; until cancelled.

        ``lead`` is cancelled as soon as the Lease may be another's. What it raises ends the election, and is raised.
        Raises ``StuckError`` if it does not end then.
        """
        while True:
            if await self._tried():
                log.info("%s leads: it has the Lease %s/%s", self._candidate.who, self._namespace, self._name)
                await self._lead(lead)
            await self._pause()

    async def release(self) -> None:
        """Give the Lease back, so that another replica need not wait until it lapses. Raises ``ElectionError``."""
        if not self.certain():
            return
        spec = {**self._candidate.next_spec(_wall()), "holderIdentity": "", "leaseDurationSeconds": 1}
        self._candidate.lost()
        await self._put(spec)

    async def _lead(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        work = asyncio.create_task(lead())
        renewing = asyncio.create_task(self._renew())
        try:
            done, _ = await asyncio.wait({work, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if work in done:
                work.result()
            else:
                log.warning("%s leads no more: the Lease could not be renewed in time", self._candidate.who)
        finally:
            work.cancel()  # while the Lease is still renewed: it may write until it has ended
            await asyncio.wait({work}, timeout=self._candidate.terms.leaving)
            renewing.cancel()
            await asyncio.wait({renewing})
            if not work.done():  # not given back: it may write as long as the Lease lasts
                self._candidate.lost()
                raise StuckError(f"what leads has not ended within {self._candidate.terms.leaving:g} s")
            try:
                await asyncio.shield(self.release())
            except ElectionError as error:
                log.info("the Lease is not given back, and lapses by itself: %s", error)
            self._candidate.lost()

    async def _renew(self) -> None:
        """Renew the Lease as long as possible; return once another may take it."""
        while self.certain():
            await self._pause()
            await self._tried()

    async def _tried(self) -> bool:
        self._turned = self._clock()
        try:
            has = await self.attempt()
        except ElectionError as error:
            if self._said != str(error):
                self._said = str(error)
                log.warning("the Lease %s/%s can't be asked for now: %s", self._namespace, self._name, error)
            return False
        self._said = ""
        return has

    async def _pause(self) -> None:
        terms = self._candidate.terms
        await asyncio.sleep(terms.retry * (1 + JITTER * self._rng.random()))

    async def _write(self) -> bool:
        """Make this replica the holder; False: the Lease has changed since it was read."""
        asked = self._clock()
        written = await self._put(self._candidate.next_spec(_wall()))
        if written is None:
            return False
        self._candidate.wrote(read_record(written), asked)
        return True

    async def _put(self, spec: dict[str, Any]) -> Any:
        """Write the Lease back with this spec, or make it; None: it has changed since it was read."""
        record = self._candidate.record
        if record.version:
            body = written_back(record.lease, spec=spec)
            return await self._ask("PUT", self._lease, body, without=(GONE, CONFLICT))
        metadata = {"name": self._name, "namespace": self._namespace}
        body = {"apiVersion": _API, "kind": "Lease", "metadata": metadata, "spec": spec}
        return await self._ask("POST", self._leases, body, without=(CONFLICT,))

    async def _ask(self, method: str, path: str, body: object, *, without: Collection[int]) -> Any:
        """Ask the API server; None for these statuses. Raises ``ElectionError``."""
        limit = self._candidate.terms.retry * 2  # one that hangs must not take the whole time until the deadline
        try:
            answer = await self._session.ask(method, path, body, timeout=limit)
        except (NotSent, OutcomeUnknown) as error:
            raise ElectionError(f"{method} {path}: {error}") from error
        if answer.status in without:
            return None
        found = answer.json()
        if not answer.ok or found is None:
            said = printable(text(mapping(found).get("message")) or "")[:_STATUS_MAX]
            raise ElectionError(f"{method} {path}: the API server answers {answer.status} {said}".rstrip())
        return found


def _wall() -> str:
    """Return the time as a Lease shows it: a MicroTime."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
