"""Delete: grace periods, preconditions, finalizers and propagation."""

from __future__ import annotations

from typing import Any

from backoff_ctrl.k8s.lab.sandbox.core import Core
from backoff_ctrl.k8s.lab.sandbox.objects.answers import bad, conflict, forbidden, invalid_options, success, unsupported
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import NAMESPACES, PODS, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.metadata import timestamp
from backoff_ctrl.k8s.lab.sandbox.objects.store import Stored
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, dump

from .reading import list_page
from .requests import Query, Target, dry_run_problems

_LASTING = frozenset({"default", "kube-system", "kube-public"})


class Deleter:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.orphaning: set[str] = set()  # uids of objects whose dependents stay

    def delete(self, target: Target, query: Query, options: Any) -> bytes:
        """Delete one object; returns its last state, or a Status, depending on the kind. Raises 404, 409."""
        wanted = _options_of(query, options)
        stored = self._core.store.get(target.kind, target.place, target.name)
        if target.kind is NAMESPACES and stored.name in _LASTING:
            raise forbidden(NAMESPACES, stored.name, "this namespace may not be deleted")
        _check(target.kind, stored, wanted)
        obj, gone = self.remove(target.kind, stored, wanted)
        if gone and not target.kind.returns_deleted:
            return dump(success(target.kind, stored.name, stored.uid))
        return dump(obj)

    def delete_many(self, target: Target, query: Query, options: Any) -> bytes:
        """Delete what the selectors select; returns it as a list. Raises 409 at the first failed precondition."""
        wanted = _options_of(query, options)
        page = list_page(self._core, target, query)
        items = []
        for stored in page.items:  # after a failed precondition the earlier deletes stand, as on a real server
            _check(target.kind, stored, wanted)
            items.append(self.remove(target.kind, stored, wanted)[0])
        if target.kind.strategic:
            items = [{field: item[field] for field in item if field not in {"kind", "apiVersion"}} for item in items]
        head = {"kind": target.kind.list_kind, "apiVersion": target.kind.api_version}
        return dump({**head, "metadata": {"resourceVersion": str(self._core.store.version)}, "items": items})

    def remove(self, kind: Kind, stored: Stored, options: JSON) -> tuple[JSON, bool]:
        """Remove an object, or mark it as being deleted; also returns whether it is gone."""
        dry_run = bool(options.get("dryRun"))
        obj = stored.parse()
        metadata = obj["metadata"]
        grace = _grace(kind, obj, options)
        finalizers = list(metadata.get("finalizers") or ())
        if not dry_run and _orphans(kind, options):
            self.orphaning.add(stored.uid)
        waits = bool(finalizers) or kind is NAMESPACES or grace > 0
        if not waits:
            if dry_run:
                return obj, True
            if kind is PODS and metadata.get("deletionGracePeriodSeconds") != 0:
                if not metadata.get("deletionTimestamp"):
                    metadata["generation"] += 1
                self._mark(kind, metadata, finalizers, 0)  # watchers see the pod marked before it is gone
                stored = self._core.store.replace(kind, stored, obj)
            return self._core.store.remove(kind, stored), True
        self._mark(kind, metadata, finalizers, grace)
        if kind is NAMESPACES:
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        if not dry_run and obj != stored.parse():
            if "generation" in metadata and b'"deletionTimestamp"' not in stored.data:
                metadata["generation"] += 1
            self._core.store.replace(kind, stored, obj)
        return obj, False

    def _mark(self, kind: Kind, metadata: JSON, finalizers: list[str], grace: int) -> None:
        """Set the deletion times; a second delete can only shorten the grace period."""
        if finalizers:
            metadata["finalizers"] = finalizers
        before = metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and (before is None or grace >= before):
            return
        metadata["deletionTimestamp"] = timestamp(self._core.clock() + grace)
        if kind is not NAMESPACES:
            metadata["deletionGracePeriodSeconds"] = grace


def _check(kind: Kind, stored: Stored, options: JSON) -> None:
    preconditions = options.get("preconditions") or {}
    uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
    if uid is not None and uid != stored.uid:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({stored.uid}). The object "
            "might have been deleted and then recreated"
        )
        raise conflict(kind, stored.name, why)
    if version is not None and version != str(stored.version):
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            f"({stored.version}). The object might have been modified"
        )
        raise conflict(kind, stored.name, why)


def _orphans(kind: Kind, options: JSON) -> bool:
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    return policy == "Orphan" or (policy is None and (kind.orphans if orphan is None else bool(orphan)))


def _grace(kind: Kind, obj: JSON, options: JSON) -> int:
    """The grace period of a pod in seconds: 0 when no node runs it or it has ended."""
    if kind is not PODS:
        return 0
    spec, status = obj["spec"], obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in {"Succeeded", "Failed"}:
        return 0
    asked = options.get("gracePeriodSeconds")
    if asked is None:
        asked = spec.get("terminationGracePeriodSeconds", 30)
    return int(asked) if asked >= 0 else 1


def _options_of(query: Query, body: JSON | None) -> JSON:
    """DeleteOptions from the body, else from the query. Raises 400, 422."""
    options = {field: value for field, value in (body or {}).items() if value is not None}
    grace = query.number("gracePeriodSeconds")
    if grace is not None:
        options.setdefault("gracePeriodSeconds", grace)
    if query.has("propagationPolicy"):
        options.setdefault("propagationPolicy", query.text("propagationPolicy"))
    if query.has("orphanDependents"):
        options.setdefault("orphanDependents", query.flag("orphanDependents"))
    dry_run = query.values("dryRun") or options.get("dryRun") or []
    problems = dry_run_problems(dry_run)
    policy = options.get("propagationPolicy")
    if policy is not None and options.get("orphanDependents") is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        problems.append(bad("propagationPolicy", policy, text))
    if policy not in {None, "Foreground", "Background", "Orphan"}:
        problems.append(unsupported("propagationPolicy", policy, "Foreground", "Background", "Orphan", "nil"))
    if problems:
        raise invalid_options("DeleteOptions", *problems)
    return {**options, "dryRun": dry_run}
