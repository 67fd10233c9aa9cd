"""Pods: defaults, allowed changes and status."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.objects import JSON, SUBDOMAIN_TEXT, causes, made, of_core, pod, refusal
from tests.cluster.talking import MERGE, STRATEGIC, Api

INVALID, REQUIRED, FORBIDDEN = "FieldValueInvalid", "FieldValueRequired", "FieldValueForbidden"
UNSUPPORTED = "FieldValueNotSupported"
UPDATE_TEXT = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


async def test_a_pod_gets_defaults(api: Api, namespace: str) -> None:
    """Policies, tolerations, priority, phase and QoS class; limits become requests, in canonical form."""
    resources = {"requests": {"cpu": "1000m"}, "limits": {"memory": "1024Mi"}}
    containers = [{"name": "main", "image": "busybox:1", "resources": resources}]
    created = made(await api.post(of_core(namespace, "pods"), pod("p", {"containers": containers})))
    spec = created["spec"]

    assert created["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"memory": "1Gi"},
    }
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert [each["key"] for each in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    fields = ("restartPolicy", "dnsPolicy", "schedulerName", "terminationGracePeriodSeconds", "priority",
              "preemptionPolicy", "enableServiceLinks", "securityContext")  # fmt: skip
    assert [spec[field] for field in fields] == [
        "Always", "ClusterFirst", "default-scheduler", 30, 0, "PreemptLowerPriority", True, {},
    ]  # fmt: skip


def container(**fields: Any) -> JSON:
    """The spec of a pod with one container."""
    return {"containers": [{"name": "main", "image": "busybox:1", **fields}]}


C = "spec.containers[0]"


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (None, [(REQUIRED, "spec.containers", "Required value")]),
        ({"containers": []}, [(REQUIRED, "spec.containers", "Required value")]),
        ({"containers": [{"name": "main"}]}, [(REQUIRED, f"{C}.image", "Required value")]),
        ({"containers": [{"image": "i"}]}, [(REQUIRED, f"{C}.name", "Required value")]),
        ({"containers": [{"name": "a", "image": "i"}] * 2},
         [("FieldValueDuplicate", "spec.containers[1].name", 'Duplicate value: "a"')]),
        (container(name="A_"), [(INVALID, f"{C}.name", f'Invalid value: "A_": {LABEL_TEXT}')]),
        (container(imagePullPolicy="Foo"), [(UNSUPPORTED, f"{C}.imagePullPolicy",
         'Unsupported value: "Foo": supported values: "Always", "IfNotPresent", "Never"')]),
        (container(ports=[{"containerPort": 0}, {"containerPort": 70000}]), [
            (REQUIRED, f"{C}.ports[0].containerPort", "Required value"),
            (INVALID, f"{C}.ports[1].containerPort", "Invalid value: 70000: must be between 1 and 65535, inclusive")]),
        (container(env=[{"name": "a="}]), [(INVALID, f"{C}.env[0].name", ('Invalid value: "a=": a valid environment '
         "variable name must consist only of printable ASCII characters other than '='"))]),
        (container(volumeMounts=[{"name": "w", "mountPath": "/x"}]),
         [("FieldValueNotFound", f"{C}.volumeMounts[0].name", 'Not found: "w"')]),
        ({**container(), "restartPolicy": "Foo"}, [(UNSUPPORTED, "spec.restartPolicy",
         'Unsupported value: "Foo": supported values: "Always", "OnFailure", "Never"')]),
        ({**container(), "activeDeadlineSeconds": 0},
         [(INVALID, "spec.activeDeadlineSeconds", "Invalid value: 0: must be between 1 and 2147483647, inclusive")]),
        (container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}), [(INVALID, f"{C}.resources.requests",
         'Invalid value: "2": must be less than or equal to cpu limit of 1')]),
        (container(resources={"requests": {"nvidia.com/gpu": "1"}}), [(REQUIRED, f"{C}.resources.limits",
         "Required value: Limit must be set for non overcommitable resources")]),
        (container(resources={"requests": {"foo": "1"}}), [
            (INVALID, f"{C}.resources.requests[foo]",
             'Invalid value: "foo": must be a standard resource type or fully qualified'),
            (INVALID, f"{C}.resources.requests[foo]",
             'Invalid value: "foo": must be a standard resource for containers')]),
        (container(resources={"requests": {"pods": "1"}}), [(INVALID, f"{C}.resources.requests[pods]",
         'Invalid value: "pods": must be a standard resource for containers')]),
        (container(resources={"requests": {"A/b": "1"}}), [
            (INVALID, f"{C}.resources.requests[A/b]", f'Invalid value: "A/b": prefix part {SUBDOMAIN_TEXT}'),
            (INVALID, f"{C}.resources.requests[A/b]",
             'Invalid value: "A/b": doesn\'t follow extended resource name standard'),
            (REQUIRED, f"{C}.resources.limits", "Required value: Limit must be set for non overcommitable resources")]),
    ],
    ids=["no-spec", "no-containers", "no-image", "no-name", "twice", "name", "pull-policy", "ports", "env", "mount",
         "restart-policy", "deadline", "request-above-limit", "gpu-without-limit",
         "resource-without-domain", "resource-of-quotas", "resource-in-capitals"],
)  # fmt: skip
async def test_an_invalid_pod_is_refused(
    api: Api, namespace: str, spec: JSON | None, found: list[tuple[str, str, str]]
) -> None:
    """422 with a cause for each problem."""
    body = {"metadata": {"name": "p"}, **({} if spec is None else {"spec": spec})}

    assert causes(await api.post(of_core(namespace, "pods"), body)) == found


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"priority": 5}, ("integer value of priority (5)", "0")),
        ({"preemptionPolicy": "Never"}, ("string value of PreemptionPolicy (Never)", "PreemptLowerPriority")),
        ({"priorityClassName": "system-node-critical", "priority": 5}, ("integer value of priority (5)", "2000001000")),
    ],
    ids=["priority", "policy", "priority-of-class"],
)  # fmt: skip
async def test_only_a_priority_class_sets_the_priority_of_a_pod(
    api: Api, namespace: str, spec: JSON, told: tuple[str, str]
) -> None:
    """403, before the pod is validated; a pod may repeat the value of its class."""
    path = of_core(namespace, "pods")
    wrong = container(resources={"requests": {"foo": "1"}})
    refused = await api.post(path, pod("p", {**wrong, **spec}))

    given, computed = told
    why = f"the {given} must not be provided in pod spec; priority admission controller computed {computed}"
    message = f'pods "p" is forbidden: {why} from the given PriorityClass name'
    assert refusal(refused) == (403, "Forbidden", message)
    repeated = pod("p", {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"})
    assert made(await api.post(path, repeated))["spec"]["priority"] == 0


async def test_native_resources_need_no_limit(api: Api, namespace: str) -> None:
    """Names in the domain of Kubernetes may be overcommitted, unlike those of devices."""
    resources = {"requests": {"kubernetes.io/x": "1500m"}}
    created = made(await api.post(of_core(namespace, "pods"), pod("p", container(resources=resources))))

    assert created["spec"]["containers"][0]["resources"] == resources


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"containers": "c"},
         "cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container"),
        (container(image=7),
         "cannot unmarshal number into Go struct field Container.spec.containers.image of type string"),
        ([], "cannot unmarshal array into Go struct field Pod.spec of type v1.PodSpec"),
    ],
    ids=["containers", "image", "spec"],
)  # fmt: skip
async def test_a_pod_with_wrong_types_is_refused(api: Api, namespace: str, spec: object, told: str) -> None:
    """400 with Go's message."""
    reply = await api.post(of_core(namespace, "pods"), {"metadata": {"name": "p"}, "spec": spec})

    assert refusal(reply) == (400, "BadRequest", f'Pod in version "v1" cannot be handled as a Pod: json: {told}')


async def test_a_malformed_quantity_is_refused(api: Api, namespace: str) -> None:
    """400 with the grammar of quantities."""
    body = pod("p", container(resources={"requests": {"cpu": "much"}}))
    text = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

    expected = (400, "BadRequest", f'Pod in version "v1" cannot be handled as a Pod: {text}')
    assert refusal(await api.post(of_core(namespace, "pods"), body)) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"nodeName": "n1"}, {"restartPolicy": "Never"}, {"terminationGracePeriodSeconds": 5}, {"priority": 7},
        {"schedulerName": "x"}, {"hostname": "x"}, {"nodeSelector": {"a": "b"}},
        {"containers": [{"name": "b", "image": "i"}]},
        container(resources={"requests": {"cpu": "1"}}), container(command=["x"]), {"dnsPolicy": "Default"},
        {"volumes": [{"name": "v", "emptyDir": {}}]},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
async def test_most_of_the_spec_of_a_pod_cannot_change(api: Api, namespace: str, change: JSON) -> None:
    """422 Forbidden; the message lists the fields that may change."""
    path = of_core(namespace, "pods")
    made(await api.post(path, pod("p")))
    ((reason, field, text),) = causes(await api.patch(f"{path}/p", {"spec": change}, MERGE))

    assert (reason, field) == (FORBIDDEN, "spec")
    assert text.startswith(UPDATE_TEXT)


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (container(image="busybox:2"), lambda spec: spec["containers"][0]["image"] == "busybox:2"),
        ({"activeDeadlineSeconds": 10}, lambda spec: spec["activeDeadlineSeconds"] == 10),
        ({"tolerations": [{"key": "k", "operator": "Exists"}]},
         lambda spec: [each["key"] for each in spec["tolerations"]]
         == ["k", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]),
    ],
    ids=["image", "deadline", "toleration"],
)  # fmt: skip
async def test_a_few_fields_of_a_pod_can_change(api: Api, namespace: str, change: JSON, seen: Any) -> None:
    """Images, a first or shorter deadline, additional tolerations."""
    path = of_core(namespace, "pods")
    made(await api.post(path, pod("p")))
    changed = made(await api.patch(f"{path}/p", {"spec": change}, MERGE))

    assert seen(changed["spec"])
    assert changed["metadata"]["generation"] == 2


async def test_containers_cannot_be_added_or_removed(api: Api, namespace: str) -> None:
    """422 that says so."""
    path = of_core(namespace, "pods")
    made(await api.post(path, pod("p")))
    found = causes(await api.patch(f"{path}/p", {"spec": {"containers": [{"name": "b", "image": "i"}]}}, STRATEGIC))

    assert found == [(FORBIDDEN, "spec.containers", "Forbidden: pod updates may not add or remove containers")]


async def test_the_status_of_a_pod_is_written_separately(api: Api, namespace: str) -> None:
    """The status path ignores the spec and keeps the labels; the main path ignores the status."""
    path = of_core(namespace, "pods")
    made(await api.post(path, {**pod("p"), "status": {"phase": "Succeeded"}}))
    patch = {"status": {"phase": "Running"}, "spec": {"nodeName": "n1"}, "metadata": {"labels": {"a": "b"}}}
    by_status = made(await api.patch(f"{path}/p/status", patch, MERGE))
    by_main = made(await api.patch(f"{path}/p", {"status": {"phase": "Failed"}}, MERGE))

    assert (by_status["status"]["phase"], by_status["metadata"]["labels"]) == ("Running", {"a": "b"})
    assert "nodeName" not in by_status["spec"]
    assert by_main["status"] == by_status["status"] == {"phase": "Running", "qosClass": "BestEffort"}
    assert (await api.get(f"{path}/p/status")).json == by_main
    replaced = made(await api.put(f"{path}/p/status", {**pod("p"), "status": {"phase": "Succeeded"}}))
    assert replaced["status"] == {"phase": "Succeeded", "qosClass": "BestEffort"}
