"""What ``backoff-ctrl operator`` runs: Jobs that wait and Tasks, in one process with one ledger, while it leads.

Replicas elect their leader by a Lease (``k8s/kube/cluster/election``). All of them follow what there is, so that the
next leader loses no time; only the leader writes. Tasks need a CustomResourceDefinition: where it is missing, a
replica logs that once and goes on looking; Jobs are let in all the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from backoff_ctrl.api.connections import listening, serving_at
from backoff_ctrl.api.probes import probes
from backoff_ctrl.k8s.gate.runtime.host import RUNTIME
from backoff_ctrl.k8s.gate.settings import settings
from backoff_ctrl.k8s.kube.cluster.election import Election
from backoff_ctrl.k8s.kube.cluster.rights import OwnRights, operator
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.status.metrics import Sample, exposition
from backoff_ctrl.k8s.status.serving import SERVICE
from backoff_ctrl.k8s.status.showing import serve_status, shown
from backoff_ctrl.k8s.tasks.cluster.bounds import TaskShares
from backoff_ctrl.k8s.tasks.cluster.owning import owning
from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore
from backoff_ctrl.k8s.tasks.figures import samples
from backoff_ctrl.k8s.tasks.managing import carry_out
from backoff_ctrl.k8s.tasks.platform import Platform
from backoff_ctrl.k8s.tasks.reconciler import Reconciler
from backoff_ctrl.k8s.tasks.store import StoreError
from backoff_ctrl.k8s.tasks.through_plugins import through_plugins
from backoff_ctrl.k8s.workloads.admitting.admitting import Admitting
from backoff_ctrl.k8s.workloads.admitting.kinds import KINDS, AdmissibleKind, indispensable

log = logging.getLogger(__name__)

TASKS_AGAIN: Final = 5.0
"""Seconds between two looks for what keeps Tasks from being carried out."""
RIGHTS_EVERY: Final = 300.0
PARTLY_SHOWN: Final = 10
"""Objects that are read only in part and that ``/readyz`` names."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Where it works, and what it serves. ``namespaces``: those that it looks after; empty: all."""

    lease: str
    lease_namespace: str
    namespaces: Sequence[str] = ()
    admin: str | None = None
    probes: tuple[str, int] | None = None
    kinds: Sequence[AdmissibleKind] = KINDS
    """What waits suspended."""


class Operator:
    """One replica."""

    def __init__(self, configuration: Any, given: OperatorSettings, platform: Platform) -> None:
        """Prepare; no connection is opened yet. ``configuration`` is one of any official client."""
        self._configuration = configuration
        self._given = given
        self._platform = platform
        self._reconciler: Reconciler | None = None
        self._trouble = ""
        self._leads = False

    async def run(
        self, over: asyncio.Event, say: Callable[[str], object], leaving: Callable[[], object] = lambda: None
    ) -> None:
        """Serve until ``over`` is set, then give the Lease back. ``leaving`` is called when it begins to end.

        Raises ``BadInput`` for an address that is taken, and ``StuckError`` if its work does not end.
        """
        given = self._given
        async with RUNTIME.lent(), AsyncExitStack() as stack:
            session = await stack.enter_async_context(ClusterSession(self._configuration))
            kinds = [each.resource for each in indispensable(given.kinds)]
            needed = operator(given.lease, given.lease_namespace, given.namespaces, kinds)
            self._rights = OwnRights(session.review, needed)
            who = f"{socket.gethostname()}_{os.getpid()}"
            self._election = Election(session, given.lease_namespace, given.lease, who)
            self._admitting = await stack.enter_async_context(
                Admitting(
                    self._configuration,
                    namespaces=given.namespaces,
                    kinds=given.kinds,
                    certain=self._election.certain,
                )
            )
            self._store = await stack.enter_async_context(
                ClusterStore(self._configuration, given.namespaces, shares=TaskShares())
            )
            await self._serve(stack, say)
            say(f"{who} takes part in the election of {given.lease_namespace}/{given.lease}")
            beside = [
                asyncio.create_task(self._platform.follow()),
                asyncio.create_task(self._rights.keep_asking(RIGHTS_EVERY)),
                asyncio.create_task(self._warm()),
            ]
            electing = asyncio.create_task(self._election.run(self._lead))
            ending = asyncio.create_task(over.wait())
            try:
                await asyncio.wait({electing, ending}, return_when=asyncio.FIRST_COMPLETED)
                if electing.done():
                    electing.result()
            finally:
                leaving()
                for each in (electing, ending, *beside):
                    each.cancel()
                await asyncio.gather(electing, ending, *beside, return_exceptions=True)

    # -- leading ---------

    async def _lead(self) -> None:
        self._leads = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._admitting.lead())
                group.create_task(self._carry_out())
                group.create_task(self._store.take_in_again())
        finally:
            self._leads = False

    async def _carry_out(self) -> None:
        """Carry out Tasks, as soon and as long as that is possible."""

        def begun(reconciler: Reconciler) -> None:
            self._reconciler = reconciler
            if self._trouble:
                log.info("Tasks are carried out now")
            self._trouble = ""

        platform = self._platform
        plugins = through_plugins(platform.registry, self._configuration, platform.section)
        executor = owning(plugins, self._store, platform.registry)
        while True:
            try:
                await self._store.ready()
                await carry_out(
                    self._store,
                    executor,
                    platform.config,
                    certain=self._election.certain,
                    gc=platform.gc,
                    begun=begun,
                )
            except StoreError as error:
                self._say_trouble(str(error))
            except Exception as error:
                if self._trouble != repr(error):
                    self._trouble = repr(error)
                    log.exception("Tasks are not carried out, after an internal error; it is tried again")
            finally:
                self._reconciler = None
            await asyncio.sleep(TASKS_AGAIN)

    def _say_trouble(self, said: str) -> None:
        if said != self._trouble:
            self._trouble = said
            log.warning("Tasks are not carried out now: %s", said)

    async def _warm(self) -> None:
        """Read the Tasks before this replica leads, too."""
        try:
            await self._store.ready()
        except StoreError as error:
            self._say_trouble(str(error))

    # -- what others see ---------

    async def _serve(self, stack: AsyncExitStack, say: Callable[[str], object]) -> None:
        self._documents = shown()
        stack.callback(SERVICE.show_beside(self._samples))
        if self._given.admin is not None:
            with listening("--admin", self._given.admin):
                server = await asyncio.to_thread(serve_status, listen=self._given.admin, exact=True)
            stack.push_async_callback(asyncio.to_thread, server.close)
        if self._given.probes is not None:
            app = web.Application()
            app.add_routes(probes(self._ready, self._metrics, self._stuck))
            url = await serving_at(app, self._given.probes, "--probe-listen", None, stack)
            say(f"listening on {url}")

    def _ready(self) -> tuple[bool, list[str]]:
        """Return whether the API server has named the leader: a standby is ready, too."""
        leader = self._election.leader
        said = [f"{leader} leads" if leader else "no replica leads yet", *self._rights.lacking]
        if self._trouble:
            said.append(f"Tasks are not carried out: {self._trouble}")
        partly = self._partly()
        said += partly[:PARTLY_SHOWN]
        if len(partly) > PARTLY_SHOWN:
            said.append(f"{len(partly) - PARTLY_SHOWN} further objects are read or kept only in part")
        return bool(leader), said

    def _partly(self) -> list[str]:
        """Return a sentence for each object that is read only in part, or of which only a stub is kept."""
        admitting, store = self._admitting, self._store
        return [*admitting.record.partly(), *admitting.beyond(), *store.record.partly(), *store.left_out()]

    def _stuck(self) -> str:
        """Return why only a new process can go on."""
        return self._election.stuck() or self._admitting.stuck()

    async def _metrics(self) -> bytes:
        more = list(SERVICE.beside())
        return b"".join(await asyncio.to_thread(exposition, self._documents, None, settings().series_max, more))

    def _samples(self) -> Iterator[Sample]:
        yield Sample("operator_leader", (), int(self._leads and self._election.certain()))
        yield Sample("operator_partly_read", (), len(self._partly()))
        if not self._leads:
            return
        for state, number in self._admitting.states().items():
            yield Sample("jobs", (state,), number)
        counts = self._admitting.counts
        for kind, number in sorted(counts.admitted.items()):
            yield Sample("jobs_admitted_total", (kind, "reserved"), number)
        for kind, number in sorted(counts.ungated.items()):
            yield Sample("jobs_admitted_total", (kind, "ungated"), number)
        if self._reconciler is not None:
            yield from samples(self._reconciler)
