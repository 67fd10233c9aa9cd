"""A certificate that somebody renews is served without a restart."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import uvicorn
from cryptography import x509

from backoff_ctrl.api.connections import Clients
from backoff_ctrl.api.status.listening import RENEWAL_TICKS, _Server
from tests.proxying.passing.certificates import Pair, make_pair

if TYPE_CHECKING:
    from pathlib import Path


async def serial_of(context: ssl.SSLContext) -> int:
    """Return the serial number of the certificate that a new connection gets."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1], ssl=trust)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
    return x509.load_der_x509_certificate(found).serial_number


def serial(pair: Pair) -> int:
    """Return the serial number of a certificate in a file."""
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes()).serial_number


async def test_new_connections_get_the_renewed_certificate(tmp_path: Path) -> None:
    """It is looked at once a minute; half of a pair, or none, changes nothing."""
    pair, other = make_pair(tmp_path), make_pair(tmp_path / "other")
    config = uvicorn.Config(lambda: None, ssl_certfile=pair.certificate, ssl_keyfile=pair.key, log_config=None)
    config.load()
    assert config.ssl is not None
    server = _Server(config, "https://here", Clients(), lambda: None)
    first = serial(pair)
    pair.key.unlink()
    await server.on_tick(RENEWAL_TICKS)
    assert await serial_of(config.ssl) == first
    pair.certificate.write_bytes(other.certificate.read_bytes())
    pair.key.write_bytes(other.key.read_bytes())
    await server.on_tick(RENEWAL_TICKS + 1)  # not yet
    assert await serial_of(config.ssl) == first
    await server.on_tick(2 * RENEWAL_TICKS)
    assert await serial_of(config.ssl) == serial(other) != first
