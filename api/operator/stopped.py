"""What ``uninstall`` sets aside while it works, and puts back: noted on each object, so that a new process can.

The pod of a hook may be killed at any point. So one patch sets a field and notes on the object what was there. A run
that comes later finds the note, and puts that back if it fails, too; putting back removes the note. The chart renders
the annotation empty, so that an upgrade forgets an unused note.

Helm applies on the server: a field that another manager owns is a conflict. So no field stays ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.kube.answers.fields import annotations_of, mapping, mappings, metadata_of
from backoff_ctrl.k8s.kube.answers.rejections import rejection_of

if TYPE_CHECKING:
    from backoff_ctrl.k8s.kube.cluster.objects import Objects

STOPPED: Final = "backoff-ctrl.dev/stopped"
"""The annotation that notes what a field was, as the JSON ``{"was": ...}``; empty or missing: no field is set aside."""
MANAGER: Final = "backoff-ctrl-uninstall"
"""The name under which the API server notes who changed a field."""
TRIES: Final = 10
"""Tries of a change of an object that others change, too: its status, the certificates of its webhooks."""
CONFLICT: Final = 409
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_AS_US: Final = [("fieldManager", MANAGER)]
_NO_MANAGER: Final[list[dict[str, Any]]] = [{}]
"""What empties the list of managers: the API server reads an empty list as a missing one."""

Change = Callable[[Any], Any]
"""Returns what a field is set to. What it returns, it leaves as it is."""


class StepError(Exception):
    """A step can't be done; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A field of one object that is set for a while."""

    path: str
    """Where the object is."""
    field: tuple[str, ...]
    change: Change

    async def turn(self, objects: Objects) -> bool:
        """Set the field; return whether that can be put back. Raises ``StepError``."""
        for _ in range(TRIES):
            if (found := await asked(objects, "GET", self.path)) is None:
                return False
            now = self._value(found)
            to = self.change(now)
            if to == now:  # set by an earlier run, or there is no field to set
                await self._disown(objects)
                return _noted(found) is not None
            if await self._patched(objects, found, self._setting(to), json.dumps({"was": now})):
                await self._disown(objects)
                return True
        raise StepError(f"{self.path} changes all the time: run it again")

    async def turn_back(self, objects: Objects) -> bool:
        """Set the field to what was noted, unless others have set it since; return whether anything was to be done."""
        for _ in range(TRIES):
            found = await asked(objects, "GET", self.path)
            if found is None or (noted := _noted(found)) is None:
                return False
            now = self._value(found)
            if self.change(now) != now:  # others have set it: Helm, say
                if await self._disown(objects, forget=True):
                    return False
            elif await self._patched(objects, found, self._setting(noted["was"])):
                await self._disown(objects, forget=True)
                return True
        raise StepError(f"{self.path} changes all the time: run it again")

    def _value(self, body: Mapping[str, Any]) -> Any:
        found: Any = body
        for name in self.field:
            found = mapping(found).get(name)
        return [] if found is None else found  # the API server leaves empty lists out

    def _setting(self, value: object) -> dict[str, Any]:
        for name in reversed(self.field):
            value = {name: value}
        assert isinstance(value, dict)
        return value

    async def _patched(
        self, objects: Objects, found: Mapping[str, Any], patch: Mapping[str, Any], note: str | None = None
    ) -> bool:
        """Patch an object that is as it was read; return False if it is not."""
        metadata: dict[str, Any] = {"resourceVersion": metadata_of(found).get("resourceVersion")}
        if note is not None:
            metadata["annotations"] = {STOPPED: note}
        body = {**patch, "metadata": {**metadata, **mapping(patch.get("metadata"))}}
        return await asked(objects, "PATCH", self.path, body, absent=(CONFLICT,)) is not None

    async def _disown(self, objects: Objects, *, forget: bool = False) -> bool:
        """Have no field count as ours; ``forget``: take the note off, too. Return False if others are quicker."""
        for _ in range(TRIES):
            if (found := await asked(objects, "GET", self.path)) is None:
                return True
            managers = mappings(metadata_of(found).get("managedFields"))
            others = [each for each in managers if each.get("manager") != MANAGER]
            metadata: dict[str, Any] = {}
            if len(others) < len(managers):
                metadata["managedFields"] = others or _NO_MANAGER
            if forget and STOPPED in annotations_of(found):
                metadata["annotations"] = {STOPPED: None}
            if not metadata or await self._patched(objects, found, {"metadata": metadata}):
                return True
        return False


def _noted(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the note of an earlier run; None: there is no note, or it is not one of ours."""
    try:
        found = json.loads(annotations_of(body).get(STOPPED) or "null")
    except (ValueError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.keys() == {"was"} else None


async def asked(
    objects: Objects,
    method: str,
    path: str,
    body: object = None,
    query: list[tuple[str, str]] | None = None,
    absent: tuple[int, ...] = (),
) -> dict[str, Any] | None:
    """Return the object in an answer; None: its status is 404, or one of ``absent``. Raises ``StepError``."""
    patches = method == "PATCH"
    answer = await objects.ask(
        method, path, body, query=query or (_AS_US if patches else None), headers=_MERGE if patches else None
    )
    if answer.status in (NOT_FOUND, *absent):
        return None
    if not answer.ok:
        remedy = "; ask for a role that allows it" if answer.status == FORBIDDEN else ""
        raise StepError(f"{method} {path}: {answer.status} {rejection_of(answer).message}{remedy}")
    return answer.json() or {}
