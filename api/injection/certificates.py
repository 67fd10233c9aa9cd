"""The webhook's certificates, as they are kept in one Secret, and how they follow another. Pure but for new keys.

An API server trusts what the webhook's configuration says (``caBundle``), and learns of a change a moment later. So an
authority that is new is first added to the bundle beside the old one, and signs only once it was seen there; the old
one leaves the bundle after its last leaf.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from backoff_ctrl.k8s.proxy.authority import Authority, new_authority, read_authority

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

LEAF_LIFE: Final = timedelta(days=90)
AUTHORITY_LEAST: Final = timedelta(days=365)
"""An authority with less time left is followed by a new one."""
SETTLED: Final = timedelta(minutes=1)
"""How old an authority is before it signs for the API servers that trust another: each learns of it a moment later."""
OVERLAP: Final = timedelta(hours=1)
"""How long an old authority stays in the bundle after a leaf of the new one was written: replicas read it later."""
AUTHORITY, FORMER, LEAF, KEY = "ca.pem", "former.crt", "tls.crt", "tls.key"
"""The keys of the Secret. ``ca.pem`` is the authority with its key; ``tls.*`` are as in any TLS Secret."""
_END_OF_KEY: Final = b"-----END PRIVATE KEY-----\n"


@dataclass(frozen=True, slots=True)
class Kept:
    """What the Secret holds. ``former``: the certificate of the authority before this one; empty: there is none."""

    authority: bytes
    former: bytes
    leaf: bytes
    key: bytes

    @property
    def bundle(self) -> bytes:
        """Whom the API server is to trust."""
        made = read_authority(self.authority)
        return (b"" if made is None else made.trusted) + self.former

    @property
    def data(self) -> dict[str, bytes]:
        """The Secret's data."""
        return {AUTHORITY: self.authority, FORMER: self.former, LEAF: self.leaf, KEY: self.key}


def kept_in(data: Mapping[str, bytes]) -> Kept:
    """Return what a Secret's data holds; what is missing is empty, and made anew by ``renewed``."""
    return Kept(*(data.get(name, b"") for name in (AUTHORITY, FORMER, LEAF, KEY)))


def renewed(kept: Kept, names: Sequence[str], now: datetime, trusted: bytes) -> Kept:
    """Return what is to be kept from now on; ``kept`` itself where nothing is due.

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
    """Say whether the authority is to sign a leaf: the present one ends soon, or is of the authority before."""
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
