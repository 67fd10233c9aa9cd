"""A namespace under quota, on either server: what the quota tests create in it, and the answers they check."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.kube.answers.rejections import Lane, Rejection, read_rejection
from tests.cluster.talking import MERGE, Api, Reply
from tests.kit.patience import PATIENCE

JSON = dict[str, Any]

_MARKED = "quota-suite-mark"
_MARKS = itertools.count(1)
_VERSIONS = {"batch": "v1", "apps": "v1", "coordination.k8s.io": "v1", "networking.k8s.io": "v1"}


def container(name: str = "main", requests: JSON | None = None, limits: JSON | None = None, **more: Any) -> JSON:
    resources = {side: values for side, values in (("requests", requests), ("limits", limits)) if values}
    return {"name": name, "image": "busybox:1", "resources": resources, **more}


def pod(
    name: str = "x", requests: JSON | None = None, limits: JSON | None = None, *, spec: JSON | None = None, **meta: Any
) -> JSON:
    """A pod with one container; with an empty name it has a generateName."""
    metadata: JSON = {"name": name, **meta} if name else {"generateName": "p-", **meta}
    return {"metadata": metadata, "spec": {"containers": [container("main", requests, limits)], **(spec or {})}}


def service(name: str = "s", kind: str = "ClusterIP", ports: int = 1, **spec: Any) -> JSON:
    listed = [{"name": f"p{number}", "port": 80 + number} for number in range(ports)]
    return {"metadata": {"name": name}, "spec": {"type": kind, "ports": listed, **spec}}


def claim(name: str = "c", storage: str = "1Gi", **spec: Any) -> JSON:
    wanted = {"requests": {"storage": storage}}
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": wanted, **spec}}


def quota(name: str, hard: JSON, **spec: Any) -> JSON:
    return {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}


def selector(scope: str, operator: str, *values: str) -> JSON:
    requirement = {"scopeName": scope, "operator": operator, **({"values": list(values)} if values else {})}
    return {"matchExpressions": [requirement]}


class Room:
    """One namespace, as one user of the server sees it."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def path(self, resource: str, name: str = "", subresource: str = "") -> str:
        """The path of a resource ("pods", "jobs.batch") in the namespace."""
        plural, _, group = resource.partition(".")
        base = f"/apis/{group}/{_VERSIONS.get(group, 'v1')}" if group else "/api/v1"
        return "/".join(part for part in (f"{base}/namespaces/{self.namespace}/{plural}", name, subresource) if part)

    async def quota(self, name: str, hard: JSON, **spec: Any) -> JSON:
        """Create a quota and wait until it is enforced."""
        reply = await self.api.post(self.path("resourcequotas"), quota(name, hard, **spec))
        assert reply.status == 201, reply.text
        made: JSON = reply.json
        filled = await self.api.until(
            self.path("resourcequotas", name), lambda found: _enforces(found, made["spec"].get("hard"))
        )
        await self.admission_is_current()
        return filled

    async def admission_is_current(self) -> None:
        """Wait until admission, which follows quotas by its own watch, has seen every write so far.

        The method writes a mark to the status of another quota; once a refusal shows the mark, admission has seen
        everything before it. The mark is written again now and then, because the controller overwrites it when it
        fills in the new quota, and at a resync.
        """
        mark, base = await self._marked("mark")
        amounts = {"configmaps": str(mark)}
        status = {"status": {"hard": amounts, "used": amounts}}
        clock = asyncio.get_running_loop().time
        deadline, marked = clock() + PATIENCE, float("-inf")
        while clock() < deadline:
            if clock() >= marked + 0.25:
                marked = clock()
                reply = await self.api.patch(f"{base}/resourcequotas/mark/status", status, MERGE)
                assert reply.status == 200, reply.text
            reply = await self.api.post(f"{base}/configmaps", {"metadata": {"name": "x"}}, params={"dryRun": "All"})
            if f"limited: configmaps={mark}" in reply.text:
                return
        raise AssertionError(f"admission did not see the mark {mark} within {PATIENCE:g} s")

    async def create(self, resource: str, body: JSON) -> JSON:
        """Create an object that the server must accept."""
        reply = await self.api.post(self.path(resource), body)
        assert reply.status == 201, reply.text
        made: JSON = reply.json
        return made

    async def controller_is_current(self) -> None:
        """Wait until the quota controller, which follows quotas too, has seen all charges so far.

        A release before it has seen the charge has no effect until the next release, because the controller compares
        its count with the status that it knows.
        """
        mark, base = await self._marked("seen")
        hard = {"secrets": str(mark)}
        reply = await self.api.patch(f"{base}/resourcequotas/seen", {"spec": {"hard": hard}}, MERGE)
        assert reply.status == 200, reply.text
        await self.api.until(f"{base}/resourcequotas/seen", lambda found: bool(found["status"].get("hard") == hard))

    async def _marked(self, name: str) -> tuple[int, str]:
        """An unused number, and the namespace of the quota to mark with it."""
        base = f"/api/v1/namespaces/{_MARKED}"
        await self.api.post("/api/v1/namespaces", {"metadata": {"name": _MARKED}})
        await self.api.post(f"{base}/resourcequotas", {"metadata": {"name": name}, "spec": {}})
        return next(_MARKS), base

    async def quota_after(self, name: str, hard: JSON, used: JSON, **spec: Any) -> None:
        """Create a quota over pods that exist already, and wait until it has counted them."""
        await self.create("pods", pod("spare"))
        await self.quota(name, hard, **spec)
        await self.without_spare(used, name)

    async def without_spare(self, used: JSON, name: str = "q") -> None:
        """Delete the pod ``spare``, created last, and wait until a new or changed quota has counted the others.

        The controller follows pods and quotas separately, so it may count before it knows the newest pods. Deleting
        one more pod, which it sees after all others, makes it count again.
        """
        await self.delete("pods", "spare")
        await self.until_used(used, name)
        await self.admission_is_current()

    async def known_to_quota(self, name: str, within: float = PATIENCE) -> None:
        """Wait until the controller can count a name: it looks for new kinds periodically."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + within
        for attempt in itertools.count():
            made = await self.api.post(self.path("resourcequotas"), quota(f"try-{attempt}", {name: "1"}))
            assert made.status == 201, made.text
            place = self.path("resourcequotas", f"try-{attempt}")
            filled = await self.api.until(place, lambda seen: (seen.get("status") or {}).get("hard"))
            await self.api.delete(place)
            if name in (filled["status"].get("used") or {}):
                return
            assert clock() < deadline, f"{name} was not counted within {within:g} s"
            await asyncio.sleep(0.5)  # between two looks at a server

    async def until_created(self, resource: str, body: JSON, **params: str) -> None:
        """Repeat a create until the server accepts it: its admission may be a moment behind."""
        await self._ask_until(201, resource, body, **params)

    async def until_hard(self, hard: JSON, name: str = "q") -> JSON:
        """Wait until ``status.hard`` of a quota is exactly this; returns the quota."""
        found = await self.api.until(
            self.path("resourcequotas", name), lambda found: bool((found.get("status") or {}).get("hard") == hard)
        )
        await self.admission_is_current()
        return found

    async def refused(self, resource: str, body: JSON, lane: Lane = Lane.QUOTA) -> str:
        """The message of a create that must be forbidden; the rest of the answer is checked here."""
        return told(await self.api.post(self.path(resource), body), resource, body["metadata"].get("name"), lane)

    async def refused_in_time(self, resource: str, body: JSON, lane: Lane = Lane.QUOTA) -> str:
        """The message of a create that will be forbidden as soon as admission has seen the current quota."""
        reply = await self._ask_until(403, resource, body, dryRun="All")
        return told(reply, resource, body["metadata"].get("name"), lane)

    async def _ask_until(self, status: int, resource: str, body: JSON, **params: str) -> Reply:
        """Repeat a create until its answer has this status code."""
        seen = ""
        clock = asyncio.get_running_loop().time
        deadline = clock() + PATIENCE
        while clock() < deadline:
            reply = await self.api.post(self.path(resource), body, params=params or None)
            if reply.status == status:
                return reply
            assert reply.status in {201, 403}, reply.text
            seen = reply.text
        raise AssertionError(f"not answered {status} within {PATIENCE:g} s: {seen}")

    async def delete(self, resource: str, name: str, **params: str) -> Reply:
        """Delete an object once the controller knows its charge."""
        await self.controller_is_current()
        reply = await self.api.delete(self.path(resource, name), params=params or None)
        assert reply.status in {200, 202}, reply.text
        return reply

    async def finish(self, name: str, phase: str) -> None:
        """Set the phase of a pod once the controller knows its charge."""
        await self.controller_is_current()
        body = {"status": {"phase": phase}}
        reply = await self.api.patch(self.path("pods", name, "status"), body, MERGE)
        assert reply.status == 200, reply.text

    async def used(self, name: str = "q") -> JSON:
        reply = await self.api.get(self.path("resourcequotas", name))
        amounts: JSON = reply.json["status"]["used"]
        return amounts

    async def until_used(self, amounts: JSON, name: str = "q", within: float = PATIENCE) -> None:
        """Wait until ``status.used`` of a quota is exactly this."""
        await self.api.until(
            self.path("resourcequotas", name), lambda found: bool(found["status"].get("used") == amounts), within
        )


def _enforces(found: JSON, hard: JSON | None) -> bool:
    """Whether the controller has filled in a quota, as far as it can count its names."""
    status = found.get("status") or {}
    return bool(status.get("hard") == hard and ("used" in status or not hard))


def told(reply: Reply, resource: str, name: str | None, lane: Lane = Lane.QUOTA) -> str:
    """The message of a 403, which must be a complete Status that the gate's reader puts in the given lane."""
    assert reply.status == 403, reply.text
    message: str = json.loads(reply.text)["message"]
    plural, _, group = resource.partition(".")
    named = name or message.split('"')[1]
    details = {"name": named, **({"group": group} if group else {}), "kind": plural}
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "Forbidden",
        "details": details,
        "code": 403,
    }
    assert reply.text == json.dumps(status, separators=(",", ":")) + "\n"
    read = read_rejection(reply.status, reply.headers, reply.text.encode())
    assert (read.lane, read.message) == (lane, message)
    if lane is Lane.QUOTA:
        _check_amounts(read, message)
    return message


def _check_amounts(read: Rejection, message: str) -> None:
    """Check that the gate reads the amounts in a refusal as they are written."""
    _, _, sentence = message.partition("exceeded quota: ")
    name, *parts = sentence.split(", ")
    stated = [dict(item.split("=") for item in part.split(": ")[1].split(",")) for part in parts]
    assert read.quota == name
    assert [read.requested, read.used, read.limited] == [_nano(amounts.items()) for amounts in stated]


def _nano(amounts: Iterable[tuple[str, str]]) -> Mapping[str, int]:
    return {name: parse_quantity(text) for name, text in amounts}
