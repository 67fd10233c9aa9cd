"""The defaults that the API server fills in on new and changed objects, by kind, before admission.

Source: ``defaults.go`` of ``pkg/apis/{core,apps,batch}/v1`` (1.36).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from backoff_ctrl.k8s.lab.sandbox.objects.answers import invalid
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import CLAIMS, LIMIT_RANGES, NAMESPACES, PODS, QUOTAS, SERVICES, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON

from .amounts import Amount, canonical_list
from .charges import charge_of
from .resources import HUGE_PAGES, add_to, asked, container_total, containers_of, for_whole_pods

_NOT_READY_FOR = 300
_OVERCOMMITTED = frozenset({"cpu", "memory"})


def default_pod(pod: JSON) -> None:
    spec = pod["spec"]
    for container in containers_of(spec):
        _default_container(container)
    _default_pod_level(spec)
    spec.setdefault("enableServiceLinks", True)
    _default_spec(spec)
    if spec.get("overhead"):
        spec["overhead"] = canonical_list(spec["overhead"])
    for taint in ("not-ready", "unreachable"):
        _tolerate(spec, f"node.kubernetes.io/{taint}")


def begin_pending(pod: JSON) -> None:
    """Set the status of a new pod, once admission has finished with its spec. A given qosClass is kept."""
    given = (pod.get("status") or {}).get("qosClass")
    pod["status"] = {"phase": "Pending", "qosClass": given or _quality(pod)}


def default_template(spec: JSON) -> None:
    """Fill in the pod spec of a template: fewer defaults than for a pod (limits do not become requests)."""
    for container in containers_of(spec):
        _default_container(container, in_template=True)
    _default_spec(spec)


def _default_spec(spec: JSON) -> None:
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)


def _default_container(container: JSON, *, in_template: bool = False) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = container.get("image") or ""
    latest = ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")
    container.setdefault("imagePullPolicy", "Always" if latest and "@" not in image else "IfNotPresent")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    resources = container.setdefault("resources", {}) or {}
    container["resources"] = resources
    for side in ("limits", "requests"):
        if resources.get(side):
            resources[side] = canonical_list(resources[side])
    if resources.get("limits") and not in_template:
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _default_pod_level(spec: JSON) -> None:
    """Pod-level requests default to those of the containers or to the pod-level limits (KEP 2837)."""
    resources = spec.get("resources")
    if not resources:
        return
    for side in ("limits", "requests"):
        if resources.get(side):
            resources[side] = canonical_list(resources[side])
    requests = dict(resources.get("requests") or {})
    limits = dict(resources.get("limits") or {})
    for name, amount in container_total(spec, "limits").items():
        if name.startswith(HUGE_PAGES) and name not in requests:
            limits.setdefault(name, str(amount))
    if limits:
        for name, amount in container_total(spec, "requests").items():
            if name in _OVERCOMMITTED:
                requests.setdefault(name, str(amount))
        for name, text in limits.items():
            if for_whole_pods(name):
                requests.setdefault(name, text)
        resources["limits"] = limits
    if requests:
        resources["requests"] = requests


def _tolerate(spec: JSON, key: str) -> None:
    """Tolerate a node's taint for five minutes, unless the pod says otherwise (plugin ``DefaultTolerationSeconds``)."""
    tolerations = spec.get("tolerations") or []
    covers = ("", "NoExecute")
    if any(each.get("key", key) == key and each.get("effect", "") in covers for each in tolerations):
        return
    tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _NOT_READY_FOR})
    spec["tolerations"] = tolerations


def _quality(pod: JSON) -> str:
    if charge_of(PODS, {**pod, "status": {}}, 0).best_effort:
        return "BestEffort"
    spec = pod["spec"]
    holders = [spec] if spec.get("resources") is not None else list(containers_of(spec))
    totals: dict[str, dict[str, Amount]] = {"requests": {}, "limits": {}}
    for side, total in totals.items():
        for holder in holders:
            positive = {n: a for n, a in asked(holder, side).items() if n in _OVERCOMMITTED and a.nano > 0}
            if side == "limits" and set(positive) != _OVERCOMMITTED:
                return "Burstable"
            add_to(total, positive)
    requests, limits = totals["requests"], totals["limits"]
    same = len(requests) == len(limits) and all(limits[name].nano == a.nano for name, a in requests.items())
    return "Guaranteed" if same else "Burstable"


TEMPLATED = frozenset({"cronjobs", "daemonsets", "deployments", "jobs", "podtemplates", "replicasets",
                       "replicationcontrollers", "statefulsets"})  # fmt: skip
_FIELDS: dict[str, JSON] = {
    "cronjobs": {"concurrencyPolicy": "Allow", "suspend": False, "successfulJobsHistoryLimit": 3,
                 "failedJobsHistoryLimit": 1},
    "daemonsets": {"revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate"}},
    "deployments": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                    "strategy": {"type": "RollingUpdate"}},
    "jobs": {"backoffLimit": 6, "suspend": False, "completionMode": "NonIndexed", "manualSelector": False,
             "podReplacementPolicy": "TerminatingOrFailed"},
    "replicasets": {"replicas": 1},
    "replicationcontrollers": {"replicas": 1},
    "statefulsets": {"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady",
                     "updateStrategy": {"type": "RollingUpdate"},
                     "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}},
}  # fmt: skip
_ROLLING: dict[str, tuple[str, JSON]] = {
    "daemonsets": ("updateStrategy", {"maxSurge": 0, "maxUnavailable": 1}),
    "deployments": ("strategy", {"maxSurge": "25%", "maxUnavailable": "25%"}),
    "statefulsets": ("updateStrategy", {"partition": 0}),
}


def default_controller(plural: str, obj: JSON) -> None:
    """Fill in the defaults of an object whose plural is in ``TEMPLATED``. Raises ``AmountError``."""
    if plural == "podtemplates":
        _template(obj.get("template"))
        return
    spec = obj.setdefault("spec", {})
    _set(spec, _FIELDS.get(plural, {}))
    if plural in _ROLLING:
        field, values = _ROLLING[plural]
        if spec[field].get("type", "RollingUpdate") == "RollingUpdate":
            spec[field]["type"] = "RollingUpdate"
            _set(spec[field].setdefault("rollingUpdate", {}), values)
    if plural == "cronjobs":
        template = spec.setdefault("jobTemplate", {})
        template.setdefault("metadata", {})
        spec = template.setdefault("spec", {})
    _template(spec.get("template"))
    if plural == "jobs":
        _job(obj, spec)
    elif plural == "replicationcontrollers":
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        for holder, field in ((spec, "selector"), (obj["metadata"], "labels")):
            if labels and not holder.get(field):
                holder[field] = dict(labels)


def _job(job: JSON, spec: JSON) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    template, metadata = spec.get("template"), job["metadata"]
    if isinstance(template, dict) and not spec["manualSelector"] and "selector" not in spec and metadata.get("uid"):
        labels = template["metadata"].setdefault("labels", {})
        for prefix in ("", "batch.kubernetes.io/"):
            labels[f"{prefix}controller-uid"] = metadata["uid"]
            labels[f"{prefix}job-name"] = metadata["name"]
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": metadata["uid"]}}
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)


def _template(template: Any) -> None:
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        template.setdefault("metadata", {})
        default_template(template["spec"])


def _set(holder: JSON, values: JSON) -> None:
    for field, value in values.items():
        holder.setdefault(field, deepcopy(value))


def fill_in(kind: Kind, obj: JSON) -> None:
    """Fill in defaults and make quantities canonical. Raises ``AmountError``, and 422 for a pod without a spec."""
    if kind is PODS and not isinstance(obj.get("spec"), dict):
        raise invalid(kind, obj["metadata"].get("name", ""),
                      [("FieldValueRequired", "spec.containers", "Required value")])  # fmt: skip
    rule = _RULES.get(kind)
    if rule is not None:
        rule(obj)
    elif kind.plural == "secrets":
        _secret(obj)
    elif kind.plural in TEMPLATED:
        default_controller(kind.plural, obj)


def _namespace(obj: JSON) -> None:
    metadata = obj["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    obj.setdefault("status", {}).setdefault("phase", "Active")


def _quota(obj: JSON) -> None:
    for field in ("spec", "status"):
        for side in ("hard", "used"):
            if (obj.get(field) or {}).get(side):
                obj[field][side] = canonical_list(obj[field][side])


def _limit_range(obj: JSON) -> None:
    """A default limit is the maximum; a default request is the default limit, else the minimum."""
    for item in (obj.get("spec") or {}).get("limits") or ():
        for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            if item.get(field):
                item[field] = canonical_list(item[field])
        if item.get("type") == "Container":
            default = {**(item.get("max") or {}), **(item.get("default") or {})}
            request = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
            for field, values in (("default", default), ("defaultRequest", request)):
                if values:
                    item[field] = values


def _service(obj: JSON) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] in {"LoadBalancer", "NodePort"}:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in {None, 0, ""}:
            port["targetPort"] = port.get("port")
        if not port.get("nodePort"):
            port.pop("nodePort", None)
    obj.setdefault("status", {"loadBalancer": {}})


def _claim(obj: JSON) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    for side in ("requests", "limits"):
        if (spec.get("resources") or {}).get(side):
            spec["resources"][side] = canonical_list(spec["resources"][side])
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _secret(obj: JSON) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None) or {}
    if plain:
        obj["data"] = {**(obj.get("data") or {}), **{k: b64encode(v.encode()).decode() for k, v in plain.items()}}


_RULES: dict[Kind, Callable[[JSON], None]] = {
    NAMESPACES: _namespace,
    PODS: default_pod,
    QUOTAS: _quota,
    LIMIT_RANGES: _limit_range,
    SERVICES: _service,
    CLAIMS: _claim,
}
