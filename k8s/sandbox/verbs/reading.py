"""Get and list. Pages stay consistent because later changes are undone when a page is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sandbox.kinds.answers import ApiError, bad_request, expired
from backoff_ctrl.k8s.sandbox.storage.history import ADDED
from backoff_ctrl.k8s.sandbox.storage.selectors import Selection
from backoff_ctrl.k8s.sandbox.storage.store import Stored
from backoff_ctrl.k8s.sandbox.wire.encoding import dump, load

from .continuing import NEWEST, read_token, token_of
from .list_options import check_list, too_large_version, version_of_list, version_of_one

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.core import Core
    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

    from .requests import Query, Target

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_TOO_OLD_LIST = "The resourceVersion for the provided list is too old."


@dataclass(frozen=True, slots=True)
class Page:
    """A list, or one page of it."""

    items: list[Stored]
    version: int
    next: str = ""  # the continue token
    remaining: int | None = None

    def metadata(self) -> JSON:
        """The ListMeta of the page."""
        metadata: JSON = {"resourceVersion": str(self.version)}
        if self.next:
            metadata["continue"] = self.next
            if self.remaining is not None:
                metadata["remainingItemCount"] = self.remaining
        return metadata


def list_body(target: Target, page: Page) -> bytes:
    """The list as JSON, from the stored bytes; items of built-in lists omit the kind, which the list states once."""
    head = {"kind": target.kind.list_kind, "apiVersion": target.kind.api_version, "metadata": page.metadata()}
    said = head_of(target.kind) if target.kind.strategic else b""
    items = b",".join(b"{" + item.data[len(said) :] if said else item.data for item in page.items)
    return b'%b,"items":[%b]}' % (dump(head)[:-1], items)


def head_of(kind: Kind) -> bytes:
    """The bytes with which every stored object of a kind begins."""
    return dump({"kind": kind.kind, "apiVersion": kind.api_version})[:-1] + b","


def selection_of(target: Target, query: Query) -> Selection:
    """The selection that the query asks for. Raises 400."""
    return Selection(target.kind, query.text("labelSelector"), query.text("fieldSelector"))


def list_page(core: Core, target: Target, query: Query) -> Page:
    """List a collection. Raises 400, 410 for a forgotten version, 422, 504 for a future version."""
    check_list(query)
    selection = selection_of(target, query)
    version, start = _version_and_start(core, target, query)
    try:
        items = _items_at(core, target, version, selection.name)
    except ApiError as error:
        if start is None:
            raise expired(_TOO_OLD_LIST) from error
        raise expired(_TOO_OLD, {"continue": token_of(target, NEWEST, start)}) from error
    ordered = sorted(items, key=_key)
    if start:
        ordered = [item for item in ordered if _key(item) > start]
    chosen = [item for item in ordered if _selected(selection, item)]
    limit = query.number("limit") or 0
    if 0 < limit < len(chosen):
        rest = len(chosen) - limit if selection.everything else None
        return Page(chosen[:limit], version, token_of(target, version, _key(chosen[limit - 1])), rest)
    return Page(chosen, version)


def _version_and_start(core: Core, target: Target, query: Query) -> tuple[int, tuple[str, str] | None]:
    """The version that a list shows, and the object after which it begins. Raises 400 and 504."""
    wanted, token = query.text("resourceVersion"), query.text("continue")
    asked = version_of_list(wanted) if wanted else 0
    if token:
        if asked:
            raise bad_request("specifying resource version is not allowed when using continue")
        version, start = read_token(target, token)
        return (core.store.version if version < 0 else version), start
    if asked > core.store.version:
        raise too_large_version(asked, core.store.version)
    match = query.text("resourceVersionMatch")
    exact = match == "Exact" or (not match and query.number("limit"))  # with only a limit, a version means Exact
    return asked if exact and asked else core.store.version, None


def get_one(core: Core, target: Target, query: Query) -> Stored:
    """One object. Raises 404, 500 for a malformed version, 504 for a future version."""
    wanted = query.text("resourceVersion")
    version = version_of_one(wanted) if wanted else 0
    if version > core.store.version:
        raise too_large_version(version, core.store.version)
    return core.store.get(target.kind, target.place, target.name)


def _items_at(core: Core, target: Target, version: int, name: str | None) -> list[Stored]:
    """The objects as they were at a version. Raises 410."""
    collection = core.store.of(target.kind)
    if version == core.store.version:
        if name is not None and target.namespace is not None:
            found = collection.get(target.namespace, name)
            return [found] if found else []
        return list(collection.within(target.namespace))
    newer = collection.history.since(version)
    items = {(item.namespace, item.name): item for item in collection.within(target.namespace)}
    for event in reversed(newer):
        if target.namespace not in {None, event.namespace}:
            continue
        key = (event.namespace, event.name)
        if event.type == ADDED or event.previous is None:
            items.pop(key, None)
        else:
            before = load(event.previous)
            items[key] = Stored(before, event.previous, int(before["metadata"]["resourceVersion"]))
    return list(items.values())


def _selected(selection: Selection, item: Stored) -> bool:
    if selection.everything:
        return True
    if not selection.admits_labels(item.labels):
        return False
    return selection.labels_only or selection.admits(item.parse())


def _key(item: Stored) -> tuple[str, str]:
    return (item.namespace, item.name)
