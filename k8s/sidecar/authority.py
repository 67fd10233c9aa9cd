"""TLS as the API server itself would speak it: an authority of our own, its files, and leaf certificates in turn.

The authority (ECDSA on P-256, which every TLS client knows) is kept in a directory that only the proxy mounts, so that
creators that read ``ca.crt`` long ago still trust a proxy that has restarted. A new leaf is made at each start and at
half of its life.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from .certificates import (
    PRIVATE,
    PUBLIC,
    CertificatesError,
    check_owner,
    link,
    listener_context,
    make_folder,
    only_one,
    read,
    sweep,
    write,
)

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "cryptography":
        raise
    raise CertificatesError(
        "TLS mode needs the package cryptography: install backoff-ctrl[proxy], or serve plain HTTP"
    ) from None

NAMES: Final = (
    "127.0.0.1",
    "::1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
"""The names by which a creator in the pod may call the API server."""
AUTHORITY_LIFE: Final = timedelta(days=3650)
_BACKDATED: Final = timedelta(minutes=5)
_HOST: Final = re.compile(
    r"(?=.{1,253}$)(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
)
_USAGE: Final = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip
LEAF_LIFE: Final = timedelta(days=1)
_LOOK_EVERY: Final = 600.0
"""Seconds between looks at the clock: it may have been set, or the machine may have slept."""
_AUTHORITY, _LEAF = "authority.pem", "leaf.pem"
_logger = logging.getLogger("backoff_ctrl")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A server certificate with its key, both in ``pem``; it begins a little before it was ``made``."""

    pem: bytes
    made: datetime
    ends: datetime


@dataclass(frozen=True, slots=True)
class Authority:
    """The authority that the creators of one pod trust."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        """Key and certificate, in the form in which they are stored."""
        return _pem(self.key) + self.trusted

    @property
    def made(self) -> datetime:
        return self.certificate.not_valid_before_utc + _BACKDATED

    @property
    def trusted(self) -> bytes:
        """The certificate alone, which creators read."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, names: Sequence[str], now: datetime, life: timedelta) -> Leaf:
        """Sign a certificate for a server of these names. Raises ``CertificatesError`` for an invalid name."""
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
    name = f"backoff-ctrl proxy {secrets.token_hex(8)}"  # two of one name would confuse a client that trusts both
    made = _begun(key, name, now, now + AUTHORITY_LIFE)
    certificate = (
        made.issuer_name(_named(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(key, certificate)


def read_authority(pem: bytes) -> Authority | None:
    """Return the stored authority; None if these are not a whole key and its own certificate."""
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
    """Raise ``CertificatesError`` if a name is not allowed in a certificate."""
    _general(name)


def _begun(key: ec.EllipticCurvePrivateKey, name: str, now: datetime, ends: datetime) -> x509.CertificateBuilder:
    """Return a builder with what an authority and a leaf have in common."""
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
    """Return a host name or an address in the form of a certificate."""
    with suppress(ValueError):  # not an address: perhaps a host name
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


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The paths of the files.

    ``authority``: a directory that only the proxy mounts. ``account``: the creator's service-account directory.
    ``token_volume``: where the creator mounts the projected volume with its ``token`` and ``namespace``. ``names``:
    further names by which the creator calls the proxy, beside ``NAMES``.
    """

    authority: Path
    account: Path
    token_volume: Path
    names: tuple[str, ...] = ()


class Serving:
    """The certificates of one listener. ``context`` is its TLS context; new connections get the newest leaf."""

    def __init__(self, files: TlsFiles, now: datetime | None = None, life: timedelta = LEAF_LIFE) -> None:
        """Write all files, or repair them. Raises ``CertificatesError``. ``life``: of a leaf."""
        _check(files)
        self._files, self._life = files, life
        self._names = tuple(dict.fromkeys((*NAMES, *files.names)))
        self.context = listener_context()
        now = now or _clock()
        make_folder(files.authority, 0o700)
        check_owner(files.authority)
        make_folder(files.account, 0o755)
        with only_one(files.authority):
            sweep(files.authority)
            sweep(files.account)
            self._authority = self._kept_or_new(now)
            self.leaf = self._fresh(now)
            _write_account(files, self._authority)

    @property
    def due(self) -> datetime:
        """When the leaf is to be replaced: at half of its life."""
        return self.leaf.made + (self.leaf.ends - self.leaf.made) / 2

    def renew(self, now: datetime) -> None:
        """Replace the leaf; open connections continue. Raises ``CertificatesError``, and then the old leaf stays."""
        with only_one(self._files.authority):
            self.leaf = self._fresh(now)

    async def keep_fresh(
        self,
        clock: Callable[[], datetime] | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Replace each leaf in time, until cancelled. Failures are logged, and retried at the next check."""
        clock = clock or _clock
        while True:
            left = (self.due - clock()).total_seconds()
            if left > 0:
                await pause(min(left, _LOOK_EVERY))
                continue
            try:
                self.renew(clock())
            except CertificatesError as error:
                _logger.warning("the certificate of the proxy could not be renewed: %s", error)
                await pause(_LOOK_EVERY)

    def _kept_or_new(self, now: datetime) -> Authority:
        """Return the authority of this pod: the stored one, unless it can no longer sign."""
        path = self._files.authority / _AUTHORITY
        content = read(path, PRIVATE)
        kept = read_authority(content) if content else None
        if kept is not None and kept.certificate.not_valid_after_utc - now > AUTHORITY_LIFE / 10:
            return kept
        if content:
            _logger.warning(
                "%s contained no usable authority: a new one was made, so creators that have already read ca.crt "
                "must be restarted",
                path,
            )
        made = new_authority(now)
        write(path, made.pem, PRIVATE)
        return made

    def _fresh(self, now: datetime) -> Leaf:
        """Have a leaf signed, and load it into the context. One file holds key and certificate, so they match."""
        leaf = self._authority.issue(self._names, now, self._life)
        path = self._files.authority / _LEAF
        write(path, leaf.pem, PRIVATE)
        try:
            self.context.load_cert_chain(path)
        except OSError as error:  # ssl.SSLError is one
            raise CertificatesError(f"{path} cannot be loaded: {error.strerror or error}; start again") from None
        return leaf


def _write_account(files: TlsFiles, authority: Authority) -> None:
    """Fill the creator's service-account directory: our authority, and links to the files of the real one."""
    write(files.account / "ca.crt", authority.trusted, PUBLIC)
    for name in ("token", "namespace"):
        link(files.account / name, files.token_volume / name)


def _check(files: TlsFiles) -> None:
    """Raise ``CertificatesError`` for directories and names that can't work together."""
    authority, account = files.authority.resolve(), files.account.resolve()
    if authority == account or account in authority.parents:
        raise CertificatesError(
            f"{files.authority} is where the creator can read it: keep the key in a volume that only the proxy mounts"
        )
    if not files.token_volume.is_absolute():
        raise CertificatesError(f"{files.token_volume} must be the whole path at which the creator mounts its token")
    if files.token_volume.resolve() == account:
        raise CertificatesError(
            f"{files.token_volume} is the creator's account directory itself: mount the projected token at another path"
        )
    for name in files.names:
        check_name(name)


def _clock() -> datetime:
    return datetime.now(UTC)
