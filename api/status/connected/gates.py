"""The gates that ``serve`` knows: where lines, holds and decisions are. Their answers are merged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

import aiohttp
from starlette.concurrency import run_in_threadpool

from backoff_ctrl.api.commands.instance.client import read
from backoff_ctrl.k8s.status.asked import ProblemError
from backoff_ctrl.k8s.status.shapes.documents import RequestHistory

from .gate import AGAIN, PATIENCE, SILENT, Gate, GateError, Ways
from .holds import Hold, hold_of
from .told import told_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .holds import Key
    from .merged import Merged
    from .own import OwnGate

log = logging.getLogger(__name__)

LOOK_EVERY: Final = 2.0
"""Seconds between two looks at a gate's namespaces."""
PAGE: Final = 1000
AT_ONCE: Final = 4
"""Namespaces whose ceilings are asked of one gate at a time."""
SINGLY_MAX: Final = 50
"""Unwatched namespaces up to which each is asked for; of more, the whole list is read."""
RESTING: Final = 5
"""A look that took long is followed by a pause of so many times its length."""
NONE: Final = (
    "no gate connected: lines are in gates; start serve with --gate URL, or with --gates-in NAMESPACE to find them"
)


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
        """Ask the gates at these URLs; their decisions go to ``merged``. ``ways`` says how they are reached.

        ``watched`` says whether the quotas of a namespace are watched: then no gate is asked for its ceilings.
        ``own`` is the gate of this process, if it has one.
        """
        self.own = own
        self.gates: list[Gate] = []
        self._merged = merged
        self._ways = ways
        self._watched = watched
        self._first = list(urls)
        self._numbers = 0
        self._tasks: dict[int, list[asyncio.Task[None]]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Begin to follow them."""
        self._session = self._ways.session()
        if self.own is not None:
            self.connect(self.own.url, own=self.own)
        for url in self._first:
            self.connect(url)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let go of them."""
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
        """Let go of a gate; return what still ends."""
        self.gates.remove(gate)
        tasks = self._tasks.pop(gate.number)
        for task in tasks:
            task.cancel()
        return tasks

    @property
    def answering(self) -> list[Gate]:
        """The gates that answered when they were asked last."""
        return [gate for gate in self.gates if not gate.why]

    def unreachable(self) -> list[dict[str, str]]:
        """Return the gates that do not answer, and why."""
        return [{"gate": gate.url, "why": gate.why} for gate in self.gates if gate.why]

    def note(self) -> str | None:
        """Say that no gate is connected: then an empty list does not mean that nothing waits. Else None."""
        return None if self.gates else NONE

    # -- what they tell ---------

    async def get(self, gate: Gate, path: str, query: dict[str, str] | None = None) -> Any:
        """Return a document of a gate. Raises ``GateError``."""
        return await self._ask(gate, path, query)

    async def post(self, gate: Gate, path: str, body: Any, token: str) -> Any:
        """Return what a gate answers to whoever has its token. Raises ``GateError``."""
        return await self._ask(gate, path, None, body, token)

    async def _ask(
        self, gate: Gate, path: str, query: dict[str, str] | None = None, body: Any = None, token: str = ""
    ) -> Any:
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
        """Return a page of what the gates list, one gate after the other, and where the next page begins.

        A place is the number of a gate, and the cursor there. A gate that does not answer is passed over.
        """
        number, after = int(start[0]), str(start[1])
        items: list[Any] = []
        for gate in list(self.gates):
            if gate.number < number:
                continue
            after = after if gate.number == number else ""
            if len(items) >= limit:
                return items, [gate.number, after]
            wanted = {**query, "limit": str(limit - len(items)), **({"after": after} if after else {})}
            try:
                found = await self.get(gate, path, wanted)
                items += checked(shape, found["items"])
                after = read(str | None, found["next"]) or ""
            except (GateError, KeyError, TypeError, ValueError) as error:
                if isinstance(error, GateError) and error.status == 400 and after:
                    raise ProblemError(
                        400, "after must be the next of an earlier page of this list, unchanged", "#/query/after"
                    ) from None
                gate.why, after = str(error) or "it is not a gate", ""
            if after:
                return items, [gate.number, after]
            number = gate.number
        return items, None

    async def each(self, path: str) -> list[tuple[Gate, Any]]:
        """Return the document that each gate has at a path; those that have none are passed over, and noted."""
        found = []
        for gate in list(self.gates):
            try:
                found.append((gate, await self.get(gate, path)))
                gate.why = ""
            except GateError as error:
                gate.why = str(error)
        return found

    async def request(self, id: str) -> dict[str, Any]:  # noqa: A002 - what the URL calls it
        """Return what a gate knows of a create. Raises ``ProblemError`` if none does."""
        for gate in list(self.gates):
            with contextlib.suppress(GateError, ValueError):
                found: dict[str, Any] = await self.get(gate, f"/v1/requests/{quote(id, safe='')}")
                read(RequestHistory, found)
                return found
        raise ProblemError(404, self.note() or "no gate that answers knows a create with this id", "#/path/id")

    async def explained(self, namespace: str, manifest: Any) -> list[tuple[Gate, Any]]:
        """Return what each gate says would happen to a manifest; None of one that does not say."""
        path = f"/v1/explain?namespace={quote(namespace, safe='')}"
        gates = self.answering
        told = await asyncio.gather(*(self._ask(gate, path, body=manifest) for gate in gates), return_exceptions=True)
        return [
            (gate, None if isinstance(each, BaseException) else each) for gate, each in zip(gates, told, strict=True)
        ]

    # -- what they hold ---------

    def holds(self, namespace: str) -> dict[Key, Hold] | None:
        """Sum up what the gates hold and reserve in a namespace, by quota and resource; None: none of them tells."""
        answering = self.answering
        if not answering:
            return None
        found: dict[Key, Hold] = {}
        for gate in answering:
            for key, hold in gate.holds.get(namespace, {}).items():
                found[key] = found[key] + hold if key in found else hold
        return found

    async def renew(self, namespace: str) -> None:
        """Ask all gates what they hold in a namespace now."""
        await asyncio.gather(*(self._renew(gate, namespace) for gate in self.answering))

    async def _renew(self, gate: Gate, namespace: str) -> None:
        with contextlib.suppress(GateError, KeyError, TypeError, ValueError):
            self._keep(gate, {namespace: await self._pages(gate, "/v1/ceilings", {"namespace": namespace})})

    def _keep(self, gate: Gate, told: dict[str, list[dict[str, Any]]], *, all_of_them: bool = False) -> None:
        """Keep what a gate told of the ceilings of namespaces; ``all_of_them``: of others it tells nothing any more."""
        holds = {
            name: {(each["quota"], each["resource"]): hold for each in items if (hold := hold_of(each))}
            for name, items in told.items()
        }
        ceilings = {
            name: {(each["quota"], each["resource"]): told_of(each) for each in items}
            for name, items in told.items()
            if items and not self._watched(name)
        }
        others = {} if all_of_them else {name: each for name, each in gate.ceilings.items() if name not in told}
        gate.holds = holds if all_of_them else {**gate.holds, **holds}
        gate.ceilings = others | ceilings

    async def _look(self, gate: Gate) -> None:
        """Learn again and again who waits in which namespace, what is held there, and which ceilings only it knows."""
        while True:
            begun = time.monotonic()
            try:
                found = await self._pages(gate, "/v1/namespaces", {})
                gate.namespaces = {read(str, each["namespace"]): each for each in found}
                gate.why = ""
                await self._look_at_ceilings(gate)
            except (GateError, KeyError, TypeError, ValueError) as error:
                gate.namespaces, gate.holds, gate.ceilings, gate.why = {}, {}, {}, str(error) or "it is not a gate"
            await asyncio.sleep(max(LOOK_EVERY, RESTING * (time.monotonic() - begun)))

    async def _look_at_ceilings(self, gate: Gate) -> None:
        busy = [
            name for name, each in gate.namespaces.items()
            if each.get("holding") or each.get("waiting") or each.get("in_flight")
        ]  # fmt: skip
        unwatched = [name for name, each in gate.namespaces.items() if each.get("quotas") and not self._watched(name)]
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

    async def _pages(self, gate: Gate, path: str, query: dict[str, str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None:
            more = {"limit": str(PAGE), **({"after": after} if after else {})}
            page = await self.get(gate, path, {**query, **more})
            found += read(list[dict[str, Any]], page["items"])
            following = read(str | None, page["next"])
            if following == after:
                raise GateError("its pages lead nowhere")
            after = following
        return found

    async def _hear(self, gate: Gate) -> None:
        """Pass its decisions on; after a break go on where it ended."""
        if gate.own is not None:
            async for told in gate.own.decisions():
                self._merged.tell("decision", told)
        assert self._session is not None
        last = "before-0"  # of no gate: it begins with the oldest that is kept
        patience = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=SILENT)
        while True:
            how = self._ways.options(gate, {"Last-Event-ID": last})
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
                async with self._session.get(f"{gate.url}/v1/decisions", timeout=patience, **how) as stream:
                    event: dict[str, str] = {}
                    async for raw in stream.content:
                        line = raw.decode("utf-8", "replace").rstrip("\n")
                        name, _, value = line.partition(": ")
                        if line:
                            event[name] = value
                            continue
                        last = event.get("id", last)
                        self._merged.tell(event.get("event", ""), event.get("data", ""))
                        event = {}
            await asyncio.sleep(AGAIN)


def checked(shape: type, items: Any) -> list[dict[str, Any]]:
    """Return items of a gate as they came, once they have this shape. Raises ``ValueError``."""
    documents: list[dict[str, Any]] = read(list[dict[str, Any]], items)
    for each in documents:
        read(shape, each)
    return documents
