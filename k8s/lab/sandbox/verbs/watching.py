"""Watch: a stream of events from a version on, with bookmarks, initial events and a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlencode

from backoff_ctrl.k8s.lab.sandbox.core import Core
from backoff_ctrl.k8s.lab.sandbox.objects.answers import ApiError
from backoff_ctrl.k8s.lab.sandbox.objects.selectors import Selection
from backoff_ctrl.k8s.lab.sandbox.objects.store import ADDED, DELETED, MODIFIED, Event, watch_line
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, dump, load

from .reading import list_page, selection_of, version_of_one
from .requests import Query, Target

Shape = Callable[[bytes], bytes]

_BOOKMARK = "BOOKMARK"
_INITIAL_END = "k8s.io/initial-events-end"
_DEFAULT_TIMEOUT = 1800
_BOOKMARK_BEFORE_END = 2.0  # seconds


class Watch:
    """One watch: yields chunks of lines until it times out or its version is forgotten.

    ``shape`` converts the bytes of an object to the requested form (such as a Table row); None keeps them.
    """

    def __init__(self, core: Core, target: Target, query: Query, shape: Shape | None = None) -> None:
        """Read the query. Raises 400, 422, and 500 for a malformed version."""
        version_of_one(query)
        self._core = core
        self._target = target
        self._shape = shape
        self._selection: Selection = selection_of(target, query)
        self._bookmarks = query.flag("allowWatchBookmarks")
        self._initial = query.flag("sendInitialEvents") if query.has("sendInitialEvents") else None
        self._version = query.text("resourceVersion")
        self._query = query
        self._timeout = query.number("timeoutSeconds") or _DEFAULT_TIMEOUT
        self._history = core.store.of(target.kind).history

    async def lines(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._timeout
        next_bookmark = self._next_bookmark(loop.time(), ends)
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
                if not self._is_served():
                    return
                if now >= next_bookmark:
                    next_bookmark = self._next_bookmark(now, ends)
                    if self._bookmarks and not self._history.held:
                        yield self._bookmark(self._core.store.version)
                await self._history.changed(max(0.0, min(ends, next_bookmark) - now))
        except ApiError as error:
            yield watch_line("ERROR", dump(error.status))

    def _is_served(self) -> bool:
        """Whether the kind is still served: watches end when its definition is deleted."""
        kind = self._target.kind
        return self._core.kinds.find(kind.group, kind.version, kind.plural) is not None

    def _next_bookmark(self, now: float, ends: float) -> float:
        """The time of the next bookmark: at intervals, and the last one shortly before the end, to resume from."""
        last = ends - _BOOKMARK_BEFORE_END
        return min(now + self._core.settings.bookmark_every, last if last > now else ends)

    def _begin(self) -> tuple[int, bytes]:
        """Where to start, and what is sent before the first event. Raises 410."""
        from_nowhere = self._version in {"", "0"}
        if self._initial or (self._initial is None and from_nowhere):
            self._history.show()
            position = self._history.visible
            page = list_page(self._core, self._target, Query(self._selectors()))
            lines = [watch_line(ADDED, self._shaped(item.data)) for item in page.items]
            if self._initial and self._bookmarks:
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
        if now:
            return watch_line(MODIFIED if was else ADDED, self._shaped(event.data))
        return watch_line(DELETED, self._shaped(_as_it_left(event)))

    def _shaped(self, data: bytes) -> bytes:
        return data if self._shape is None else self._shape(data)

    def _bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        kind = self._target.kind
        metadata: JSON = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {_INITIAL_END: "true"}
        obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return watch_line(_BOOKMARK, self._shaped(dump(obj)))


def _as_it_left(event: Event) -> bytes:
    """The object in the event when it was deleted or is no longer selected: its last state, at the new version."""
    if event.type == DELETED or event.previous is None:
        return event.data
    obj = load(event.previous)
    obj["metadata"]["resourceVersion"] = str(event.version)
    return dump(obj)
