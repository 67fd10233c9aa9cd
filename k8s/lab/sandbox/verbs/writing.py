"""Create and update: from a parsed body through the admission chain, in the API server's order, to a stored object."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

from backoff_ctrl.k8s.lab.sandbox.admission.amounts import AmountError, canonical_list
from backoff_ctrl.k8s.lab.sandbox.admission.defaults import begin_pending, fill_in
from backoff_ctrl.k8s.lab.sandbox.admission.quota import Attempt
from backoff_ctrl.k8s.lab.sandbox.admission.validation import problems_of_new, problems_of_update
from backoff_ctrl.k8s.lab.sandbox.core import Core
from backoff_ctrl.k8s.lab.sandbox.objects.answers import conflict, forbidden, invalid, not_found
from backoff_ctrl.k8s.lab.sandbox.objects.definitions import default_definition
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import (
    CLAIMS,
    DEFINITIONS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    SERVICES,
    Kind,
)
from backoff_ctrl.k8s.lab.sandbox.objects.metadata import (
    check_body,
    check_place,
    give_identity,
    keep_identity,
    refuse_version,
    timestamp,
)
from backoff_ctrl.k8s.lab.sandbox.objects.schema import cannot_handle
from backoff_ctrl.k8s.lab.sandbox.objects.store import Store, Stored
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, dump

from .apply import Owner, note_update
from .requests import PLAIN, Target, WriteOptions

_FIRST_IP = IPv4Address("10.96.0.0")  # the addresses lead nowhere
_IP_COUNT = 2**20
_NODE_PORTS = range(30000, 32768)
_TRIES = 8  # names drawn from one generateName before the answer is AlreadyExists
_EMPTY_STATUS = frozenset(
    {"jobs", "deployments", "replicasets", "statefulsets", "daemonsets", "cronjobs", "resourcequotas"}
)
_KEEPS_STATUS = frozenset({NAMESPACES, SERVICES, CLAIMS})
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def check_namespace(core: Core, kind: Kind, namespace: str, name: str) -> None:
    """``NamespaceLifecycle``: the namespace must exist and not be terminating. Raises 404, 403."""
    if not kind.namespaced:
        return
    stored = core.store.of(NAMESPACES).get("", namespace)
    if stored is None:
        raise not_found(NAMESPACES, namespace)
    if b'"deletionTimestamp"' in stored.data and (stored.parse()["metadata"].get("deletionTimestamp")):
        message = f"unable to create new content in namespace {namespace} because it is being terminated"
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise forbidden(kind, name, message, [cause])


def mutate(core: Core, kind: Kind, namespace: str, name: str, obj: JSON) -> None:
    """Mutating plugins for a new object: LimitRanger's defaults, RuntimeClass, Priority. Raises 403."""
    core.limits.fill_in(kind, namespace, obj)
    if kind is PODS:
        _give_overhead(core, name, obj)
        _give_priority(core, name, obj)


def _give_overhead(core: Core, name: str, pod: JSON) -> None:
    """``RuntimeClass``: a pod has the overhead of its class and no other."""
    spec = pod["spec"]
    wanted = spec.get("runtimeClassName")
    stored = core.store.of(RUNTIME_CLASSES).get("", wanted) if wanted else None
    if wanted and stored is None:
        raise forbidden(PODS, name, f'pod rejected: RuntimeClass "{wanted}" not found')
    overhead = ((stored.parse().get("overhead") or {}).get("podFixed") or {}) if stored is not None else {}
    if overhead:
        fixed = canonical_list(overhead)
        if spec.setdefault("overhead", fixed) != fixed:
            raise forbidden(PODS, name, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    elif spec.get("overhead"):
        why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise forbidden(PODS, name, why)


def _give_priority(core: Core, name: str, pod: JSON) -> None:
    spec = pod["spec"]
    classes = core.store.of(PRIORITY_CLASSES)
    default = next((each.name for each in classes.within("") if b'"globalDefault":true' in each.data), "")
    wanted = spec.get("priorityClassName") or default
    value, policy = 0, "PreemptLowerPriority"
    if wanted:
        stored = classes.get("", wanted)
        if stored is not None:
            found = stored.parse()
            value, policy = found.get("value", 0), found.get("preemptionPolicy") or policy
        elif wanted in _SYSTEM_PRIORITIES:
            value = _SYSTEM_PRIORITIES[wanted]
        else:
            raise forbidden(PODS, name, f"no PriorityClass with name {wanted} was found")
        spec["priorityClassName"] = wanted
    _set_computed(name, spec, "priority", "integer value of priority", value)
    _set_computed(name, spec, "preemptionPolicy", "string value of PreemptionPolicy", policy)


def _set_computed(name: str, spec: JSON, field: str, called: str, value: Any) -> None:
    """Set a field computed from the PriorityClass; a pod may only repeat it. Raises 403."""
    given = spec.get(field)
    if given is not None and given != value:
        why = f"the {called} ({given}) must not be provided in pod spec; priority admission controller computed {value}"
        raise forbidden(PODS, name, f"{why} from the given PriorityClass name")
    spec[field] = value


def validate(core: Core, attempt: Attempt) -> None:
    """Validating plugins: LimitRanger's bounds, and quota as the last. Raises 403."""
    old = attempt.old
    watched = old is None or attempt.kind is not PODS or attempt.subresource == "resize"
    terminating = old is not None and bool(old["metadata"].get("deletionTimestamp"))
    if watched and attempt.subresource in {"", "resize"} and not terminating:
        core.limits.check(attempt.kind, attempt.namespace, attempt.name, attempt.obj)
    core.quota.admit(attempt)


class Writer:
    def __init__(self, core: Core, rng: random.Random | None = None) -> None:
        """Write to the store of ``core``; names and uids are drawn from its generator, or from ``rng``."""
        self._core = core
        self._rng = rng or core.rng

    def create(self, target: Target, body: JSON, options: WriteOptions = PLAIN) -> bytes:
        """Store a new object; returns its bytes. Raises 400, 403, 404, 409, 422, 500."""
        core, kind, namespace = self._core, target.kind, target.place
        obj = check_body(kind, body, strict=options.strict)
        check_place(obj, kind, namespace, target.name)
        metadata = obj["metadata"]
        refuse_version(metadata.get("resourceVersion"))
        drawn = not metadata.get("name") and bool(metadata.get("generateName"))
        self._avoid_taken_names(target, obj, drawn=drawn)
        name = metadata.get("name") or "Unknown"
        check_namespace(core, kind, namespace, name)
        self._complete(target, name, obj)
        validate(core, Attempt(kind, namespace, name, obj, dry_run=options.dry_run))
        if options.dry_run:
            core.store.check_free(kind, namespace, name)
            return dump(obj)
        return core.store.insert(kind, obj).data

    def _avoid_taken_names(self, target: Target, obj: JSON, *, drawn: bool) -> None:
        """Give the object its identity; redraw a drawn name that is taken, up to seven times, as the server does."""
        core = self._core
        taken = core.store.of(target.kind).namespaces.get(target.place, {})
        for _ in range(_TRIES):
            if drawn:
                obj["metadata"].pop("name", None)
            give_identity(target.kind, obj, self._rng, core.clock())
            if not drawn or obj["metadata"]["name"] not in taken:
                return

    def _complete(self, target: Target, name: str, obj: JSON) -> None:
        """Apply defaults, mutating admission, status and validation. Raises 400, 403, 422."""
        kind, namespace = target.kind, target.place
        if kind is CLAIMS:
            obj.pop("status", None)  # the defaults give it a new one
        try:
            fill_in(kind, obj)
            mutate(self._core, kind, namespace, name, obj)
            if kind is PODS:
                begin_pending(obj)
            elif kind is DEFINITIONS:
                default_definition(obj)
            elif kind.has_status and kind not in _KEEPS_STATUS:
                obj.pop("status", None)
            if kind is SERVICES:
                _give_addresses(self._core.store, self._core.rng, obj["spec"], {})
            problems = problems_of_new(kind, obj)
        except AmountError as error:
            raise cannot_handle(kind, str(error)) from error
        if problems:
            raise invalid(kind, obj["metadata"].get("name") or "", problems)
        if kind.plural in _EMPTY_STATUS:
            obj["status"] = {}

    def update(self, target: Target, body: JSON, options: WriteOptions = PLAIN) -> bytes:
        """Replace an object, or its status; returns its bytes. Raises 400, 403, 404, 409, 422, 500."""
        obj = check_body(target.kind, body, strict=options.strict)
        check_place(obj, target.kind, target.place, target.name)
        stored = self._core.store.get(target.kind, target.place, target.name)
        return self._store_update(target, stored, obj, options)

    def change(
        self, target: Target, patch: Callable[[JSON], JSON], options: WriteOptions = PLAIN, *, applied: bool = False
    ) -> bytes:
        """Change an object: ``patch`` gets a private copy and returns the new object.

        ``applied``: ``patch`` has recorded the owners of fields itself.
        """
        stored = self._core.store.get(target.kind, target.place, target.name)
        obj = check_body(target.kind, patch(stored.parse()))
        check_place(obj, target.kind, target.place, target.name)
        return self._store_update(target, stored, obj, options, applied=applied)

    def _store_update(
        self, target: Target, stored: Stored, obj: JSON, options: WriteOptions, *, applied: bool = False
    ) -> bytes:
        core, kind = self._core, target.kind
        before = stored.parse()
        keep_identity(kind, stored, before, obj)
        _keep_other_half(target, before, obj)
        try:
            if target.subresource != "status":
                self._default_update(kind, before, obj)
                if kind is SERVICES:
                    _give_addresses(core.store, core.rng, obj["spec"], before["spec"])
            if not applied:
                writer = Owner(options.manager or "unknown", "Update", kind.api_version, target.subresource)
                note_update(kind, before, obj, writer, timestamp(core.clock()))
            problems = problems_of_update(kind, before, obj, target.subresource)
            if problems:
                raise invalid(kind, target.name, problems)
            if obj != before:
                attempt = Attempt(kind, target.place, target.name, obj, before, target.subresource, options.dry_run)
                validate(core, attempt)
        except AmountError as error:
            raise cannot_handle(kind, str(error)) from error
        if obj == before:
            return stored.data  # unchanged: no new version
        if "generation" in before["metadata"] and obj.get("spec") != before.get("spec"):
            obj["metadata"]["generation"] = before["metadata"]["generation"] + 1
        if options.dry_run:
            return dump(obj)
        return self._keep(kind, stored, obj)

    def _keep(self, kind: Kind, stored: Stored, obj: JSON) -> bytes:
        """Store a new version, or remove a deleted object once no finalizer keeps it. Raises 404, 409."""
        store = self._core.store
        current = store.of(kind).get(stored.namespace, stored.name)
        if current is not stored:
            raise conflict(kind, stored.name) if current else not_found(kind, stored.name)
        if obj["metadata"].get("deletionTimestamp") and not _held(kind, obj):
            gone = store.remove(kind, stored)  # watchers see the last stored state, the client its own update
            obj["metadata"]["resourceVersion"] = gone["metadata"]["resourceVersion"]
            return dump(obj)
        return store.replace(kind, stored, obj).data

    def _default_update(self, kind: Kind, before: JSON, obj: JSON) -> None:
        """Apply the defaults again; fields that only a create sets stay as they were."""
        status = obj.get("status")
        if kind is PODS and isinstance(obj.get("spec"), dict):
            for field in ("priority", "preemptionPolicy"):
                if field in before["spec"]:
                    obj["spec"].setdefault(field, before["spec"][field])
        fill_in(kind, obj)
        if status is not None:
            obj["status"] = status


def _held(kind: Kind, obj: JSON) -> bool:
    """Whether something still keeps a deleted object: finalizers, or the grace period that a node must confirm."""
    metadata = obj["metadata"]
    if metadata.get("finalizers"):
        return True
    if kind is NAMESPACES:
        return bool((obj.get("spec") or {}).get("finalizers"))
    return kind is PODS and bool(metadata.get("deletionGracePeriodSeconds"))


def _keep_other_half(target: Target, before: JSON, obj: JSON) -> None:
    """A status update leaves the spec alone, any other update the status."""
    kind = target.kind
    if target.subresource == "status":
        for field in before.keys() | obj.keys():
            if field not in {"metadata", "status", "apiVersion", "kind"}:
                _restore(before, obj, field)
        if not kind.strategic:
            metadata = {**before["metadata"], "resourceVersion": obj["metadata"]["resourceVersion"]}
            obj["metadata"] = metadata
        if kind is PODS and "qosClass" in (before.get("status") or {}):
            obj.setdefault("status", {})["qosClass"] = before["status"]["qosClass"]
    elif target.subresource == "finalize" or kind.has_status:
        _restore(before, obj, "status")


def _restore(before: JSON, obj: JSON, field: str) -> None:
    if field in before:
        obj[field] = before[field]
    else:
        obj.pop(field, None)


def _give_addresses(store: Store, rng: random.Random, spec: JSON, old: JSON) -> None:
    """Allocate the cluster IP and the node ports that a Service's type needs; it keeps what it had."""
    if spec.get("type") == "ExternalName":
        for field in ("clusterIP", "clusterIPs"):
            if spec.get(field) == old.get(field):
                spec.pop(field, None)
        return
    others = [stored.parse().get("spec") or {} for stored in store.of(SERVICES).within(None)]
    if not spec.get("clusterIP"):
        free = (str(_FIRST_IP + rng.randrange(1, _IP_COUNT)) for _ in itertools.count())
        taken_ips = {each.get("clusterIP") for each in others}
        spec["clusterIP"] = old.get("clusterIP") or next(each for each in free if each not in taken_ips)
    spec["clusterIPs"] = [spec["clusterIP"]]
    outside = spec.get("type") == "NodePort" or (
        spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
    )
    had = {_port_key(port): port.get("nodePort") for port in old.get("ports") or ()}
    taken = {port.get("nodePort") for each in others for port in each.get("ports") or ()}
    for port in spec.get("ports") or ():
        kept = had.get(_port_key(port))
        if outside and not port.get("nodePort"):
            port["nodePort"] = kept or rng.choice([each for each in _NODE_PORTS if each not in taken])
            taken.add(port["nodePort"])
        elif spec.get("type") == "ClusterIP" and kept and port.get("nodePort") == kept:
            del port["nodePort"]


def _port_key(port: JSON) -> tuple[Any, Any]:
    return port.get("port"), port.get("protocol")
