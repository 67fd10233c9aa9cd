"""Creates a replay's own namespaces with their quotas on any cluster, and deletes them afterwards.

The quotas are charged for the pods there, but no node ever runs them (``set_apart``). The rest of the cluster
stays as it is. A namespace is deleted only if it has the label of this run, so that it is certainly ours.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from backoff_ctrl.k8s.kube.answers.rejections import read_rejection
from backoff_ctrl.k8s.kube.cluster.asking import Reach
from backoff_ctrl.k8s.kube.cluster.finding import ClusterAccess, ReachError

from .workload import QUOTA_NAME, Workload, quota_of

RUN_LABEL: Final = "backoff-ctrl.dev/demo"  # on each namespace of a demo; its value identifies the run
PREFIX: Final = "backoff-ctrl-demo"
READY_SECONDS: Final = 60.0
GONE_SECONDS: Final = 120.0
CLEAR_SECONDS: Final = 60.0
"""Seconds for all calls that delete namespaces together."""
LATE_SECONDS: Final = 10.0
"""Seconds to look for a namespace whose create was sent but not answered, by an error or because of Ctrl-C: it may
still be created. As long as a call waits for an answer.
"""
_POLL: Final = 0.1
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_PART: Final = 18  # characters from the workload's namespace: the whole name has to fit in 63

NEEDED: Final = (
    ("delete", "namespaces"),
    ("get", "namespaces"),
    ("create", "namespaces"),
    ("create", "resourcequotas"),
    ("get", "resourcequotas"),
    ("list", "resourcequotas"),
    ("watch", "resourcequotas"),
    ("create", "pods"),
    ("get", "pods"),
    ("list", "pods"),
    ("watch", "pods"),
    ("patch", "pods/status"),
)
"""The rights that a demo needs. Delete is checked first: the demo creates only what it may delete again."""

APART: Final[Mapping[str, Any]] = {
    "schedulerName": PREFIX,
    "schedulingGates": [{"name": RUN_LABEL}],
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
}
"""Fields that keep pods off the nodes: the name of a scheduler that does not exist, and a scheduling gate that is never
removed. They also pass the strictest Pod Security Standard, for clusters that enforce it.
"""
_CONTAINER: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def set_apart(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod with the fields that keep it off the nodes. Its charge is the same."""
    spec = pod["spec"]
    containers = [{**each, "securityContext": dict(_CONTAINER)} for each in spec["containers"]]
    return {**pod, "spec": {**spec, **APART, "containers": containers}}


class Rooms:
    """The namespaces of one run. A context manager: however the block ends, they are deleted.

    Raises ``ReachError`` if the cluster can't be used: it is unreachable, refuses the credentials, or a right is
    missing.
    """

    def __init__(self, place: ClusterAccess) -> None:
        """Prepare a run on ``place``; no request is sent yet."""
        self.place = place
        self.run = "".join(secrets.choice(_ALPHABET) for _ in range(6))
        self._reach = Reach(place)
        self._made: dict[str, bool] = {}  # by name, whether the server has answered that it is there
        self._going: list[str] = []
        self._cleared = False

    def __enter__(self) -> Self:
        """Check that the cluster is reachable and the account has every right in ``NEEDED``."""
        self._reach.version()
        for verb, resource in NEEDED:
            if self._reach.allowed(verb, resource) is False:
                verbs: dict[str, list[str]] = {}
                for each, of in NEEDED:
                    verbs.setdefault(of, []).append(each)
                everything = "; ".join(f"{', '.join(sorted(each))} on {of}" for of, each in verbs.items())
                raise ReachError(
                    f"this account may not {verb} {resource} on {self.place.url} ({self.place.found}): ask for a role "
                    f"that allows {everything}, use cluster-admin on a test cluster, or run the demo without "
                    "--kubeconfig"
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete the namespaces, unless ``clear`` was called before, and disconnect. Does not wait for the deletion."""
        try:
            if not self._cleared:
                self.clear()
        finally:
            self._reach.close()

    @property
    def selector(self) -> str:
        """The label selector of this run's namespaces, for kubectl's ``-l``."""
        return f"{RUN_LABEL}={self.run}"

    # -- creating ---------

    def furnish(self, purpose: str, workload: Workload) -> tuple[Workload, dict[str, str]]:
        """Create a namespace and its quota for each namespace of the workload; return when all quotas are enforced.

        Returns the workload moved to the new namespaces, and the original namespace of each new one.
        """
        names = {
            old: f"{PREFIX}-{self.run}-{purpose}-{old[:_PART]}-{index}" for index, old in enumerate(workload.quotas)
        }
        for old, hard in workload.hard().items():
            self._make_namespace(names[old])
            path = f"/api/v1/namespaces/{names[old]}/resourcequotas"
            self._check("create", "resourcequotas", *self._reach.ask("POST", path, quota_of(hard)))
        there = workload.in_namespaces(names)
        for pod in {pod.namespace: pod for pod in there.pods}.values():
            self._await(f"the quota in {pod.namespace} to be enforced", partial(self._enforced, pod.namespace))
            self._await(f"pods to be accepted in {pod.namespace}", partial(self._welcome, pod.manifest()))
        return there, {name: old for old, name in names.items()}

    def _make_namespace(self, name: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {RUN_LABEL: self.run, "app.kubernetes.io/managed-by": "backoff-ctrl"}},
        }
        self._made[name] = False  # before sending: the namespace may exist although the answer was lost
        status, answer = self._reach.ask("POST", "/api/v1/namespaces", body)
        if 400 <= status < 500 and status != 408:  # not created; a 408 may come from a proxy, so it is no proof
            del self._made[name]
        self._check("create", "namespaces", status, answer)
        self._made[name] = True

    def _enforced(self, namespace: str) -> bool:
        status, quota = self._reach.ask("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/{QUOTA_NAME}")
        self._check("get", "resourcequotas", status, quota)
        return bool((quota.get("status") or {}).get("hard"))

    def _welcome(self, pod: Mapping[str, Any]) -> bool:
        """Return whether the server would accept a pod, by a dry run: a new namespace may need a moment."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        status, answer = self._reach.ask("POST", path, set_apart(pod), query=[("dryRun", "All")])
        if status in (200, 201):
            return True
        message = str(answer.get("message", ""))
        if status == 400 and "dry run" in message:  # a webhook without support for dry runs
            return True
        if read_rejection(status, {}, message).retryable or status == 429:
            return False
        raise ReachError(f"{self.place.url} rejects the demo's pods ({status}: {message}); use another cluster")

    def _await(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise ReachError(
                    f"{self.place.url}: waited {READY_SECONDS:.0f} s for {what}; is its controller manager running?"
                )
            time.sleep(_POLL)

    def _check(self, verb: str, resource: str, status: int, answer: Mapping[str, Any]) -> None:
        if not 200 <= status < 300:
            message = str(answer.get("message", "")) or "no reason given"
            raise ReachError(f"{self.place.url} answered {status} to {verb} {resource}: {message}")

    # -- deleting ---------

    def clear(self) -> None:
        """Delete every namespace of this run, without waiting until it is gone; ``left`` are those that failed.

        Stops at the first call that does not reach the server, or after ``CLEAR_SECONDS``. After an interruption it can
        be called again for the rest.
        """
        self._cleared = True
        deadline = time.monotonic() + CLEAR_SECONDS
        for name in self.left:
            if time.monotonic() > deadline:
                return
            try:
                deleted = self._delete(name)
            except ReachError:
                return
            if deleted:
                del self._made[name]

    @property
    def left(self) -> list[str]:
        """The namespaces that have not been deleted."""
        return list(self._made)

    @property
    def going(self) -> list[str]:
        """The namespaces that have been deleted but still existed at the last look."""
        return list(self._going)

    def _delete(self, name: str) -> bool:
        """Delete a namespace, unless it does not exist or is not ours. Returns False if that failed, or if a create
        that was never answered may still be carried out.
        """
        path = f"/api/v1/namespaces/{name}"
        answered = self._made[name]
        status, found = self._find(path, late=not answered)
        if status != 200:
            return status == 404 and answered  # a create that was never answered may still be carried out
        metadata = found.get("metadata") or {}
        if (metadata.get("labels") or {}).get(RUN_LABEL) != self.run:
            return True
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": metadata.get("uid")}}
        status, _ = self._reach.ask("DELETE", path, body)
        if status in (200, 202, 409):  # 409: it is being deleted already
            self._going.append(name)
        return name in self._going or status == 404

    def _find(self, path: str, *, late: bool) -> tuple[int, dict[str, Any]]:
        """Get a namespace. Retries for ``LATE_SECONDS`` if the server is overloaded, or if it may still be created
        (``late``).
        """
        until = time.monotonic() + LATE_SECONDS
        while True:
            status, found = self._reach.ask("GET", path)
            again = late if status == 404 else status == 429 or status >= 500
            if not again or time.monotonic() > until:
                return status, found
            time.sleep(_POLL)

    def await_gone(self) -> None:
        """Wait until the deleted namespaces are gone, at most ``GONE_SECONDS``; the others stay in ``going``."""
        deadline = time.monotonic() + GONE_SECONDS
        while self._going and time.monotonic() < deadline:
            for name in self.going:
                if self._reach.ask("GET", f"/api/v1/namespaces/{name}")[0] == 404:
                    self._going.remove(name)
            time.sleep(_POLL if self._going else 0)
