"""A certificate that others renew: new connections get the new one, a half-written one changes nothing."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from backoff_ctrl.k8s.proxy.certificates import LOOK_EVERY, CertificatesError, GivenCertificate
from tests.proxying.passing.certificates import make_pair

if TYPE_CHECKING:
    from pathlib import Path


async def served_to_callers(given: GivenCertificate, folder: Path) -> int:
    """Return the serial number of the certificate that a new connection gets."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    trust = ssl.create_default_context(cafile=folder / "tls.crt")
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=given.context) as server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
    return x509.load_der_x509_certificate(found).serial_number


def serial(path: Path) -> int:
    """Return the serial number of a certificate in a file."""
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


async def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    """One that can't be used yet, since its key is still the old one, changes nothing, and is said once."""
    pair = make_pair(tmp_path)
    given = GivenCertificate(pair.certificate, pair.key)
    first = serial(pair.certificate)
    assert await served_to_callers(given, tmp_path) == first
    other = make_pair(tmp_path / "other")
    pair.certificate.write_bytes(other.certificate.read_bytes())
    with pytest.raises(CertificatesError, match="can't be used as certificate and key"):
        given.renew()
    assert await served_to_callers(given, tmp_path) == first
    pair.key.write_bytes(other.key.read_bytes())
    given.renew()
    assert await served_to_callers(given, tmp_path) == serial(other.certificate) != first


async def test_it_looks_again_and_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every ten seconds, by a clock that the test gives; a fault is one line until it is over."""
    pair = make_pair(tmp_path)
    given = GivenCertificate(pair.certificate, pair.key)
    good, pauses = pair.key.read_bytes(), list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            pair.key.write_text("broken")
        if len(pauses) == 4:
            pair.key.write_bytes(good)
        if len(pauses) == 6:
            pair.key.unlink()
        if len(pauses) == 8:
            raise asyncio.CancelledError

    with caplog.at_level(logging.WARNING, "backoff_ctrl"), pytest.raises(asyncio.CancelledError):
        await given.keep_fresh(pause)
    assert pauses == [LOOK_EVERY] * 8
    assert ["the certificate before it serves on" in record.getMessage() for record in caplog.records] == [True, True]


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    """It names the files."""
    with pytest.raises(CertificatesError, match=r"tls.crt and .*tls.key can't be used .* No such file"):
        GivenCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")
