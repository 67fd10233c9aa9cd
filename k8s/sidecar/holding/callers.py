"""Callers: who they are, what they request, whether they may, and what is remembered until they come again.

The proxy can't verify a token's claims, and a caller that may not create in a namespace must not learn of its quotas.
So before a create waits, the proxy asks the API server with the caller's own credentials who it is and whether it may
create there; the answer holds for a minute. If the review fails, nobody is refused, and a credential is its own
identity.

Creates whose callers hung up after the send, or got the answer that the outcome is unknown, are kept: the next
identical request with the same credential continues such a create instead of making a second object. And a call that
waits is logged once, however often it comes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from backoff_ctrl.engine.facts.requests import Identity
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.creates.calls import Target
from backoff_ctrl.k8s.gate.creates.naming import Named
from backoff_ctrl.k8s.kube.answers.answer import Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.answers.fields import mapping, metadata_of, text
from backoff_ctrl.k8s.kube.answers.rejections import Lane
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
CALLS_MAX: Final = 10_000
"""Calls that are remembered as logged; beyond that, those answered first are forgotten."""
KEPT_MAX: Final = 10_000
ANSWER_MAX: Final = 65_536
"""Bytes of an answer that is kept; an object with a longer one is looked up."""
ANSWERS_MAX: Final = 16 * 2**20
"""Bytes of all kept answers. Beyond that, the oldest are dropped: a known name is then looked up."""
TURNS: Final = 4
"""Turns of the event loop that it takes to read a hang-up that has arrived, and to keep its create."""


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
        """Return a recent answer of the server; None: there is none."""
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


@dataclass(slots=True, eq=False)
class Kept:
    """A create that is under way in ``task``; once that has ended, its success, and the name that may be stored."""

    task: asyncio.Future[Any]
    answer: Answer | None = None
    named: Named | None = None
    over: bool = False
    """Whether its result has been noted."""

    @property
    def size(self) -> int:
        answer = self.answer
        if answer is None:
            return 0
        return len(answer.body) + sum(len(name) + len(value) for name, value in answer.headers.items())

    def note(self, create: Create, *, sent: bool, resumed: bool) -> None:
        """Note how the create ended. ``resumed``: it was kept before."""
        answer, named = create.answer, create.named
        created = answer is not None and answer.ok
        if created or resumed or (sent and _may_be_stored(create)):
            self.note_answer(answer)
            self.note_name(named)

    def note_name(self, named: Named | None) -> None:
        """Keep a name that may be stored."""
        if named is not None and 0 < len(named.name) <= NAME_MAX:
            self.named = replace(named, given={}, keyed=True)  # keyed: it is looked up before it is sent

    def note_answer(self, answer: Answer | None) -> None:
        """Keep a success, unless it is long."""
        if answer is not None and answer.ok and len(answer.body) <= ANSWER_MAX:
            self.answer = replace(answer)  # without the objects that were read from its bytes


def _may_be_stored(create: Create) -> bool:
    rejection = create.rejection
    return create.in_doubt or (rejection is not None and rejection.lane is Lane.UNKNOWN_OUTCOME)


class KeptCreates:
    """The creates that are kept: while they are under way, and for ``ttl`` seconds after their end."""

    def __init__(self, ttl: float, now: Callable[[], float]) -> None:
        self._ttl = ttl
        self._now = now
        self._kept: dict[Hashable, deque[Kept]] = {}
        self._ends: dict[Kept, tuple[float, Hashable]] = {}
        """Those that have ended, in the order of their ends."""
        self._asked: Counter[Hashable] = Counter()
        """How many requests of each call are being answered."""
        self._answers: dict[Kept, Hashable] = {}
        """The ones among them that have an answer."""
        self.bytes = 0
        """The size of these answers."""

    def __len__(self) -> int:
        return sum(len(each) for each in self._kept.values())

    @asynccontextmanager
    async def asked(self, call: Hashable) -> AsyncIterator[None]:
        """A context manager while a request of this call is being answered.

        Where another one is, its caller may have hung up and come again with this one. A process that was busy or
        suspended reads both requests before the hang-up between them; this waits for the hang-up, so that ``take``
        finds the create.
        """
        self._asked[call] += 1
        try:
            if self._asked[call] > 1:
                for _ in range(TURNS):
                    await asyncio.sleep(0)
            yield
        finally:
            self._asked[call] -= 1
            if not self._asked[call]:
                del self._asked[call]

    def keep(self, call: Hashable, kept: Kept, note: Callable[[], object]) -> None:
        """Keep a create for the next identical call. ``note`` is called at its end, and notes its result."""

        def over(_: object = None) -> None:
            note()
            kept.over = True
            if kept in self._kept.get(call, ()):  # else the request that took it waits for it
                self._ended(call, kept)

        self._kept.setdefault(call, deque()).append(kept)
        if kept.task.done():
            over()
        else:
            kept.task.add_done_callback(over)

    def take(self, call: Hashable) -> Kept | None:
        """Remove and return the oldest create that is kept for this call."""
        self._expire()
        kept = self._kept.get(call)
        if not kept:
            return None
        found = kept[0]
        self._drop(call, found)
        return found

    def keep_ended(self, call: Hashable, kept: Kept) -> None:
        """Keep a create whose answer was written, but not read."""
        kept.over = True
        self._kept.setdefault(call, deque()).append(kept)
        self._ended(call, kept)

    def give_back(self, call: Hashable, kept: Kept) -> None:
        """Put a create back: the request that took it has not waited for its end."""
        self._kept.setdefault(call, deque()).appendleft(kept)
        if kept.over:
            self._ended(call, kept)

    def _ended(self, call: Hashable, kept: Kept) -> None:
        """Start its time limit, if there is anything to keep."""
        self._expire()
        if kept.answer is None and kept.named is None:
            self._drop(call, kept)
            return
        self._ends[kept] = (self._now() + self._ttl, call)
        if kept.answer is not None:
            self._answers[kept] = call
            self.bytes += kept.size
        if len(self._ends) > KEPT_MAX:
            self._drop_oldest()
        while self.bytes > ANSWERS_MAX:
            self._shed()

    def _shed(self) -> None:
        """Drop the oldest answer: its object is then looked up by its name, if that is known."""
        kept, call = next(iter(self._answers.items()))
        if kept.named is None:
            self._drop(call, kept)
        else:
            self._forget_answer(kept)
            kept.answer = None

    def _forget_answer(self, kept: Kept) -> None:
        if self._answers.pop(kept, None) is not None:
            self.bytes -= kept.size

    def _drop(self, call: Hashable, kept: Kept) -> None:
        self._forget_answer(kept)
        self._ends.pop(kept, None)
        of_call = self._kept.get(call)
        if of_call is not None and kept in of_call:
            of_call.remove(kept)
            if not of_call:
                del self._kept[call]

    def _drop_oldest(self) -> None:
        kept, (_, call) = next(iter(self._ends.items()))
        self._drop(call, kept)

    def _expire(self) -> None:
        while self._ends and next(iter(self._ends.values()))[0] <= self._now():
            self._drop_oldest()


class Noticed:
    """When waiting calls were first logged: one log line a call, not one for each of its requests.

    ``ttl``: seconds within which a caller comes again.
    """

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._calls: dict[Hashable, deque[tuple[float, float]]] = {}
        self._size = 0
        self._ends: deque[tuple[float, Hashable]] = deque()

    def keep(self, call: Hashable, since: float, now: float) -> None:
        """Note when the call of a request that has ended was logged."""
        self._expire(now)
        self._calls.setdefault(call, deque()).append((now + self._ttl, since))
        self._ends.append((now + self._ttl, call))
        self._size += 1
        while self._size > CALLS_MAX:
            self._drop(self._ends.popleft()[1])

    def take(self, call: Hashable, now: float) -> float | None:
        """Return when the call was logged; None: it is a new one. Among equal calls the oldest comes first."""
        if not self._calls:
            return None
        self._expire(now)
        return self._drop(call)

    def _drop(self, call: Hashable) -> float | None:
        noticed = self._calls.get(call)
        if not noticed:
            return None
        found = noticed.popleft()[1]
        self._size -= 1
        if not noticed:
            del self._calls[call]
        return found

    def _expire(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, call = self._ends.popleft()
            noticed = self._calls.get(call)
            if noticed and noticed[0][0] <= now:
                self._drop(call)
