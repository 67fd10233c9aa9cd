"""Callers: who they are, what they request, and whether they may.

The proxy can't verify a token's claims, and a caller that may not create in a namespace must not learn of its quotas.
So before a create waits, the proxy asks the API server with the caller's own credentials who it is and whether it may
create there; the answer holds for a minute. If the review fails, no caller is refused, and a credential is its own
identity.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from backoff_ctrl.engine.facts.requests import Identity
from backoff_ctrl.k8s.gate.creates.calls import Target
from backoff_ctrl.k8s.kube.answers.answer import Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.answers.fields import mapping, metadata_of, text
from backoff_ctrl.k8s.kube.cluster.rights import REVIEW, Right, granted
from backoff_ctrl.k8s.sidecar.http.messages import Ask, Head, Request

from .sending import JSON, as_caller, impersonation, received

NAME_MAX: Final = 253
"""Characters of a name that are compared: no server stores an object with a longer one, and the body has all of it."""
_OF_ANSWERS: Final = (b"accept", b"accept-encoding", b"content-type", b"content-encoding")
"""Headers of a request that decide what its answer looks like."""


class Caller(NamedTuple):
    """The digest of a credential, which itself is never kept. The API server says whose it is: see ``Reviews``."""

    digest: bytes
    named: bool
    """Whether the request has one: a token, or a cookie."""

    @property
    def window(self) -> str:
        """The credential's key for the overload windows: the API server limits the requests of each user."""
        return self.digest.hex()


def caller_of(head: Head) -> Caller:
    secret, cookie = head.get(b"authorization") or b"", head.get(b"cookie") or b""
    parts = [secret, cookie, *(part for header in impersonation(head.headers) for part in header)]
    digest = hashlib.blake2b(b"".join([b"%d:%s" % (len(part), part) for part in parts]), digest_size=16).digest()
    return Caller(digest, bool(secret or cookie))


def identity(caller: Caller, target: Target, manifest: Mapping[str, Any] | None, body: bytes) -> Identity:
    """Return the key by which this create is recognised when it comes again. Its namespace has its own line.

    ``who`` is the credential, until the API server has named its user.
    """
    metadata = metadata_of(manifest)
    name = metadata.get("name") or metadata.get("generateName") or ""
    digest = hashlib.blake2b(body, digest_size=16).digest()
    return Identity(caller.digest, (target.resource, target.rest, str(name)[:NAME_MAX], digest))


def same_call(caller: Caller, head: Head, identity: Identity) -> bytes:
    """Return a digest that two requests share only if one's answer is an answer to the other as well.

    The same credential, path and query, the same forms sent and accepted, the same body.
    """
    asked = sorted([(low, value) for name, value in head.headers if (low := name.lower()) in _OF_ANSWERS])
    return hashlib.blake2b(repr((caller.digest, head.target, asked, identity.what)).encode(), digest_size=16).digest()


T = TypeVar("T")

WHO: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
"""Where any account may ask who it is, since Kubernetes 1.28."""
SAID_S: Final = 60.0
"""Seconds for which the server's answer holds."""
UNSAID_S: Final = 5.0
"""Seconds until it is asked again if it did not answer."""
PATIENCE: Final = 2.0
"""Seconds that an answer may take."""
KNOWN_MAX: Final = 4096
"""Answers that are remembered; beyond that, the oldest are forgotten."""


class Verdict(NamedTuple):
    """What is known of a caller: whether it may create there, and who it is."""

    may: bool
    who: Hashable


class Reviews:
    """Asks about callers, once a minute for each credential and place."""

    def __init__(self, ask: Ask, now: Callable[[], float], *, lends: bool = False) -> None:
        """Ask by ``ask``, which lends the proxy's own credentials to callers without any, if it ``lends``."""
        self._ask_server = ask
        self._lends = lends
        self._who: _Said[Hashable] = _Said(now)
        self._may: _Said[bool] = _Said(now)

    def known(self, caller: Caller, target: Target) -> Verdict | None:
        """Return the server's answer, if it is recent."""
        who = self._who.known(caller.digest)
        may = None if who is None else self._may.known(_place(caller, target))
        return None if may is None or who is None else Verdict(may, who)

    async def ask(self, caller: Caller, head: Head, target: Target) -> Verdict:
        """Ask as the caller whose create has this ``head``, unless it is known."""
        may, who = await asyncio.gather(
            self._may.ask(_place(caller, target), lambda: self._may_create(caller, head, target)),
            self._who.ask(caller.digest, lambda: self._who_asks(caller, head)),
        )
        return Verdict(may, who)

    async def _may_create(self, caller: Caller, head: Head, target: Target) -> tuple[bool, float]:
        resource, _, group = target.resource.partition(".")
        answer = await self._ask(REVIEW, Right("create", resource, "", group).review(target.namespace), head)
        if answer is None:
            return True, UNSAID_S
        if answer.status == 401:
            return False, UNSAID_S
        said = granted(answer.status, answer.json() or {})
        if said is not None:
            return said, SAID_S
        # An anonymous caller may not even ask, nor may a caller that impersonates another user, perhaps without the
        # right to. Their creates are sent as they are: if a quota refuses one, its caller had the right to create.
        unlikely = not (caller.named or self._lends) or impersonation(head.headers)
        return not (unlikely and answer.status == 403), SAID_S if answer.status == 403 else UNSAID_S

    async def _who_asks(self, caller: Caller, head: Head) -> tuple[Hashable, float]:
        """Return the user that the server names, with the requested impersonation; else the credential."""
        answer = await self._ask(WHO, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, head)
        found = answer.json() if answer is not None and answer.ok else None
        user = mapping(mapping(mapping(found).get("status")).get("userInfo"))
        if name := text(user.get("username")):
            return (name, str(user.get("uid") or ""), *impersonation(head.headers)), SAID_S
        told = answer is not None and answer.status in {403, 404}
        return caller.digest, SAID_S if told else UNSAID_S

    async def _ask(self, path: str, review: dict[str, Any], head: Head) -> Answer | None:
        given = [*as_caller(head.headers), (b"Accept", JSON), (b"Content-Type", JSON)]
        request = Request(Head(b"POST", path.encode(), given), json.dumps(review).encode())
        try:
            async with asyncio.timeout(PATIENCE):
                return received(await self._ask_server(request))
        except (NotSent, OutcomeUnknown, TimeoutError):
            return None


class _Said(Generic[T]):
    """Answers that hold for a while. Equal questions while an answer is on its way share it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._said: dict[Hashable, tuple[float, T]] = {}
        self._asked: dict[Hashable, asyncio.Task[T]] = {}

    def known(self, key: Hashable) -> T | None:
        until, said = self._said.get(key, (0.0, None))
        return said if until > self._now() else None

    async def ask(self, key: Hashable, question: Callable[[], Awaitable[tuple[T, float]]]) -> T:
        said = self.known(key)
        if said is not None:
            return said
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.get_running_loop().create_task(self._answer(key, question))
            asked.add_done_callback(lambda _: self._asked.pop(key))
        return await asyncio.shield(asked)

    async def _answer(self, key: Hashable, question: Callable[[], Awaitable[tuple[T, float]]]) -> T:
        said, seconds = await question()
        self._said.pop(key, None)
        self._said[key] = self._now() + seconds, said
        if len(self._said) > KNOWN_MAX:
            del self._said[next(iter(self._said))]
        return said


def _place(caller: Caller, target: Target) -> bytes:
    """Return a key of fixed length for a caller, a kind and a namespace."""
    return hashlib.blake2b(repr((caller.digest, target.namespace, target.resource)).encode(), digest_size=16).digest()
