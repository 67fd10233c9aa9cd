"""Watch: a stream of events from a version on, with bookmarks, initial events and an end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from .answers import ApiError, invalid_options
from .encoding import dump
from .history import ADDED, DELETED, MODIFIED, watch_line
from .reading import list_page, selection_of, version_number
from .requests import Query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from .core import Core
    from .encoding import JSON
    from .history import Event
    from .requests import Target
    from .selectors import Selection

    Shape = Callable[[bytes], bytes]

_BOOKMARK = "BOOKMARK"
_INITIAL_END = "k8s.io/initial-events-end"
_DEFAULT_TIMEOUT = 1800


class Watch:
    """One watch: chunks of lines until it times out or its version is forgotten.

    ``shape`` turns the bytes of an object into what the client asked for (a Table row), or is nothing.
    """

    def __init__(self, core: Core, target: Target, query: Query, shape: Shape | None = None) -> None:
        """Read the query. Raises 400."""
        self._core = core
        self._target = target
        self._shape = shape
        self._selection: Selection = selection_of(target, query)
        self._bookmarks = query.flag("allowWatchBookmarks")
        self._initial = _initial_events(query)
        self._version = query.text("resourceVersion")
        self._query = query
        self._timeout = query.number("timeoutSeconds") or _DEFAULT_TIMEOUT
        self._history = core.store.of(target.kind).history
        if self._version:
            version_number(self._version)

    async def lines(self) -> AsyncIterator[bytes]:
        """Chunks of whole lines."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._timeout
        next_bookmark = loop.time() + self._core.settings.bookmark_every
        try:
            position, first = self._begin()
            if first:
                yield first
            while (now := loop.time()) < ends:
                events = self._history.read(position)
                position += len(events)
                chunk = b"".join(filter(None, map(self._line, events)))
                if chunk:
                    yield chunk
                    if self._core.faults.strikes("watch_break_share"):
                        return
                    continue
                if now >= next_bookmark:
                    next_bookmark = now + self._core.settings.bookmark_every
                    if self._bookmarks and not self._history.held:
                        yield self._bookmark(self._core.store.version)
                await self._history.changed(max(0.0, min(ends, next_bookmark) - now))
        except ApiError as error:
            yield watch_line("ERROR", dump(error.status))

    def _begin(self) -> tuple[int, bytes]:
        """Where to start, and what comes before the first event. Raises 410."""
        from_nowhere = self._version in {"", "0"}
        if self._initial or (self._initial is None and from_nowhere):
            self._history.show()
            position = self._history.visible
            page = list_page(self._core, self._target, Query(self._selectors()))
            lines = [watch_line(ADDED, self._shaped(item.data)) for item in page.items]
            if self._initial:
                lines.append(self._bookmark(page.version, initial_end=True))
            return position, b"".join(lines)
        version = self._core.store.version if from_nowhere else int(self._version)
        return self._history.position_after(version), b""

    def _selectors(self) -> str:
        names = ("labelSelector", "fieldSelector")
        return urlencode({name: self._query.text(name) for name in names if self._query.text(name)})

    def _line(self, event: Event) -> bytes | None:
        """An event as this watch sees it: objects enter and leave its selection."""
        if self._target.namespace not in {None, event.namespace}:
            return None
        if self._selection.everything:
            return event.line if self._shape is None else watch_line(event.type, self._shaped(event.data))
        if self._selection.name not in {None, event.name}:
            return None
        before = event.previous_object
        was = before is not None and self._selection.admits(before)
        now = event.type != DELETED and self._selection.admits(event.object)
        if not was and not now:
            return None
        change = MODIFIED if was and now else ADDED if now else DELETED
        return watch_line(change, self._shaped(event.data))

    def _shaped(self, data: bytes) -> bytes:
        return data if self._shape is None else self._shape(data)

    def _bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        kind = self._target.kind
        metadata: JSON = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {_INITIAL_END: "true"}
        obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return watch_line(_BOOKMARK, self._shaped(dump(obj)))


def _forbidden(text: str) -> ApiError:
    return invalid_options("ListOptions", ("FieldValueForbidden", "resourceVersionMatch", f"Forbidden: {text}"))


def _initial_events(query: Query) -> bool | None:
    """``sendInitialEvents``: true, false, or not said. Raises 400 where the rest does not fit."""
    match = query.text("resourceVersionMatch")
    if not query.text("sendInitialEvents"):
        if match:
            raise _forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        return None
    if match != "NotOlderThan":
        raise _forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    return query.flag("sendInitialEvents")
