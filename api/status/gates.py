"""The gates that ``serve`` is connected to, and the sum of their answers.

Only gates know lines, holds and decisions. ``Gates`` follows each: it polls its namespaces, keeps what is held there
and the ceilings that only it knows (``ReportedCeiling``), and passes its decisions on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

from backoff_ctrl.k8s.status.asked import WRONG_CURSOR, ProblemError
from backoff_ctrl.k8s.status.client import read
from backoff_ctrl.k8s.status.decisions import Ring
from backoff_ctrl.k8s.status.shapes import RequestHistory
from backoff_ctrl.k8s.status.streams import Streams

from .gate import FAULTS, Gate, GateError, Hold, Key, OwnGate, ReportedCeiling, Ways, why_of

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


class MergedDecision(NamedTuple):
    """One decision: ``text`` is its JSON, with all that the gate wrote in it."""

    seq: int
    namespace: str
    text: str


class Merged(Ring[MergedDecision]):
    """The decisions of all gates as one ring, numbered anew: listeners follow it as they follow a gate's own."""

    def take(self, event: str, data: str) -> None:
        """Take in an event of a gate. Events other than decisions are left out."""
        if event != "decision":
            return
        try:
            found = json.loads(data)
            namespace = str(found["namespace"])
        except (ValueError, KeyError, TypeError):
            return
        text = partial(json.dumps, separators=(",", ":"))
        self.append(lambda seq: MergedDecision(seq, namespace, text({**found, "seq": seq})))

    def latest(self, wanted: Callable[[str], bool], limit: int) -> list[dict[str, Any]]:
        """Return the newest decisions of the wanted namespaces, newest first."""
        found = (each.text for each in reversed(self.after(0).decisions) if wanted(each.namespace))
        return [json.loads(text) for text in islice(found, limit)]

    def streams(self) -> Streams[MergedDecision]:
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

    async def __aenter__(self) -> Self:
        if self.own is not None:
            self.connect(self.own.url, own=self.own)
        for url in self._first:
            self.connect(url)
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for gate in list(self.gates) for task in self.disconnect(gate)]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._ways.close()

    def connect(self, url: str, pod: str = "", own: OwnGate | None = None) -> Gate:
        """Begin to follow a gate; ``pod`` names the pod that it was found in, ``own`` is that of this process."""
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
        self, gate: Gate, path: str, query: Mapping[str, str] | None = None, body: Any = None, token: str = ""
    ) -> Any:
        """Return a document of a gate: by GET, or by POST of a body; ``token`` is to act. Raises ``GateError``."""
        return await (gate.own or self._ways).ask(gate, path, query or {}, body, token)

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
            found = {(each["quota"], each["resource"]): ReportedCeiling.of(each, gate.url) for each in items}
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
        async for event in (gate.own or self._ways).decisions(gate):
            self._merged.take(*event)


def checked(shape: type, items: Any) -> list[dict[str, Any]]:
    """Return raw items of a gate, after a check of their shape. Raises ``ValueError``."""
    read(list[shape], items)  # type: ignore[valid-type]  # as the shape is given
    return items  # type: ignore[no-any-return]  # of documents
