"""Single requests about Tasks, and what the server's answers mean: each error is a ``StoreError``, a sentence."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from backoff_ctrl.k8s.gate.events.correlator import micro_time
from backoff_ctrl.k8s.kube.answers.answer import Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.answers.fields import mapping, mapping_in, mappings, metadata_of, text
from backoff_ctrl.k8s.kube.answers.rejections import rejection_of
from backoff_ctrl.k8s.kube.cluster.objects import FORBIDDEN, MERGE, STRICT, Objects
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.paths import PathError, group_path, path_to
from backoff_ctrl.k8s.tasks.model import API_VERSION, JSON, KIND
from backoff_ctrl.k8s.tasks.plugins.marks import FINALIZER
from backoff_ctrl.k8s.tasks.store import AbsentError, BrokenStoreError, FullError, RefusedError, StoreError

from .schema import GROUP, NAME, PLURAL, VERSION

PATH: Final = group_path(API_VERSION)
JSON_PATCH: Final = "application/json-patch+json"
PATIENCE: Final = 34.0
"""Seconds for an answer: the server itself gives up then."""
INSTALL: Final = "backoff-ctrl operator --print-crd | kubectl apply -f -"
AT_A_TIME: Final = 16
"""Tasks that are sent at a time."""
WHO: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
HOME: Final = "/api/v1/namespaces/kube-system"
_COMPONENT: Final = "backoff-ctrl"


class Requests:
    """Requests to one API server. All methods raise ``StoreError`` where it does not do what was asked."""

    def __init__(self, session: ClusterSession, host: str) -> None:
        self._objects = Objects(session)
        self._host = host
        self._room = asyncio.Semaphore(AT_A_TIME)

    async def identity(self) -> str:
        """Return what identifies the cluster, as the value of a label: the uid of its first namespace."""
        answer = await self._ask("GET", HOME)
        if answer.status == 403:
            raise StoreError(
                "the account of this manager may not get the namespace kube-system, whose uid identifies the cluster: "
                "allow get on namespaces with that name"
            )
        found = text(metadata_of(self._read(answer, "read the namespace kube-system")).get("uid"))
        if not found:
            raise StoreError(f"{self._host} has a namespace kube-system without a uid: this is no API server")
        return found

    async def get(self, namespace: str, name: str) -> JSON:
        """Return a Task. Raises ``AbsentError``."""
        answer = await self._ask("GET", _path(namespace, name))
        if answer.status == 404:
            await self.insist_on_kind()
            raise AbsentError(f"there is no task {namespace}/{name}: kubectl get tasks -n {namespace} shows them")
        return self._read(answer, f"read task {namespace}/{name}")

    async def create(self, body: JSON, *, dry: bool = False) -> JSON | None:
        """Create a Task; None: one of its name exists. ``dry``: only say whether it could be created."""
        namespace, name = (str(metadata_of(body).get(each)) for each in ("namespace", "name"))
        query = [("fieldManager", _COMPONENT), STRICT, *([("dryRun", "All")] if dry else [])]
        async with self._room:
            answer = await self._ask("POST", _path(namespace), body, query=query)
        if answer.status == 409 and mapping(answer.json()).get("reason") == "AlreadyExists":
            return None
        if answer.status == 403 and "exceeded quota" in rejection_of(answer).message:
            raise FullError(
                f"namespace {namespace} may have no further task ({rejection_of(answer).message}): delete some "
                f"(kubectl delete task NAME -n {namespace}), or have that quota raised"
            )
        if answer.status == 404:
            await self.insist_on_kind()
        return self._read(answer, f"create task {namespace}/{name}")

    async def delete(self, body: Mapping[str, Any]) -> bool:
        """Delete this Task, by its uid and, if ``body`` has one, its version; it may be gone already.

        False: it has changed meanwhile, or another one has its name.
        """
        same = {name: value for name in ("uid", "resourceVersion") if (value := metadata_of(body).get(name))}
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
                   "preconditions": same}  # fmt: skip
        answer = await self._ask("DELETE", _of(body), options)
        if answer.status not in (404, 409):
            self._read(answer, f"delete {_named(body)}")
        return answer.status != 409

    async def write_status(self, body: Mapping[str, Any], status: JSON) -> JSON | None:
        """Replace the status of a Task, as long as it has not changed; None: it has, or it is gone.

        Raises ``RefusedError`` for one that the server never takes.
        """
        patch: list[JSON] = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata_of(body).get("resourceVersion")},
            {"op": "add", "path": "/status", "value": status},
        ]
        return await self._patch(body, patch, JSON_PATCH, "status", f"write the status of {_named(body)}")

    async def user(self) -> str:
        """Return the user that the server takes this account for; empty: it does not say."""
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self._ask("POST", WHO, kind)
        return text(mapping_in(mapping_in(answer.json(), "status"), "userInfo").get("username"))

    async def ask_for(self, body: Mapping[str, Any], given: Mapping[str, Any], what: str) -> JSON | None:
        """Write what is asked of a Task, as these fields of its spec, as long as it has not changed.

        None: something has, or it is gone. ``what``, for errors: ``signal``.
        """
        patch: list[JSON] = [  # a merge would drop null within the value
            {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata_of(body).get("resourceVersion")},
            *({"op": "add", "path": f"/spec/{name}", "value": value} for name, value in given.items()),
        ]
        return await self._patch(body, patch, JSON_PATCH, None, f"{what} {_named(body)}")

    async def hold(self, body: Mapping[str, Any], held: bool) -> JSON | None:
        """Put our finalizer on a Task, or take it off; None: it has changed meanwhile, or is gone."""
        metadata = metadata_of(body)
        others = [each for each in metadata.get("finalizers") or () if each != FINALIZER]
        left = [*others, FINALIZER] if held else others
        patch = {"metadata": {"resourceVersion": metadata.get("resourceVersion"), "finalizers": left or None}}
        return await self._patch(body, patch, MERGE, None, f"change the finalizers of {_named(body)}")

    async def tell(self, body: Mapping[str, Any], reason: str, note: str, now: float) -> None:
        """Write a Kubernetes event about a Task; what the server answers does not matter."""
        metadata = metadata_of(body)
        namespace = str(metadata.get("namespace"))
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata.get('name')}.{secrets.token_hex(8)}", "namespace": namespace},
            "eventTime": micro_time(now),
            "reportingController": f"{GROUP}/tasks",
            "reportingInstance": _COMPONENT,
            "action": reason,
            "reason": reason,
            "note": note[:1000],
            "type": "Warning",
            "regarding": {"apiVersion": API_VERSION, "kind": KIND, "namespace": namespace,
                          "name": metadata.get("name"), "uid": metadata.get("uid")},
        }  # fmt: skip
        await self._ask("POST", path_to("/apis/events.k8s.io/v1", "events", namespace=namespace), event)

    async def insist_on_kind(self) -> None:
        """Raise ``BrokenStoreError`` if the server does not have Tasks as this program knows them."""
        answer = await self._ask("GET", path_to("/apis", GROUP))
        if answer.status == 404:
            raise BrokenStoreError(f"{self._host} has no kind {NAME}: install it with {INSTALL}")
        served = [text(each.get("version")) for each in mappings(mapping(answer.json()).get("versions"))]
        if answer.ok and VERSION not in served:
            raise BrokenStoreError(
                f"{self._host} serves {NAME} as {', '.join(served)}, and this program knows {VERSION}: its definition "
                "is of another version of backoff-ctrl, use that version"
            )

    async def _patch(
        self, body: Mapping[str, Any], patch: JSON | Sequence[JSON], form: str, part: str | None, what: str
    ) -> JSON | None:
        answer = await self._ask(
            "PATCH", _of(body, part), patch, query=[("fieldManager", _COMPONENT)], headers={"Content-Type": form}
        )
        if part and answer.status in (400, 422):  # of a status, which this program alone writes
            raise RefusedError(f"the API server at {self._host} refuses to {what}: {rejection_of(answer).message}")
        return None if answer.status in (404, 409) else self._read(answer, what)

    def _read(self, answer: Answer, what: str) -> JSON:
        if answer.ok:
            return answer.json() or {}
        said = f"{answer.status} {rejection_of(answer).message}".strip()
        if answer.status == FORBIDDEN:
            said += f"; ask for a role that allows it on {NAME}"
        raise StoreError(f"the API server at {self._host} did not {what}: {said}")

    async def _ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: list[tuple[str, str]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        try:
            return await self._objects.ask(method, path, body, headers=headers, query=query, patience=PATIENCE)
        except (NotSent, OutcomeUnknown) as error:
            raise StoreError(f"the API server at {self._host} can't be reached ({error}): it is tried again") from error


def _path(namespace: str, name: str | None = None, part: str | None = None) -> str:
    try:
        return path_to(PATH, PLURAL, namespace=namespace, name=name, part=part)
    except PathError as error:
        raise AbsentError(f"there is no such task: {error}") from None


def _of(body: Mapping[str, Any], part: str | None = None) -> str:
    metadata = metadata_of(body)
    return _path(str(metadata.get("namespace")), str(metadata.get("name")), part)


def _named(body: Mapping[str, Any]) -> str:
    metadata = metadata_of(body)
    return f"task {metadata.get('namespace')}/{metadata.get('name')}"
