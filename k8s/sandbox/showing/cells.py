"""The cells of Tables, for all kinds except pods: after ``printers/internalversion`` of Kubernetes 1.36."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .ages import age_now, between

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

NONE = "<none>"
UNSET = "<unset>"
_NAMED = 3  # hosts and endpoints that a cell lists before it counts the rest
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_JOB_STATES = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_ROLE = "node-role.kubernetes.io/"


def part(obj: JSON, *path: str, default: Any = "") -> Any:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return default if value is None else value


def at(*path: str, default: Any = "") -> Callable[[JSON], Any]:
    """A cell that shows one field."""
    return lambda obj: part(obj, *path, default=default)


def since(*path: str) -> Callable[[JSON], str]:
    """A cell that shows how long ago the time in a field was."""
    return lambda obj: age_now(part(obj, *path)) if part(obj, *path) else NONE


def quota_side(limits: bool) -> Callable[[JSON], str]:
    def cell(quota: JSON) -> str:
        hard, used = part(quota, "status", "hard", default={}), part(quota, "status", "used", default={})
        names = sorted(name for name in hard if name.startswith("limits.") == limits)
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell


def of(ready: tuple[str, ...], wanted: tuple[str, ...]) -> Callable[[JSON], str]:
    """A cell such as 1/3."""
    return lambda obj: f"{part(obj, *ready, default=0)}/{part(obj, *wanted, default=0)}"


def size(*fields: str) -> Callable[[JSON], int]:
    return lambda obj: sum(len(obj.get(field) or {}) for field in fields)


def labels(*path: str) -> Callable[[JSON], str]:
    """A cell that lists the labels in a field."""

    def cell(obj: JSON) -> str:
        labels = part(obj, *path, default={})
        return ",".join(f"{name}={labels[name]}" for name in sorted(labels)) or NONE

    return cell


def selector(*path: str) -> Callable[[JSON], str]:
    """A cell that shows a label selector, sorted by key."""

    def cell(obj: JSON) -> str:
        selector = part(obj, *path, default={})
        terms = [(name, f"{name}={value}") for name, value in (selector.get("matchLabels") or {}).items()]
        for each in selector.get("matchExpressions") or ():
            name, values = each.get("key", ""), ",".join(sorted(each.get("values") or ()))
            text = {"In": f"{name} in ({values})", "NotIn": f"{name} notin ({values})", "Exists": name}
            terms.append((name, text.get(each.get("operator"), f"!{name}")))
        return ",".join(text for _, text in sorted(terms, key=lambda term: term[0])) or NONE

    return cell


def each(field: str, *path: str) -> Callable[[JSON], str]:
    """A cell that lists one field of each container in a template."""
    return lambda obj: ",".join(str(each.get(field, "")) for each in part(obj, *path, "containers", default=()))


def job_status(job: JSON) -> str:
    held = [each.get("type") for each in part(job, "status", "conditions", default=()) if each.get("status") == "True"]
    for ended in ("Complete", "Failed"):
        if ended in held:
            return ended
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((state for state in _JOB_STATES if state in held), "Running")


def job_duration(job: JSON) -> str:
    started, ended = part(job, "status", "startTime"), part(job, "status", "completionTime")
    if not started:
        return ""
    return between(started, ended) if ended else age_now(started)


def job_completions(job: JSON) -> str:
    succeeded, wanted = part(job, "status", "succeeded", default=0), part(job, "spec", "completions", default=None)
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallel = part(job, "spec", "parallelism", default=0)
    return f"{succeeded}/1 of {parallel}" if parallel > 1 else f"{succeeded}/1"


def suspended(cron_job: JSON) -> str:
    suspend = part(cron_job, "spec", "suspend", default=None)
    return UNSET if suspend is None else str(suspend)


def ports(service: JSON) -> str:
    listed = []
    for port in part(service, "spec", "ports", default=()):
        outside = f":{port['nodePort']}" if port.get("nodePort") else ""
        listed.append(f"{port.get('port')}{outside}/{port.get('protocol', 'TCP')}")
    return ",".join(listed) or NONE


def balancers(obj: JSON) -> str:
    found = {
        each.get("ip") or each.get("hostname") for each in part(obj, "status", "loadBalancer", "ingress", default=())
    }
    return ",".join(sorted(each for each in found if each))


def external(service: JSON) -> str:
    kind, outside = part(service, "spec", "type"), list(part(service, "spec", "externalIPs", default=()))
    if kind == "ExternalName":
        return str(part(service, "spec", "externalName"))
    if kind == "LoadBalancer":
        inside = balancers(service)
        return ",".join([*([inside] if inside else []), *outside]) or "<pending>"
    return ",".join(outside) or NONE


def cluster_ip(service: JSON) -> str:
    addresses = part(service, "spec", "clusterIPs", default=())
    return str(addresses[0]) if addresses else NONE


def hosts(ingress: JSON) -> str:
    rules = part(ingress, "spec", "rules", default=())
    hosts = [each["host"] for each in rules if each.get("host")]
    return _some(hosts, len(rules)) if hosts else "*"


def _some(found: list[str], total: int) -> str:
    """The first entries, and how many more there are."""
    listed = ",".join(found[:_NAMED])
    return f"{listed} + {total - _NAMED} more..." if len(found) > _NAMED else listed


def endpoints(obj: JSON) -> str:
    found = []
    for subset in obj.get("subsets") or ():
        addresses = [each.get("ip", "") for each in subset.get("addresses") or ()]
        for port in subset.get("ports") or (None,):
            found += [address if port is None else f"{address}:{port.get('port')}" for address in addresses]
    return _some(found, len(found)) or NONE


def subjects(kind: str) -> Callable[[JSON], str]:
    def cell(binding: JSON) -> str:
        found = [each for each in binding.get("subjects") or () if each.get("kind") == kind]
        above = [f"{each.get('namespace', '')}/" if kind == "ServiceAccount" else "" for each in found]
        return ", ".join(f"{place}{each.get('name', '')}" for place, each in zip(above, found, strict=True))

    return cell


def claim_status(claim: JSON) -> str:
    return "Terminating" if claim["metadata"].get("deletionTimestamp") else str(part(claim, "status", "phase"))


def once_bound(cell: Callable[[JSON], str]) -> Callable[[JSON], str]:
    """A cell of a claim that stays empty until the claim is bound."""
    return lambda claim: cell(claim) if part(claim, "spec", "volumeName") else ""


def first_seen(event: JSON) -> str:
    return age_now(event.get("firstTimestamp") or event.get("eventTime"))


def last_seen(event: JSON) -> str:
    seen = part(event, "series", "lastObservedTime") or event.get("lastTimestamp")
    return age_now(seen) if seen else first_seen(event)


def event_object(event: JSON) -> str:
    involved = event.get("involvedObject") or {}
    kind = str(involved.get("kind", "")).lower()
    return f"{kind}/{involved['name']}" if involved.get("name") else kind


def event_source(event: JSON) -> str:
    component = part(event, "source", "component") or event.get("reportingComponent") or ""
    instance = part(event, "source", "host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def node_status(node: JSON) -> str:
    ready = [each for each in part(node, "status", "conditions", default=()) if each.get("type") == "Ready"]
    states = [("Ready" if each.get("status") == "True" else "NotReady") for each in ready] or ["Unknown"]
    return ",".join([*states, *(["SchedulingDisabled"] if part(node, "spec", "unschedulable") else [])])


def node_roles(node: JSON) -> str:
    labels = part(node, "metadata", "labels", default={})
    roles = {name.removeprefix(_ROLE) for name in labels if name.startswith(_ROLE)}
    return ",".join(sorted(roles | {labels.get("kubernetes.io/role", "")} - {""})) or NONE


def node_address(kind: str) -> Callable[[JSON], str]:
    def cell(node: JSON) -> str:
        found: Iterable[JSON] = part(node, "status", "addresses", default=())
        return next((str(each.get("address")) for each in found if each.get("type") == kind), NONE)

    return cell


def of_node(field: str) -> Callable[[JSON], str]:
    return lambda node: part(node, "status", "nodeInfo", field) or "<unknown>"


def class_name(storage_class: JSON) -> str:
    default = part(storage_class, "metadata", "annotations", _DEFAULT_CLASS) == "true"
    return f"{storage_class['metadata']['name']}{' (default)' if default else ''}"


def gates(pod: JSON) -> str:
    gates = [each.get("conditionType") for each in part(pod, "spec", "readinessGates", default=())]
    held = {each.get("type") for each in part(pod, "status", "conditions", default=()) if each.get("status") == "True"}
    return f"{sum(gate in held for gate in gates)}/{len(gates)}" if gates else NONE


def pod_ip(pod: JSON) -> str:
    return next((str(each["ip"]) for each in part(pod, "status", "podIPs", default=())), NONE)


def access_modes(claim: JSON) -> str:
    return ",".join(_MODES.get(each, each) for each in part(claim, "status", "accessModes", default=()))
