"""Defaults of a pod, filled in before admission (``k8s.io/kubernetes/pkg/apis/core/v1/defaults.go``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sandbox.amounts.amounts import Amount, canonical_list
from backoff_ctrl.k8s.sandbox.amounts.pod_resources import add_to, asked, container_total, containers_of, for_whole_pods
from backoff_ctrl.k8s.sandbox.amounts.resource_name_rules import HUGE_PAGES
from backoff_ctrl.k8s.sandbox.kinds.kinds import PODS
from backoff_ctrl.k8s.sandbox.quotas.charges import charge_of

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

_NOT_READY_FOR = 300
_OVERCOMMITTED = frozenset({"cpu", "memory"})


def default_pod(pod: JSON) -> None:
    """Fill in the spec of a new pod. Raises ``AmountError``."""
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
    """The quality of service class (``ComputePodQOS``)."""
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
