"""kubectl reads: get in all its forms, describe, explain and api-resources."""

from __future__ import annotations

import json

import pytest

from tests.cluster.kubectl.terminals import Terminals, manifest, pod

pytestmark = pytest.mark.go

OPERATORS = (
    "backoff-ctrl.dev",
    "jobset.x-k8s.io",
    "kubeflow.org",
    "kubernetes.dask.org",
    "ray.io",
    "sparkoperator.k8s.io",
)
"""Whose kinds the sandbox has from the beginning."""


def test_get_shows_pods_as_a_table(kubectl: Terminals) -> None:
    """`kubectl get pods` prints the same rows: plain, wide, with labels, in all namespaces, by name."""
    for name in ("b", "a", "c"):
        kubectl("create", "-f", "-", stdin=pod(name, labels={"app": name}))

    for more in ((), ("-o", "wide"), ("--show-labels",), ("-L", "app"), ("--no-headers",), ("--show-kind",)):
        assert "0/1 Pending 0 AGE" in kubectl("get", "pods", *more)
    assert (
        kubectl("get", "pods", "-A", f"--field-selector=metadata.namespace={kubectl.namespace}").count("Pending") == 3
    )
    assert kubectl("get", "pod", "a", "c").splitlines()[1:] == ["a 0/1 Pending 0 AGE", "c 0/1 Pending 0 AGE"]
    assert kubectl("get", "pods", "--sort-by=.metadata.labels.app").splitlines()[1].startswith("a ")
    assert "pod/b" in kubectl("get", "all")


def test_get_prints_whole_objects(kubectl: Terminals) -> None:
    """As YAML and as JSON, field by field, with all defaults of a pod."""
    kubectl("create", "-f", "-", stdin=pod("a", labels={"app": "x"}, annotations={"note": "y"}))

    assert "schedulerName: default-scheduler" in kubectl("get", "pod", "a", "-o", "yaml")
    assert json.loads(kubectl("get", "pods", "-o", "json"))["items"][0]["status"]["qosClass"] == "Burstable"
    assert kubectl("get", "pods", "-o", "name") == "pod/a\n"


def test_get_prints_parts_of_objects(kubectl: Terminals) -> None:
    """With jsonpath, custom columns and templates."""
    for name in ("a", "b"):
        kubectl("create", "-f", "-", stdin=pod(name))

    assert kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}") == "a b"
    assert "a Pending <none>" in kubectl("get", "pods", "-o", "custom-columns=N:.metadata.name,P:.status.phase,X:.no")
    assert kubectl("get", "pods", "-o", "go-template={{range .items}}{{.metadata.name}},{{end}}") == "a,b,"


def test_get_selects_objects(kubectl: Terminals) -> None:
    """By labels and by fields; a field that cannot select is refused with the same message."""
    for name, tier in (("a", "web"), ("b", "db"), ("c", "web")):
        kubectl("create", "-f", "-", stdin=pod(name, labels={"tier": tier}))

    for selector, names in (
        ("tier=web", "a c"),
        ("tier in (db,x)", "b"),
        ("tier!=web", "b"),
        ("!tier", ""),
        ("tier", "a b c"),
    ):
        assert kubectl("get", "pods", "-l", selector, "-o", "jsonpath={.items[*].metadata.name}") == names
    assert kubectl("get", "pods", "--field-selector=status.phase=Pending,metadata.name!=a", "-o", "name").split() == [
        "pod/b",
        "pod/c",
    ]
    assert "No resources found" in kubectl("get", "pods", "--field-selector=status.phase=Running")
    assert "field label not supported" in kubectl("get", "pods", "--field-selector=spec.foo=x", code=1)


def test_get_reports_what_does_not_exist(kubectl: Terminals) -> None:
    """An object, a kind, or anything in an empty namespace."""
    assert 'pods "none" not found' in kubectl("get", "pod", "none", code=1)
    assert "the server doesn't have a resource type" in kubectl("get", "nonsense", code=1)
    assert "No resources found" in kubectl("get", "pods")


def test_other_kinds_have_their_columns(kubectl: Terminals) -> None:
    """The output of `get` for the kinds that one looks at here."""
    for arguments in (
        ("configmap", "x", "--from-literal=a=b"),
        ("secret", "generic", "x", "--from-literal=a=b"),
        ("deployment", "x", "--image=nginx", "--replicas=2"),
        ("service", "externalname", "x", "--external-name=a.example.com"),
        ("quota", "x", "--hard=pods=5,requests.cpu=2,limits.memory=1Gi"),
    ):
        kubectl("create", *arguments)
    kubectl("wait", "--for=jsonpath={.status.hard.pods}=5", "quota/x", "--timeout=60s")

    for kind in ("configmaps", "secrets", "deployments", "services", "quota"):
        assert "x" in kubectl("get", kind, "x").splitlines()[1]
    assert "default" in kubectl("get", "serviceaccounts", "default")
    assert "Active" in kubectl("get", "namespaces", kubectl.namespace)


def test_controllers_have_their_columns(kubectl: Terminals) -> None:
    """ReplicaSets, Jobs and claims, with no controller running."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    selected = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for made in (
        manifest("ReplicaSet", "x", {"replicas": 2, **selected}, api="apps/v1"),
        manifest("PersistentVolumeClaim", "x", {"storageClassName": "fast", **storage}),
    ):
        kubectl("create", "-f", "-", stdin=made)
        kind = made["kind"].lower()
        assert "x" in kubectl("get", kind, "x").splitlines()[1]


def test_get_shows_the_status_of_a_pod(kubectl: Terminals) -> None:
    """STATUS, READY and RESTARTS of a pod that starts, runs, crashes, completes, is evicted, and terminates."""
    kubectl("create", "-f", "-", stdin=pod("a", finalizers=["example.com/keep"]))
    container = {"name": "main", "image": "busybox:1", "imageID": "", "lastState": {}}
    since = {"startedAt": "2026-01-01T00:00:00Z"}
    crashed = {"exitCode": 3, "reason": "Error", "finishedAt": "2026-01-01T00:00:09Z"}
    for status, shown in (
        ({"phase": "Pending", "containerStatuses": [
            {**container, "ready": False, "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]},
         "0/1 ContainerCreating 0 AGE"),
        ({"phase": "Running", "containerStatuses": [
            {**container, "ready": True, "restartCount": 0, "state": {"running": since}}],
          "conditions": [{"type": "Ready", "status": "True"}]},
         "1/1 Running 0 AGE"),
        ({"phase": "Running", "containerStatuses": [
            {**container, "ready": False, "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
             "lastState": {"terminated": crashed}}], "conditions": [{"type": "Ready", "status": "False"}]},
         "0/1 CrashLoopBackOff 4 (AGE ago) AGE"),
        ({"phase": "Failed", "containerStatuses": [
            {**container, "ready": False, "restartCount": 0, "state": {"terminated": crashed}}]},
         "0/1 Error 0 AGE"),
        ({"phase": "Failed", "containerStatuses": [
            {**container, "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 9, "signal": 9}}}]},
         "0/1 Signal:9 0 AGE"),
        ({"phase": "Failed", "containerStatuses": [
            {**container, "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 7}}}]},
         "0/1 ExitCode:7 0 AGE"),
        ({"phase": "Failed", "reason": "Evicted", "containerStatuses": []}, "0/1 Evicted 0 AGE"),
        ({"phase": "Succeeded", "reason": "", "containerStatuses": [
            {**container, "ready": False, "restartCount": 0, "state": {"terminated": {
                "exitCode": 0, "reason": "Completed"}}}]},
         "0/1 Completed 0 AGE"),
    ):  # fmt: skip
        change = json.dumps([{"op": "replace", "path": "/status", "value": status}])
        kubectl("patch", "pod", "a", "--subresource=status", "--type=json", "-p", change)
        assert kubectl("get", "pod", "a").splitlines()[1] == f"a {shown}"
        kubectl("describe", "pod", "a")
    kubectl("delete", "pod", "a", "--wait=false")
    assert kubectl("get", "pod", "a", "--no-headers").split()[:3] == ["a", "0/1", "Completed"]


def test_describe_shows_a_pod(kubectl: Terminals) -> None:
    """With labels, resources, volumes, tolerations and events."""
    container = {"name": "main", "image": "busybox:1", "command": ["sleep", "1"], "env": [{"name": "A", "value": "b"}],
                 "ports": [{"containerPort": 80}], "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                 "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}}  # fmt: skip
    spec = {
        "initContainers": [{"name": "first", "image": "busybox:2"}],
        "containers": [container],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "priority": 0,
        "nodeSelector": {"disk": "ssd"},
    }
    kubectl("create", "-f", "-", stdin=manifest("Pod", "a", spec, metadata={"labels": {"x": "y"}}))

    assert "QoS Class: Burstable" in kubectl("describe", "pod", "a")
    assert "a 0/1 Pending" in kubectl("get", "pod", "a")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("pods", "Pod is a collection of containers"),
        ("pod.spec.containers.resources", "requests <map[string]Quantity>"),
        ("pod.spec.restartPolicy", "Always"),
        ("resourcequota.spec", "scopeSelector"),
        ("quota.spec.hard", "hard <map[string]Quantity>"),
        ("jobs.spec", "backoffLimit"),
        ("deploy.spec.strategy.rollingUpdate", "maxSurge"),
        ("crd.spec.names", "plural"),
    ],
)
def test_explain_describes_fields(kubectl: Terminals, path: str, shown: str) -> None:
    """`kubectl explain` prints the types and descriptions of the Kubernetes release that the sandbox implements."""
    assert shown in kubectl("explain", path, exactly=kubectl.same_release)


def test_explain_prints_whole_trees(kubectl: Terminals) -> None:
    """With `--recursive`; a field or kind that does not exist is named."""
    assert kubectl("explain", "limitrange", "--recursive").count("<map[string]Quantity>") == 5
    assert 'field "nope" does not exist' in kubectl("explain", "pod.nope", code=1)
    assert "the server doesn't have a resource type" in kubectl("explain", "nonsense", code=1)


def test_a_custom_kind_is_explained_and_shown(kubectl: Terminals) -> None:
    """get, create and explain work for the kind of a CustomResourceDefinition, with the descriptions of its schema."""
    group = f"{kubectl.namespace}.example.com"
    spec = {"type": "object", "description": "What it is for.", "required": ["size"],
            "properties": {"size": {"type": "integer", "format": "int64", "description": "How large it is."},
                           "parts": {"type": "array", "items": {"type": "string"}}}}  # fmt: skip
    schema = {"type": "object", "description": "A toy.", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "toys", "singular": "toy", "kind": "Toy", "shortNames": ["ty"]}
    told = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    definition = manifest("CustomResourceDefinition", f"toys.{group}", told, api="apiextensions.k8s.io/v1")
    try:
        kubectl("create", "-f", "-", stdin=definition)
        kubectl("wait", "--for=condition=Established", f"crd/toys.{group}", "--timeout=20s")
        tries = range(100)  # a real server publishes the schema a moment after it serves the kind
        assert any(kubectl.kubernetes.run("explain", f"toys.{group}").code == 0 for _ in tries)

        for path, shown in (
            ("", "A toy."),
            (".spec", "size <integer> -required-"),
            (".metadata.name", "name <string>"),
        ):
            assert shown in kubectl("explain", f"toys{path}", f"--api-version={group}/v1")
        kubectl("create", "-f", "-", stdin=manifest("Toy", "bear", {"size": 3}, api=f"{group}/v1"))
        assert kubectl("get", f"toys.{group}") == "NAME AGE\nbear AGE\n"
        assert "Size: 3" in kubectl("describe", f"toy.{group}", "bear")
    finally:
        kubectl.sandbox.run("delete", "crd", f"toys.{group}", "--ignore-not-found")  # as custom_kinds.retire does


def test_api_resources_are_listed_alike(kubectl: Terminals) -> None:
    """Each kind of Kubernetes' own that both have: with the same short names, verbs and categories.

    Left out is what other tests have defined, on one server and not yet on the other.
    """
    real, ours = kubectl.each("api-resources", "-o", "wide", "--no-headers")
    theirs = {" ".join(line.split()) for line in real.out.splitlines()}
    rows = [" ".join(line.split()) for line in ours.out.splitlines()]
    real, ours = kubectl.each("api-versions")
    defined = kubectl.sandbox.run("get", "crds", "-o", "jsonpath={.items[*].spec.group}").out.split()
    groups = {*OPERATORS, *defined}
    own = [row for row in rows if not any(f" {group}/" in row for group in groups)]

    assert [row for row in own if row not in theirs] == []
    assert len(own) > 30
    known = {line for line in ours.out.splitlines() if line.partition("/")[0] not in groups}
    assert known <= set(real.out.splitlines())
    assert "batch/v1" in known


def test_permissions_are_shown(kubectl: Terminals) -> None:
    """`auth can-i` says yes to a cluster-admin; it warns about an unknown kind."""
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert kubectl("auth", "can-i", "delete", "pods/status", "--all-namespaces") == "yes\n"
    assert "the server doesn't have a resource type" in "".join(
        each.err for each in kubectl.each("auth", "can-i", "get", "nonsense")
    )


def test_versions_are_shown(kubectl: Terminals) -> None:
    """kubectl accepts the server's version without a warning."""
    real, ours = kubectl.each("version")

    assert ours.code == 0
    assert ours.err == real.err if kubectl.same_release else "skew" in ours.err  # it warns about two releases of skew
    assert ours.out.split("Server Version: ")[1].startswith(f"v1.{kubectl.sandbox.server.minor}.")
    assert kubectl("get", "--raw", "/healthz") == "ok"
