"""The gates that ``serve`` is connected to: requests to each, its answers, and their sum.

Only gates know lines, holds and decisions. ``Gates`` follows each: it polls its namespaces, keeps what is held there
and the ceilings that only it knows (``ReportedCeiling``), and passes its decisions on. Answers of a gate are bounded in
time and size. The gate of this process (``OwnGate``), if there is one, is asked without HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias
from urllib.parse import quote, urlencode

import aiohttp
from starlette.concurrency import run_in_threadpool
from yarl import URL

from backoff_ctrl.engine.facts.quantities import parse_quantity, taken_share
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.status.asked import WRONG_CURSOR, ProblemError
from backoff_ctrl.k8s.status.client import LINE_MAX, Events, detail_of, read
from backoff_ctrl.k8s.status.conversation import JSON, Sent, as_json
from backoff_ctrl.k8s.status.decisions import Decisions, Ring
from backoff_ctrl.k8s.status.documents import Documents, decision
from backoff_ctrl.k8s.status.gate_endpoints import GateEndpoints
from backoff_ctrl.k8s.status.shapes import Block, Ceiling, RequestHistory
from backoff_ctrl.k8s.status.streams import Streams
from backoff_ctrl.k8s.status.token import Token

log = logging.getLogger(__name__)

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
LOOK_EVERY: Final = 2.0
"""Seconds between two reads of a gate's namespaces."""
PAGE: Final = 1000
AT_ONCE: Final = 4
"""Namespaces whose ceilings are requested from one gate at a time."""
SINGLY_MAX: Final = 50
"""Up to so many unwatched namespaces are requested one by one; beyond that, the whole list is read."""
RESTING: Final = 5
"""A slow read is followed by a pause of so many times its length."""
NONE: Final = (
    "no gate connected: lines are in gates; start serve with --gate URL, or with --gates-in NAMESPACE to find them"
)
SEEKING: Final = (
    "gates are still being looked for: the pods of namespace {} have not been listed yet; ask again in a moment"
)
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

    ceiling: Ceiling
    limited: int
    used: int
    hold: Hold

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> ReportedCeiling:
        """Return a ceiling from a gate's document. Raises ``ValueError`` for an invalid one."""
        found: Ceiling = read(Ceiling, item)
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
    """TLS and credentials for requests to gates."""

    def __init__(self, authority: Path | None = None, token: Path | None = None) -> None:
        """``authority`` signs the certificates of gates found in pods; ``token`` is for TLS, and read each time."""
        self._token = token
        self._tls: ssl.SSLContext | None = None
        if authority is not None:
            self._tls = ssl.create_default_context(cafile=authority)
            self._tls.check_hostname = False  # pods have no lasting names: the authority is for gates alone

    def session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE), read_bufsize=LINE_MAX)

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

    async def ask(
        self,
        session: aiohttp.ClientSession,
        gate: Gate,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        token: str = "",
    ) -> Any:
        """Return a document of a gate: by GET, or by POST of a body. ``token`` is to act. Raises ``GateError``."""
        target = URL(f"{gate.url}{path}", encoded=True)
        target = target.update_query(query) if query else target
        try:
            how = self.options(gate, {"Authorization": f"Bearer {token}"} if token else None)
            async with session.request("GET" if body is None else "POST", target, json=body, **how) as answer:
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


def _why(text: bytes) -> str:
    try:
        return printable(detail_of(json.loads(text)) or "")[:300]
    except (ValueError, RecursionError):
        return ""


class OwnGate:
    """Answers like a gate's status server. It belongs to the event loop of ``serve``, except ``ask``."""

    def __init__(self, documents: Documents, ring: Decisions, url: str, token: Token) -> None:
        """``url`` is that of ``serve`` itself; actions there need its ``token``."""
        self.documents = documents
        self.url = url
        self.token = token
        self._ring = ring
        self._endpoints = GateEndpoints(documents, None, series_max=0)
        self._endpoints.token = token

    def ask(self, path: str, query: Mapping[str, str] | None, body: Any, authorization: str) -> Any:
        """Return a document: by GET, or by POST of a body. Any thread may ask. Raises ``ProblemError``."""
        if not self.documents.sources:
            raise ProblemError(503, IDLE)
        sent = Sent()
        if body is not None:
            headers = {"content-type": JSON, "authorization": authorization}
            sent = Sent(headers, json.dumps(body).encode())
        found = self._endpoints.reply("GET" if body is None else "POST", path, urlencode(query or {}), sent)
        return json.loads(found.whole)

    async def decisions(self) -> AsyncIterator[str]:
        """Yield each decision as JSON, beginning with the oldest that is kept, without end."""
        seq = 0
        while True:
            for told in self._ring.after(seq).decisions:
                yield as_json(decision(told))
                seq = told.seq
            await asyncio.sleep(NEWS_EVERY)


# -- all of them ---------


class Kept(NamedTuple):
    """One decision: ``text`` is its JSON, with all that the gate wrote in it."""

    seq: int
    namespace: str
    text: str


class Merged(Ring[Kept]):
    """The decisions of all gates as one ring, numbered anew: listeners follow it as they follow a gate's own."""

    def take(self, event: str, data: str) -> None:
        """Take in an event of a gate. Events other than decisions are left out."""
        if event != "decision":
            return
        try:
            found = json.loads(data)
            namespace = str(found["namespace"])
            self.append(lambda seq: Kept(seq, namespace, json.dumps({**found, "seq": seq}, separators=(",", ":"))))
        except (ValueError, KeyError, TypeError):
            return

    def latest(self, wanted: Callable[[str], bool], limit: int) -> list[dict[str, Any]]:
        """Return the newest decisions of the wanted namespaces, newest first."""
        found = (each.text for each in reversed(self.after(0).decisions) if wanted(each.namespace))
        return [json.loads(text) for text in islice(found, limit)]

    def streams(self) -> Streams[Kept]:
        """Return the listeners, of whom there are none yet."""
        return Streams(self, lambda each: each.text)


class Gates:
    """All gates. Use it as an async context manager; it belongs to one event loop."""

    def __init__(
        self,
        urls: Iterable[str],
        merged: Merged,
        ways: Ways,
        watched: Callable[[str], bool],
        own: OwnGate | None = None,
    ) -> None:
        """Follow the gates at these URLs; their decisions go to ``merged``. ``ways`` says how to reach them.

        ``watched`` says whether the quotas of a namespace are watched: then no gate is asked for its ceilings.
        ``own`` is the gate of this process, if it has one.
        """
        self.own = own
        self.gates: list[Gate] = []
        self._merged = merged
        self._ways = ways
        self.watched = watched
        self.unlisted: set[str] = set()
        """Namespaces in which gates are looked for, and whose pods have not been listed yet."""
        self._first = list(urls)
        self._numbers = 0
        self._tasks: dict[int, list[asyncio.Task[None]]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = self._ways.session()
        if self.own is not None:
            self.connect(self.own.url, own=self.own)
        for url in self._first:
            self.connect(url)
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for gate in list(self.gates) for task in self.disconnect(gate)]
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def connect(self, url: str, pod: str = "", own: OwnGate | None = None) -> Gate:
        """Begin to follow a gate; ``pod`` names the pod that it was found in, ``own`` is that of this process."""
        assert self._session is not None
        gate = Gate(self._numbers, url, pod, own)
        self._numbers += 1
        self.gates.append(gate)
        self._tasks[gate.number] = [asyncio.create_task(each) for each in (self._look(gate), self._hear(gate))]
        return gate

    def disconnect(self, gate: Gate) -> list[asyncio.Task[None]]:
        """Stop following a gate; return the tasks that are still ending."""
        self.gates.remove(gate)
        tasks = self._tasks.pop(gate.number)
        for task in tasks:
            task.cancel()
        return tasks

    @property
    def answering(self) -> list[Gate]:
        """The gates that answered the last request."""
        return [gate for gate in self.gates if not gate.why]

    def unreachable(self) -> list[dict[str, str]]:
        return [{"gate": gate.url, "why": gate.why} for gate in self.gates if gate.why]

    def note(self) -> str | None:
        """Return why an empty list does not mean that nothing waits: gates are not found yet, or there is none.

        Else None.
        """
        if self.unlisted:
            return SEEKING.format(", ".join(sorted(self.unlisted)))
        return None if self.gates else NONE

    def unready(self) -> list[str]:
        """Return why some gates may not be known yet, a line for each namespace in which they are looked for."""
        return [f"gates in {each}: not listed yet" for each in sorted(self.unlisted)]

    # -- their answers ---------

    async def ask(
        self, gate: Gate, path: str, query: dict[str, str] | None = None, body: Any = None, token: str = ""
    ) -> Any:
        """Return a document of a gate: by GET, or by POST of a body; ``token`` is to act. Raises ``GateError``."""
        if gate.own is not None:
            try:
                return await run_in_threadpool(gate.own.ask, path, query, body, f"Bearer {token}")
            except ProblemError as error:
                raise GateError(error.problem.detail, error.problem.status) from None
        assert self._session is not None
        return await self._ways.ask(self._session, gate, path, query, body, token)

    async def page(
        self, path: str, shape: type, query: dict[str, str], start: list[Any], limit: int
    ) -> tuple[list[Any], list[Any] | None]:
        """Return a page of the gates' lists, one gate after the other, and the cursor of the next page.

        A cursor is the number of a gate, and its own cursor. A gate that does not answer is skipped.
        """
        number, after = int(start[0]), str(start[1])
        items: list[Any] = []
        for gate in list(self.gates):
            if gate.number < number:
                continue
            after = after if gate.number == number else ""
            if len(items) >= limit:
                return items, [gate.number, after]
            try:
                found, after = await self._page(gate, path, query, limit - len(items), after)
                items += checked(shape, found)
            except FAULTS as error:
                if isinstance(error, GateError) and error.status == 400 and after:
                    raise ProblemError(400, WRONG_CURSOR, "#/query/after") from None
                gate.why, after = why_of(error), ""
            if after:
                return items, [gate.number, after]
            number = gate.number
        return items, None

    async def each(self, path: str, items: Callable[[Gate, Any], list[Any]]) -> list[Any]:
        """Return the ``items`` of each gate's document at a path; gates without one are skipped, and noted."""
        found: list[Any] = []
        for gate in list(self.gates):
            try:
                found += items(gate, await self.ask(gate, path))
                gate.why = ""
            except FAULTS as error:
                gate.why = why_of(error)
        return found

    async def request(self, id: str) -> dict[str, Any]:  # noqa: A002 - what the URL calls it
        """Return a create from the gate that knows it. Raises ``ProblemError`` if none does."""
        for gate in list(self.gates):
            with contextlib.suppress(GateError, ValueError):
                found: dict[str, Any] = await self.ask(gate, f"/v1/requests/{quote(id, safe='')}")
                read(RequestHistory, found)
                return found
        raise ProblemError(404, self.note() or "no gate that answers knows a create with this id", "#/path/id")

    async def explained(self, namespace: str, manifest: Any) -> list[tuple[Gate, Any]]:
        """Return each gate's explanation of a manifest; None from one that gives none."""
        path = f"/v1/explain?namespace={quote(namespace, safe='')}"
        gates = self.answering
        told = await asyncio.gather(*(self.ask(gate, path, body=manifest) for gate in gates), return_exceptions=True)
        return [
            (gate, None if isinstance(each, BaseException) else each) for gate, each in zip(gates, told, strict=True)
        ]

    # -- their holds ---------

    def holds(self, namespace: str) -> dict[Key, Hold] | None:
        """Sum up what the gates hold and reserve in a namespace, by quota and resource; None: no gate reports it."""
        answering = self.answering
        if not answering:
            return None
        found: dict[Key, Hold] = {}
        for gate in answering:
            for key, told in gate.told.get(namespace, {}).items():
                if told.hold != Hold():
                    found[key] = found[key] + told.hold if key in found else told.hold
        return found

    async def renew(self, namespace: str) -> None:
        await asyncio.gather(*(self._renew(gate, namespace) for gate in self.answering))

    async def _renew(self, gate: Gate, namespace: str) -> None:
        with contextlib.suppress(*FAULTS):
            self._keep(gate, {namespace: await self._pages(gate, "/v1/ceilings", {"namespace": namespace})})

    def _keep(self, gate: Gate, listed: dict[str, list[dict[str, Any]]], *, all_of_them: bool = False) -> None:
        """Store a gate's ceilings of these namespaces; ``all_of_them``: and drop those of others."""
        told = {}
        for name, items in listed.items():
            watched = self.watched(name)
            found = {(each["quota"], each["resource"]): ReportedCeiling.of(each) for each in items}
            told[name] = {key: each for key, each in found.items() if not watched or each.hold != Hold()}
        gate.told = told if all_of_them else {**gate.told, **told}

    async def _look(self, gate: Gate) -> None:
        """Poll a gate: who waits in which namespace, what is held there, and which ceilings only it knows."""
        while True:
            begun = time.monotonic()
            try:
                found = await self._pages(gate, "/v1/namespaces", {})
                gate.namespaces = {read(str, each["namespace"]): each for each in found}
                await self._look_at_ceilings(gate)
                gate.why = ""  # not before: what it holds would count as nothing
            except FAULTS as error:
                gate.namespaces, gate.told, gate.why = {}, {}, why_of(error)
            await asyncio.sleep(max(LOOK_EVERY, RESTING * (time.monotonic() - begun)))

    async def _look_at_ceilings(self, gate: Gate) -> None:
        busy = [
            name for name, each in gate.namespaces.items()
            if each.get("holding") or each.get("waiting") or each.get("in_flight")
        ]  # fmt: skip
        unwatched = [name for name, each in gate.namespaces.items() if each.get("quotas") and not self.watched(name)]
        if len(unwatched) > SINGLY_MAX:
            told: dict[str, list[dict[str, Any]]] = {}
            for each in await self._pages(gate, "/v1/ceilings", {}):
                told.setdefault(read(str, each["namespace"]), []).append(each)
            self._keep(gate, told, all_of_them=True)
            return
        turns = asyncio.Semaphore(AT_ONCE)

        async def asked(name: str) -> list[dict[str, Any]]:
            async with turns:
                return await self._pages(gate, "/v1/ceilings", {"namespace": name})

        names = list(dict.fromkeys([*busy, *unwatched]))
        answers = await asyncio.gather(*map(asked, names))
        self._keep(gate, dict(zip(names, answers, strict=True)), all_of_them=True)

    async def _page(
        self, gate: Gate, path: str, query: Mapping[str, str], limit: int, after: str
    ) -> tuple[list[dict[str, Any]], str]:
        """Return items of a gate's list, and the cursor of those that follow; empty: none do."""
        page = await self.ask(gate, path, {**query, "limit": str(limit), **({"after": after} if after else {})})
        return read(list[dict[str, Any]], page["items"]), read(str | None, page["next"]) or ""

    async def _pages(self, gate: Gate, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        found, after = await self._page(gate, path, query, PAGE, "")
        while after:
            more, following = await self._page(gate, path, query, PAGE, after)
            if following == after:
                raise GateError("its pages lead nowhere")
            found += more
            after = following
        return found

    async def _hear(self, gate: Gate) -> None:
        """Pass its decisions on; after a break continue where it ended."""
        if gate.own is not None:
            async for told in gate.own.decisions():
                self._merged.take("decision", told)
        assert self._session is not None
        last = "before-0"  # no gate's id: it begins with the oldest that is kept
        patience = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=SILENT)
        while True:
            how = self._ways.options(gate, {"Last-Event-ID": last})
            events = Events(last)
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
                async with self._session.get(f"{gate.url}/v1/decisions", timeout=patience, **how) as stream:
                    async for line in stream.content:
                        if (event := events.take(line)) is not None:
                            self._merged.take(*event)
            last = events.last
            await asyncio.sleep(AGAIN)


def checked(shape: type, items: Any) -> list[dict[str, Any]]:
    """Return raw items of a gate, after a check of their shape. Raises ``ValueError``."""
    read(list[shape], items)  # type: ignore[valid-type]  # as the shape is given
    return items  # type: ignore[no-any-return]  # of documents
