"""Keeps the webhook's certificates in the cluster: one Secret, one writer, and the bundle in its configuration.

Several replicas may run. One holds the Lease and writes; the others read. Who loses the Lease, or meets a newer version
of what it writes, looks again at its next turn.
"""

from __future__ import annotations

import base64
import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from backoff_ctrl.k8s.cluster.session import beginning

from .certificates import Kept, kept_in, renewed

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.cluster.session import ClusterSession

    from .sidecar import JSON

PATIENCE: Final = 10.0
"""Seconds for each request."""
LEASE: Final = 60
"""Seconds that a writer that is gone still counts."""
ANSWER_MAX: Final = 4 << 20
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_logger = logging.getLogger("backoff_ctrl")


class KeepingError(Exception):
    """The cluster did not answer as it must; the message says which right or object is missing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the certificates are kept. ``service``: by which the API server calls the webhook."""

    namespace: str
    secret: str
    service: str
    webhook: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a leaf must have."""
        return (f"{self.service}.{self.namespace}.svc", f"{self.service}.{self.namespace}.svc.cluster.local")


class Keeper:
    """One replica's part. ``who`` is its name in the Lease."""

    def __init__(
        self,
        session: ClusterSession,
        place: Place,
        who: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Keep the certificates at ``place``."""
        self._session = session
        self._place = place
        self._who = who
        self._clock = clock
        base = f"/api/v1/namespaces/{place.namespace}/secrets"
        self._secrets, self._secret = base, f"{base}/{place.secret}"
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{place.namespace}/leases"
        self._hooks = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{place.webhook}"

    async def turn(self) -> Kept:
        """Look once: renew what is due, if this is the writer. Return what is kept now. Raises ``KeepingError``.

        What was renewed takes part in the next turn: an authority signs only once its bundle was read back.
        """
        try:
            return await self._turn()
        except (AttributeError, KeyError, TypeError) as error:
            raise KeepingError(f"the API server's answer is incomplete: {error!r}") from error

    async def _turn(self) -> Kept:
        secret = await self._get(self._secret)
        kept = _read(secret)
        hooks = await self._get(self._hooks)
        trusted = _trusted(hooks)
        now = self._clock()
        wanted = renewed(kept, self._place.names, now, trusted)
        if (wanted is not kept or wanted.bundle != trusted) and await self._may_write(now):
            if wanted is not kept:
                kept = wanted if await self._write(secret, wanted) else _read(await self._get(self._secret))
            if hooks is not None and kept.bundle != trusted:
                await self._trust(hooks, kept.bundle)
        return kept

    async def _may_write(self, now: datetime) -> bool:
        """Take the Lease, or keep it; say whether it is ours."""
        path = f"{self._leases}/{self._place.secret}"
        lease = await self._get(path)
        spec = (lease or {}).get("spec") or {}
        if lease is not None and spec.get("holderIdentity") not in (None, "", self._who) and not _lapsed(spec, now):
            return False
        mine = {
            "holderIdentity": self._who,
            "leaseDurationSeconds": LEASE,
            "renewTime": f"{now:%Y-%m-%dT%H:%M:%S.%fZ}",
        }
        metadata: JSON = {"name": self._place.secret, "namespace": self._place.namespace}
        if lease is not None:
            metadata["resourceVersion"] = lease["metadata"]["resourceVersion"]
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": mine}
        method, where = ("POST", self._leases) if lease is None else ("PUT", path)
        return await self._sent(method, where, body)

    async def _write(self, secret: JSON | None, kept: Kept) -> bool:
        """Write the Secret; say whether it was still as it was read."""
        metadata: JSON = {"name": self._place.secret, "namespace": self._place.namespace}
        if secret is not None:  # labels and owners are the chart's
            metadata = {**secret["metadata"], "managedFields": None}
        data = {name: base64.b64encode(value).decode() for name, value in kept.data.items()}
        body = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "data": data}
        method, where = ("POST", self._secrets) if secret is None else ("PUT", self._secret)
        if secret is not None:
            body["type"] = secret.get("type", "Opaque")  # it can't be changed
        return await self._sent(method, where, body)

    async def _trust(self, hooks: JSON, bundle: bytes) -> None:
        """Write the bundle into each webhook of the configuration, if that is as it was read."""
        text = base64.b64encode(bundle).decode()
        webhooks = [{**each, "clientConfig": {**each["clientConfig"], "caBundle": text}} for each in hooks["webhooks"]]
        version = {"resourceVersion": hooks["metadata"]["resourceVersion"]}
        if await self._sent("PATCH", self._hooks, {"metadata": version, "webhooks": webhooks}, _MERGE):
            _logger.info(
                "told the API server to trust %d certificate authorities of the webhook", bundle.count(b"BEGIN")
            )

    async def _get(self, path: str) -> JSON | None:
        return await self._ask("GET", path, absent=(404,))

    async def _sent(self, method: str, path: str, body: JSON, headers: dict[str, str] | None = None) -> bool:
        """Write; False: another was quicker."""
        return await self._ask(method, path, body, absent=(409,), headers=headers) is not None

    async def _ask(
        self,
        method: str,
        path: str,
        body: JSON | None = None,
        *,
        absent: tuple[int, ...],
        headers: dict[str, str] | None = None,
    ) -> JSON | None:
        try:
            async with await self._session.request(
                method, path, body=body, headers=headers, timeout=PATIENCE
            ) as response:
                content = await beginning(response, ANSWER_MAX)
                status = response.status
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise KeepingError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        if status in absent:
            return None
        with suppress(ValueError):
            found: Any = json.loads(content)
            if status < 300 and isinstance(found, dict):
                return found
        raise KeepingError(f"{method} {path}: {status} {content[:300].decode(errors='replace')}")


def _read(secret: JSON | None) -> Kept:
    data = (secret or {}).get("data") or {}
    found = {}
    for name, value in data.items():
        with suppress(ValueError):  # made anew
            found[name] = base64.b64decode(value, validate=True)
    return kept_in(found)


def _trusted(hooks: JSON | None) -> bytes:
    """Return what all webhooks of the configuration trust; nothing, if they differ."""
    bundles = {each.get("clientConfig", {}).get("caBundle", "") for each in (hooks or {}).get("webhooks") or ()}
    if len(bundles) != 1:
        return b""
    with suppress(ValueError):
        return base64.b64decode(bundles.pop())
    return b""


def _lapsed(spec: JSON, now: datetime) -> bool:
    try:
        renewed_at = datetime.fromisoformat(str(spec.get("renewTime")))
        return now - renewed_at > timedelta(seconds=int(spec.get("leaseDurationSeconds") or LEASE))
    except (TypeError, ValueError):
        return True
