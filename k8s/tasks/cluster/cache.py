"""What the informer knows of the Tasks of a cluster, and the order in which it learned of changes.

Own writes are taken in from their answers, so that the writer reads it at once; the same news comes by the watch
once more, and does not count. Revisions count changes of this cache: versions of the server would not do, since an
answer may overtake the watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import is_going, mapping, metadata_of, text
from backoff_ctrl.k8s.kube.answers.objects import Object
from backoff_ctrl.k8s.kube.watching.informer import Observer, Refusal
from backoff_ctrl.k8s.kube.watching.objects import WatchedKind
from backoff_ctrl.k8s.tasks.model import JSON, KIND
from backoff_ctrl.k8s.tasks.stepping import has_begun
from backoff_ctrl.k8s.tasks.store import Change, Stored, circle, needs_of

from .bounds import LeftOut, TaskShares, is_over, refused, slim
from .objects import Read, generation_of, read_spec, stored
from .requests import PATH
from .schema import PLURAL

TASKS: Final = WatchedKind(PATH, PLURAL, frozenset({KIND}))
CHANGES_MAX: Final = 1000
"""Changes reported at a time."""
GONE_KEPT: Final = 10_000
"""Deleted tasks that are remembered for watchers."""
_METADATA: Final = ("namespace", "name", "uid", "resourceVersion", "generation", "creationTimestamp",
                    "deletionTimestamp", "finalizers")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """A Task: ``body`` without its spec, and what was read of it.

    ``version`` is the object's version when it first had its present status. ``whole``: all of its spec is here.
    """

    body: JSON
    read: Read
    version: int
    task: Stored
    doomed: str = ""
    whole: bool = True


class TaskCache:
    """The Tasks that informers have shown. On one event loop. ``shares`` bound what is kept; None: all is."""

    def __init__(self, shares: TaskShares | None = None) -> None:
        self.revision = 0
        self._shares = shares
        self._left_out: dict[str, LeftOut] = {}
        self._entries: dict[str, Entry] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._changed: dict[str, int] = {}
        self._wished: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, uid: str) -> Entry | None:
        return self._entries.get(uid)

    def named(self, namespace: str, name: str) -> Entry | None:
        uid = self._names.get((namespace, name))
        return None if uid is None else self._entries[uid]

    def entries(self) -> Iterator[Entry]:
        yield from list(self._entries.values())

    def tasks(self, holds: Callable[[Stored], bool]) -> list[Stored]:
        """Return the tasks that fulfil a condition, in the order of their creation."""
        found = [each.task for each in self._entries.values() if holds(each.task)]
        return sorted(found, key=lambda task: task.number)

    # -- what comes in ---------

    def take(self, body: Mapping[str, Any]) -> Entry:
        """Take an object as it is now, unless a newer state of it is known; return what is known: whole, if it is."""
        metadata = metadata_of(body)
        uid = text(metadata.get("uid"))
        known = self._entries.get(uid)
        version = version_of(body)
        if known is not None and (
            version < version_of(known.body) or (version == version_of(known.body) and known.whole)
        ):
            return known
        key = text(metadata.get("namespace")), text(metadata.get("name"))
        earlier = self._names.get(key)
        if earlier is not None and earlier != uid:
            self.forget(earlier)
        same = known is not None and known.read.generation == generation_of(body) and generation_of(body) > 0
        read = known.read if known is not None and same and known.whole else read_spec(body)
        status = mapping(body.get("status"))
        identity = {name: metadata[name] for name in _METADATA if name in metadata}
        status_only: JSON = {"metadata": identity, "status": dict(status)}
        written = known.version if known is not None and known.body["status"] == status else version
        doomed = known.doomed if known is not None else self._closes_circle(key, read.spec)
        entry = Entry(status_only, read, written, stored(status_only, read, written, doomed), doomed)
        if uid in self._gone:  # the answer to a write that came after the news of its end
            return entry
        kept = self._bounded(entry, known)
        if kept is None:
            return entry
        self._entries[uid] = kept
        self._names[key] = uid
        wish = known is None or not same or is_going(body) != is_going(known.body)
        if wish or known is None or known.task != kept.task:
            self._note(uid, wish=wish)
        return kept if kept.task.open else entry

    def _bounded(self, entry: Entry, known: Entry | None) -> Entry | None:
        """Return what is kept of a Task; None, as long as those of its namespace leave no room for it."""
        shares, task = self._shares, entry.task
        if shares is None:
            return entry
        self._left_out.pop(task.uid, None)
        if is_over(task, entry.body):
            shares.give_back(task.namespace, task.uid)
            return self._with(entry, slim(entry.read))
        if (
            not entry.read.refused
            and shares.is_too_large(entry.read)
            and (known is not None or not has_begun(task.status))
        ):
            entry = self._with(entry, refused(entry.read))
        left = shares.take(entry.task, entry.body["status"], known=known is not None)
        if left is not None:
            self._left_out[task.uid] = left
            return None
        return entry

    @staticmethod
    def _with(entry: Entry, read: Read) -> Entry:
        task = stored(entry.body, read, entry.version, entry.doomed)
        return replace(entry, read=read, task=task, whole=False)

    def left_out(self) -> list[LeftOut]:
        """Return the Tasks for which there is no room now."""
        return list(self._left_out.values())

    def has_room(self, left: LeftOut) -> bool:
        """Return whether there is room by now for a Task that was left out."""
        return self._shares is not None and self._shares.has_room(left)

    def forget(self, uid: str) -> None:
        """Take note that a Task is gone."""
        self._left_out.pop(uid, None)
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        if self._shares is not None:
            self._shares.give_back(entry.task.namespace, uid)
        self._names.pop((entry.task.namespace, entry.task.name), None)
        self._note(uid, wish=True)
        self._gone[uid] = self.revision
        if len(self._gone) > GONE_KEPT:
            oldest = next(iter(self._gone))
            for each in (self._gone, self._changed, self._wished):
                each.pop(oldest, None)

    def keep_only(self, uids: set[str], namespace: str | None, within: Callable[[Stored], bool]) -> None:
        """Forget the tasks of a complete list's place that are not on it."""
        for left in self.left_out():
            if left.uid not in uids and namespace in (None, left.namespace):
                self.forget(left.uid)
        for entry in self.entries():
            if entry.task.uid not in uids and within(entry.task):
                self.forget(entry.task.uid)

    def _closes_circle(self, key: tuple[str, str], spec: Mapping[str, Any]) -> str:
        """Return the circle that a new task closes with those it needs, or an empty one."""
        if not spec.get("needs"):
            return ""
        reached: dict[str, Iterable[str]] = {key[1]: needs_of(spec)}
        ahead = list(needs_of(spec))
        while ahead:
            name = ahead.pop()
            entry = self.named(key[0], name)
            if name in reached or entry is None or not entry.task.open or entry.doomed:
                continue
            reached[name] = entry.task.needs
            ahead += entry.task.needs
        found = circle(reached)
        return " -> ".join(found) if key[1] in found else ""

    def _note(self, uid: str, *, wish: bool) -> None:
        self.revision += 1
        for log in (self._changed, self._wished) if wish else (self._changed,):
            log.pop(uid, None)
            log[uid] = self.revision
        news, self._news = self._news, asyncio.Event()
        news.set()

    # -- what goes out ---------

    def changes(self, since: int, *, wishes: bool = False) -> list[Change]:
        """Return what has changed after a revision, the oldest first; of each task the latest."""
        found: list[Change] = []
        for uid, revision in reversed((self._wished if wishes else self._changed).items()):
            if revision <= since:
                break
            entry = self._entries.get(uid)
            found.append(Change(revision, uid, None if entry is None else entry.task))
        return found[::-1][:CHANGES_MAX]

    def news(self) -> asyncio.Event:
        """Return the event that the next change sets."""
        return self._news


def version_of(body: Mapping[str, Any]) -> int:
    """Return the version of an object. That of an object in etcd is a number, and grows."""
    found = text(metadata_of(body).get("resourceVersion"))
    return int(found) if found.isdecimal() else 0


class Following(Observer):
    """Feeds a cache with the Tasks of a namespace, or (None) of all."""

    def __init__(self, cache: TaskCache, namespace: str | None) -> None:
        super().__init__(TASKS, namespace)
        self._cache = cache
        self._listing: set[str] | None = None
        self.refusal: Refusal | None = None
        """The server's last answer, if it was 403 or 404."""
        self.said = asyncio.Event()
        """Set once there is a list, or a refusal."""

    def begin(self) -> None:
        self._listing = set()

    def put(self, found: Object) -> None:
        if self._listing is not None:
            self._listing.add(found.uid)
        self._cache.take(found.body)

    def remove(self, gone: Object) -> None:
        self._cache.forget(gone.uid)

    def listed(self, version: str) -> None:
        listing, self._listing = self._listing or set(), None
        at = int(version) if version.isdecimal() else 0
        self._cache.keep_only(listing, self.namespace, lambda task: self._is_here(task, at))
        self.refusal = None
        self.said.set()

    def _is_here(self, task: Stored, at: int) -> bool:
        """Return whether the list at a version would have this task: one that was made after it is not gone."""
        entry = self._cache.entry(task.uid)
        assert entry is not None
        return self.namespace in (None, task.namespace) and version_of(entry.body) <= at

    def refused(self, error: Refusal, times: int) -> bool:  # noqa: ARG002
        self.refusal = error
        self.said.set()
        return True
