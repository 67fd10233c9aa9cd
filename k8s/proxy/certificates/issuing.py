"""An authority of our own, and the leaves that it signs: ECDSA on P-256, which every TLS client knows."""

from __future__ import annotations

import ipaddress
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .files import CertificatesError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

NAMES: Final = (
    "127.0.0.1",
    "::1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
"""By these a creator in the pod may call the API server."""
AUTHORITY_LIFE: Final = timedelta(days=3650)
_BACKDATED: Final = timedelta(minutes=5)
_HOST: Final = re.compile(
    r"(?=.{1,253}$)(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
)
_USAGE: Final = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Leaf:
    """A server certificate with its key, both in ``pem``; it begins a little before it was ``made``."""

    pem: bytes
    made: datetime
    ends: datetime


@dataclass(frozen=True, slots=True)
class Authority:
    """Whom the creators of one pod trust."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        """Key and certificate, as they are kept."""
        return _pem(self.key) + self.trusted

    @property
    def made(self) -> datetime:
        """When it was made."""
        return self.certificate.not_valid_before_utc + _BACKDATED

    @property
    def trusted(self) -> bytes:
        """What creators read: the certificate alone."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, names: Sequence[str], now: datetime, life: timedelta) -> Leaf:
        """Sign a certificate for a server of these names. Raises ``CertificatesError`` for one that is no name."""
        key = ec.generate_private_key(ec.SECP256R1())
        ends = min(now + life, self.certificate.not_valid_after_utc)
        made = (
            _begun(key, f"{names[0]}", now, ends)
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(_usage("digital_signature"), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return Leaf(_pem(key) + made.public_bytes(serialization.Encoding.PEM), now, ends)


def new_authority(now: datetime) -> Authority:
    """Make an authority that outlives any pod."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"backoff-ctrl proxy {secrets.token_hex(8)}"  # two of one name would confuse whoever trusts both
    made = _begun(key, name, now, now + AUTHORITY_LIFE)
    certificate = (
        made.issuer_name(_named(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(key, certificate)


def read_authority(pem: bytes) -> Authority | None:
    """Return the authority that was kept; None if these are not a key and its own certificate, both whole."""
    try:
        key = serialization.load_pem_private_key(pem, None)
        certificate = x509.load_pem_x509_certificate(pem)
        usable = isinstance(key, ec.EllipticCurvePrivateKey) and key.public_key() == certificate.public_key()
        certificate.verify_directly_issued_by(certificate)
        authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not usable or not authority:
        return None
    return Authority(key, certificate)


def check_name(name: str) -> None:
    """Raise ``CertificatesError`` if a name can't stand in a certificate."""
    _general(name)


def _begun(key: ec.EllipticCurvePrivateKey, name: str, now: datetime, ends: datetime) -> x509.CertificateBuilder:
    """Begin a certificate: what an authority and a leaf have in common."""
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _general(name: str) -> x509.GeneralName:
    """Return a host name or an address as a certificate has it."""
    with suppress(ValueError):  # then it is a host name, or nothing
        return x509.IPAddress(ipaddress.ip_address(name))
    if not _HOST.fullmatch(name.lower()) or name.replace(".", "").isdigit():
        raise CertificatesError(f"{name[:80]!r} is neither a host name nor an address: correct the name for TLS")
    return x509.DNSName(name.lower())


def _usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{each: each in allowed for each in _USAGE})


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
