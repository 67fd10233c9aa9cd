"""Gangs through the official clients: objects that are created as one, or not at all.

``with gang(core, pods):`` waits for room for all of the pods; those that are created in the block draw from it. What
waits and draws is ``backoff_ctrl.k8s.gate.gangs``. ``create_gang`` does the creating, too, and undoes it if one fails.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Self

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.k8s.gate.creates.creation import OptionError, check_options
from backoff_ctrl.k8s.gate.gangs import AdmittedGang, GangAsked, gang_of
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.answers.answer import SERVER_LIMIT
from backoff_ctrl.k8s.kube.answers.fields import metadata_of
from backoff_ctrl.k8s.kube.paths import path_to

from .gating import GatedClient, drawing
from .transport import JSON, headers_to_send, mark_configured

PODS: Final = "pods"
KINDS: Final = {"Pod": "v1", "Job": "batch/v1"}
"""The kinds whose models and whose creates are known by name, with their versions."""
_UNDOING: Final[set[asyncio.Future[Any]]] = set()
"""The event loop itself holds no task: one whose caller is gone goes on all the same."""


class gang:  # noqa: N801 - a context manager, as ``waiting``
    """Wait until all of these objects fit, then let the creates in the block draw from what is reserved for them.

    ``async with`` is the same for asyncio. ``core`` is an API of a gated client, such as ``CoreV1Api``. The objects are
    models or manifests, pods unless they say so, of one namespace: theirs, or ``namespace``. The pods that controllers
    make of them (of a Job, a JobSet, a RayJob) belong to the gang: they are known by its label, which is added to what
    is created, and what is reserved for them outlasts the block.

    ``limit``: seconds without a create after which what is left is given back (None: five minutes). ``timeout`` and
    ``priority`` of the wait are those of ``waiting``, unless they are given here; ``name`` is what log lines call it.
    Leaving the block gives back what was not created.

    The block's ``as`` gives the gang itself, which shows what has come of it, and ``here()`` for other threads.

    Raises ``GangError``, a ``ValueError``, at once for objects that make no gang; entering the block raises
    ``GangRefused`` if they will never fit together, ``WaitedTooLong`` and ``GateClosed``.
    """

    def __init__(
        self,
        core: Any,
        objects: Sequence[Any],
        *,
        namespace: str | None = None,
        name: str = "",
        timeout: float | None = None,
        priority: int | None = None,
        limit: float | None = None,
    ) -> None:
        """Check what is asked for, before it waits."""
        check_options(timeout, priority, None, None)
        self._client: Any = getattr(core, "api_client", core)
        if not isinstance(self._client, GatedClient):
            raise OptionError(
                f"a gang needs a gated client: CoreV1Api(GatedApiClient()), not {type(self._client).__name__}"
            )
        if not isinstance(objects, list | tuple):
            raise GangError(f"a gang is a list of objects, such as [pod, pod], not {type(objects).__name__}")
        self.manifests: list[Any] = [self._manifest(each) for each in objects]
        self.namespace = namespace or _namespace_of(self.manifests)
        self.is_async = not isinstance(self._client.gate, Gate)
        options = self._client.create_options()
        self._asked: GangAsked = gang_of(
            self.namespace,
            [(manifest, 1) for manifest in self.manifests],
            resource=PODS,
            name=name,
            server=self._client.configuration.host,
            priority=options.priority if priority is None else priority,
            timeout=options.timeout if timeout is None else timeout,
            limit=limit,
        )
        self._waiting: Any = None
        self._drawing: Any = None
        self._admitted: AdmittedGang

    @property
    def whole(self) -> bool:
        """Whether the whole was found to fit. False: quotas can't be read, or no room is reserved."""
        return self._admitted.whole

    @property
    def drawn(self) -> int:
        """The number of members that were sent and not refused."""
        return self._admitted.drawn

    @property
    def undrawn(self) -> int:
        """The number of members that may still be created from what is reserved."""
        return self._admitted.undrawn

    @property
    def given_back(self) -> int:
        """The number of members that were given back: the limit has passed, or the block was left."""
        return self._admitted.given_back

    def give_back(self) -> None:
        """Give back what was not created, before the block ends: creates that wait for it end with an error."""
        self._admitted.give_back()

    def here(self) -> Any:
        """Let creates in this ``with`` block draw: for other threads, which do not inherit that of the gang."""
        return drawing(self._admitted)

    def __enter__(self) -> Self:
        self._check(not self.is_async, "this client is for asyncio: write `async with gang(...)`")
        self._waiting = self._wait(self._client.configuration.auth_settings())
        try:
            return self._begun(self._waiting.__enter__())
        finally:
            self._waiting = None if self._drawing is None else self._waiting

    def __exit__(self, *error: object) -> None:
        self._over().__exit__(*error)

    async def __aenter__(self) -> Self:
        self._check(self.is_async, "this client is for threads: write `with gang(...)`")
        settings = self._client.configuration.auth_settings()
        self._waiting = self._wait(await settings if inspect.isawaitable(settings) else settings)
        try:
            return self._begun(await self._waiting.__aenter__())
        finally:
            self._waiting = None if self._drawing is None else self._waiting

    async def __aexit__(self, *error: object) -> None:
        await self._over().__aexit__(*error)

    def _manifest(self, given: Any) -> Any:
        manifest = self._client.sanitize_for_serialization(given)
        kind = type(given).__name__.removeprefix("V1")
        if isinstance(manifest, dict) and not manifest.get("kind") and kind in KINDS:  # models leave it out
            return {"apiVersion": KINDS[kind], "kind": kind, **manifest}
        return manifest

    def _check(self, fits: bool, otherwise: str) -> None:
        if self._waiting is not None:
            raise OptionError("this gang's block was entered already: make another `gang(...)`")
        if not fits:
            raise OptionError(otherwise)

    def _wait(self, settings: Any) -> Any:
        """Return the gate's own block, with a way to read the quotas by the client's credentials."""
        client, host = self._client, self._client.configuration.host
        headers = headers_to_send({**client.default_headers, "Accept": JSON}, settings)
        mark_configured(headers)
        url = host + path_to("/api/v1", PODS, namespace=self.namespace)
        return client.gate.gang(self._asked, client.transport(client, self.namespace, url, headers, None))

    def _begun(self, admitted: AdmittedGang) -> Self:
        self._admitted = admitted
        self._drawing = drawing(admitted)
        self._drawing.__enter__()
        return self

    def _over(self) -> Any:
        waiting, drawn_from = self._waiting, self._drawing
        self._waiting = self._drawing = None
        drawn_from.__exit__(None, None, None)
        return waiting


def _namespace_of(manifests: Sequence[Any]) -> str:
    """Return the namespace of the first manifest that names one. Raises ``GangError`` if all lack one."""
    for manifest in manifests:
        if namespace := metadata_of(manifest).get("namespace"):
            return str(namespace)
    raise GangError("a gang needs a namespace: give `namespace`, or metadata.namespace in its pods")


# -- all of them, or no pod ---------


class GangFailed(Exception):  # noqa: N818 - a result, as ``GangRefused``
    """Not all members of a gang could be created. What was created was deleted again, but for ``left``, if any.

    ``created`` and ``left`` are names; the cause is the error of the first create that failed.
    """

    def __init__(self, count: int, created: list[str], left: list[str], error: BaseException) -> None:
        """``count`` is the number of members."""
        said = f"{len(created)} of {count} members of the gang were created, then one failed: {_short(error)}. "
        if left:
            said += f"These could not be deleted again: {', '.join(left)}"
        else:
            said += "Those that were created are deleted again" if created else "No member is left"
        super().__init__(said)
        self.created = created
        self.left = left


def _short(error: BaseException) -> str:
    """Return the server's sentence, or what else says most."""
    try:
        said = json.loads(getattr(error, "body", "") or "")["message"]
    except (ValueError, TypeError, KeyError):
        said = getattr(error, "reason", None) or error
    return str(said).strip().partition("\n")[0].rstrip(".")


def create_gang(core: Any, objects: Sequence[Any], **options: Any) -> Any:
    """Create all of these pods (or Jobs) once there is room for all of them; return the stored objects, in order.

    Arguments and errors are those of ``gang``; ``core`` is a ``CoreV1Api`` for pods, a ``BatchV1Api`` for Jobs. If a
    create fails, what was created is deleted again, and ``GangFailed`` says so. With a client for asyncio, await what
    this returns.
    """
    asked = gang(core, objects, **options)
    if asked.is_async:
        return _create_async(core, asked, objects)
    return _create(core, asked, objects)


def _verbs(core: Any, asked: gang) -> tuple[Any, Any]:
    """Return how these objects are created and deleted. Raises ``OptionError`` where ``core`` has no such create."""
    kinds = {str(manifest.get("kind") or "Pod") for manifest in asked.manifests}
    kind = "Pod" if not kinds else kinds.pop()
    create = getattr(core, f"create_namespaced_{kind.lower()}", None)
    if kinds or create is None:
        raise OptionError(
            f"create_gang creates objects of one kind that its API creates, not {', '.join(sorted({kind, *kinds}))} "
            f"by {type(core).__name__}: create others in a `with gang(...)` block"
        )
    delete = getattr(core, f"delete_namespaced_{kind.lower()}")
    return create, partial(delete, propagation_policy="Background") if kind != "Pod" else delete


def _create(core: Any, asked: gang, pods: Sequence[Any]) -> list[Any]:
    create, delete = _verbs(core, asked)
    stored: list[Any] = []
    with asked:
        try:
            for pod in pods:
                stored.append(create(asked.namespace, pod))  # noqa: PERF401 - kept if one fails
        finally:
            if len(stored) < len(pods):
                created = [each.metadata.name for each in stored]
                _raise_failed(len(pods), created, [name for name in created if _is_left(delete, name, asked.namespace)])
    return stored


def _is_left(delete: Any, name: str, namespace: str) -> bool:
    try:
        delete(name, namespace)
    except _errors_of_calls() as failure:  # the others are deleted all the same
        return _leaves(failure)
    return False


def _errors_of_calls() -> tuple[type[Exception], ...]:
    from kubernetes.client import ApiException  # noqa: PLC0415 - who calls this has loaded both
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    return ApiException, HTTPError, OSError


async def _create_async(core: Any, asked: gang, pods: Sequence[Any]) -> list[Any]:
    create, delete = _verbs(core, asked)
    async with asked:
        tasks = [asyncio.ensure_future(create(asked.namespace, pod)) for pod in pods]
        stored: list[Any] = []
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)  # as ``gather``, but cancels no task
            stored = [task.result() for task in tasks if task.done()]
        finally:
            if len(stored) < len(pods):
                asked.give_back()  # those that wait end at once; those that were sent are answered, perhaps stored
                undoing = asyncio.ensure_future(_undo(tasks, delete, asked.namespace))
                _UNDOING.add(undoing)
                undoing.add_done_callback(_UNDOING.discard)
                _raise_failed(len(pods), *await asyncio.shield(undoing))
        return stored


async def _undo(tasks: Sequence[asyncio.Future[Any]], delete: Any, namespace: str) -> tuple[list[str], list[str]]:
    """Wait until those that were sent are answered, and delete what they made; return all names, and those left."""
    await asyncio.wait(tasks, timeout=SERVER_LIMIT)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    created = [each.metadata.name for each in ended if not isinstance(each, BaseException)]
    deleted = await asyncio.gather(*(delete(name, namespace) for name in created), return_exceptions=True)
    return created, [name for name, end in zip(created, deleted, strict=True) if _leaves(end)]


def _leaves(failure: object) -> bool:
    """Return whether a delete that ended so has left the object."""
    return isinstance(failure, BaseException) and getattr(failure, "status", None) != 404


def _raise_failed(count: int, created: list[str], left: list[str]) -> None:
    """Raise what became of the gang, in place of the error being handled. A Ctrl-C or a cancellation goes on."""
    error = sys.exception()
    if isinstance(error, Exception):
        raise GangFailed(count, created, left, error) from error
