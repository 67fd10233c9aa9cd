"""A creator's connection: takes its requests in order, each to the API server or to the room that holds creates."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from posixpath import normpath
from socket import SO_ERROR, SOL_SOCKET
from typing import Final
from urllib.parse import unquote_to_bytes

from backoff_ctrl.k8s.kube.cluster.address import is_loopback
from backoff_ctrl.k8s.sidecar.http.messages import RefusedError
from backoff_ctrl.k8s.sidecar.http.requests import Asked, Part, RequestReader
from backoff_ctrl.k8s.sidecar.http.transports import Gathering
from backoff_ctrl.k8s.sidecar.http.writing import refusal

from .crowding import make_room
from .passing import Held, Passage, Shared
from .upstream import BUFFER

log = logging.getLogger(__name__)

UNREAD_S: Final = 5.0
"""If the connection breaks within so many seconds, the answer to a create counts as not read."""
BEHIND_MAX: Final = 64 * 1024
"""Bytes that may arrive behind a request that is being answered; beyond that reading stops."""
_CROWDED: Final = refusal(503, "too many connections to the proxy: try again soon", close=True, retry_after=1)
_OWN: Final = "this proxy adds its own credentials"
_EXEC_REFUSED: Final = (
    f"{_OWN}, and a web page behind pods/x/proxy could run commands with them: "
    "send a token of yours, or start the proxy with --allow-exec"
)
_RUNS: Final = re.compile(
    rb"/+api/[^/]+/(namespaces/[^/]+/pods/[^/]+/(exec|attach)|nodes/[^/]+/proxy/(exec|attach|run))(/|\Z)"
)
_OF_FORMS: Final = frozenset({b"text/plain", b"multipart/form-data", b"application/x-www-form-urlencoded"})
"""Content types that a page may send to any site without a preflight request. A body without a type can come only from
a script, which sends its origin, or from client-go's raw requests, which send no origin."""


class Caller(asyncio.Protocol):
    """One connection: see ``Connection``. Requests are answered one after the other, in their order."""

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self.shared = shared
        self.loop = loop
        self.transport: Gathering
        self.address = ""
        self.reader = RequestReader()
        self.heard = loop.time()
        self.sends_no_more = False
        self._amid = 0.0
        self._behind = b""
        self._current: Passage | Held | None = None
        self._taking = False
        self._tunnel: Passage | None = None
        self._paused = False
        self._lingers = False
        self._pumping = False
        self._blocked_writing = False
        self._unread: tuple[float, Callable[[], object]] | None = None

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one of a stream
        """Take the connection, or refuse it where there are too many."""
        self.transport = Gathering(transport, self.shared.server.outbox)
        self.address = address_of(transport.get_extra_info("peername"))
        shared = self.shared
        if len(shared.callers) >= shared.limits.connections:
            shared.counts.turned_away += 1
            if not make_room(shared, self.address, self.loop.time()):
                self.transport.write(_CROWDED)
                self.transport.close()
                return
        transport.set_write_buffer_limits(BUFFER)
        shared.take_in(self, self.loop.time())

    def data_received(self, data: bytes) -> None:
        self.heard = self.loop.time()
        self._unread = None  # it sends on: so the answer before has arrived
        self.shared.idle.pop(self, None)
        if self._tunnel is not None:
            self._tunnel.from_caller(data)
        elif self._lingers:
            return
        elif self._current is None or self._taking:
            self.reader.feed(data)
            self._pump()
        else:
            self._behind += data
            self._regulate()

    def eof_received(self) -> bool:
        """Continue if the caller closed its half and waits for an answer; anything else it had begun ends."""
        self.sends_no_more = True
        self.heard = self.loop.time()
        self.transport.flush()  # it may be closed now
        current = self._current
        if self._tunnel is not None:
            return self._tunnel.caller_ended()
        if current is None or self._taking or not current.half_closable:
            self._look_whether_read()
            self._leave()
            return False
        return self.transport.can_write_eof()  # TLS has no half-closed connections

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what was under way."""
        self.shared.forget(self)
        if exc is not None:
            self._was_unread()
        self._leave()

    def notice_unread(self, if_unread: Callable[[], object] | None) -> None:
        """Call ``if_unread`` if the connection breaks before the answer just written can have been read.

        It may have broken already. A clean end proves no failure: callers that have read everything end so, too.
        """
        self.transport.flush()
        self._unread = None if if_unread is None else (self.loop.time(), if_unread)
        if self.transport.is_closing():
            self._was_unread()

    def _look_whether_read(self) -> None:
        """At the end of input: find out whether the caller was gone and its side refused the bytes of the answer."""
        connection = self.transport.get_extra_info("socket")
        if self._unread is not None and connection is not None and connection.getsockopt(SOL_SOCKET, SO_ERROR):
            self._was_unread()

    def _was_unread(self) -> None:
        unread, self._unread = self._unread, None
        if unread is not None and self.loop.time() - unread[0] < UNREAD_S:
            unread[1]()

    def _leave(self) -> None:
        current, self._current = self._current, None
        self._tunnel = None
        if current is not None:
            current.gone()

    def pause_writing(self) -> None:
        self._blocked_writing = True
        if self._current is not None:
            self._current.full()

    def resume_writing(self) -> None:
        self._blocked_writing = False
        if self._current is not None:
            self._current.emptied()
        elif not self._lingers:
            self._pump()

    # Requests.

    def _pump(self) -> None:
        if self._pumping:
            return  # a request ended while its own parts were passed on
        self._pumping = True
        parts = self.reader.parts
        while parts:
            current = self._current
            if current is None:
                if self._blocked_writing:
                    break  # start no request for a caller that does not read its answers
                kind, value = parts.popleft()
                if kind is Part.HEAD:
                    assert isinstance(value, Asked)
                    self._begin(value)
                elif kind is Part.BAD:
                    assert isinstance(value, RefusedError)
                    self.refuse(value)
                continue
            if not self._taking or current.blocked:
                break
            kind, value = parts.popleft()
            if kind is Part.BODY:
                current.body(value)  # type: ignore[arg-type]  # as its kind says
            elif kind is Part.END:
                self._taking = False
                current.end(value)  # type: ignore[arg-type]
            else:
                self._current = None
                current.gone()
                self.refuse(value)  # type: ignore[arg-type]
        if self._current is not None:
            self._current.flush()
        self._pumping = False
        self._amid = (self._amid or self.heard) if self.reader.amid_head else 0.0
        self._regulate()
        self._end_if_done()

    def _begin(self, asked: Asked) -> None:
        """Start a request: it is held, or it passes."""
        shared = self.shared
        shared.silent.pop(self, None)
        shared.idle.pop(self, None)
        refused = self._refused(asked)
        if refused is not None:
            self.refuse(refused)
            return
        self._taking = True
        if self._reads(asked):
            self._current = Held(self, asked)
            shared.counts.held += 1
        else:
            self.pass_on(asked)

    def _refused(self, asked: Asked) -> RefusedError | None:
        """Return why a request may not use the proxy's own credentials; None: it may, or has its own."""
        shared = self.shared
        if shared.server.uses_own and not asked.has_credentials and not shared.lends_exec and _runs(asked.head.target):
            return RefusedError(403, _EXEC_REFUSED)
        return _refused_to_pages(asked) if shared.local_hosts_only else None

    def _reads(self, asked: Asked) -> bool:
        """Return whether the body is to be read; an error of the room that decides this stops no request."""
        shared = self.shared
        if asked.upgrade or asked.length > shared.limits.body_bytes:
            return False
        if not shared.held.have_room(self.address, asked.length):
            return False
        try:
            return shared.creates.reads(asked.head)
        except Exception:  # of any kind: the request passes
            log.exception("a request passes ungated: the gate failed")
            return False

    def pass_on(self, asked: Asked, *, continued: bool = False) -> Passage:
        passage = Passage(self, asked, continued=continued)
        self._current = passage
        self.shared.counts.passed += 1
        if self._blocked_writing:
            passage.full()
        passage.start()
        return passage

    @property
    def incomplete(self) -> bool:
        return self._taking

    @property
    def owes(self) -> bool:
        return self._taking and self._current is not None and not self._current.blocked

    @property
    def closes(self) -> bool:
        return self._taking or self.shared.draining

    def skip(self) -> None:
        parts = self.reader.parts
        if self._taking and any(kind is Part.END for kind, _ in parts):
            while parts.popleft()[0] is not Part.END:
                pass
            self._taking = False

    def tunnel(self, through: Passage) -> bytes:
        self._tunnel = through
        early, self.reader.rest, self._behind = self.reader.rest + self._behind, b"", b""
        self._regulate()
        return early

    def finished(self, current: Passage | Held, *, close: bool) -> None:
        if self._current is not current:
            return
        self._current = None
        if close or self.closes:
            self._end()
            return
        if self.reader.stopped:
            self.reader.go_on()
        if self._behind:
            behind, self._behind = self._behind, b""
            self.reader.feed(behind)
        self.heard = self.loop.time()
        self.shared.idle[self] = self.heard
        self._pump()

    def _end_if_done(self) -> None:
        """Close once a caller that sends no more has all its answers; a partial request will never be whole."""
        current = self._current
        if not self.sends_no_more or self.reader.parts or self._lingers or self._tunnel is not None:
            return
        if current is None or self._taking or not current.half_closable:
            self._leave()
            self.transport.close()

    def refuse(self, error: RefusedError) -> None:
        self.shared.counts.refused += 1
        self.transport.write(refusal(error.status, str(error), close=True))
        self._end()

    def _end(self) -> None:
        """Close the connection so that the caller can read the answer: what it still sends is discarded."""
        self._taking = False
        self.reader.over = True
        self.reader.parts.clear()
        if self.sends_no_more or not self.transport.can_write_eof() or self.transport.is_closing():
            self.transport.close()
            return
        self.transport.write_eof()
        self._lingers = True
        self.heard = self.loop.time()
        self._regulate()

    def regulate(self) -> None:
        if self._current is not None and not self._current.blocked:
            self._pump()
        else:
            self._regulate()

    def _regulate(self) -> None:
        """Stop reading while no more can be accepted."""
        current = self._current
        if self._lingers:
            stop = False
        elif self._tunnel is not None:
            stop = self._tunnel.blocked
        elif self._taking:
            stop = current is not None and current.blocked
        elif current is None:
            stop = self._blocked_writing
        else:
            stop = len(self._behind) + len(self.reader.rest) > BEHIND_MAX  # until then read on: a caller may hang up
        if stop != self._paused and not self.transport.is_closing():
            self._paused = stop
            if stop:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    # Time.

    def look(self, now: float) -> None:
        limits = self.shared.limits
        waited = now - self.heard
        if self._lingers:
            if waited > limits.linger_s:
                self.transport.abort()
        elif self._tunnel is not None:
            return
        elif self._current is None:
            if self._blocked_writing:
                if waited > limits.idle_s:
                    self.transport.abort()  # it does not read, not even an orderly end
            elif self._amid and now - self._amid > limits.head_s:
                self.refuse(RefusedError(408, f"the head of the request took longer than {limits.head_s:g} s"))
            elif not self._amid and waited > (limits.head_s if self in self.shared.silent else limits.idle_s):
                self.transport.close()
        elif self._taking:
            if self.owes and waited > limits.body_s:
                self._leave()
                self.refuse(RefusedError(408, f"the body of the request paused for more than {limits.body_s:g} s"))
        elif self.sends_no_more and waited > limits.half_closed_s:
            self.transport.abort()

    def drain(self, *, at_once: bool) -> None:
        if self._current is None:
            if at_once and not self._lingers:
                self.transport.close()
        elif self._current.endless:
            self.transport.close()

    def give_way(self) -> None:
        self.shared.forget(self)
        if not isinstance(self._current, Held) or self._taking:
            self.transport.abort()
            return
        self._leave()
        self.transport.write(_CROWDED)
        self.transport.close()


def address_of(peer: object) -> str:
    """Return the address of a socket's other side; empty: it came by a unix socket, or is gone."""
    return str(peer[0]) if isinstance(peer, tuple) else ""


def _runs(target: bytes) -> bool:
    """Return whether a request runs something in a pod: exec or attach, of the API server, or of a node's kubelet.

    A page that a pod shows behind ``pods/x/proxy/`` has the origin of this proxy. ``kubectl proxy`` refuses both, too.
    """
    path = normpath(unquote_to_bytes(target.partition(b"?")[0]))  # as the API server, or one before it, may read it
    return _RUNS.match(path) is not None


def _refused_to_pages(asked: Asked) -> RefusedError | None:
    """Return why a request that a web page may have sent is refused; None: a program sent it, or our own page.

    Where the proxy adds its own credentials, any page in a browser of this machine could use them. A browser sends the
    page's origin with requests that may change something, says in ``Sec-Fetch-Site`` how the page is related to this
    address, and asks in a preflight request before it sends a content type that forms don't have. Programs do neither
    of this.
    """
    host = asked.head.get(b"host") or b""
    if not is_loopback(host.decode("latin-1")):
        return RefusedError(403, f"{_OWN}: call it by a name of this machine")
    origin, site = asked.head.get(b"origin"), asked.head.get(b"sec-fetch-site") or b"none"
    if (origin is not None and origin.partition(b"://")[2] != host) or site not in {b"none", b"same-origin"}:
        return RefusedError(403, f"{_OWN}: pages of other sites may not use them")
    content = (asked.head.get(b"content-type") or b"").partition(b";")[0].strip().lower()
    if origin is None and asked.has_body and content in _OF_FORMS:
        return RefusedError(415, f"{_OWN}: a web page could send such a body; set Content-Type: application/json")
    return None
