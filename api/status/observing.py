"""The cluster as ``serve`` sees it: its quotas, which are watched; LimitRanges and holders, read on request."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.observing.hosted import HostedWatch
from backoff_ctrl.k8s.gate.runtime.host import RuntimeAlarms
from backoff_ctrl.k8s.kube.answers.paging import is_list
from backoff_ctrl.k8s.kube.charges.admission_rules import Item, items_of
from backoff_ctrl.k8s.kube.charges.attribution import Report, attribute
from backoff_ctrl.k8s.kube.cluster.asking import Reach, ReachError, Recent
from backoff_ctrl.k8s.kube.cluster.finding import ClusterAccess
from backoff_ctrl.k8s.kube.cluster.rights import page
from backoff_ctrl.k8s.kube.holders import AbsentError, HoldingsReader
from backoff_ctrl.k8s.kube.paths import PathError, path_to
from backoff_ctrl.k8s.kube.watching.status import EVERYWHERE, WatchState
from backoff_ctrl.k8s.status.asked import ProblemError
from backoff_ctrl.k8s.status.explaining import AskServer
from backoff_ctrl.k8s.status.holders_page import document
from backoff_ctrl.k8s.status.serving import Service

KEPT: Final = 5.0
"""Seconds that an answer of the API server about LimitRanges or holders is cached."""
KEPT_MAX: Final = 256
HOLDERS_AT_ONCE: Final = 2
"""Namespaces whose holders are read at a time: each may list thousands of objects."""


class Cluster:
    """One cluster. Its methods may be called from any thread."""

    def __init__(self, place: ClusterAccess, namespaces: Sequence[str] = ()) -> None:
        """Prepare to observe all namespaces, or only these. Raises ``ReachError`` if the settings can't be used."""
        self.place = place
        self.reach = Reach(place)
        self.namespaces = namespaces
        self._ledger = Ledger(RuntimeAlarms(), mode="off")
        self._watch = HostedWatch(self._ledger, place.configuration, everywhere=not namespaces)
        self._service = Service()
        self.source = self._service.add(self._ledger, place.url, lambda: self._watch.record, decides=False)
        self.documents = self._service.documents
        self._answers = Recent(KEPT, KEPT_MAX)
        self._reading = threading.BoundedSemaphore(HOLDERS_AT_ONCE)

    def start(self) -> None:
        self._watch.start()
        for namespace in self.namespaces:
            self._watch.follow(namespace)

    def close(self) -> None:
        self._watch.stop()
        self._ledger.close()
        self.reach.close()

    def unready(self) -> list[str]:
        """Return why the answers are not complete; empty while all requested quotas are watched."""
        record = self._watch.record
        reasons = []
        for place in self.namespaces or (EVERYWHERE,):
            status = record.of(place)
            if status is None or status.state is not WatchState.QUOTAS:
                why = "not listed yet" if status is None else status.why or "not listed yet"
                reasons.append(f"quotas of {'all namespaces' if place == EVERYWHERE else place}: {why}")
        return reasons

    def lacking(self, gates_in: Sequence[str], *, asks_who: bool) -> list[str]:
        """Return the rights that this account lacks for ``serve``, each with what is missing without it."""

        def read() -> list[str]:
            try:
                return self.reach.lacking(page(gates_in, self.namespaces, asks_who=asks_who))
            except ReachError:
                return []

        return self._answers.get(("rights",), read)

    def watches(self, namespace: str) -> bool:
        status = self._watch.record.of(namespace)
        return status is not None and status.state is WatchState.QUOTAS

    def dry_run(self, token: str) -> AskServer:
        """Return a client of the API server with a caller's own token, and none of our rights."""
        place = self.place.as_bearer(token)

        def ask(method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, dict[str, Any]]:
            reach = Reach(place)
            try:
                return reach.ask(method, path, body)
            except ReachError as error:
                raise ProblemError(502, str(error)) from None
            finally:
                reach.close()

        return ask

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, dict[str, Any]]:
        """Ask the API server with this account's rights, unless it answered just now; status 0: it does not."""

        def answered() -> tuple[int, dict[str, Any]]:
            try:
                return self.reach.ask(method, path, body)
            except ReachError:
                return 0, {}

        return self._answers.get(("asked", path), answered)

    def limit_ranges(self, namespace: str) -> Sequence[Item] | None:
        """Return the limits in a namespace; None if they can't be read."""

        def read() -> Sequence[Item] | None:
            try:
                status, listed = self.reach.ask("GET", path_to("/api/v1", "limitranges", namespace=namespace))
            except (ReachError, PathError):
                return None
            return items_of(listed["items"] or ()) if status == 200 and is_list(listed) else None

        return self._answers.get(("limits", namespace), read)

    def holders(self, namespace: str, quota: str | None, waiting: int | None = None) -> dict[str, Any]:
        """Return the holders of the quotas of a namespace. Raises ``ProblemError``.

        ``waiting`` is the number of creates that wait there by the gates; None: not known.
        """

        def read() -> Report:
            if not self._reading.acquire(timeout=KEPT):
                raise ProblemError(503, "holders are being read for others: try again")
            try:
                reach = Reach(replace(self.place, namespace=namespace))
                try:
                    return attribute(HoldingsReader(reach).read(quota), datetime.now(UTC))
                finally:
                    reach.close()
            except AbsentError as error:
                words = f"quota {quota} does not exist in" if error.what == "quota" else "there is no"
                raise ProblemError(404, f"{words} namespace {namespace}", f"#/query/{error.what}") from None
            except ReachError as error:
                raise ProblemError(502, str(error)) from None
            finally:
                self._reading.release()

        return document(self._answers.get(("holders", namespace, quota or ""), read), waiting)
