"""One gate that ``serve`` is connected to: how it is asked, and what it reported last.

Answers are bounded in time and size. The gate of this process (``OwnGate``), if there is one, is asked without HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import aiohttp
from starlette.concurrency import run_in_threadpool
from yarl import URL

from backoff_ctrl.engine.facts.quantities import parse_quantity, taken_share
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.status.asked import ProblemError
from backoff_ctrl.k8s.status.client import LINE_MAX, Events, detail_of, read
from backoff_ctrl.k8s.status.conversation import JSON, Sent, as_json
from backoff_ctrl.k8s.status.decisions import Decisions
from backoff_ctrl.k8s.status.documents import Documents, decision
from backoff_ctrl.k8s.status.gate_endpoints import GateEndpoints
from backoff_ctrl.k8s.status.shapes import Block
from backoff_ctrl.k8s.status.token import Token

from .shapes import SeenCeiling

PATIENCE: Final = 5.0
"""Seconds for an answer of a gate."""
AGAIN: Final = 2.0
"""Seconds until a stream of decisions that broke is opened again."""
SILENT: Final = 60.0
"""The longest silence of a stream, in seconds: it sends a keep-alive every 15 s."""
NEWS_EVERY: Final = 0.25
"""Seconds between two checks for new decisions of the gate of this process."""
ANSWER_MAX: Final = 32 << 20
"""Bytes of one answer: a page of 1,000 waiting creates has about 500 kB."""
NOT_ASKED: Final = "it has not been asked yet"
IDLE: Final = "it has no line yet: it carries out no tasks, perhaps as another process has the lease of their store"
Key: TypeAlias = tuple[str, str]
"""A quota and a resource."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What is held and reserved at one ceiling, in nano-units; whether room is kept there, and what waits for it.

    ``waiting`` counts creates.
    """

    held: int = 0
    reserved: int = 0
    kept: bool = False
    block: Block | None = None
    waiting: int = 0

    def __add__(self, other: Hold) -> Hold:
        """Return the sum of both, with the block that is probed first."""
        blocks = [each for each in (self.block, other.block) if each is not None]
        blocks.sort(key=lambda each: each.next_probe_at or "~")
        return Hold(
            self.held + other.held,
            self.reserved + other.reserved,
            self.kept or other.kept,
            blocks[0] if blocks else None,
            self.waiting + other.waiting,
        )

    @property
    def amount(self) -> int:
        """The amount that is not free because of it."""
        return self.held + self.reserved

    @property
    def asked(self) -> bool:
        """Whether creates ask for room there in vain."""
        return self.block is not None or self.waiting > 0


@dataclass(frozen=True, slots=True)
class ReportedCeiling:
    """One ceiling as a gate reported it; ``limited`` and ``used`` are in nano-units."""

    ceiling: SeenCeiling
    limited: int
    used: int
    hold: Hold

    @classmethod
    def of(cls, item: Mapping[str, Any], gate_url: str) -> ReportedCeiling:
        """Return a ceiling from a document of the gate there. Raises ``ValueError`` for an invalid one."""
        found: SeenCeiling = read(SeenCeiling, {**item, "gate_url": gate_url})
        held, reserved = (parse_quantity(amount or "0") for amount in (found.held, found.reserved))
        hold = Hold(held, reserved, bool(found.kept), found.block, found.waiting or 0)
        return cls(found, parse_quantity(found.limited), parse_quantity(found.used), hold)

    @property
    def share(self) -> float:
        """The used share of the limit, from 0 to 1 and above."""
        return taken_share(self.used, self.limited, asked=self.hold.asked)


# -- one gate ---------


class GateError(Exception):
    """A gate did not answer properly. The message says why; ``status`` is that of its answer, 0 without one."""

    def __init__(self, why: str, status: int = 0) -> None:
        """``why`` is a sentence for people, such as the gate's own."""
        super().__init__(why)
        self.status = status


FAULTS: Final = (GateError, KeyError, TypeError, ValueError)
"""The exceptions of asking a gate and reading its answer."""


def why_of(fault: Exception) -> str:
    return str(fault) or "it is not a gate"


@dataclass(eq=False)
class Gate:
    """One gate. ``why`` is empty while it answers."""

    number: int
    """A number that grows from gate to gate, and is never reused: cursors contain it."""
    url: str
    pod: str = ""
    """Its pod, as ``namespace/name``; empty: it was given with ``--gate``."""
    own: OwnGate | None = None
    """The gate of this process; None: it is asked over HTTP."""
    why: str = NOT_ASKED
    namespaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Its namespaces in its last answer, by name."""
    told: dict[str, dict[Key, ReportedCeiling]] = field(default_factory=dict)
    """Its ceilings by namespace: those with holds, and all of quotas that ``serve`` does not watch."""


class Ways:
    """Asks gates over HTTP: with TLS and credentials. It belongs to one event loop."""

    def __init__(self, authority: Path | None = None, token: Path | None = None) -> None:
        """``authority`` signs the certificates of gates found in pods; ``token`` is for TLS, and read each time."""
        self._token = token
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None
        if authority is not None:
            self._tls = ssl.create_default_context(cafile=authority)
            self._tls.check_hostname = False  # pods have no lasting names: the authority is for gates alone

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            patience = aiohttp.ClientTimeout(total=PATIENCE)
            self._session = aiohttp.ClientSession(timeout=patience, read_bufsize=LINE_MAX)
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def options(self, gate: Gate, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return keyword arguments of a request to a gate. Raises ``OSError`` if the token can't be read."""
        url = URL(gate.url)
        given = dict(headers or {})
        how: dict[str, Any] = {"headers": given, "allow_redirects": False}
        if gate.pod:
            given["Host"] = f"localhost:{url.port}"  # a gate answers to no other name
            if url.scheme == "https" and self._tls is not None:
                how["ssl"] = self._tls
        if self._token is not None and url.scheme == "https":
            given["Authorization"] = f"Bearer {self._token.read_text().strip()}"
        return how

    async def ask(self, gate: Gate, path: str, query: Mapping[str, str], body: Any, token: str) -> Any:
        """Return a document of a gate: by GET, or by POST of a body. ``token`` is to act. Raises ``GateError``."""
        target = URL(f"{gate.url}{path}", encoded=True)
        target = target.update_query(query) if query else target
        try:
            how = self.options(gate, {"Authorization": f"Bearer {token}"} if token else None)
            async with self.session.request("GET" if body is None else "POST", target, json=body, **how) as answer:
                text = bytearray()
                async for piece in answer.content.iter_any():
                    text += piece
                    if len(text) > ANSWER_MAX:
                        raise GateError(f"its answer has more than {ANSWER_MAX >> 20} MiB")
                if answer.status == 200:
                    return json.loads(text)
                raise GateError(_why(bytes(text)) or f"it answers {answer.status}", answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
            raise GateError(f"{type(error).__name__}: {error}"[:200]) from None

    async def decisions(self, gate: Gate) -> AsyncIterator[tuple[str, str]]:
        """Yield name and data of the events of a gate, without end; after a break continue where it ended."""
        last = "before-0"  # no gate's id: it begins with the oldest that is kept
        patience = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=SILENT)
        while True:
            how = self.options(gate, {"Last-Event-ID": last})
            events = Events(last)
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
                async with self.session.get(f"{gate.url}/v1/decisions", timeout=patience, **how) as stream:
                    async for line in stream.content:
                        if (event := events.take(line)) is not None:
                            yield event
            last = events.last
            await asyncio.sleep(AGAIN)


def _why(text: bytes) -> str:
    try:
        return printable(detail_of(json.loads(text)) or "")[:300]
    except (ValueError, RecursionError):
        return ""


class OwnGate:
    """The gate of this process, which is asked without HTTP. It belongs to the event loop of ``serve``."""

    def __init__(self, documents: Documents, ring: Decisions, url: str, token: Token) -> None:
        """``url`` is that of ``serve`` itself; actions there need its ``token``."""
        self.documents = documents
        self.url = url
        self.token = token
        self._ring = ring
        self._endpoints = GateEndpoints(documents, None, series_max=0)
        self._endpoints.token = token

    async def ask(self, _: Gate, path: str, query: Mapping[str, str], body: Any, token: str) -> Any:
        """Return a document: by GET, or by POST of a body. Raises ``GateError``."""
        if not self.documents.sources:
            raise GateError(IDLE, 503)
        sent = Sent()
        if body is not None:
            sent = Sent({"content-type": JSON, "authorization": f"Bearer {token}"}, json.dumps(body).encode())
        method = "GET" if body is None else "POST"
        try:
            found = await run_in_threadpool(self._endpoints.reply, method, path, urlencode(query), sent)
        except ProblemError as error:
            raise GateError(error.problem.detail, error.problem.status) from None
        return json.loads(found.whole)

    async def decisions(self, _: Gate) -> AsyncIterator[tuple[str, str]]:
        """Yield name and data of each decision as an event, beginning with the oldest that is kept, without end."""
        seq = 0
        while True:
            for told in self._ring.after(seq).decisions:
                yield "decision", as_json(decision(told))
                seq = told.seq
            await asyncio.sleep(NEWS_EVERY)
