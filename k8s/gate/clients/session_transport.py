"""The gate's transport for creates that this program sends in its own session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from backoff_ctrl.k8s.gate.creates.calls import quotas_url
from backoff_ctrl.k8s.gate.together import READ_PATIENCE
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.fields import is_going
from backoff_ctrl.k8s.kube.charges import filling
from backoff_ctrl.k8s.kube.charges.device_claims import templates_named, with_devices
from backoff_ctrl.k8s.kube.charges.parts import Part
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.kube.cluster.objects import Objects, collection, one


class CreateTransport:
    """The gate's transport for one create. ``going``: the last object of its name was being deleted."""

    def __init__(
        self, objects: Objects, kind: Kind, namespace: str, on_news: Callable[[], object] = lambda: None
    ) -> None:
        """Create objects of this kind in this namespace. ``on_news`` is called when ``going`` has changed."""
        self._on_news = on_news
        self._objects = objects
        self._path = collection(kind, namespace)
        self._named = partial(one, kind, namespace)
        self._namespace = namespace
        self.going: JSON | None = None

    async def send(self, body: dict[str, Any]) -> Answer:
        self.going = None
        return await self._objects.create(self._path, body)

    async def look_up(self, name: str) -> Answer:
        answer = await self._objects.ask("GET", self._named(name))
        found = answer.json() if answer.ok else None
        before, self.going = self.going, found if found is not None and is_going(found) else None
        if (before is None) != (self.going is None):
            self._on_news()
        return answer

    async def weighed(self, body: JSON, resource: str, makes: Callable[[JSON], tuple[Part, ...]]) -> tuple[Part, ...]:
        """Return what is made of an object, with what the cluster adds to it, as far as that may be asked."""
        parts = makes(body)
        if not any(part.kind == "Pod" for part in parts):
            return parts
        limits = await self._objects.learn(filling.reading_limits(self._namespace))
        classes = await self._objects.learn(filling.reading(body, resource, parts))
        if limits or classes != filling.NO_CLASSES:
            parts = makes(filling.filled(body, resource, parts, limits, classes))
        if templates_named(parts):
            parts = with_devices(parts, await self._objects.devices(self._namespace, parts))
        return parts

    async def list_quotas(self) -> Answer:
        """GET the quotas of the namespace, with little patience."""
        async with asyncio.timeout(READ_PATIENCE):
            return await self._objects.ask("GET", quotas_url("", self._namespace))
