"""``--client-ca``: the webhook answers reviews of clients with a certificate of these authorities, probes of all."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from backoff_ctrl.api.webhooks.server import InjectionSettings, Webhook, serve
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.sidecar.authority import new_authority
from backoff_ctrl.k8s.sidecar.certificates import CertificatesError
from tests.injecting.test_strangers import review

NOW = datetime.now(UTC)
REFUSED = (aiohttp.ClientConnectorError, aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
"""How a client sees that its certificate is not taken: in TLS 1.3 only when it reads the answer."""


class Authority:
    """An authority of client certificates, as a cluster's administrator makes one."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        names = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._begun(names, self._key).issuer_name(names)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self._made = made.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.pem = self._made.public_bytes(Encoding.PEM)

    def _begun(self, names: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        begun = x509.CertificateBuilder().subject_name(names).public_key(key.public_key())
        begun = begun.serial_number(x509.random_serial_number()).not_valid_before(NOW - timedelta(hours=1))
        return begun.not_valid_after(NOW + timedelta(days=1))

    def client(self) -> ssl.SSLContext:
        """Return what a client with a certificate of it connects with."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        begun = self._begun(names, key).issuer_name(self._made.subject).add_extension(usage, critical=False)
        made = begun.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        file = self._folder / f"client-{self._name}.pem"
        file.write_bytes(made + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        context = anonymous()
        context.load_cert_chain(file)
        return context


def anonymous() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@asynccontextmanager
async def served(folder: Path, authorities: Path) -> AsyncIterator[tuple[Webhook, str]]:
    """The webhook, listening; its probes are at the same port, as without ``--probe-listen``."""
    file = folder / "tls.pem"
    file.write_bytes(new_authority(NOW).issue(["localhost"], NOW, timedelta(days=1)).pem)
    said: asyncio.Queue[str] = asyncio.Queue()
    over = asyncio.Event()
    async with ClusterSession(find_place("http://127.0.0.1:1", None, None, None).configuration) as session:
        settings = InjectionSettings(("127.0.0.1", 0), files=(file, file), jobs=True, client_ca=authorities)
        webhook = Webhook(settings, session)
        serving = asyncio.create_task(serve(webhook, settings, over, said.put_nowait))
        yield webhook, (await said.get()).removeprefix("listening on ")
        over.set()
        await serving


async def asked(url: str, context: ssl.SSLContext, path: str, body: bytes | None = None) -> tuple[int, str]:
    """Ask over a connection of its own; return status and text."""
    method = "GET" if body is None else "POST"
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url + path, data=body, ssl=context) as answer,
    ):
        return answer.status, await answer.text()


async def test_only_who_shows_a_certificate_gets_an_answer_and_probes_need_none(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    (bundle := tmp_path / "ca.crt").write_bytes(authority.pem)
    async with served(tmp_path, bundle) as (webhook, url):
        for path in ("/inject", "/suspend", "/suspend-all"):
            status, told = await asked(url, anonymous(), path, review())
            assert (status, "client certificate" in told) == (403, True), path
            assert (await asked(url, authority.client(), path, review()))[0] == 200, path
        with pytest.raises(REFUSED):
            await asked(url, Authority(tmp_path, "other").client(), "/inject", review())
        for path in ("/livez", "/readyz", "/metrics"):
            assert (await asked(url, anonymous(), path))[0] == 200, path
        assert webhook.counts.pods.by_outcome.total() == 1


async def test_an_authority_that_is_added_to_the_file_is_trusted(tmp_path: Path) -> None:
    """A file that is broken meanwhile is said, and those that were trusted stay so."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    (bundle := tmp_path / "ca.crt").write_bytes(old.pem)
    async with served(tmp_path, bundle) as (webhook, url):
        bundle.write_text("nothing")
        await webhook.look()
        assert (await asked(url, old.client(), "/inject", review()))[0] == 200
        bundle.write_bytes(old.pem + new.pem)
        await webhook.look()
        assert (await asked(url, new.client(), "/inject", review()))[0] == 200
        assert webhook.why_not == ""


@pytest.mark.parametrize("content", [None, b"", b"nothing"])
async def test_a_file_without_authorities_is_refused(content: bytes | None, tmp_path: Path) -> None:
    """Else the webhook would answer nobody, or anybody."""
    bundle = tmp_path / "ca.crt"
    if content is not None:
        bundle.write_bytes(content)
    with pytest.raises(CertificatesError, match=r"ca\.crt can't be used as the authority of clients"):
        async with served(tmp_path, bundle):
            pass
