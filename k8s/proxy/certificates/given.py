"""A certificate that others issue and renew, such as cert-manager: read again when its files change."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from .contexts import listener_context
from .files import CertificatesError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime
    from pathlib import Path

LOOK_EVERY: Final = 10.0
"""Seconds between looks at the files: the kubelet itself takes a minute to show a Secret's change."""
_logger = logging.getLogger("backoff_ctrl")


class GivenCertificate:
    """The certificate of one listener. ``context`` is its TLS context; new connections get what was read last."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read both, as PEM. Raises ``CertificatesError``."""
        self._files = certificate, key
        self._read: tuple[bytes, bytes] | None = None
        self.context = listener_context()
        self.ends: datetime | None = None
        """When it ends; None: nobody can tell without the package cryptography."""
        self.renew()

    def renew(self) -> None:
        """Read the files again, and use them if they have changed.

        Raises ``CertificatesError``, and the certificate that was read last stays.
        """
        certificate, key = self._files
        try:
            found = certificate.read_bytes(), key.read_bytes()
            if found == self._read:
                return
            trial = listener_context()  # half replaced files must not reach the listener
            trial.load_cert_chain(certificate, key, password="")
            self.context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise CertificatesError(
                f"{certificate} and {key} can't be used as certificate and key: {why}; both must be PEM"
            ) from None
        self._read = found
        self.ends = _ends(found[0])

    async def keep_fresh(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Look at the files again and again, until cancelled. What can't be used is logged once, and tried again."""
        said = ""
        while True:
            await pause(LOOK_EVERY)
            try:
                self.renew()
            except CertificatesError as error:
                if str(error) != said:
                    _logger.warning("%s; the certificate before it serves on", error)
                said = str(error)
            else:
                said = ""


def _ends(pem: bytes) -> datetime | None:
    try:
        from cryptography import x509  # noqa: PLC0415 - optional: others make this certificate

        return x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except (ImportError, ValueError):  # OpenSSL reads what is no strict DER
        return None
