"""How the webhook's certificates follow another: the API server trusts whoever signs, at every moment."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from backoff_ctrl.api.webhooks.certificates import Kept, kept_in, renewed
from backoff_ctrl.k8s.sidecar.authority import read_authority

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 23, tzinfo=UTC)
NAMES = ("gate.team.svc", "gate.team.svc.cluster.local")
NOTHING = Kept(b"", b"", b"", b"")


def leaf_of(kept: Kept) -> x509.Certificate:
    """Return the leaf."""
    return x509.load_pem_x509_certificate(kept.leaf)


def is_trusted(kept: Kept, bundle: bytes) -> bool:
    """Say whether somebody who trusts the bundle trusts the leaf."""
    for authority in x509.load_pem_x509_certificates(bundle):
        if authority.subject == leaf_of(kept).issuer:
            leaf_of(kept).verify_directly_issued_by(authority)
            return True
    return False


def test_the_first_turn_makes_everything() -> None:
    """One authority, one leaf for the Service's names, and nothing is due any more."""
    kept = renewed(NOTHING, NAMES, NOW, b"")
    assert is_trusted(kept, kept.bundle)
    found = leaf_of(kept).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(found.get_values_for_type(x509.DNSName)) == set(NAMES)
    assert renewed(kept, NAMES, NOW, kept.bundle) is kept
    assert kept_in(kept.data) == kept


def test_key_and_leaf_belong_together(tmp_path: Path) -> None:
    """The key is the leaf's, and a server can load both."""
    kept = renewed(NOTHING, NAMES, NOW, b"")
    assert load_pem_private_key(kept.key, None).public_key() == leaf_of(kept).public_key()
    (tmp_path / "both.pem").write_bytes(kept.key + kept.leaf)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "both.pem")


@pytest.mark.parametrize(("days", "changes"), [(59, False), (61, True), (200, True)])
def test_a_leaf_is_replaced_at_two_thirds_of_its_life(days: int, changes: bool) -> None:
    """By the same authority: nobody has to learn anything."""
    kept = renewed(NOTHING, NAMES, NOW, b"")
    later = renewed(kept, NAMES, NOW + timedelta(days=days), kept.bundle)
    assert (later.leaf != kept.leaf) is changes
    assert later.bundle == kept.bundle


@pytest.mark.long
def test_an_authority_is_followed_by_another_without_a_moment_in_which_a_leaf_is_not_trusted() -> None:
    """What the API server has is always one step behind what is written."""
    now, trusted = NOW, b""
    kept = renewed(NOTHING, NAMES, now, trusted)
    trusted, first = kept.bundle, kept.bundle
    steps = 0
    for _ in range(11 * 365 // 2):
        now += timedelta(days=2)
        before = kept
        kept = renewed(kept, NAMES, now, trusted)
        assert is_trusted(kept, trusted)
        assert leaf_of(kept).not_valid_after_utc > now
        authority = read_authority(kept.authority)
        assert authority is not None
        assert authority.certificate.not_valid_after_utc > now
        steps += kept is not before
        trusted = kept.bundle
    assert first not in trusted  # the old one has gone
    assert trusted.count(b"BEGIN") == 1
    assert steps < 80  # leaves, every two months


@pytest.mark.parametrize("name", ["ca.pem", "tls.crt", "tls.key"])
@pytest.mark.parametrize(
    "damage", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_damaged_is_made_anew(name: str, damage: bytes) -> None:
    """A Secret that somebody edited, or cut off."""
    kept = renewed(NOTHING, NAMES, NOW, b"")
    mended = renewed(kept_in({**kept.data, name: damage}), NAMES, NOW, kept.bundle)
    assert is_trusted(mended, mended.bundle)
    assert renewed(mended, NAMES, NOW, mended.bundle) is mended


def test_another_name_needs_another_leaf() -> None:
    """The release was installed under another name."""
    kept = renewed(NOTHING, NAMES, NOW, b"")
    assert renewed(kept, ("other.team.svc",), NOW, kept.bundle).leaf != kept.leaf


def test_an_authority_that_ended_is_replaced_at_once() -> None:
    """After years of sleep."""
    kept = renewed(NOTHING, NAMES, NOW, b"")
    later = renewed(kept, NAMES, NOW + timedelta(days=4000), kept.bundle)
    assert is_trusted(later, later.bundle)
    assert later.former == b""
