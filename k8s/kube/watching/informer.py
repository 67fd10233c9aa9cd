"""Keeps one observer up to date: lists, watches, resumes, and starts again after any failure.

A stream that the server ends normally is resumed from its last event or bookmark. After anything else the objects are
listed again, after a jittered pause: only a complete list proves that no change was missed. ``ClusterSource`` lists and
watches over HTTP, and yields decoded JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, NoReturn

import aiohttp

from backoff_ctrl.engine.backoff import after, delay
from backoff_ctrl.k8s.kube.answers.bounded_json import PartlyRead, Trim, read_json, read_line
from backoff_ctrl.k8s.kube.answers.fields import mappings, metadata_of, text
from backoff_ctrl.k8s.kube.answers.objects import Key, Object, object_of
from backoff_ctrl.k8s.kube.answers.paging import PAGE, EndlessListError, Pages, is_list
from backoff_ctrl.k8s.kube.answers.rejections import read_rejection
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession, beginning
from backoff_ctrl.k8s.kube.paths import path_to
from backoff_ctrl.k8s.kube.pauses import Pauses

from .objects import (
    Event,
    Ignored,
    IgnoredError,
    WatchAbsentError,
    WatchBrokenError,
    WatchedKind,
    WatchExpiredError,
    WatchForbiddenError,
    newest,
    read_event,
    read_object,
)
from .status import WatchRecord

WATCH_SECONDS: Final = 290  # the server ends a watch after 5 to 10 minutes; ours asks for an end before that
JSON: Final = "application/json"
READ_SECONDS: Final = 60
CONNECT_SECONDS: Final = 10
SILENT_SECONDS: Final = 150
"""A stream that is silent for this long counts as a dead connection; bookmarks come every minute."""
LINGER: Final = 0.02
"""Seconds between two reads of the stream while no request is waiting. Less than an answered hold lasts (50 ms)."""
PAGE_BYTES_MAX: Final = 4 << 20
"""Bytes of a page of several objects: parsed, they take ten to twenty times as much memory."""
PAGE_BYTES: Final = 1 << 20
"""Bytes that a page is meant to have: so many objects are asked for, by the size of those of the page before."""
PAGE_SHRINKS: Final = 8
OBJECT_BYTES_MAX: Final = 16 << 20
"""Bytes of a page of one object. etcd stores no object larger than 1.5 MiB, but JSON says it at greater length."""
IN_PLACE_MAX: Final = 4 << 20
"""Bytes that are read on the event loop; more could be 14 million brackets, which take seconds."""
RETRY_MAX: Final = 60.0
LINE_MAX: Final = 8 << 20  # the longest event in bytes; etcd stores no object larger than 1.5 MiB
# RuntimeError: aiohttp connects with executor threads, and Python starts no thread after the main thread has returned.
_BROKEN = (aiohttp.ClientError, TimeoutError, OSError, ValueError, RuntimeError)


class ClusterSource:
    """Lists and watches with the credentials and connections of a session. All methods raise the errors of ``objects``.

    ``calm`` returns True while no request is waiting. Then events are read in batches (``LINGER``), and of consecutive
    events about one quota only the last is used. Every create changes a quota: handling each change separately costs a
    busy client a tenth of its throughput.
    """

    def __init__(
        self, session: ClusterSession, *, watch_seconds: float = WATCH_SECONDS, calm: Callable[[], bool] = lambda: False
    ) -> None:
        self._session = session
        self._watch_seconds = watch_seconds
        self._calm = calm

    async def is_served(self, group: str) -> bool:
        """Return whether the server has the API group at ``group``; any account may ask (role ``system:discovery``)."""
        try:
            async with await self._get(group, [], aiohttp.ClientTimeout(total=READ_SECONDS)):
                return True
        except WatchAbsentError:
            return False
        except _BROKEN as error:
            raise _broken(error) from error

    async def pages(
        self, kind: WatchedKind, namespace: str | None, trim: Trim | None = None
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield the pages of the list, read from etcd: the API server's cache may be outdated.

        All pages have the same resourceVersion. For a ``metadata_only`` kind there is one page, with one item at most,
        unless it asks for the ``whole_list``. ``trim`` returns what is needed of an object: each is trimmed before the
        next one is parsed.
        """
        version_only = kind.metadata_only and not kind.whole_list
        query, limit = _selectors(kind), 1 if version_only else PAGE
        accept = _form("PartialObjectMetadataList") if kind.metadata_only else JSON
        pages = Pages()
        while True:
            token = [("continue", pages.token)] if pages.token else []
            most = PAGE_BYTES_MAX if limit > 1 else OBJECT_BYTES_MAX
            try:
                page, size = await self._read(
                    _path(kind, namespace), [*query, ("limit", limit), *token], accept, trim, most
                )
            except _TooLargeError:
                if limit == 1:  # a single object is too large: no smaller page helps
                    raise
                limit = max(1, limit // PAGE_SHRINKS)
                continue
            metadata = page.get("metadata")
            if not isinstance(metadata, dict):
                raise WatchBrokenError("the answer is not a list")
            if not version_only:
                limit = _next_limit(limit, len(page.get("items") or ()), size)
            yield page
            del page  # two pages at a time are twice the memory
            try:
                if version_only or not pages.go_on(metadata):
                    return
            except EndlessListError as error:
                raise WatchBrokenError("the list repeats a page, or has too many pages") from error

    async def watch(
        self, kind: WatchedKind, namespace: str | None, version: str, trim: Trim | None = None
    ) -> AsyncGenerator[object, None]:
        """Yield events, or ``Ignored`` for an unusable line, until the server ends the stream or is silent too long.

        ``trim`` returns what is needed of an object.
        """
        # Watches that began together, as after a restart of the server, must not all end together.
        seconds = max(1, int(self._watch_seconds * random.uniform(0.8, 1.0)))
        query: list[tuple[str, Any]] = [
            *_selectors(kind),
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", seconds),
        ]
        silence = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=min(seconds + READ_SECONDS, SILENT_SECONDS)
        )
        accept = _form("PartialObjectMetadata") if kind.metadata_only else JSON
        try:
            async with await self._get(_path(kind, namespace), query, silence, accept) as response:
                try:
                    async for lines in _lines(response.content):
                        events = deque(_decoded(line, trim) for line in lines)
                        lines.clear()
                        if self._calm():
                            events = deque(_latest([*events]))
                        while events:  # an object that is kept here until the next event may have 20 MB
                            yield events.popleft()
                        if self._calm():
                            await asyncio.sleep(LINGER)
                except aiohttp.SocketTimeoutError:  # a connection that a firewall forgot is silent, too: use a new one
                    return
        except _BROKEN as error:
            raise _broken(error) from error

    async def metadata(self, path: str) -> Mapping[str, Any]:
        return metadata_of((await self._read(path, [], _form("PartialObjectMetadata")))[0])

    async def named(self, path: str, name: str) -> Mapping[str, Any]:
        """Return the object of this name from the list at ``path``, which takes only the right to list.

        Raises ``WatchAbsentError`` if it does not exist.
        """
        page, _ = await self._read(path, [("fieldSelector", f"metadata.name={name}")], JSON)
        found = mappings(page.get("items"))
        if len(found) != 1:
            raise WatchAbsentError(f"{path} has no {name}")
        return {"apiVersion": "v1", "kind": "Pod", **found[0]}

    async def _read(
        self,
        path: str,
        query: list[tuple[str, Any]],
        accept: str,
        trim: Trim | None = None,
        most: int = OBJECT_BYTES_MAX,
    ) -> tuple[Mapping[str, Any], int]:
        """Return an answer of at most so many bytes, and the number of its bytes."""
        try:
            async with await self._get(path, query, aiohttp.ClientTimeout(total=READ_SECONDS), accept) as response:
                text = await beginning(response, most + 1)
            if len(text) > most:
                raise _TooLargeError(f"an answer has more than {most} bytes")
            if len(text) <= IN_PLACE_MAX:
                found = read_json(text, trim)
            else:
                found = await asyncio.to_thread(read_json, text, trim)
        except _BROKEN as error:
            raise _broken(error) from error
        if not isinstance(found, dict):
            raise WatchBrokenError("the answer is not an object")
        return found, len(text)

    async def _get(
        self, path: str, query: list[tuple[str, Any]], patience: aiohttp.ClientTimeout, accept: str = JSON
    ) -> aiohttp.ClientResponse:
        response = await self._session.request("GET", path, query=query, headers={"Accept": accept}, timeout=patience)
        if response.status == 200:
            return response
        async with asyncio.timeout(READ_SECONDS):
            refusal = read_rejection(response.status, response.headers, await beginning(response))
        said = f"{response.status}: {' '.join(refusal.message.split())[:300]}"
        match response.status:
            case 403:
                raise WatchForbiddenError(said)
            case 404:
                raise WatchAbsentError(said)
            case 410:
                raise WatchExpiredError(said)
        raise WatchBrokenError(said, min(RETRY_MAX, refusal.retry_after or 0.0))


class _TooLargeError(WatchBrokenError):
    """An answer is larger than this program reads."""


def _path(kind: WatchedKind, namespace: str | None) -> str:
    return path_to(kind.path, kind.plural, namespace=namespace if kind.namespaced else None)


def _selectors(kind: WatchedKind) -> list[tuple[str, Any]]:
    return [each for each in (("fieldSelector", kind.fields), ("labelSelector", kind.labels)) if each[1]]


def _form(form: str) -> str:
    return f"{JSON};as={form};g=meta.k8s.io;v=v1,{JSON}"


def _broken(error: Exception) -> WatchBrokenError:
    return WatchBrokenError(f"{type(error).__name__}: {error}"[:300])


def _next_limit(limit: int, number: int, size: int) -> int:
    """Return how many objects to ask for after a page of so many, and of so many bytes: at most twice as many."""
    return max(1, min(2 * limit, PAGE, PAGE_BYTES * max(1, number) // max(1, size)))


def _decoded(line: bytes | Ignored, trim: Trim | None = None) -> object:
    if isinstance(line, Ignored):
        return line
    try:
        return read_line(line, trim)
    except ValueError:
        return Ignored.NO_JSON


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[list[bytes | Ignored], None]:
    """Split the stream into lines, one event each, and yield together those that arrive together.

    The rest of a line that is too long is read and dropped.
    """
    rest, dropping = b"", False
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        found: list[bytes | Ignored] = [line for line in lines if line.strip()]
        if dropping and lines:  # the long line ends here
            found = [line for line in lines[1:] if line.strip()]
            dropping = False
        if dropping or len(rest) > LINE_MAX:
            if not dropping:
                found.append(Ignored.TOO_LONG)
            rest, dropping = b"", True
        yield found


def _latest(events: list[object]) -> list[object]:
    """Leave out each event that the next one replaces: a newer state of the same object."""
    return [
        event
        for event, following in zip(events, [*events[1:], None], strict=True)
        if following is None or not _replaces(following, event)
    ]


def _replaces(event: object, before: object) -> bool:
    match before, event:
        case (
            {"type": "ADDED" | "MODIFIED", "object": {"metadata": {"uid": str(known)}}},
            {"type": "MODIFIED", "object": {"metadata": {"uid": str(uid)}}},
        ):
            return uid == known  # another uid of that name: the first was deleted between them, and its end counts
    return False


FIRST_PAUSE: Final = 0.1
"""Seconds: upper bound of the first random pause after a failure; each consecutive one doubles it."""
FIRST_ASK: Final = 1.0
"""Seconds until the next try after a 403 or 404; four times as long after each further one in a row.

A kube-apiserver that has just started answers 403 to every request until it has loaded the roles.
"""
HEALTHY_AFTER: Final = 10.0
"""Seconds: a watch that lasted this long was healthy, and its end does not count as a consecutive failure."""
SHORTEST: Final = 1.0
"""Seconds: a stream that ends sooner counts as broken, even if it ended normally: resuming it would be a busy loop."""
BREATH: Final = 64
"""Objects after which the event loop gets a turn: objects that are already buffered are read without awaiting."""


Refusal = WatchForbiddenError | WatchAbsentError


class Observer:
    """Receives the objects of a kind in one namespace, or (None) in all. ``put`` may raise ``IgnoredError``."""

    trim: Trim | None = None
    """Returns what is needed of an object; without it, all is. Called before anything else, in any thread."""

    def __init__(self, kind: WatchedKind, namespace: str | None) -> None:
        self.kind = kind
        self.namespace = namespace

    def begin(self) -> None:
        """A list begins."""

    def item(self, body: object) -> None:
        """The list has this object."""
        self.put(read_object(body, self.kind, self.namespace))

    def listed(self, version: str) -> None:
        """The list is complete, and changes after ``version`` will follow."""

    def take(self, event: Event) -> None:
        """An object has changed."""
        if event.type == "DELETED":
            self.remove(event.object)
        else:
            self.put(event.object)

    def put(self, found: Object) -> None:
        """An object exists, and is like this now."""

    def remove(self, gone: Object) -> None:
        """An object was deleted, or has left the selection."""

    def lost(self, error: BaseException) -> None:
        """Changes may be missed from now on, until the next ``listed``."""

    def refused(self, error: Refusal, times: int) -> bool:  # noqa: ARG002
        """The server answered 403 or 404, ``times`` in a row. Return whether to try again later."""
        return True


class Informer:
    """Keeps one observer up to date.

    ``longest_pause`` is the maximum of the jittered exponential back-off after failures, ``ask_again`` the maximum
    pause after 403s and 404s, both in seconds.
    """

    def __init__(
        self,
        source: ClusterSource,
        observer: Observer,
        record: WatchRecord,
        rng: random.Random,
        *,
        longest_pause: float,
        ask_again: float,
    ) -> None:
        self._source = source
        self._observer = observer
        self._record = record
        self._rng = rng
        self._pauses = Pauses(FIRST_PAUSE, longest_pause, rng)
        self._ask_again = ask_again
        self._refusals = 0  # consecutive ones
        self._version = ""  # to resume from
        place = observer.namespace or "all namespaces"
        self._where = f"{observer.kind.plural} in {place}" if observer.kind.namespaced else observer.kind.plural

    async def run(self) -> None:
        """Follow until cancelled, or until the observer gives up a kind that it is refused."""
        while True:
            began = _now()
            try:
                await self._list_and_watch()
            except asyncio.CancelledError as error:
                self._observer.lost(error)
                raise
            except (WatchForbiddenError, WatchAbsentError) as error:
                self._observer.lost(error)
                self._record.counts.forbidden += isinstance(error, WatchForbiddenError)
                self._pauses.reset()
                self._refusals += 1
                if not self._observer.refused(error, self._refusals):
                    return
                await asyncio.sleep(pause_after_refusal(self._refusals, self._ask_again, self._rng))
            except Exception as error:  # noqa: BLE001 - fails open: a bug of ours must not end the other watches
                self._observer.lost(error)
                await self._pause(error, _now() - began)

    async def _pause(self, error: Exception, lasted: float) -> None:
        retry_after = 0.0
        if isinstance(error, WatchBrokenError):
            self._record.counts.expired += isinstance(error, WatchExpiredError)
            retry_after = error.retry_after
        else:
            self._record.failed(error, self._where)
        if lasted >= HEALTHY_AFTER:
            self._pauses.reset()
        await self._pauses.after_failure(after(retry_after, FIRST_PAUSE, self._rng) if retry_after else 0.0)
        self._record.counts.reconnects += 1

    async def _list_and_watch(self) -> NoReturn:
        await self._list()
        while True:
            opened = _now()
            await self._stream()
            if _now() - opened < SHORTEST:
                raise WatchBrokenError(f"the watch stream ended within {SHORTEST:g} s")
            self._record.counts.resumed += 1

    async def _list(self) -> None:
        self._observer.begin()
        self._version, taken = "", 0
        partly: dict[Key, str] = {}
        observer = self._observer
        async with contextlib.aclosing(self._source.pages(observer.kind, observer.namespace, observer.trim)) as pages:
            async for page in pages:
                found = text(metadata_of(page).get("resourceVersion"))
                if not found or not is_list(page):
                    raise WatchBrokenError("the answer is not a list, or has no resourceVersion to watch from")
                self._version = self._version or found
                for body in page["items"] or ():
                    taken += 1
                    if taken % BREATH == 0:
                        await asyncio.sleep(0)
                    self._try(observer.item, body)
                    if isinstance(body, PartlyRead):
                        partly[object_of(body).key] = body.why
                del page  # not kept until the next one is here
        if not self._version:
            raise WatchBrokenError("the list has no pages")
        self._record.partly_listed(self._where, partly)
        self._record.counts.relists += 1
        self._refusals = 0
        self._observer.listed(self._version)

    async def _stream(self) -> None:
        observer, taken = self._observer, 0
        watched = self._source.watch(observer.kind, observer.namespace, self._version, observer.trim)
        async with contextlib.aclosing(watched) as stream:
            async for raw in stream:
                taken += 1
                if taken % BREATH == 0:
                    await asyncio.sleep(0)
                self._try(self._take, raw)
                del raw  # not kept until the next one comes

    def _take(self, raw: object) -> None:
        event = read_event(raw, self._observer.kind, self._observer.namespace)
        self._version = newest(self._version, event.object.version)
        if event.type != "BOOKMARK":
            body = event.object.body
            why = body.why if isinstance(body, PartlyRead) and event.type != "DELETED" else ""
            self._record.partly_read(self._where, event.object.key, why)
            self._observer.take(event)
            self._record.counts.events += 1

    def _try(self, call: Callable[[object], None], given: object) -> None:
        """Keep one bad object from ending the watch: unusable objects and internal errors are counted and skipped."""
        try:
            call(given)
        except WatchBrokenError:
            raise
        except IgnoredError as error:
            self._record.ignored(error, self._where)
        except Exception as error:  # noqa: BLE001 - fails open
            self._record.failed(error, self._where)


def pause_after_refusal(times: int, longest: float, rng: random.Random) -> float:
    """Return the seconds until the next try: few at first, since a server that starts refuses every request."""
    return delay(2 * min(times - 1, 100), FIRST_ASK, longest) * rng.uniform(0.8, 1.2)


def _now() -> float:
    return asyncio.get_running_loop().time()
