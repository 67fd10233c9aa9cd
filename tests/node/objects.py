"""Objects that the parts create: pods, creators with a sidecar, quotas, Jobs."""

from __future__ import annotations

from typing import Any

from tests.node.user import User

JSON = dict[str, Any]
KUBECTL = "registry.k8s.io/kubectl:v1.36.3"


def pod(name: str, namespace: str, command: str, *, labels: JSON | None = None, **more: Any) -> JSON:
    """Return a pod of busybox that runs a line of shell once."""
    main = {"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", command]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [main], **more}
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def creator(name: str, namespace: str, step: str, annotations: JSON | None = None) -> JSON:
    """Return a pod with a sidecar whose kubectl creates the pod ``step``."""
    words = ["run", step, "--image=busybox", "--image-pull-policy=IfNotPresent", "--restart=Never", "--", "true"]
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {"backoff-ctrl.dev/inject": "true"},
        "annotations": annotations or {},
    }
    main = {"name": "creator", "image": KUBECTL, "args": words}
    spec = {"restartPolicy": "Never", "containers": [main]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def job(name: str, namespace: str, pods: int = 1) -> JSON:
    """Return a Job that waits in line; its pods take two seconds."""
    main = {"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sleep", "2"]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [main]}
    labels = {"backoff-ctrl.dev/wait": "true"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": spec}},
    }


def limited(user: User, namespace: str, pods: int) -> None:
    """Have a quota of pods that is enforced, and let the namespace's default account create pods."""
    user.kubectl("create", "quota", "team", f"--hard=pods={pods}", f"--namespace={namespace}")
    account = f"--serviceaccount={namespace}:default"
    user.kubectl("create", "rolebinding", "creator", "--clusterrole=edit", account, f"--namespace={namespace}")
    user.until("the quota to be enforced", lambda: used(user, namespace) is not None)


def widened(user: User, namespace: str, pods: int) -> None:
    patch = f'{{"spec":{{"hard":{{"pods":"{pods}"}}}}}}'
    user.kubectl("patch", "quota", "team", f"--namespace={namespace}", "--type=merge", f"--patch={patch}")


def used(user: User, namespace: str) -> int | None:
    quota = user.find("quota", "team", namespace)
    found = (quota or {}).get("status", {}).get("used", {}).get("pods")
    return None if found is None else int(found)


def sidecar(pod_: JSON) -> JSON:
    """Return what the kubelet says of a pod's sidecar."""
    (found,) = [each for each in pod_["status"]["initContainerStatuses"] if each["name"] == "backoff-ctrl"]
    return dict(found)


def warnings(user: User, namespace: str, name: str) -> list[str]:
    events = user.all("events", namespace, f"--field-selector=type=Warning,involvedObject.name={name}")
    return [f"{each['reason']}: {each['message']}" for each in events]


def waits(user: User, namespace: str, name: str) -> bool:
    """Say whether a create waits in the sidecar of this pod."""
    return "waits" in user.kubectl("logs", name, f"--namespace={namespace}", "--container=backoff-ctrl")
