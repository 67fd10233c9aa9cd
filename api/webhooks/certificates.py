"""The webhook's certificates: how they are made, kept in one Secret, and served.

An API server trusts the authorities in the webhook's configuration (``caBundle``), and learns of a change a moment
later. So a new authority is first added to the bundle beside the old one, and signs only once it was read back from
there; the old one leaves the bundle after its last leaf.

Several replicas may run. One holds the Lease and writes the Secret and the bundle; the others read. A replica that
loses the Lease, or finds a newer version of what it writes, reads again in its next round.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import aiohttp
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from backoff_ctrl.k8s.kube.answers.bounded_json import read_json
from backoff_ctrl.k8s.kube.answers.fields import written_back
from backoff_ctrl.k8s.kube.cluster.election import Election, ElectionError, Terms
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession, beginning
from backoff_ctrl.k8s.kube.paths import path_to
from backoff_ctrl.k8s.sidecar.authority import Authority, new_authority, read_authority
from backoff_ctrl.k8s.sidecar.certificates import CertificatesError, listener_context

from .sidecar import JSON

LEAF_LIFE: Final = timedelta(days=90)
AUTHORITY_LEAST: Final = timedelta(days=365)
"""An authority with less time left is replaced."""
SETTLED: Final = timedelta(minutes=1)
"""The age at which a new authority begins to sign: each API server learns of it a moment later."""
OVERLAP: Final = timedelta(hours=1)
"""How long an old authority stays in the bundle after a leaf of the new one was written: replicas read it later."""
MUTATING: Final = "mutatingwebhookconfigurations"
VALIDATING: Final = "validatingwebhookconfigurations"
AUTHORITY, FORMER, LEAF, KEY = "ca.pem", "former.crt", "tls.crt", "tls.key"
"""The keys of the Secret. ``ca.pem`` is the authority with its key; ``tls.*`` are as in any TLS Secret."""
_END_OF_KEY: Final = b"-----END PRIVATE KEY-----\n"


@dataclass(frozen=True, slots=True)
class Kept:
    """What the Secret holds. ``former``: the certificate of the authority before this one, or empty."""

    authority: bytes
    former: bytes
    leaf: bytes
    key: bytes

    @property
    def bundle(self) -> bytes:
        """The authorities that the API server has to trust."""
        made = read_authority(self.authority)
        return (b"" if made is None else made.trusted) + self.former

    @property
    def data(self) -> dict[str, bytes]:
        return {AUTHORITY: self.authority, FORMER: self.former, LEAF: self.leaf, KEY: self.key}


def kept_in(data: Mapping[str, bytes]) -> Kept:
    """Return the content of a Secret's data; a missing part is empty, and ``renewed`` makes it."""
    return Kept(*(data.get(name, b"") for name in (AUTHORITY, FORMER, LEAF, KEY)))


def renewed(kept: Kept, names: Sequence[str], now: datetime, trusted: bytes) -> Kept:
    """Return what to keep from now on; ``kept`` itself if no renewal is due.

    ``trusted``: the bundle that the API server has. One step at a time: call it again once it has taken effect.
    """
    authority = read_authority(kept.authority)
    if authority is None or authority.certificate.not_valid_after_utc <= now:
        made = new_authority(now)
        return _signed(replace(kept, authority=made.pem, former=b""), made, names, now)
    leaf = _leaf(kept, names)
    if leaf is None or _is_due(leaf, authority, now, trusted):
        return _signed(kept, authority, names, now)
    if authority.certificate.not_valid_after_utc - now < AUTHORITY_LEAST:
        return replace(kept, authority=new_authority(now).pem, former=authority.trusted)
    if kept.former and _signs(authority, leaf) and now - leaf.not_valid_before_utc > OVERLAP:
        return replace(kept, former=b"")
    return kept


def _is_due(leaf: x509.Certificate, authority: Authority, now: datetime, trusted: bytes) -> bool:
    """Return whether the authority has to sign a leaf: the present one ends soon, or has the former authority."""
    if _signs(authority, leaf):
        return leaf.not_valid_after_utc - now < LEAF_LIFE / 3
    known = authority.trusted in trusted and now - authority.made > SETTLED
    return known or leaf.not_valid_after_utc <= now


def _signed(kept: Kept, authority: Authority, names: Sequence[str], now: datetime) -> Kept:
    """Have the authority sign a leaf with a key of its own."""
    key, _, certificate = authority.issue(names, now, LEAF_LIFE).pem.partition(_END_OF_KEY)
    return replace(kept, leaf=certificate, key=key + _END_OF_KEY)


def _leaf(kept: Kept, names: Sequence[str]) -> x509.Certificate | None:
    """Return the leaf; None if it can't be used: unreadable, of another key, or for other names."""
    try:
        leaf = x509.load_pem_x509_certificate(kept.leaf)
        own = load_pem_private_key(kept.key, None).public_key() == leaf.public_key()
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return None
    return leaf if own and set(names) <= set(found.get_values_for_type(x509.DNSName)) else None


def _signs(authority: Authority, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


class KeptCertificate:
    """The certificate that a keeper keeps. ``context`` is the listener's; new connections get what was loaded last."""

    def __init__(self, keeper: Keeper) -> None:
        self.context = listener_context()
        self._keeper = keeper
        self._loaded = b""
        self.ends: datetime | None = None
        """When the served certificate expires; None before the first certificate."""

    async def renew(self) -> None:
        """Run the keeper once, and load the certificate if it has changed. Raises ``KeepingError``, ``OSError``."""
        kept = await self._keeper.turn()
        pem = kept.key + kept.leaf
        if kept.leaf and pem != self._loaded:
            await asyncio.to_thread(self._load, pem)
            self._loaded = pem
            self.ends = x509.load_pem_x509_certificate(kept.leaf).not_valid_after_utc

    def _load(self, pem: bytes) -> None:
        with tempfile.NamedTemporaryFile() as file:  # mode 0600; ssl reads files alone
            file.write(pem)
            file.flush()
            listener_context().load_cert_chain(file.name)  # if it is damaged, the previous one stays in use
            self.context.load_cert_chain(file.name)


PATIENCE: Final = 10.0
"""Seconds for each request."""
TERMS: Final = Terms(duration=15, deadline=10, retry=5)
"""Of the Lease of the replica that writes."""
ANSWER_MAX: Final = 4 << 20
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_logger = logging.getLogger("backoff_ctrl")


class KeepingError(CertificatesError):
    """The cluster did not answer as needed; the message says which right or object is missing."""


@dataclass(frozen=True, slots=True)
class Installation:
    """Where the certificates are kept. ``service``: the Service by which the API server calls the webhook.

    ``webhook`` is the name of its configurations, of these ``kinds``.
    """

    namespace: str
    secret: str
    service: str
    webhook: str
    kinds: tuple[str, ...] = (MUTATING,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a leaf must have."""
        return (f"{self.service}.{self.namespace}.svc", f"{self.service}.{self.namespace}.svc.cluster.local")


class Keeper:
    """One replica's part. ``who`` is its name in the Lease."""

    def __init__(
        self,
        session: ClusterSession,
        installation: Installation,
        who: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._session = session
        self._installation = installation
        self._clock = clock
        self._secrets = path_to("/api/v1", "secrets", namespace=installation.namespace)
        self._secret = path_to("/api/v1", "secrets", namespace=installation.namespace, name=installation.secret)
        self._election = Election(session, installation.namespace, installation.secret, who, terms=TERMS)
        hooks = "/apis/admissionregistration.k8s.io/v1"
        self._hooks = [path_to(hooks, kind, name=installation.webhook) for kind in installation.kinds]

    async def turn(self) -> Kept:
        """Check once: renew what is due, if this is the writer. Return what is kept now. Raises ``KeepingError``.

        A renewed part is used in the next round: an authority signs only once its bundle was read back.
        """
        try:
            return await self._turn()
        except (AttributeError, KeyError, TypeError) as error:
            raise KeepingError(f"the API server's answer is incomplete: {error!r}") from error

    async def _turn(self) -> Kept:
        secret = await self._get(self._secret)
        kept = _read(secret)
        hooks = {path: await self._get(path) for path in self._hooks}
        trusted = _trusted(hooks.values())
        now = self._clock()
        wanted = renewed(kept, self._installation.names, now, trusted)
        if (wanted is not kept or wanted.bundle != trusted) and await self._may_write():
            if wanted is not kept:
                kept = wanted if await self._write(secret, wanted) else _read(await self._get(self._secret))
            for path, found in hooks.items():
                if found is not None and kept.bundle != trusted:
                    await self._trust(path, found, kept.bundle)
        return kept

    async def _may_write(self) -> bool:
        """Take or renew the Lease; return whether it is ours."""
        try:
            return await self._election.attempt()
        except ElectionError as error:
            raise KeepingError(str(error)) from error

    async def _write(self, secret: JSON | None, kept: Kept) -> bool:
        """Write the Secret; return whether it was unchanged since it was read."""
        data = {name: base64.b64encode(value).decode() for name, value in kept.data.items()}
        if secret is not None:
            body = written_back(secret, data={**(secret.get("data") or {}), **data})
            return await self._sent("PUT", self._secret, body)
        metadata = {"name": self._installation.secret, "namespace": self._installation.namespace}
        body = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "data": data}
        return await self._sent("POST", self._secrets, body)

    async def _trust(self, path: str, hooks: JSON, bundle: bytes) -> None:
        """Write the bundle into each webhook of a configuration, if that is unchanged since it was read."""
        text = base64.b64encode(bundle).decode()
        webhooks = [{**each, "clientConfig": {**each["clientConfig"], "caBundle": text}} for each in hooks["webhooks"]]
        version = {"resourceVersion": hooks["metadata"]["resourceVersion"]}
        if await self._sent("PATCH", path, {"metadata": version, "webhooks": webhooks}, _MERGE):
            _logger.info("the webhook's configuration now has %d certificate authorities", bundle.count(b"BEGIN"))

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
        with suppress(ValueError):  # an answer that is no JSON is reported below
            found: Any = read_json(content)
            if status < 300 and isinstance(found, dict):
                return found
        raise KeepingError(f"{method} {path}: {status} {content[:300].decode(errors='replace')}")


def _read(secret: JSON | None) -> Kept:
    data = (secret or {}).get("data") or {}
    found = {}
    for name, value in data.items():
        with suppress(ValueError):  # a new one is made
            found[name] = base64.b64decode(value, validate=True)
    return kept_in(found)


def _trusted(configurations: Iterable[JSON | None]) -> bytes:
    """Return the bundle of all webhooks of the configurations; empty if they differ."""
    hooks = [each for found in configurations for each in (found or {}).get("webhooks") or ()]
    bundles = {each.get("clientConfig", {}).get("caBundle", "") for each in hooks}
    if len(bundles) != 1:
        return b""
    with suppress(ValueError):  # a damaged bundle is replaced, as an empty one
        return base64.b64decode(bundles.pop())
    return b""
