"""One request of a creator, from its arrival to its answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.creates.naming import Named
from backoff_ctrl.k8s.gate.creates.treatments import rejected
from backoff_ctrl.k8s.gate.creates.wait import one_line
from backoff_ctrl.k8s.kube.answers.answer import (
    SERVER_LIMIT,
    Answer,
    CallerAway,
    GateClosed,
    NotSent,
    OutcomeUnknown,
    WaitedTooLong,
)
from backoff_ctrl.k8s.kube.answers.fields import FieldError, metadata_of
from backoff_ctrl.k8s.kube.answers.rejections import Lane, Rejection, rejection_of
from backoff_ctrl.k8s.kube.charges.footprint import charge, footprint
from backoff_ctrl.k8s.kube.charges.growth import added, outgrows
from backoff_ctrl.k8s.kube.charges.resources import CLAIMS, SERVICES
from backoff_ctrl.k8s.sidecar.http.messages import Ask, Request

from .callers import Reviews, caller_of, identity, same_call
from .choosing import ChargedKinds, Chosen, Way
from .returning import Kept, KeptCreates, Returning
from .sending import Received, Sender, manifest_in, may_be_marked
from .settings import RESTART, RETRY_AFTER, HoldSettings, patience_of
from .telling import cancelled, come_again, failed, not_yet, without_retry_after

log = logging.getLogger(__name__)

SPREAD: Final = 0.1
"""The part of a hold by which the ends of holds are spread."""
CLOSING: Final = "the proxy is shutting down"
_PERMITTED: Final = frozenset({Lane.QUOTA_CONFLICT, Lane.QUOTA_TIMEOUT, Lane.QUOTA_NOT_READY, Lane.WEBHOOK_FAILED})
"""Only a caller with the right to write gets these answers: admission comes after authorization."""
_PASSING: Final = _PERMITTED | {Lane.NOT_READY}
"""The object was not stored, and the cause passes by itself. Clients repeat requests answered 429 or 503."""
_GROWING: Final = frozenset({CLAIMS, SERVICES})
"""Kinds that an apply may make larger. The amounts of a pod change by a resize alone."""


@dataclass(slots=True, frozen=True)
class Shared:
    """The parts of the proxy that all requests of creates use."""

    ask: Ask
    own: Ask | None
    server: str
    gate: AsyncGate
    now: Callable[[], float]
    settings: HoldSettings
    kinds: ChargedKinds
    reviews: Reviews
    put_off: Returning[CreateRequest]
    """Requests whose callers were asked to come again. Their creates wait in line meanwhile, unsent."""
    noticed: Returning[float]
    """When waiting calls were first logged: one log line a call, not one for each of its requests."""
    unproven: Returning[bool]
    """Calls that left a place before the server had named their user: the place belongs to their credential."""
    kept: KeptCreates


class CreateRequest:
    """One request that was chosen. ``task`` drives its create, which may continue after the caller has hung up."""

    def __init__(self, shared: Shared, chosen: Chosen, request: Request) -> None:
        self._shared = shared
        self._chosen = chosen
        self._manifest = manifest_in(request, chosen.target.resource)
        self._refusal: Answer | None = None
        self._resumed: Named | None = None
        self._may: bool | None = None
        """Whether the caller may create there; None: not asked yet."""
        self._review: asyncio.Task[None] | None = None
        self.caller = caller_of(request.head)
        self.identity = identity(self.caller, chosen.target, self._manifest, request.body)
        self._unproven = self.identity
        self._call = same_call(self.caller, request.head, self.identity)
        self.sender = Sender(shared.ask, shared.own, shared.kinds, chosen.target, request)
        self.sender.names_itself = bool(metadata_of(self._manifest).get("name"))
        self.task: asyncio.Task[Any] | None = None
        self.create: Create | None = None
        """Its create, which waits in line."""
        self.if_unread: Callable[[], object] | None = None
        """Called if the answer did not reach the caller: keeps the create for the next identical request."""

    @property
    def label(self) -> tuple[str, str]:
        """The resource, and the name as far as it is known."""
        metadata = metadata_of(self._manifest)
        name = metadata.get("name") or metadata.get("generateName") or self._chosen.target.rest.strip("/")
        return self._chosen.target.resource, one_line(str(name))

    async def answer(self) -> Answer:
        """Return the caller's answer. Cancelled when it hangs up. Raises only internal errors."""
        try:
            async with self._shared.kept.asked(self._call):
                return await self._kept_or_sent()
        except NotSent as error:
            return failed(503, self.label, f"the API server can't be reached, the create was not sent: {error}")
        except (OutcomeUnknown, TimeoutError) as error:
            return failed(504, self.label, f"the API server did not answer, it may be stored: {error}")

    async def _kept_or_sent(self) -> Answer:
        kept = await self._resume()
        if kept is not None:
            return kept
        first = self._first()
        if first is not None:  # its caller is back: its first create keeps waiting
            answer = await first.waited(self._patience())
            self.if_unread = first.if_unread
            return answer
        if self._chosen.way is Way.ONCE:
            return await self._sent_first(self._send)
        if self._manifest is None:
            return await self._sent_first(self._send_shielded)
        return await self._in_line(self._named(self._manifest), None)

    def _first(self) -> CreateRequest | None:
        """Return the oldest request of this call that was put off, unless its create has ended meanwhile."""
        while (found := self._shared.put_off.take(self._call)) is not None:
            if found.create is not None and not isinstance(found.create.error, CallerAway):
                return found
        return None

    # -- what is sent before it waits ---------

    @property
    def _applies(self) -> bool:
        """Whether it is a server-side apply of a whole object."""
        return self._chosen.way is Way.ONCE and not self._chosen.target.is_subresource

    async def _send(self) -> Answer:
        async with asyncio.timeout(SERVER_LIMIT):
            return await self.sender.send({})

    async def _send_shielded(self) -> Answer:
        """Send what can't be read, and so can't be looked up. It continues if its caller leaves, and is kept."""
        self.task = task = asyncio.get_running_loop().create_task(self._send())
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            kept = Kept(task)
            note = partial(_note_answer, kept, task)
            self._shared.kept.keep_sent(self._call, kept, note)
            raise
        return task.result()

    async def _sent_first(self, send: Callable[[], Awaitable[Answer]]) -> Answer:
        """Send the request as it is; let it wait in line where waiting may help."""
        sent = self._shared.now()
        try:
            answer = await send()
        except (OutcomeUnknown, TimeoutError) as error:
            if not self._applies:
                raise
            answer = failed(504, self.label, f"the API server did not answer, it may be stored: {error}")
        if answer.ok or self._shared.gate.mode(self._chosen.target.namespace) != "enforce":
            return answer
        rejection = rejection_of(answer)
        if rejection.lane is Lane.QUOTA:
            return await self._refused(answer, rejection, sent)
        in_doubt = rejection.lane is Lane.UNKNOWN_OUTCOME
        if rejection.lane not in _PASSING and not (self._applies and (in_doubt or rejection.lane is Lane.EXISTS)):
            return answer
        living = await self.sender.living() if self._chosen.way is Way.ONCE else None
        demand = added(self._manifest, self._chosen.target.resource, living, datetime.now(UTC))
        self.sender.came = None if in_doubt else answer  # it was looked up, and is sent again
        return await self._in_line(self._as_it_is(), demand, came=answer, permitted=rejection.lane in _PERMITTED)

    async def _refused(self, answer: Answer, rejection: Rejection, sent: float) -> Answer:
        """Let a request wait with the amounts that its refusal names, unless it never fits."""
        target, demand = self._chosen.target, self._demand(rejection)
        self._shared.gate.ledger.learn(target.namespace, demand.scopes, rejected(rejection, sent), sent)
        if not rejection.retryable or await self._outgrows(rejection):
            return answer
        self._refusal = answer
        return await self._in_line(self._as_it_is(), demand, came=answer, permitted=True)

    def _demand(self, rejection: Rejection) -> Demand:
        try:
            scopes = footprint(self._manifest, resource=self._chosen.target.resource).scopes if self._manifest else ()
        except FieldError:
            scopes = ()
        return Demand({name: max(0, amount) for name, amount in rejection.requested.items()}, scopes)

    async def _outgrows(self, rejection: Rejection) -> bool:
        """Return whether the object would become larger than the whole quota: a refusal names only what is added."""
        target = self._chosen.target
        if self._chosen.way is not Way.ONCE or not (target.is_subresource or target.resource in _GROWING):
            return False
        living = await self.sender.living()
        return living is not None and outgrows(rejection, target.resource, living, datetime.now(UTC))

    def _as_it_is(self) -> Named:
        return applied(self._chosen.target.name) if self._applies else unnamed({})

    # -- what was sent before ---------

    async def _resume(self) -> Answer | None:
        """Continue an identical create that was sent before, if one is kept."""
        shared = self._shared
        kept = shared.kept.take(self._call)
        if kept is None:
            return None
        try:
            await asyncio.wait({kept.task}, timeout=self._patience())
        except asyncio.CancelledError:
            shared.kept.give_back(self._call, kept)
            raise
        if not kept.task.done():
            shared.kept.give_back(self._call, kept)
            why = "an identical create of this caller is under way"
            return come_again(self.label, why, again=shared.settings.again)
        self._resumed = kept.named
        if kept.answer is not None:
            self.if_unread = partial(shared.kept.keep_ended, self._call, kept)
        return kept.answer

    def _named(self, manifest: dict[str, Any]) -> Named | None:
        """Return the name that was drawn for it before, if any."""
        if self._resumed is not None:
            return replace(self._resumed, given=manifest)
        marks = self._shared.settings.mark and may_be_marked(self.sender.request, manifest)
        return None if marks else unnamed(manifest)

    # -- in line ---------

    async def _in_line(
        self, named: Named | None, demand: Demand | None, *, came: Answer | None = None, permitted: bool = False
    ) -> Answer:
        """Let it wait in line, and send it. ``came``: the answer to its first send, if it was sent before.

        ``permitted``: that answer proves that its caller may create here.
        """
        shared, target = self._shared, self._chosen.target
        settings = shared.settings
        self._may = await self._reviewed(permitted=permitted)
        if self._may is False:
            return came or await self._sent_first(self._send_shielded)
        call, unproven = (target.namespace, self.identity), (target.namespace, self._unproven)
        patience, total = self._patience(), settings.total(self._agent)
        creation = Creation(
            shared.server,
            self.caller.window,
            target.namespace,
            target.resource,
            self._shown_body(),
            timeout=total if settings.again else min(patience, total),
            seat=self.identity if shared.unproven.take(unproven) is None else self._unproven,
            retry_after=RETRY_AFTER,
            relayed=True,
            noticed_at=shared.noticed.take(call),
            demand=demand,
            named=named,
            on_wait=lambda _: self._begins_to_wait(),
        )
        self.create = create = Create(shared.gate, creation)
        self.task = asyncio.get_running_loop().create_task(shared.gate.run(create, self.sender))
        return await self.waited(patience)

    @property
    def _agent(self) -> bytes:
        return self.sender.request.head.get(b"user-agent") or b""

    def _shown_body(self) -> dict[str, Any]:
        """Return the manifest with the name in the path, which a patch need not repeat: people see it in line."""
        body, name = self._manifest or {}, self._chosen.target.name
        return {**body, "metadata": {**metadata_of(body), "name": name}} if name else body

    def _patience(self) -> float:
        """Return the seconds for which this request may be held, spread at random: many begin to wait together."""
        patience = patience_of(self.sender.request.head.target, self._shared.settings.longest(self._agent))
        return patience * (1 - SPREAD * self._shared.gate.names.random())

    async def waited(self, patience: float) -> Answer:
        """Wait that long for the end of the create, and return its caller's answer."""
        create, task, settings = self.create, self.task, self._shared.settings
        assert create is not None
        assert task is not None
        if create.away:
            create.come_back()
        try:
            await asyncio.wait({task}, timeout=patience if settings.again else None)
            if self._review is not None:  # it has begun to wait, which only a caller with the right may learn
                await asyncio.wait({self._review})
            wait = create.wait() if create.waits else None
            if not task.done() and create.leave():
                self._shared.put_off.keep(self._call, self)
                return not_yet(self.label, wait, create.seconds, again=True)
            if not task.done():  # it is on its way
                await asyncio.wait({task})
        except asyncio.CancelledError as gone:
            create.cancel(gone)
            if create.creation.seat == self._unproven:
                self._shared.unproven.keep((create.creation.namespace, self._unproven), True)
            self._keep(create)
            self._comes_again(create)
            raise
        finally:
            create.creation.on_wait = None  # it knows the create, which knows its creation
        task.result()  # raises an internal error
        if self._tells(create) and not await self._may_wait():
            return await self._sent_first(self._send_shielded)
        return self._ended(create, task)

    def _ended(self, create: Create, task: asyncio.Task[Any]) -> Answer:
        if create.answer is None or not create.answer.ok:
            self._keep(create)
        elif self._chosen.way is Way.GATED:
            kept = Kept(task)
            kept.note_name(create.named)  # not the answer: it waits as long as the connection lives
            self.if_unread = partial(self._shared.kept.keep_ended, self._call, kept)
        return self._told(create)

    # -- who may wait ---------

    async def _reviewed(self, *, permitted: bool) -> bool | None:
        """Return whether the caller may create here, if that is known, or asked because its create would wait now.

        None: neither known nor asked. ``permitted``: an answer has proved that the caller may.
        """
        shared, target = self._shared, self._chosen.target
        if shared.gate.mode(target.namespace) != "enforce":
            return None
        known = shared.reviews.known(self.caller, target)
        if known is None and not permitted and not self._would_wait():
            return None
        return await self._may_wait() or permitted

    def _would_wait(self) -> bool:
        try:
            demand = charge(self._manifest or {}, self._chosen.target.resource)
        except FieldError:
            return False
        wanted = ((demand, 1),)
        namespace = self._chosen.target.namespace
        found = self._shared.gate.ledger.look(lambda engine, now: engine.outlook(namespace, wanted, now))
        return found.prospect in {"wait", "never"}

    async def _may_wait(self) -> bool:
        """Return whether the caller may create here; from now on it is known by the user that the server names."""
        verdict = await self._shared.reviews.ask(self.caller, self.sender.request.head, self._chosen.target)
        self.identity = self.identity._replace(who=verdict.who)
        return verdict.may

    def _begins_to_wait(self) -> None:
        """Give its place to the known caller. If the wait comes as a surprise, ask who the caller is meanwhile."""
        assert self.create is not None
        if self._may:
            self.create.creation.seat = self.identity
        elif self._review is None:
            self._review = asyncio.get_running_loop().create_task(self._review_in_line(self.create))

    async def _review_in_line(self, create: Create) -> None:
        self._may = await self._may_wait() or create.sends > 0
        create.creation.seat = self.identity if self._may else None
        if not self._may:
            create.cancel(PermissionError("the API server does not let this caller create here"))

    def _tells(self, create: Create) -> bool:
        """Return whether the answer is ours, and could reveal a quota to a caller without the right to create."""
        ours = create.answer.made_here if create.answer is not None else not isinstance(create.error, GateClosed)
        return ours and not self._may and not create.sends and create.mode == "enforce"

    def _keep(self, create: Create) -> None:
        """Keep what may be stored: the caller may come again.

        A resize or an apply is kept only while it is under way: after that, it may be sent again.
        """
        sent, resumed = create.sends > 0, self._resumed is not None
        if self.task is None or not (sent or resumed):
            return
        kept, once = Kept(self.task), self._chosen.way is Way.ONCE

        def note() -> None:
            if not once:
                kept.note(create, sent=sent, resumed=resumed)

        self._shared.kept.keep_sent(self._call, kept, note)

    # -- the end ---------

    def _told(self, create: Create) -> Answer:
        answer, named = create.answer, create.named
        if answer is not None and answer.made_here and answer.status == 429:  # too many wait already
            return answer if self._shared.settings.again else without_retry_after(answer)
        if answer is not None:
            assumed = answer.ok and not isinstance(answer.headers, Received)
            return self.sender.stands_in(named) if assumed and named is not None else answer
        error = create.error
        if isinstance(error, WaitedTooLong):
            return self._put_off(create, error)
        if isinstance(error, GateClosed):
            return self._handed_back(create, error)
        if isinstance(error, NotSent | OutcomeUnknown | TimeoutError):
            raise error
        return failed(502, self.label, f"it could not be sent: {type(error).__name__}")

    def _handed_back(self, create: Create, error: GateClosed) -> Answer:
        """Answer a create that was cancelled while it waited: at the end of the proxy, or by an operator."""
        settings, refusal = self._shared.settings, None
        if not str(error).startswith(CLOSING):
            return cancelled(self.label, str(error))
        if settings.answer == "quota":
            refusal = self._refusal or create.refusal(error.wait)
        return refusal or come_again(self.label, CLOSING, again=settings.again, after=RESTART)

    def _put_off(self, create: Create, error: WaitedTooLong) -> Answer:
        """Answer a create that was held for as long as it may be."""
        settings = self._shared.settings
        if settings.answer == "quota" and error.answer is not None and error.answer.status == 403:
            self._comes_again(create)
            return self._refusal or error.answer
        if not settings.again:
            self._comes_again(create)
        elif create.noticed:
            log.info(
                "%s was not created: after %.0f s its caller was asked to stop waiting", create.label, create.seconds
            )
        return not_yet(self.label, error.wait, create.seconds, again=False)

    def _comes_again(self, create: Create) -> None:
        """Remember that a line was logged, so that there is only one, however often the caller comes."""
        if create.noticed:
            shared, since = self._shared, create.creation.noticed_at
            call = (self._chosen.target.namespace, self.identity)
            shared.noticed.keep(call, create.began if since is None else since)


def give_up(request: CreateRequest) -> None:
    """Let the create of a request that was put off leave the line: its caller has stayed away."""
    if request.create is not None and not request.create.over:
        request.create.cancel(CallerAway(f"{request.create.label}: its caller did not retry"))


def _note_answer(kept: Kept, task: asyncio.Task[Answer]) -> None:
    kept.note_answer(None if task.exception() else task.result())


def applied(name: str) -> Named:
    """Return a server-side apply of that object: it is sent as it is, and again if its outcome is unknown."""
    return Named({}, name, "", minted=False, keyed=False, body_hash="", kept=True, applied=True)


def unnamed(manifest: dict[str, Any]) -> Named:
    """Return a create that is sent as it is: it can't be looked up, so an unknown outcome is never retried."""
    return Named(manifest, "", "", minted=False, keyed=False, body_hash="", kept=True)
