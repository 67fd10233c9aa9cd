"""What each verb does once the request is parsed: reads return bytes, writes a status code and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from backoff_ctrl.k8s.sandbox.kinds.kinds import GROUP_EVENTS
from backoff_ctrl.k8s.sandbox.verbs.connecting import CONNECTIONS, log_of, refuse_connection
from backoff_ctrl.k8s.sandbox.verbs.deleting import Deleter
from backoff_ctrl.k8s.sandbox.verbs.patching import Patch, patch_of
from backoff_ctrl.k8s.sandbox.verbs.reading import get_one, list_page
from backoff_ctrl.k8s.sandbox.verbs.subresources import Subresources
from backoff_ctrl.k8s.sandbox.verbs.writing import Writer
from backoff_ctrl.k8s.sandbox.wire.encoding import dump

from .bodies import media_type, read_body, read_object, read_patch
from .event_versions import shown_body, stored_body, stored_target
from .forms import Form

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.core import Core
    from backoff_ctrl.k8s.sandbox.verbs.requests import Query, Target, WriteOptions

    Result = tuple[int, bytes]

_PLAIN = Form()
_ACTIONS = frozenset({"binding", "eviction"})


class Sent(NamedTuple):
    """What a client sent with a write."""

    data: bytes
    content_type: str | None = None
    user_agent: str = ""


class Operations:
    """The verbs on resources. Each is atomic: nothing else runs between its first read and its last write."""

    def __init__(self, core: Core) -> None:
        """Build the parts that read, write and delete."""
        self._core = core
        self._writer = Writer(core)
        self.deleter = Deleter(core)
        self._subresources = Subresources(core, self._writer, self.deleter)

    def read(self, verb: str, target: Target, query: Query, form: Form) -> bytes:
        """Get or list, in the requested form."""
        if target.kind is GROUP_EVENTS:
            return self._read_event(verb, target, query, form)
        if verb == "list":
            return form.of_page(target, list_page(self._core, target, query))
        if target.subresource == "log":
            return log_of(self._core, target, query)
        if target.subresource in CONNECTIONS:
            refuse_connection(self._core, target)
        stored = get_one(self._core, target, query)
        data = dump(self._subresources.scale_of(stored.parse())) if target.subresource == "scale" else stored.data
        return form.of_one(target, data)

    def write(self, verb: str, target: Target, query: Query, sent: Sent) -> Result:
        """Create, update, patch or delete; returns the status code and the body."""
        write = self._write_event if target.kind is GROUP_EVENTS else self._write
        return write(verb, target, query, sent)

    def _write(self, verb: str, target: Target, query: Query, sent: Sent) -> Result:
        if target.subresource in CONNECTIONS:
            refuse_connection(self._core, target)
        if verb in {"delete", "deletecollection"}:
            options = read_body(sent.data, sent.content_type) if sent.data.strip() else None
            work = self.deleter.delete if verb == "delete" else self.deleter.delete_many
            return 200, work(target, query, options)
        asked = query.write_options(verb, sent.user_agent)
        if verb == "patch":
            return self._patch(target, query, sent, asked)
        if target.subresource in _ACTIONS:
            return 201, self._subresources.act(target, query, read_body(sent.data, sent.content_type))
        if target.subresource == "scale":
            return 200, self._subresources.set_scale(target, read_body(sent.data, sent.content_type), asked)
        body = read_object(target.kind, sent.data, sent.content_type, strict=asked.strict)
        if verb == "create":
            return 201, self._writer.create(target, body, asked)
        return 200, self._writer.update(target, body, asked)

    def _read_event(self, verb: str, target: Target, query: Query, form: Form) -> bytes:
        stored = stored_target(target)
        if form.shape:
            return self.read(verb, stored, query, form)
        return form.of_one(target, shown_body(self.read(verb, stored, query, _PLAIN)))

    def _write_event(self, verb: str, target: Target, query: Query, sent: Sent) -> Result:
        if verb in {"create", "update", "patch"}:
            strict = query.write_options(verb).strict
            data, given = stored_body(verb, target, sent.data, sent.content_type, strict=strict)
            sent = Sent(data, given, sent.user_agent)
        code, data = self._write(verb, stored_target(target), query, sent)
        return code, shown_body(data)

    def _patch(self, target: Target, query: Query, sent: Sent, asked: WriteOptions) -> Result:
        body, given = read_patch(sent.data, sent.content_type), media_type(sent.content_type)
        if target.subresource == "scale":
            return 200, self._subresources.patch_scale(target, body, given, asked)
        return patch_of(self._core, self._writer, target, query, Patch(body, given, asked))
