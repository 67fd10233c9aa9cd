"""Finds gates in the cluster: running pods with the label, in the namespaces that the operator named.

A user who may create pods in such a namespace can make ``serve`` show false data for any namespace, so only the named
ones are searched.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from backoff_ctrl.k8s.kube.answers.fields import annotations_of, mapping, metadata_of
from backoff_ctrl.k8s.kube.answers.paging import EndlessListError, is_list
from backoff_ctrl.k8s.kube.cluster.asking import Reach, ReachError
from backoff_ctrl.k8s.kube.paths import path_to

from .gates import Gates

log = logging.getLogger(__name__)

LABEL: Final = "backoff-ctrl.dev/gate"
"""The label of a pod with a gate; its value is ``true``."""
PORT: Final = "backoff-ctrl.dev/status-port"
SCHEME: Final = "backoff-ctrl.dev/status-scheme"
"""Annotations: the port of the status (default 9095), and ``http`` (default) or ``https``."""
DEFAULT_PORT: Final = "9095"
LIST_EVERY: Final = 5.0
"""Seconds between two lists."""
GATES_MAX: Final = 500

REFUSED: Final = frozenset({401, 403, 404})
"""Answers that stay the same until somebody changes something."""


class RefusedError(ReachError):
    """This account may not list the pods of a namespace."""


class Finder:
    """Keeps ``gates`` in step with the pods."""

    def __init__(self, reach: Reach, namespaces: Sequence[str], gates: Gates) -> None:
        """Search these namespaces; without any, nothing is searched."""
        self._reach = reach
        self.namespaces = namespaces
        self._gates = gates
        self.why: dict[str, str] = {}
        """Namespaces that can't be searched, and why."""
        gates.unlisted = set(namespaces)

    async def run(self) -> None:
        while self.namespaces:
            try:
                await self.look()
            except Exception:  # the page continues with the gates that it has
                log.exception("looking for gates failed; it is retried")
            await asyncio.sleep(LIST_EVERY)

    async def look(self) -> None:
        """Connect new gates, and drop those that are gone. A list that fails changes nothing.

        A namespace is searched until its pods are listed, or until the API server refuses to list them.
        """
        found: dict[str, str] = {}
        searched: set[str] = set()
        for namespace in self.namespaces:
            try:
                found |= await run_in_threadpool(self._listed, namespace)
                self.why.pop(namespace, None)
                searched.add(namespace)
            except (ReachError, EndlessListError) as error:
                self.why[namespace] = str(error) or "the list of its pods does not end"
                found |= {gate.url: gate.pod for gate in self._gates.gates if gate.pod.startswith(f"{namespace}/")}
                if not isinstance(error, ReachError) or isinstance(error, RefusedError):
                    searched.add(namespace)
        known = {gate.url: gate for gate in self._gates.gates}
        for url, gate in known.items():
            if gate.pod and found.get(url) != gate.pod:
                self._gates.disconnect(gate)
        for url, pod in found.items():
            now = known.get(url)
            if (now is None or (now.pod and now.pod != pod)) and len(self._gates.gates) < GATES_MAX:
                self._gates.connect(url, pod)
        self._gates.unlisted -= searched

    def _listed(self, namespace: str) -> dict[str, str]:
        found: dict[str, str] = {}
        query = [("labelSelector", f"{LABEL}=true")]
        for status, listed in self._reach.pages(path_to("/api/v1", "pods", namespace=namespace), query=query):
            if status != 200 or not is_list(listed):
                kind = RefusedError if status in REFUSED else ReachError
                raise kind(f"its pods can't be listed: the API server answers {status}")
            found |= dict(gates_of(listed["items"] or ()))
        return found


def gates_of(pods: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield the URL of each gate, and its pod; pods that do not run, or whose annotations are wrong, are left out."""
    for pod in pods:
        metadata, status = metadata_of(pod), mapping(mapping(pod).get("status"))
        if status.get("phase") != "Running" or metadata.get("deletionTimestamp"):
            continue
        annotations = annotations_of(pod)
        port, scheme = str(annotations.get(PORT, DEFAULT_PORT)), annotations.get(SCHEME, "http")
        name = f"{metadata.get('namespace')}/{metadata.get('name')}"
        try:
            address = ipaddress.ip_address(str(status.get("podIP")))
        except ValueError:
            continue
        if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65_536) or scheme not in ("http", "https"):
            log.warning("pod %s has the label %s, but its annotations name no port or scheme", name, LABEL)
            continue
        host = f"[{address}]" if address.version == 6 else str(address)
        yield f"{scheme}://{host}:{port}", name
