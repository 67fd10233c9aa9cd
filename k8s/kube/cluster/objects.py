"""Single requests about objects, with this program's own account: create, read, patch, replace, delete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from backoff_ctrl.k8s.kube.answers.answer import SERVER_LIMIT, Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.answers.fields import metadata_of
from backoff_ctrl.k8s.kube.answers.rejections import rejection_of
from backoff_ctrl.k8s.kube.charges.device_claims import OK, Devices, Reading, reading
from backoff_ctrl.k8s.kube.charges.parts import Part
from backoff_ctrl.k8s.kube.paths import PathError, path_to
from backoff_ctrl.k8s.kube.recent import Recent

from .kinds import JSON, PODS, Kind
from .session import ClusterSession

T = TypeVar("T")

FORBIDDEN: Final = 403
MERGE: Final = "application/merge-patch+json"
GONE: Final = (404, 410)
KEPT: Final = 5.0
"""Seconds that an answer is kept about what the cluster adds to objects: LimitRanges, classes, claim templates."""
KEPT_MAX: Final = 256
STRICT: Final = ("fieldValidation", "Strict")
"""Refuses fields that the server does not know, which it would drop. Servers before 1.25 do not know it."""

Known = Callable[[str, Mapping[str, str]], tuple[JSON, ...] | None]
"""Finds pods by namespace and labels; None: they have to be read."""


class ClusterError(Exception):
    """The API server did not do what was asked, or can't be reached: try again later. ``status`` 0: no answer."""

    def __init__(self, what: str, said: str, status: int = 0) -> None:
        """``what`` was asked, ``said`` is the server's sentence or the error of the connection."""
        super().__init__(f"could not {what}: {said}")
        self.status = status


class Objects:
    """Requests with this program's own account. ``may_create``: whether it may still send creates."""

    def __init__(
        self,
        session: ClusterSession,
        may_create: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._may_create = may_create
        self._learnt = Recent(KEPT, KEPT_MAX, clock)

    def now(self) -> datetime:
        """Return the time by the API server's clock, which it notes on objects."""
        return self._session.now()

    async def create(self, path: str, body: JSON) -> Answer:
        """POST an object, with no field that the server does not know: it refuses that with 400.

        Raises ``NotSent`` while another manager may have its task, and as ``ask`` does.
        """
        if not self._may_create():
            raise NotSent("the create is not sent: another manager may have taken the tasks over")
        return await self.ask("POST", path, body, query=[STRICT])

    async def read(self, kind: Kind, namespace: str, name: str) -> JSON | None:
        """Return an object, or None. Raises ``ClusterError``."""
        return await self._object(
            lambda: f"read {kind.resource} {namespace}/{name}", "GET", lambda: one(kind, namespace, name)
        )

    async def pods(self, namespace: str, labels: Mapping[str, str]) -> tuple[JSON, ...]:
        """Return the pods with these labels. Raises ``ClusterError``."""
        selector = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
        found = await self._object(
            lambda: f"list the pods of {namespace}",
            "GET",
            lambda: collection(PODS, namespace),
            query=[("labelSelector", selector)],
        )
        items = (found or {}).get("items") or ()
        return tuple({"apiVersion": "v1", "kind": "Pod", **pod} for pod in items)

    async def pods_of(
        self,
        namespace: str,
        labels: Mapping[str, str],
        names: Callable[[], Iterable[str]],
        known: Known | None = None,
    ) -> tuple[JSON, ...]:
        """Return the pods of an object in this namespace: by these labels or, if no pod has them, by ``names``.

        ``known`` finds pods by labels in a cache. Raises ``ClusterError``, and what ``names`` raises.
        """
        found = known(namespace, labels) if known and labels else None
        if found is None and labels:
            found = await self.pods(namespace, labels)
        if found:
            return found
        named = [await self._named_pod(namespace, name) for name in names()]
        return tuple(pod for pod in named if pod is not None)

    async def _named_pod(self, namespace: str, name: str) -> JSON | None:
        try:
            return await self.read(PODS, namespace, name)
        except ClusterError as error:
            if error.status != FORBIDDEN:  # an account that may only list pods has to do without
                raise
            return None

    async def devices(self, namespace: str, parts: Iterable[Part]) -> Devices:
        """Return what the cluster says of the devices of ResourceClaims among parts, as far as it may be asked."""
        return await self.learn(reading(namespace, parts))

    async def learn(self, reading: Reading[T]) -> T:
        """Return what a reading learns from the cluster, as far as it may be asked."""
        try:
            path = next(reading)
            while True:
                path = reading.send(await self._found(path))
        except StopIteration as end:
            found: T = end.value
            return found

    async def _found(self, path: str) -> tuple[int, JSON]:
        """Return the status and the object of an answer to GET, asked once for all who ask within ``KEPT`` seconds.

        0: there is no answer. Only what was found is kept: what is missing may come at any time.
        """
        key = (path,)
        asking = self._learnt.get(key, lambda: asyncio.create_task(self._get(path)))
        status, found = await asyncio.shield(asking)  # others wait for it, too
        if status != OK:
            self._learnt.drop(key)
        return status, found

    async def _get(self, path: str) -> tuple[int, JSON]:
        try:
            answer = await self.ask("GET", path)
        except (NotSent, OutcomeUnknown):
            return 0, {}
        return answer.status, answer.json() or {}

    async def patch(self, kind: Kind, resource: JSON, patch: JSON) -> JSON | None:
        """Apply a JSON merge patch. None: the object is gone. Raises ``ClusterError``; a conflict has status 409."""
        headers = {"Content-Type": MERGE}
        path = partial(_path, kind, resource)
        return await self._object(partial(_what, "patch", kind, resource), "PATCH", path, patch, headers)

    async def replace(self, kind: Kind, resource: JSON, update: JSON) -> JSON | None:
        """Replace it by another object. None: it is gone. Raises ``ClusterError``."""
        return await self._object(
            partial(_what, "update", kind, resource), "PUT", partial(_path, kind, resource), update
        )

    async def delete(self, kind: Kind, resource: JSON) -> None:
        """Delete this object, by its uid, with what was made of it. It may be gone already."""
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
            "preconditions": {"uid": metadata_of(resource).get("uid")},
        }
        try:
            await self._object(partial(_what, "delete", kind, resource), "DELETE", partial(_path, kind, resource), body)
        except ClusterError as error:
            if error.status != 409:  # another object has its name
                raise

    async def _object(
        self,
        what: Callable[[], str],
        method: str,
        path: Callable[[], str],
        body: object = None,
        headers: Mapping[str, str] | None = None,
        query: list[tuple[str, str]] | None = None,
    ) -> JSON | None:
        try:
            answer = await self.ask(method, path(), body, headers=headers, query=query)
        except PathError:
            return None  # no object can have this name
        except (NotSent, OutcomeUnknown) as error:
            raise ClusterError(what(), str(error)) from error
        if answer.ok:
            return answer.json() or {}
        if answer.status in GONE:
            return None
        raise ClusterError(what(), f"{answer.status} {rejection_of(answer).message}".strip(), answer.status)

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: list[tuple[str, str]] | None = None,
        patience: float = SERVER_LIMIT,
    ) -> Answer:
        """Send a request; return the answer, of any status. Raises ``NotSent`` and ``OutcomeUnknown``."""
        return await self._session.ask(method, path, body, query=query or (), headers=headers, timeout=patience)


def collection(kind: Kind, namespace: str) -> str:
    """Return the path of all objects of a kind in a namespace. Raises ``PathError``."""
    return path_to(kind.path, kind.plural, namespace=namespace)


def one(kind: Kind, namespace: str, name: str) -> str:
    """Return the path of an object. Raises ``PathError``."""
    return path_to(kind.path, kind.plural, namespace=namespace, name=name)


def _path(kind: Kind, resource: JSON) -> str:
    metadata = metadata_of(resource)
    return one(kind, str(metadata.get("namespace")), str(metadata.get("name")))


def _what(verb: str, kind: Kind, resource: JSON) -> str:
    metadata = metadata_of(resource)
    return f"{verb} {kind.resource} {metadata.get('namespace')}/{metadata.get('name')}"
