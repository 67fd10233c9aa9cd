"""The creates of a sidecar: which wait, how they are answered, and what is learned from everything that passes."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.creates.calls import Passed, read_target
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.settings import settings as process_settings
from backoff_ctrl.k8s.gate.sharing.process import Share
from backoff_ctrl.k8s.kube.answers.answer import SERVER_LIMIT, Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.sidecar.finding import Account, Trust, UpstreamConfig
from backoff_ctrl.k8s.sidecar.held_bytes import HeldBytes
from backoff_ctrl.k8s.sidecar.http.messages import Ask, Head, Request, Response
from backoff_ctrl.k8s.sidecar.upstream import ApiServer

from .callers import Reviews
from .choosing import ChargedKinds, Chosen, choose, creates
from .create_request import CLOSING, CreateRequest, Shared, give_up
from .returning import KeptCreates, Returning
from .sending import Received, response_of
from .settings import RESTART, RETRY_AFTER, HoldSettings
from .telling import come_again, failed

_STEP: Final = 0.05
FULL: Final = "the proxy holds as many bytes of this namespace as it may"


class Holding:
    """Implements ``Creates``: holds creates while the quota is full, and sends them in order when room comes.

    It fails open: after an internal error, which is counted and logged once, the create is sent as it came. The only
    create refused by the proxy itself is one beyond ``held_bytes_max``: it is answered 429 and should come again.
    """

    def __init__(
        self,
        ask: Ask,
        gate: AsyncGate,
        server: str,
        settings: HoldSettings | None = None,
        own: Ask | None = None,
        at_end: Callable[[], object] | None = None,
        *,
        lends: bool = False,
    ) -> None:
        """Send by ``ask`` to ``server`` (its address), in the order of ``gate``.

        ``own`` sends with the proxy's own credentials, to list quotas where it may. None: quotas are listed only with
        those of creators. ``at_end`` is called once all is closed. ``lends``: ``ask`` adds the proxy's credentials
        to a request without credentials.
        """
        self._settings = settings if settings is not None else HoldSettings()
        self._kinds = ChargedKinds()
        self._gate = gate
        ledger = gate.ledger
        ledger.subscribe(self._kinds)
        ttl = max(ledger.policy.seat_ttl, 2.0 * RETRY_AFTER)
        self._shared = Shared(
            ask,
            own,
            server,
            gate,
            ledger.now,
            self._settings,
            self._kinds,
            Reviews(ask, ledger.now, lends=lends),
            Returning(ttl, give_up, most=math.inf),
            Returning(ttl),
            Returning(ttl),
            KeptCreates(ttl),
        )
        self._at_end = at_end
        self._closing = False
        self._held = HeldBytes(self._settings.held_bytes_max)
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def ledger(self) -> Ledger:
        """What decides which of them may be sent."""
        return self._gate.ledger

    @property
    def held_bytes(self) -> int:
        return self._held.total

    # -- called by the listener ---------

    def reads(self, head: Head) -> bool:
        """Return whether the body of this request is to be read whole, for ``answer``."""
        return self._chosen(head) is not None

    async def answer(self, request: Request) -> Response:
        """Answer a request that ``reads`` chose. Cancelled when the caller hangs up. Never raises otherwise."""
        self._open += 1
        self._idle.clear()
        try:
            return await self._answer(request)
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()

    def watches(self, head: Head, status: int) -> bool:
        """Return whether ``passed`` needs this answer: a refusal, a deletion, or a create of another kind."""
        if status == 403:
            return head.method in (b"POST", b"PATCH", b"PUT")
        if status == 200 and head.method == b"DELETE":
            return True
        return status == 201 and head.method == b"POST" and bool(self._gate.ledger.subscribers.blocked.listeners)

    def passed(self, head: Head, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Learn from an answer to a request that passed. Never raises."""
        ledger = self._gate.ledger
        ledger.reached = True
        try:
            self._learn(head, status, Response(status, b"", list(headers), body))
        except Exception as error:  # noqa: BLE001 - fails open
            ledger.failed_open(error)

    async def close(self, limit: float = 10.0) -> None:
        """Hand held creates back to their callers, and wait for what was sent, at most ``limit`` seconds."""
        self._closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while self._open:  # some may be about to join the line
                    self._gate.cancel_own(f"{CLOSING}, and callers should retry")
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._idle.wait(), _STEP)
                await self._gate.drain()
        if self._at_end is not None:
            self._at_end()

    # -- one request ---------

    def _chosen(self, head: Head) -> Chosen | None:
        try:
            chosen = choose(head, self._kinds)
            off = chosen is not None and self._gate.mode(chosen.target.namespace) == "off"
        except Exception as error:  # noqa: BLE001 - fails open
            self._gate.ledger.failed_open(error)
            return None
        return None if off else chosen

    async def _answer(self, request: Request) -> Response:
        chosen = self._chosen(request.head)
        create, size = None, len(request.body)
        held = "" if chosen is None else chosen.target.namespace
        try:
            if chosen is not None:
                refused = self._refused(chosen, request)
                if refused is not None:
                    return response_of(refused, request.head)
                create = CreateRequest(self._shared, chosen, request)
                self._held.add(held, size)
                try:
                    answer = await create.answer()
                finally:  # its bytes may be in use for longer than its caller stays
                    if create.task is None or create.task.done():
                        self._held.add(held, -size)
                    else:
                        create.task.add_done_callback(lambda _: self._held.add(held, -size))
                response = response_of(answer, request.head)
                response.if_unread = create.if_unread
                return response
        except Exception as error:  # noqa: BLE001 - fails open
            self._gate.ledger.failed_open(error)
        return await self._ungated(request, create)

    def _refused(self, chosen: Chosen, request: Request) -> Answer | None:
        label = chosen.target.resource, chosen.target.rest.strip("/")
        if self._closing:
            return come_again(label, CLOSING, again=self._settings.again, after=RESTART)
        if self._held.total and not self._held.have_room(chosen.target.namespace, len(request.body)):
            return come_again(label, FULL, again=self._settings.again)
        return None

    async def _ungated(self, request: Request, create: CreateRequest | None) -> Response:
        """Send a request as it came, after an internal error, unless it was sent; an answer that came counts."""
        label = ("the request", "") if create is None else create.label
        if create is not None and create.sender.word is not None:
            return create.sender.word
        if create is not None and create.sender.posts:
            return response_of(failed(504, label, "an internal error of the proxy; it may be stored"), request.head)
        try:
            async with asyncio.timeout(SERVER_LIMIT):
                return await self._shared.ask(request)
        except NotSent as error:
            return response_of(failed(503, label, f"the API server can't be reached: {error}"), request.head)
        except (OutcomeUnknown, TimeoutError) as error:
            return response_of(failed(504, label, f"the API server did not answer: {error}"), request.head)

    # -- what passes ---------

    def _learn(self, head: Head, status: int, response: Response) -> None:
        target = read_target("", head.target.decode("latin-1"))
        if target is None or target.dry_run:
            return
        ledger = self._gate.ledger
        sent = ledger.now() - SERVER_LIMIT  # not known: the earliest possible time
        passed = Passed(head.method.decode("latin-1"), status, Received(response), response.body, sent)
        if ledger.note_passed(target, passed) is not None:
            self._kinds.add(target.namespace, target.resource)
        elif status == 201 and creates(head, target) and bool(ledger.subscribers.blocked.listeners):
            ledger.subscribers.blocked(target.namespace)  # its quotas may name this kind


class OwnAccount:
    """An API server, and how the proxy itself talks to it. Loads no Kubernetes client; files are read when needed."""

    proxy = proxy_headers = no_proxy = assert_hostname = None

    def __init__(self, place: UpstreamConfig) -> None:
        self.host = place.url
        self.tls_server_name = place.server_name or None
        self._place = place
        self._account = Account(place)

    def made_tls(self) -> ssl.SSLContext:
        """Return the TLS settings with the present certificates. Raises ``UpstreamError``."""
        return Trust(self._place, own=True).context or ssl.create_default_context()

    def auth_settings(self) -> dict[str, Any]:
        """Return the present credentials; empty if the proxy has only a certificate, or no account."""
        for line in self._account.lines():
            name, _, value = line.decode("latin-1").partition(": ")
            return {"BearerToken": {"key": name, "value": value}}
        return {}


def open_holding(server: ApiServer, settings: HoldSettings | None = None) -> Holding:
    """Return the creates of a sidecar in front of ``server``.

    Quotas are watched with the proxy's own account, where that may, once a create waits for one. ``BACKOFF_CTRL_MODE``,
    ``BACKOFF_CTRL_MEMORY``, ``BACKOFF_CTRL_EVENTS`` and the others apply as for gated clients, except
    ``BACKOFF_CTRL_TIMEOUT``: how long a create is held is the sidecar's own setting. Raises ``OptionError``.
    """
    place = server.place
    share = Share(OwnAccount(place), None)
    gate = AsyncGate(ledger=share.ledger, mode=process_settings().mode or None)
    has_account = bool(place.token or place.basic or place.certificate)
    own = server.ask_as_proxy if has_account else None
    return Holding(server.ask, gate, place.url, settings, own=own, at_end=share.release, lends=server.uses_own)
