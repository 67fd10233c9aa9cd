"""Delete: grace periods, preconditions, finalizers and propagation."""

from __future__ import annotations

from typing import Any

from backoff_ctrl.k8s.sandbox.core import Core
from backoff_ctrl.k8s.sandbox.objects.answers import (
    ApiError,
    bad_request,
    forbidden,
    invalid_options,
    precondition_failed,
    success,
)
from backoff_ctrl.k8s.sandbox.objects.definitions import mark_terminating
from backoff_ctrl.k8s.sandbox.objects.kinds import DEFINITIONS, NAMESPACES, PODS, Kind
from backoff_ctrl.k8s.sandbox.objects.metadata import timestamp
from backoff_ctrl.k8s.sandbox.objects.schema import json_word
from backoff_ctrl.k8s.sandbox.objects.store import Stored
from backoff_ctrl.k8s.sandbox.objects.texts import JSON, dump
from backoff_ctrl.k8s.sandbox.verbs.reading import list_page
from backoff_ctrl.k8s.sandbox.verbs.requests import Query, Target, dry_run_problems

_LASTING = frozenset({"default", "kube-system", "kube-public"})
_FIELDS: dict[str, tuple[type, str]] = {
    "gracePeriodSeconds": (int, "int64"),
    "preconditions": (dict, "v1.Preconditions"),
    "orphanDependents": (bool, "bool"),
    "propagationPolicy": (str, "v1.DeletionPropagation"),
    "dryRun": (list, "[]string"),
}
_PRECONDITIONS = {"uid": "types.UID", "resourceVersion": "string"}
_POLICIES = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}


class Deleter:
    """Performs all deletes."""

    def __init__(self, core: Core) -> None:
        """Delete from the store of ``core``."""
        self._core = core

    def delete(self, target: Target, query: Query, options: Any) -> bytes:
        """Delete one object; returns its last state, or a Status, depending on the kind. Raises 404, 409."""
        wanted = options_of(query, options)
        stored = self._core.store.get(target.kind, target.place, target.name)
        if target.kind is NAMESPACES and stored.name in _LASTING:
            raise forbidden(NAMESPACES, stored.name, "this namespace may not be deleted")
        self._check(target.kind, stored, wanted)
        obj, gone = self.remove(target.kind, stored, wanted)
        if gone and not target.kind.returns_deleted:
            return dump(success(target.kind, stored.name, stored.uid))
        return dump(obj)

    def delete_many(self, target: Target, query: Query, options: Any) -> bytes:
        """Delete what the selectors select; returns it as a list. Raises 409 at the first failed precondition."""
        wanted = options_of(query, options)
        page = list_page(self._core, target, query)
        items = []
        for stored in page.items:  # after a failed precondition the earlier deletes stand, as on a real server
            self._check(target.kind, stored, wanted)
            items.append(self.remove(target.kind, stored, wanted)[0])
        if target.kind.strategic:
            items = [{field: item[field] for field in item if field not in {"kind", "apiVersion"}} for item in items]
        head = {"kind": target.kind.list_kind, "apiVersion": target.kind.api_version}
        return dump({**head, "metadata": {"resourceVersion": str(self._core.store.version)}, "items": items})

    def _check(self, kind: Kind, stored: Stored, options: JSON) -> None:
        preconditions = options.get("preconditions") or {}
        uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
        if uid is not None and uid != stored.uid:
            why = (
                f"the UID in the precondition ({uid}) does not match the UID in record ({stored.uid}). The object "
                "might have been deleted and then recreated"
            )
            raise precondition_failed(kind, stored.name, why)
        if version is not None and version != str(stored.version):
            why = (
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
                f"({stored.version}). The object might have been modified"
            )
            raise precondition_failed(kind, stored.name, why)

    def remove(self, kind: Kind, stored: Stored, options: JSON) -> tuple[JSON, bool]:
        """Remove an object, or mark it as being deleted; also returns whether it is gone."""
        dry_run = bool(options.get("dryRun"))
        obj = stored.parse()
        metadata = obj["metadata"]
        grace = _grace(kind, obj, options)
        finalizers = list(metadata.get("finalizers") or ())
        policy = _policy(kind, options)
        if policy and policy not in finalizers:
            finalizers.append(policy)
        if kind is DEFINITIONS:
            return self._mark_definition(stored, obj, dry_run=dry_run)
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

    def _mark_definition(self, stored: Stored, obj: JSON, *, dry_run: bool) -> tuple[JSON, bool]:
        """Mark a definition: it always waits until its objects are gone."""
        if not obj["metadata"].get("deletionTimestamp"):
            now = timestamp(self._core.clock())
            obj["metadata"]["deletionTimestamp"] = now
            mark_terminating(obj, now)
            if not dry_run:
                self._core.store.replace(DEFINITIONS, stored, obj)
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


def _policy(kind: Kind, options: JSON) -> str | None:
    """The finalizer that makes the garbage collector deal with the dependents first."""
    wanted = options.get("propagationPolicy")
    orphan = options.get("orphanDependents")
    if wanted is None:
        wanted = "Orphan" if orphan or (orphan is None and kind.orphans) else ""
    return _POLICIES.get(wanted)


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


def options_of(query: Query, body: JSON | None) -> JSON:
    """DeleteOptions from the body, else from the query. Raises 400, 422."""
    options = dict(body or {})
    _check_types(options)
    grace = query.number("gracePeriodSeconds")
    if grace is not None:
        options.setdefault("gracePeriodSeconds", grace)
    if query.has("propagationPolicy"):
        options.setdefault("propagationPolicy", query.text("propagationPolicy"))
    if query.has("orphanDependents"):
        options.setdefault("orphanDependents", query.flag("orphanDependents"))
    dry_run = query.values("dryRun") or options.get("dryRun") or []
    problems = [*_policy_problems(options), *dry_run_problems(dry_run)]
    if problems:
        raise invalid_options("DeleteOptions", *problems)
    return {**options, "dryRun": dry_run}


def _check_types(options: JSON) -> None:
    kind, version = options.get("kind") or "DeleteOptions", options.get("apiVersion") or "v1"
    if kind != "DeleteOptions":
        text = f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        raise bad_request(text)
    for field, (type_, go_type) in _FIELDS.items():
        value = options.get(field)
        if value is not None and (not isinstance(value, type_) or (type_ is int and isinstance(value, bool))):
            raise _mistyped(value, f"DeleteOptions.{field}", go_type)
    for field, go_type in _PRECONDITIONS.items():
        value = (options.get("preconditions") or {}).get(field)
        if not isinstance(value, str | None):
            raise _mistyped(value, f"Preconditions.preconditions.{field}", go_type)


def _mistyped(value: Any, field: str, go_type: str) -> ApiError:
    return bad_request(f"json: cannot unmarshal {json_word(value)} into Go struct field {field} of type {go_type}")


def _policy_problems(options: JSON) -> list[tuple[str, str, str]]:
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    if policy is None:
        return []
    problems = []
    if orphan is not None:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        problems.append(("FieldValueInvalid", "propagationPolicy", text))
    if policy not in {"Foreground", "Background", "Orphan"}:
        text = f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan", "nil"'
        problems.append(("FieldValueNotSupported", "propagationPolicy", text))
    return problems
