"""Meter: measures what a server charges for an object, under every name that a quota can have."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import count
from typing import Any, Final

from backoff_ctrl.engine.facts.quantities import format_quantity, parse_quantity
from backoff_ctrl.k8s.kube.charges.resources import resource_of
from tests.cluster.talking import MERGE, Api, Reply
from tests.kit.charged import Charged, cases, cluster_objects
from tests.kit.patience import PATIENCE

JSON = dict[str, Any]

_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi")
_DEVICES: Final = ("nvidia.com/gpu", "huawei.com/Ascend910", "example.com/device", "example.com/slot")
_STORAGE_CLASSES: Final = ("gold", "silver", "missing")
_DEVICE_CLASSES: Final = ("gpu", "nic", "extended")
_LEGACY: Final = ("configmaps", "secrets", "services", "replicationcontrollers", "resourcequotas", "pods")
_ENOUGH: Final = "1e20"  # more than 64 bits can hold
_MAKERS: Final = re.compile(r"jobs|deployments|sets|replicationcontrollers")


@cache
def all_names() -> dict[str, str]:
    """Every name that anything is charged under, and some that nothing is, with limits that are never reached."""
    counted = {resource_of(case.written) for case in cases()} | {"nodes", "widgets.other.example.com"}
    names = [
        *(f"{side}{name}" for name in _COMPUTE for side in ("", "requests.")),
        *(f"limits.{name}" for name in _COMPUTE[:3]),
        *(f"{side}{name}" for name in _DEVICES for side in ("", "requests.", "limits.")),
        *_LEGACY,
        "services.nodeports",
        "services.loadbalancers",
        "persistentvolumeclaims",
        "requests.storage",
        *(f"{name}.storageclass.storage.k8s.io/requests.storage" for name in _STORAGE_CLASSES),
        *(f"{name}.storageclass.storage.k8s.io/persistentvolumeclaims" for name in _STORAGE_CLASSES),
        *(f"{name}.deviceclass.resource.k8s.io/devices" for name in _DEVICE_CLASSES),
        *(f"requests.deviceclass.resource.kubernetes.io/{name}" for name in _DEVICE_CLASSES),
        *(f"count/{resource}" for resource in counted),
    ]
    return dict.fromkeys(names, _ENOUGH)


class Meter:
    """Namespaces on one server with quotas that are never full: the rise of ``used`` is the charge of an object.

    Nothing is deleted between two readings, so a late release cannot be mistaken for a charge. The meter gives the
    objects their names.
    """

    def __init__(self, api: Api) -> None:
        """Create the objects through ``api``; namespaces are made on demand."""
        self._api = api
        self._rooms: dict[str, str] = {}
        self._serial = count()
        self._late = 0
        self.spaces: list[str] = []

    @property
    def minor(self) -> int:
        """The minor version of the server: 36 for v1.36."""
        return self._api.server.minor

    async def charge(self, manifest: JSON, *, fresh: bool = False) -> Charged:
        """Create the object in every namespace that it takes, and return its charge. Raises AssertionError on refusal.

        ``fresh``: use namespaces in which nothing was charged before, for amounts that must not be added to others.
        """
        amounts, missing = await self._admitted(manifest, fresh=fresh)
        if missing:
            amounts |= await self._counted(manifest, missing)
        resource = resource_of(manifest)
        held_by = await self._held_by(manifest) if resource in {"pods", "persistentvolumeclaims"} else ()
        texts = {name: format_quantity(amounts[name]) for name in sorted(amounts)}
        return Charged(texts, tuple(sorted(missing)), held_by)

    async def _admitted(self, manifest: JSON, *, fresh: bool) -> tuple[dict[str, int], set[str]]:
        """Create it under a quota with all names, except those that the server demands the object to specify."""
        missing: set[str] = set()
        maker = bool(_MAKERS.search(resource_of(manifest)))
        deadline = asyncio.get_running_loop().time() + PATIENCE
        message = ""
        while asyncio.get_running_loop().time() < deadline:
            space = await self._room(missing, maker=maker, fresh=fresh)
            before = await _used(self._api, space, "all")
            reply = await self._create(space, manifest)
            if reply.status == 201:
                return _risen(before, await _used(self._api, space, "all")), missing
            message = reply.json["message"]
            if "status unknown for quota" in message:
                await _let_recount(self._api, space)
                continue
            if "provided port is already allocated" in message:  # other tests create the same Services, elsewhere
                manifest = _with_other_ports(manifest)
                continue
            assert ": must specify " in message, message
            missing |= {part.split(" for: ")[0] for part in message.split(": must specify ")[1].split("; ")}
        raise AssertionError(f"the quota controller has not found it within {PATIENCE} s: {message}")

    async def _room(self, without: Iterable[str], *, maker: bool, fresh: bool) -> str:
        """A namespace whose quota has all names but ``without``; with ``maker`` it also forbids pods."""
        key = f"{','.join(sorted(without))} {maker}"
        if not fresh and key in self._rooms:
            return self._rooms[key]
        space = await self._space()
        if not fresh:
            self._rooms[key] = space
        hard = {name: amount for name, amount in all_names().items() if name not in without}
        await make_quota(self._api, space, {"metadata": {"name": "all"}, "spec": {"hard": hard}})
        if maker:
            await make_quota(self._api, space, {"metadata": {"name": "no-pods"}, "spec": {"hard": {"pods": "0"}}})
        return space

    async def _counted(self, manifest: JSON, names: Iterable[str]) -> dict[str, int]:
        """Create it without a quota, then make one: what the quota controller counts more than before."""
        if "late" not in self._rooms:
            self._rooms["late"] = await self._space()
            self._late_before: dict[str, int] = {}
        space = self._rooms["late"]
        while (reply := await self._create(space, manifest)).status != 201:
            assert "must specify" in reply.json["message"], reply.text  # admission still knows the previous quota
        self._late += 1
        hard = {name: amount for name, amount in all_names().items() if not name.startswith("count/")}
        hard["count/pods"] = _ENOUGH
        path = f"/api/v1/namespaces/{space}/resourcequotas"
        used: dict[str, int] = {}
        while used.get("count/pods") != parse_quantity(self._late):  # the controller may not know the object yet
            await make_quota(self._api, space, {"metadata": {"name": "late"}, "spec": {"hard": hard}})
            used = await _used(self._api, space, "late")
            gone = await self._api.delete(f"{path}/late")
            assert gone.status == 200, gone.text
        risen, self._late_before = _risen(self._late_before, used), used
        return {name: amount for name, amount in risen.items() if name in set(names)}

    async def _held_by(self, manifest: JSON) -> tuple[str, ...]:
        """Create it under a quota for every scope; returns the quotas that were charged."""
        quotas = cluster_objects("scoped_quotas")
        if "scoped" not in self._rooms:
            self._rooms["scoped"] = space = await self._space()
            for quota in quotas:
                await make_quota(self._api, space, quota)
        space = self._rooms["scoped"]
        before = await _all_used(self._api, space)
        reply = await self._create(space, manifest)
        assert reply.status == 201, reply.text
        after = await _all_used(self._api, space)
        return tuple(sorted(name for name in after if after[name] != before[name]))

    async def _space(self) -> str:
        """A namespace that has already what controllers create in each: it is counted, too."""
        name = f"charges-{secrets.token_hex(5)}"
        reply = await self._api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        assert reply.status == 201, reply.text
        self.spaces.append(name)
        for place in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            await self._api.until(f"/api/v1/namespaces/{name}/{place}", bool)
        return name

    async def _create(self, space: str, manifest: JSON) -> Reply:
        metadata = {**(manifest.get("metadata") or {}), "name": f"c{next(self._serial)}"}
        body = {**manifest, "metadata": metadata}
        if manifest["kind"] == "Event":
            body["involvedObject"] = {**body["involvedObject"], "namespace": space}
        return await self._api.post(path_of(manifest, space), body)


def path_of(manifest: JSON, namespace: str = "") -> str:
    """The path at which an object is created."""
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = resource_of(manifest).partition(".")[0]
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


async def prepare(api: Api) -> None:
    """Create the objects that the manifests refer to, unless they exist."""
    for obj in cluster_objects("classes"):
        reply = await api.post(path_of(obj), obj)
        assert reply.status in {201, 409}, reply.text
        if obj["kind"] == "CustomResourceDefinition":
            await api.until(f"{path_of(obj)}/{obj['metadata']['name']}", _is_established)


async def tidy(api: Api, spaces: Iterable[str]) -> None:
    """Delete everything again, except definitions on a real server (``custom_kinds.retire`` says why)."""
    for space in spaces:
        await api.delete(f"/api/v1/namespaces/{space}")
    for obj in cluster_objects("classes"):
        if obj["kind"] == "CustomResourceDefinition" and api.server.kind == "kubernetes":
            continue
        await api.delete(f"{path_of(obj)}/{obj['metadata']['name']}")


async def make_quota(api: Api, space: str, quota: JSON) -> None:
    """Create a quota and wait until it is enforced."""
    path = f"/api/v1/namespaces/{space}/resourcequotas"
    while (reply := await api.post(path, quota)).status == 409:  # the previous quota is not gone yet
        assert reply.json["reason"] == "AlreadyExists", reply.text
    assert reply.status == 201, reply.text
    await api.until(f"{path}/{quota['metadata']['name']}", _is_enforced)


async def _let_recount(api: Api, space: str) -> None:
    """Change the quota, so that its controller checks what it can count by now; it finds new kinds every 30 s."""
    path = f"/api/v1/namespaces/{space}/resourcequotas/all"
    hard = {f"requests.example.com/try-{secrets.token_hex(3)}": "1"}
    await asyncio.sleep(0.5)
    reply = await api.patch(path, {"spec": {"hard": hard}}, MERGE)
    assert reply.status == 200, reply.text
    await api.until(path, _is_enforced)


def _is_established(definition: JSON) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _is_enforced(quota: JSON) -> bool:
    return bool((quota.get("status") or {}).get("hard") == quota["spec"]["hard"])


async def _used(api: Api, space: str, name: str) -> dict[str, int]:
    return (await _all_used(api, space))[name]


async def _all_used(api: Api, space: str) -> dict[str, dict[str, int]]:
    reply = await api.get(f"/api/v1/namespaces/{space}/resourcequotas")
    assert reply.status == 200, reply.text
    return {
        quota["metadata"]["name"]: _amounts(quota["status"].get("used") or {})
        for quota in reply.json["items"]
        if "status" in quota
    }


def _amounts(texts: Mapping[str, str]) -> dict[str, int]:
    return {name: parse_quantity(text) for name, text in texts.items()}


def _with_other_ports(manifest: JSON) -> JSON:
    """Return a Service with other node ports: which ones it has is not charged."""
    shift = 1 + secrets.randbelow(2000)
    ports = [
        {**port, "nodePort": 30000 + (port["nodePort"] - 30000 + shift) % 2768} if "nodePort" in port else port
        for port in manifest["spec"]["ports"]
    ]
    return {**manifest, "spec": {**manifest["spec"], "ports": ports}}


def _risen(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {name: rise for name, amount in after.items() if (rise := amount - before.get(name, 0))}
