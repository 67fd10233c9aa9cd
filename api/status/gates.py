"""The gates that ``serve`` was told of: where lines and decisions are. Their answers are merged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

import aiohttp

from backoff_ctrl.k8s.status.asked import ProblemError

if TYPE_CHECKING:
    from .merged import Merged

log = logging.getLogger(__name__)

PATIENCE: Final = 5.0
"""Seconds for an answer of a gate."""
LOOK_EVERY: Final = 2.0
"""Seconds between two looks at a gate's namespaces."""
AGAIN: Final = 2.0
"""Seconds until a stream of decisions that broke is opened again."""
SILENT: Final = 60.0
"""Seconds without anything from a stream, which sends a sign of life every 15 s."""
PAGE: Final = 1000
LINE_MAX: Final = 1 << 20
NONE: Final = "no gate connected: lines are in gates; start serve with --gate URL"


class GateError(Exception):
    """A gate does not answer as a gate. The message says why; ``status`` is that of its answer, 0 without one."""

    def __init__(self, why: str, status: int = 0) -> None:
        """``why`` is a sentence for people, such as the gate's own."""
        super().__init__(why)
        self.status = status


@dataclass
class Gate:
    """One gate. ``why`` is empty while it answers."""

    url: str
    why: str = "not asked yet"
    namespaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Its namespaces as it told them last, by name."""


class Gates:
    """All gates. Use it as an async context manager."""

    def __init__(self, urls: list[str], merged: Merged) -> None:
        """Ask the gates at these URLs; their decisions go to ``merged``."""
        self.gates = [Gate(url) for url in urls]
        self._merged = merged

    async def __aenter__(self) -> Self:
        """Begin to follow them."""
        limits = aiohttp.ClientTimeout(total=PATIENCE)
        self._session = aiohttp.ClientSession(timeout=limits, read_bufsize=LINE_MAX)
        self._tasks = [
            asyncio.create_task(each) for gate in self.gates for each in (self._look(gate), self._hear(gate))
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let go of them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    def insist(self) -> None:
        """Raise ``ProblemError`` if there is no gate: an empty answer would say that nothing waits."""
        if not self.gates:
            raise ProblemError(409, NONE)

    def unreachable(self) -> list[dict[str, str]]:
        """Return the gates that do not answer, and why."""
        return [{"gate": gate.url, "why": gate.why} for gate in self.gates if gate.why]

    async def get(self, gate: Gate, path: str, query: dict[str, str] | None = None) -> Any:
        """Return a document of a gate. Raises ``GateError``."""
        try:
            async with self._session.get(f"{gate.url}{path}", params=query or {}) as answer:
                if answer.status == 200:
                    return json.loads(await answer.read())
                raise GateError(f"it answers {answer.status}", answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise GateError(f"{type(error).__name__}: {error}"[:200]) from None

    async def page(
        self, path: str, query: dict[str, str], start: list[Any], limit: int
    ) -> tuple[list[Any], list[Any] | None]:
        """Return a page of what the gates list, one gate after the other, and where the next page begins.

        A place is the number of a gate, and the cursor there. A gate that does not answer is passed over.
        """
        number, after = int(start[0]), str(start[1])
        items: list[Any] = []
        while number < len(self.gates):
            wanted = {**query, "limit": str(limit - len(items)), **({"after": after} if after else {})}
            gate = self.gates[number]
            try:
                found = await self.get(gate, path, wanted)
                items += found["items"]
                after = found["next"] or ""
            except (GateError, KeyError, TypeError) as error:
                if isinstance(error, GateError) and error.status == 400 and after:
                    raise ProblemError(
                        400, "after must be the next of an earlier page of this list, unchanged", "#/query/after"
                    ) from None
                gate.why, after = str(error), ""
            if not after:
                number += 1
            if len(items) >= limit:
                break
        return items, [number, after] if number < len(self.gates) else None

    async def request(self, id: str) -> dict[str, Any]:  # noqa: A002 - what the URL calls it
        """Return what a gate knows of a create. Raises ``ProblemError`` if none does."""
        self.insist()
        for gate in self.gates:
            with contextlib.suppress(GateError):
                found = await self.get(gate, f"/v1/requests/{quote(id, safe='')}")
                if isinstance(found, dict):
                    return found
        raise ProblemError(404, "no gate that answers knows a create with this id", "#/path/id")

    async def _look(self, gate: Gate) -> None:
        """Learn again and again who waits in which namespace."""
        while True:
            try:
                gate.namespaces, gate.why = await self._namespaces(gate), ""
            except (GateError, KeyError, TypeError) as error:
                gate.namespaces, gate.why = {}, str(error) or "it is no gate"
            await asyncio.sleep(LOOK_EVERY)

    async def _namespaces(self, gate: Gate) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        after: str | None = ""
        while after is not None:
            page = await self.get(gate, "/v1/namespaces", {"limit": str(PAGE), **({"after": after} if after else {})})
            found |= {each["namespace"]: each for each in page["items"]}
            after = page["next"]
        return found

    async def _hear(self, gate: Gate) -> None:
        """Pass its decisions on; after a break go on where it ended."""
        last = "before-0"  # of no gate: it begins with the oldest that is kept
        patience = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=SILENT)
        while True:
            headers = {"Last-Event-ID": last}
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
                async with self._session.get(f"{gate.url}/v1/decisions", headers=headers, timeout=patience) as stream:
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
