"""Who asks, and for what: by this a caller is recognised when it comes again."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from backoff_ctrl.engine.requests import Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.creates.calls import Target
    from backoff_ctrl.k8s.proxy.messages import Head, Headers

NAME_MAX: Final = 253
"""Characters of a name that are compared: no server stores an object with a longer one, and the body has all of it."""
_OF_ANSWERS: Final = (b"accept", b"accept-encoding", b"content-type", b"content-encoding")
"""Headers of a request that decide what its answer looks like."""
_OWN: Final = frozenset({b"authorization", b"cookie", b"host", b"user-agent"})
"""Headers of a create that go with our questions about it: who asks."""


class Caller(NamedTuple):
    """A credential, by a digest of its bytes: none is ever kept. Whose it is the API server says: see ``reviews``."""

    digest: bytes
    named: bool
    """Whether it is one at all: there is a token, or a cookie."""

    @property
    def window(self) -> str:
        """The credential as the overload windows know it: the API server limits the requests of each user."""
        return self.digest.hex()


def caller_of(head: Head) -> Caller:
    """Return who sends a request."""
    secret, cookie = head.get(b"authorization") or b"", head.get(b"cookie") or b""
    parts = [secret, cookie, *(part for header in impersonation(head.headers) for part in header)]
    digest = hashlib.blake2b(b"".join(b"%d:%s" % (len(part), part) for part in parts), digest_size=16).digest()
    return Caller(digest, bool(secret or cookie))


def as_caller(headers: Headers) -> Headers:
    """Return the headers with which a question is asked as the caller of a create."""
    return [*(each for each in headers if each[0].lower() in _OWN), *impersonation(headers)]


def impersonation(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers that say as whom the caller acts, in order."""
    found = ((name.lower(), value) for name, value in headers)
    return sorted(each for each in found if each[0].startswith(b"impersonate-"))


def identity(caller: Caller, target: Target, manifest: Mapping[str, Any] | None, body: bytes) -> Identity:
    """Return by what this create is recognised when it comes again. Its namespace has its own line.

    ``who`` is the credential, until the API server has said whose it is.
    """
    metadata = None if manifest is None else manifest.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    digest = hashlib.blake2b(body, digest_size=16).digest()
    return Identity(caller.digest, (target.resource, target.rest, str(name)[:NAME_MAX], digest))


def same_call(caller: Caller, head: Head, identity: Identity) -> bytes:
    """Return a digest that two requests share only if one's answer is an answer to the other as well.

    The same credential, path and query, the same forms sent and accepted, the same body.
    """
    forms = (header for header in head.headers if header[0].lower() in _OF_ANSWERS)
    asked = sorted((name.lower(), value) for name, value in forms)
    return hashlib.blake2b(repr((caller.digest, head.target, asked, identity.what)).encode(), digest_size=16).digest()
