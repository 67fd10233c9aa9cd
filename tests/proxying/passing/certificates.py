"""Certificates for tests of TLS."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Pair:
    """A certificate, which is its own authority, and its key."""

    certificate: Path
    key: Path

    def server(self, clients: Pair | None = None) -> ssl.SSLContext:
        """Return what a server uses; it asks callers for a certificate if it trusts one."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        context.set_alpn_protocols(["h2", "http/1.1"])
        if clients is not None:
            context.load_verify_locations(clients.certificate)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))


def make_pair(folder: Path, name: str = "localhost") -> Pair:
    folder.mkdir(parents=True, exist_ok=True)
    made = Pair(folder / "tls.crt", folder / "tls.key")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made
