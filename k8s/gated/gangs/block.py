"""``with gang(core, pods):`` waits for room for all of the pods; those that are created in the block draw from it.

``async with`` is the same for asyncio.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.k8s.creates.calls import Target
from backoff_ctrl.k8s.creates.creation import OptionError, check_options
from backoff_ctrl.k8s.gate.gangs.admitted import AdmittedGang
from backoff_ctrl.k8s.gate.gangs.asked import GangAsked, gang_of
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.gated.gating import GatedClient
from backoff_ctrl.k8s.gated.waiting import drawing

PODS: Final = "pods"
KINDS: Final = {"Pod": "v1", "Job": "batch/v1"}
"""The kinds whose models and whose creates are known by name, with their versions."""


class ClientGang:
    """An admitted gang of pods. ``whole``: all of it was found to fit; ``drawn`` and ``undrawn`` count its members."""

    def __init__(self, admitted: AdmittedGang) -> None:
        """Show an admitted gang."""
        self._admitted = admitted

    @property
    def whole(self) -> bool:
        """Whether the whole was found to fit. False: quotas can't be read, or nothing is reserved."""
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

    @contextmanager
    def here(self) -> Iterator[None]:
        """Let creates in this block draw: for other threads, which do not inherit the ``with`` block."""
        with drawing(self._admitted):
            yield


class gang:  # noqa: N801 - a context manager, as ``waiting``
    """Wait until all of these objects fit, then let the creates in the block draw from what is reserved for them.

    ``core`` is an API of a gated client, such as ``CoreV1Api``. The objects are models or manifests, pods unless they
    say so, of one namespace: theirs, or ``namespace``. The pods that controllers make of them (of a Job, a JobSet, a
    RayJob) belong to the gang: they are known by its label, which is added to what is created, and what is reserved
    for them outlasts the block.

    ``limit``: seconds without a create after which what is left is given back (None: five minutes). ``timeout`` and
    ``priority`` of the wait are those of ``waiting``, unless they are given here; ``name`` is what log lines call it.
    Leaving the block gives back what was not created.

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
        """Check what is asked for; nothing waits yet."""
        check_options(timeout, priority, None, None)
        self._client = client_of(core)
        if not isinstance(objects, list | tuple):
            raise GangError(f"a gang is a list of objects, such as [pod, pod], not {type(objects).__name__}")
        self.manifests: list[Any] = [self._manifest(each) for each in objects]
        self.namespace = namespace or namespace_of(self.manifests)
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

    # -- threads ---------

    def __enter__(self) -> ClientGang:
        """Wait in this thread."""
        self._begins()
        if is_async(self._client):
            raise OptionError("this client is for asyncio: write `async with gang(...)`")
        from backoff_ctrl.k8s.gated.thread_transport import ThreadTransport  # noqa: PLC0415 - asyncio needs none

        settings = self._client.configuration.auth_settings()
        self._waiting = waiting = self._gate().gang(self._asked, self._transport(ThreadTransport, settings))
        begun = None
        try:
            begun = self._begun(waiting.__enter__())
        finally:
            self._waiting = None if begun is None else waiting
        return begun

    def __exit__(self, *error: object) -> None:
        """Give back what was not created."""
        self._over().__exit__(*error)

    # -- asyncio ---------

    async def __aenter__(self) -> ClientGang:
        """Wait on the running event loop."""
        self._begins()
        if not is_async(self._client):
            raise OptionError("this client is for threads: write `with gang(...)`")
        from backoff_ctrl.k8s.gated.aio_transport import AioTransport  # noqa: PLC0415 - threads never load aiohttp

        settings = self._client.configuration.auth_settings()
        settings = await settings if inspect.isawaitable(settings) else settings
        self._waiting = waiting = self._gate().gang(self._asked, self._transport(AioTransport, settings))
        begun = None
        try:
            begun = self._begun(await waiting.__aenter__())
        finally:
            self._waiting = None if begun is None else waiting
        return begun

    async def __aexit__(self, *error: object) -> None:
        """Give back what was not created."""
        await self._over().__aexit__(*error)

    # -- both ---------

    def _manifest(self, given: Any) -> Any:
        manifest = self._client.sanitize_for_serialization(given)
        kind = type(given).__name__.removeprefix("V1")
        if isinstance(manifest, dict) and not manifest.get("kind") and kind in KINDS:  # models leave it out
            return {"apiVersion": KINDS[kind], "kind": kind, **manifest}
        return manifest

    def _gate(self) -> Any:
        return self._client.gate

    def _transport(self, kind: Any, settings: Any) -> Any:
        headers = {**self._client.default_headers, "Accept": "application/json"}
        token = settings.get("BearerToken")
        if token is not None:
            headers["authorization"] = token["value"]
        host = self._client.configuration.host
        url = f"{host}/api/v1/namespaces/{self.namespace}/{PODS}"
        return kind(self._client, Target(self.namespace, PODS, "", dry_run=False), url, headers, None)

    def _begins(self) -> None:
        if self._waiting is not None:
            raise OptionError("this gang's block was entered already: make another `gang(...)`")

    def _begun(self, admitted: AdmittedGang) -> ClientGang:
        self._drawing = drawing(admitted)
        self._drawing.__enter__()
        return ClientGang(admitted)

    def _over(self) -> Any:
        self._drawing.__exit__(None, None, None)
        waiting, self._waiting = self._waiting, None
        return waiting


def is_async(client: Any) -> bool:
    """Say whether a gated client is one for asyncio."""
    return not isinstance(client.gate, Gate)


def client_of(core: Any) -> Any:
    """Return the gated client of an API object (or the client itself). Raises ``OptionError`` for any other."""
    client = getattr(core, "api_client", core)
    if not isinstance(client, GatedClient):
        raise OptionError(f"a gang needs a gated client: CoreV1Api(GatedApiClient()), not {type(client).__name__}")
    return client


def namespace_of(manifests: Sequence[Any]) -> str:
    """Return the namespace of the first manifest that names one. Raises ``GangError`` if none does."""
    for manifest in manifests:
        metadata = manifest.get("metadata") if isinstance(manifest, dict) else None
        namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
        if namespace:
            return str(namespace)
    raise GangError("a gang needs a namespace: give `namespace`, or metadata.namespace in its pods")
