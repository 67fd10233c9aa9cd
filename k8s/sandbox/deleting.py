"""Delete: grace, preconditions, finalizers and propagation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .answers import bad_request, precondition_failed, success
from .encoding import dump
from .identity import timestamp
from .kinds import NAMESPACES, PODS
from .reading import list_page

if TYPE_CHECKING:
    from typing import Any

    from .core import Core
    from .encoding import JSON
    from .kinds import Kind
    from .requests import Query, Target
    from .store import Stored

_POLICIES = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}


class Deleter:
    """Deletes of one cluster."""

    def __init__(self, core: Core) -> None:
        """Work on the parts given."""
        self._core = core

    def delete(self, target: Target, query: Query, options: Any) -> bytes:
        """Delete one object: its last state, or a Status where the kind does so. Raises 404, 409."""
        wanted = options_of(query, options)
        stored = self._core.store.get(target.kind, target.place, target.name)
        self._check(target.kind, stored, wanted)
        obj, gone = self.remove(target.kind, stored, wanted)
        if gone and not target.kind.returns_deleted:
            return dump(success(target.kind, stored.name, stored.uid))
        return dump(obj)

    def delete_many(self, target: Target, query: Query, options: Any) -> bytes:
        """Delete what the selectors choose: the list of it."""
        wanted = options_of(query, options)
        page = list_page(self._core, target, query)
        items = [self.remove(target.kind, stored, wanted)[0] for stored in page.items]
        head = {"kind": target.kind.list_kind, "apiVersion": target.kind.api_version}
        return dump({**head, "metadata": {"resourceVersion": str(self._core.store.version)}, "items": items})

    def _check(self, kind: Kind, stored: Stored, options: JSON) -> None:
        preconditions = options.get("preconditions") or {}
        uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
        if uid and uid != stored.uid:
            why = (
                f"the UID in the precondition ({uid}) does not match the UID in record ({stored.uid}). The object "
                "might have been deleted and then recreated"
            )
            raise precondition_failed(kind, stored.name, why)
        if version and version != str(stored.version):
            why = (
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
                f"({stored.version}). The object might have been modified"
            )
            raise precondition_failed(kind, stored.name, why)

    def remove(self, kind: Kind, stored: Stored, options: JSON) -> tuple[JSON, bool]:
        """Take an object out, or mark it as going; says whether it is gone."""
        dry_run = bool(options.get("dryRun"))
        obj = stored.parse()
        metadata = obj["metadata"]
        grace = _grace(kind, obj, options)
        finalizers = list(metadata.get("finalizers") or ())
        policy = _POLICIES.get(
            options.get("propagationPolicy") or ("Orphan" if options.get("orphanDependents") else "")
        )
        if policy and policy not in finalizers:
            finalizers.append(policy)
        waits = bool(finalizers) or kind is NAMESPACES or grace > 0
        if not waits:
            if dry_run:
                return obj, True
            if kind is PODS and metadata.get("deletionGracePeriodSeconds") != 0:
                self._mark(kind, metadata, finalizers, 0)  # watchers see a pod marked before it goes
                stored = self._core.store.replace(kind, stored, obj)
            return self._core.store.remove(kind, stored), True
        self._mark(kind, metadata, finalizers, grace)
        if kind is NAMESPACES:
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        if not dry_run and obj != stored.parse():
            if "generation" in metadata:
                metadata["generation"] += 1
            self._core.store.replace(kind, stored, obj)
        return obj, False

    def _mark(self, kind: Kind, metadata: JSON, finalizers: list[str], grace: int) -> None:
        """Set the deletion times; a second delete can only shorten the grace."""
        if finalizers:
            metadata["finalizers"] = finalizers
        before = metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and (before is None or grace >= before):
            return
        metadata["deletionTimestamp"] = timestamp(self._core.clock() + grace)
        if kind is not NAMESPACES:
            metadata["deletionGracePeriodSeconds"] = grace


def _grace(kind: Kind, obj: JSON, options: JSON) -> int:
    """Seconds that a pod is given: none when no node runs it or it has ended."""
    if kind is not PODS:
        return 0
    spec, status = obj["spec"], obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in {"Succeeded", "Failed"}:
        return 0
    asked = options.get("gracePeriodSeconds")
    if asked is None:
        asked = spec.get("terminationGracePeriodSeconds", 30)
    return max(0, int(asked))


def options_of(query: Query, body: Any) -> JSON:
    """DeleteOptions from the body, else from the query. Raises 400, 422."""
    options: JSON = {}
    if body is not None:
        if not isinstance(body, dict):
            raise bad_request("the body of a delete must be DeleteOptions")
        options = dict(body)
    grace = query.number("gracePeriodSeconds")
    if grace is not None:
        options.setdefault("gracePeriodSeconds", grace)
    if query.text("propagationPolicy"):
        options.setdefault("propagationPolicy", query.text("propagationPolicy"))
    if query.text("orphanDependents"):
        options.setdefault("orphanDependents", query.flag("orphanDependents"))
    if query.dry_run():
        options["dryRun"] = ["All"]
    grace = options.get("gracePeriodSeconds")
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int)):
        raise bad_request("DeleteOptions: gracePeriodSeconds must be a whole number of seconds")
    return options
