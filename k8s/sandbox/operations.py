"""What each verb does, once a request is understood: reads give bytes, writes a code and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .bodies import media_type, read_body, read_patch
from .deleting import Deleter
from .encoding import dump, load
from .patching import patch_of
from .reading import list_body, list_page
from .subresources import Subresources
from .tables import partial_object, table
from .writing import Writer

if TYPE_CHECKING:
    from typing import Any

    from .core import Core
    from .requests import Query, Target, WriteOptions

    Result = tuple[int, bytes]

_ACTIONS = frozenset({"binding", "eviction"})


class Operations:
    """The verbs on resources. Each is one step: nothing else runs between its first look and its last write."""

    def __init__(self, core: Core) -> None:
        """Work on the parts given."""
        self._core = core
        self._writer = Writer(core)
        self.deleter = Deleter(core)
        self._subresources = Subresources(core, self._writer, self.deleter)

    def read(self, verb: str, target: Target, query: Query, accept: str) -> bytes:
        """Get or list, plain, as a Table or metadata alone."""
        include = query.text("includeObject")
        if verb == "list":
            return self._list(target, query, accept, include)
        if target.subresource == "log":
            return b""
        stored = self._core.store.get(target.kind, target.place, target.name)
        data = dump(self._subresources.scale_of(stored.parse())) if target.subresource == "scale" else stored.data
        return shaped(target, data, accept, include)

    def _list(self, target: Target, query: Query, accept: str, include: str) -> bytes:
        page = list_page(self._core, target, query)
        if "as=Table" in accept:
            return dump(table(target.kind, (item.parse() for item in page.items), page.metadata(), include))
        if "as=PartialObjectMetadataList" in accept:
            items = [partial_object(item.parse()) for item in page.items]
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            return dump({**head, "metadata": page.metadata(), "items": items})
        return list_body(target, page)

    def write(self, verb: str, target: Target, query: Query, data: bytes, content_type: str | None) -> Result:
        """Create, update, patch or delete."""
        if verb in {"delete", "deletecollection"}:
            options = read_body(data, content_type) if data.strip() else None
            work = self.deleter.delete if verb == "delete" else self.deleter.delete_many
            return 200, work(target, query, options)
        asked = query.write_options()
        if verb == "patch":
            return self._patch(target, query, data, content_type, asked)
        body = read_body(data, content_type, target.kind.kind)
        if verb == "create":
            return 201, self._create(target, query, body, asked)
        scales = target.subresource == "scale"
        work_on = self._subresources.set_scale if scales else self._writer.update
        return 200, work_on(target, body, asked)

    def _create(self, target: Target, query: Query, body: Any, asked: WriteOptions) -> bytes:
        if target.subresource in _ACTIONS:
            return self._subresources.act(target, query, body)
        return self._writer.create(target, body, asked)

    def _patch(
        self, target: Target, query: Query, data: bytes, content_type: str | None, asked: WriteOptions
    ) -> Result:
        body, given = read_patch(data, content_type), media_type(content_type)
        if target.subresource == "scale":
            return 200, self._subresources.patch_scale(target, body, given, asked)
        return patch_of(self._core, self._writer, target, query, body, given)


def shaped(target: Target, data: bytes, accept: str, include: str = "") -> bytes:
    """One object as the client asked for it."""
    if "as=Table" in accept:
        obj = load(data)
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return dump(table(target.kind, (obj,), metadata, include))
    if "as=PartialObjectMetadata;" in accept:
        return dump(partial_object(load(data)))
    return data
