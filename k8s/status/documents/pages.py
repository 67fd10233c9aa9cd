"""From what a gate knows to the JSON of the status API: pages of ceilings, waiting creates, namespaces, and so on."""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from backoff_ctrl.k8s.status.asked import ProblemError, cursor
from backoff_ctrl.k8s.status.shapes.documents import (
    Ceiling,
    Gate,
    Namespace,
    Overload,
    Page,
    PolicyDocument,
    RequestHistory,
    Waiting,
)
from backoff_ctrl.k8s.status.slices import sliced
from backoff_ctrl.k8s.status.sources import shown

from .items import ceiling_item, decision, flow_name, following_item, namespace_item, subject_of, waiting_item

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from backoff_ctrl.k8s.status.sources import Source

_Item = TypeVar("_Item")


class Documents:
    """The documents of one process: of each gate in it."""

    def __init__(self, sources: Sequence[Source], version: str) -> None:
        """``sources`` may change later."""
        self.sources = sources
        self.version = version

    # -- ceilings ---------

    def ceilings(self, where: Mapping[str, str | None], after: list[Any] | None, limit: int) -> Page[Ceiling]:
        """Return a page of ceilings; ``where`` holds ``namespace``, ``quota`` and ``resource``, or None for all."""
        items = self._ceilings(where, tuple(after) if after else (0, "", "", ""))
        return self._page("ceilings", items, limit)

    def _ceilings(self, where: Mapping[str, str | None], after: tuple[Any, ...]) -> Iterator[tuple[list[Any], Ceiling]]:
        for number, source, namespace, begins in self._namespaces(where.get("namespace"), after):
            found = source.namespace(namespace)
            if found is None:
                continue
            snapshot, now = found
            blocked = source.tally(namespace).blocked if snapshot.waiting else {}
            for quota, resources in sorted(snapshot.quotas.items()):
                if where.get("quota") not in (None, quota):
                    continue
                for resource, ceiling in sorted(resources.items()):
                    if where.get("resource") not in (None, resource) or (begins and (quota, resource) <= after[2:4]):
                        continue
                    key = (namespace, quota, resource)
                    waiting = blocked.get((quota, resource), 0)
                    yield [number, *key], ceiling_item(source, key, ceiling, now, waiting)

    # -- who waits ---------

    def waiting(self, namespace: str | None, after: list[Any] | None, limit: int) -> Page[Waiting]:
        """Return a page of waiting creates: by namespace, in the order of its line."""
        return self._page("waiting", self._waiting(namespace, tuple(after) if after else (0, ""), limit + 1), limit)

    def _waiting(
        self, namespace: str | None, after: tuple[Any, ...], limit: int
    ) -> Iterator[tuple[list[Any], Waiting]]:
        for number, source, name, begins in self._namespaces(namespace, after):
            place = (after[2], after[3]) if begins else None
            for each in source.waiting(name, place, limit):
                create = source.ledger.waiter_of(each.request)
                if create is not None:  # else it was admitted meanwhile
                    yield [number, name, *each.place], waiting_item(source, create, each)
            for follower, behind in source.followers(name, place):
                yield [number, name, *behind], following_item(source, follower)

    def request(self, id: str) -> RequestHistory:  # noqa: A002 - what the URL calls it
        """Return one create's history. Raises ``ProblemError`` if nothing is known of it."""
        for source in self.sources:
            told, forgotten = source.counters.ring.of(id)
            create = next((each for each in sliced(source.ledger.under_way()) if each.create_id == id), None)
            if not told and create is None:
                continue
            begun = bool(told) and told[0].event in ("waits", "created")
            kind, namespace, name = subject_of(told, create)
            over = create is None
            item = None if create is None else self._waits_now(source, create)
            return RequestHistory(
                as_of=self.as_of(),
                id=id,
                gate=source.name,
                namespace=namespace,
                kind=kind,
                name=name,
                state="over" if over else "sent" if item is None else "waiting",
                waiting=item,
                history=[decision(each) for each in told],
                complete=begun or not forgotten,
            )
        raise ProblemError(
            404, "no create with this id waits here, and none of the last decisions is about it", "#/path/id"
        )

    def _waits_now(self, source: Source, create: Any) -> Waiting | None:
        if create.follows:
            return following_item(source, create)
        request = create.request
        if request is None or request.state != "waiting":
            return None
        before = (request.rank, request.seq - 1)
        found = next(iter(source.waiting(request.namespace, before, 1)), None)
        return None if found is None or found.request is not request else waiting_item(source, create, found)

    # -- namespaces, overload, policy, gates ---------

    def namespaces(self, after: list[Any] | None, limit: int) -> Page[Namespace]:
        """Return a page of namespaces."""
        start = tuple(after) if after else (0, "")
        found = (
            ([number, name], namespace_item(source, name))
            for number, source, name, begins in self._namespaces(None, start)
            if not begins
        )
        return self._page("namespaces", found, limit)

    def overload(self) -> Page[Overload]:
        """Return all overload windows. There are few: one for a server, credential and priority level."""
        items = []
        for source in self.sources:
            windows, now = source.flows()
            for flow, window in windows:
                server, _, level = flow.partition("|")[0], *flow.rpartition("|")[1:]
                paused = source.clock.text(now + window.closed_for) if window.closed_for else None
                items.append(
                    Overload(flow_name(flow), server, level or None, round(window.size, 3), window.in_flight, paused)
                )
        return Page(self.as_of(), items)

    def policy(self) -> PolicyDocument:
        """Return the settings in force: those of the first gate, and the modes of all namespaces known."""
        if not self.sources:
            return PolicyDocument(self.as_of(), {}, {})
        source = self.sources[0]
        settings = dataclasses.asdict(source.ledger.policy)
        modes = {name: source.ledger.mode(name) for name in source.namespaces()}
        return PolicyDocument(self.as_of(), {"*": source.ledger.mode("*"), **modes}, settings)

    def gates(self) -> Page[Gate]:
        """Return each gate of this process."""
        return Page(self.as_of(), [self._gate(source) for source in self.sources])

    def _gate(self, source: Source) -> Gate:
        counts = source.ledger.counts
        windows, _ = source.flows()
        return Gate(
            gate=source.name,
            server=source.server,
            version=self.version,
            started_at=shown(source.counters.started),
            namespaces=source.size,
            waiting=counts.waiting,
            in_flight=sum(window.in_flight for _, window in windows),
            failed_open=counts.failed_open,
            settle_seconds=round(source.settle_time(), 6),
        )

    # -- pages ---------

    def as_of(self) -> str:
        """Return the present."""
        return shown(self.sources[0].clock.wall() if self.sources else 0.0)

    def _namespaces(self, only: str | None, after: tuple[Any, ...]) -> Iterator[tuple[int, Source, str, bool]]:
        """Yield gate by gate the namespaces from ``after`` on; the last flag says whether it is the very one."""
        first, name = int(after[0]), str(after[1])
        for number, source in islice(enumerate(self.sources), first, None):
            if only is not None:
                if number > first or name in ("", only):
                    yield number, source, only, number == first and bool(name)
                continue
            if number == first and name:
                yield number, source, name, True
            for each in source.namespaces(name if number == first else ""):
                yield number, source, each, False

    def _page(self, kind: str, items: Iterable[tuple[list[Any], _Item]], limit: int) -> Page[_Item]:
        found = list(islice(items, limit + 1))
        following = cursor(kind, found[limit - 1][0]) if len(found) > limit else None
        return Page(self.as_of(), [item for _, item in found[:limit]], following)
