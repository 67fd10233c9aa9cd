"""Who asks, and for what: by this a caller is recognised when it comes again."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from backoff_ctrl.engine.seats import Identity

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from backoff_ctrl.k8s.creates.calls import Target
    from backoff_ctrl.k8s.proxy.messages import Head, Headers

KNOWN_MAX: Final = 1024
"""Credentials that are remembered, by a digest: none is ever kept."""
TOKEN_MAX: Final = 16_384
NAME_MAX: Final = 253
"""Characters of a name that are compared: no server stores an object with a longer one, and the body has all of it."""
_OF_ANSWERS: Final = (b"accept", b"accept-encoding", b"content-type", b"content-encoding")
"""Headers of a request that decide what its answer looks like."""


class Caller(NamedTuple):
    """A credential.

    ``who``: whose it is. A token's issuer and subject, so that a new token of the same account is the same caller; they
    are not verified here, and therefore give a place in line at the most. Any other credential is its own.
    ``digest`` is of its bytes: what the server has answered is given again only to the very same credential.
    """

    who: Hashable
    digest: bytes

    @property
    def window(self) -> str:
        """The credential as the overload windows know it: the API server limits the requests of each user."""
        return hashlib.blake2b(repr(self.who).encode(), digest_size=8).hexdigest()


class Callers:
    """Reads credentials. Each token is read once."""

    def __init__(self) -> None:
        """None is known yet."""
        self._known: dict[bytes, Caller] = {}

    def caller(self, head: Head) -> Caller:
        """Return who sends a request."""
        secret = head.get(b"authorization") or b""
        lent = impersonation(head.headers)
        parts = [secret, head.get(b"cookie") or b"", *(part for header in lent for part in header)]
        digest = hashlib.blake2b(b"".join(b"%d:%s" % (len(part), part) for part in parts), digest_size=16).digest()
        known = self._known.get(digest)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            subject = _subject(secret)
            who: Hashable = digest if subject is None else (*subject, *lent)
            known = self._known[digest] = Caller(who, digest)
        return known


def impersonation(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers that say as whom the caller acts, in order."""
    found = ((name.lower(), value) for name, value in headers)
    return sorted(each for each in found if each[0].startswith(b"impersonate-"))


def identity(caller: Caller, target: Target, manifest: Mapping[str, Any] | None, body: bytes) -> Identity:
    """Return by what this create is recognised when it comes again. Its namespace has its own line."""
    metadata = None if manifest is None else manifest.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    digest = hashlib.blake2b(body, digest_size=16).digest()
    return Identity(caller.who, (target.resource, target.rest, str(name)[:NAME_MAX], digest))


def same_call(caller: Caller, head: Head, identity: Identity) -> bytes:
    """Return a digest that two requests share only if one's answer is an answer to the other as well.

    The same credential, path and query, the same forms sent and accepted, the same body.
    """
    forms = (header for header in head.headers if header[0].lower() in _OF_ANSWERS)
    asked = sorted((name.lower(), value) for name, value in forms)
    return hashlib.blake2b(repr((caller.digest, head.target, asked, identity.what)).encode(), digest_size=16).digest()


def _subject(authorization: bytes) -> tuple[str, str] | None:
    """Return issuer and subject of a bearer token that says so; None: it does not."""
    scheme, _, token = authorization.partition(b" ")
    parts = token.strip().split(b".")
    if scheme.lower() != b"bearer" or len(parts) != 3 or len(token) > TOKEN_MAX:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
        issuer, subject = claims["iss"], claims["sub"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (issuer, subject) if isinstance(issuer, str) and isinstance(subject, str) and subject else None
