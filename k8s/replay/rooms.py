"""Namespaces of a replay's own on any cluster: made with their quotas, and gone when the replay is over.

Nothing else of the cluster is touched, and what is not certainly ours is left alone: a namespace is deleted only
with the label and the uid that it was made with.
"""

from __future__ import annotations

import secrets
import time
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from backoff_ctrl.k8s.answers.rejections import read_rejection
from backoff_ctrl.k8s.cluster.asking import Reach, ReachError, answer_later

from .apart import PREFIX, RUN_LABEL, set_apart
from .workload import QUOTA_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from backoff_ctrl.k8s.cluster.finding import Place

    from .workload import Workload

READY_SECONDS: Final = 60.0
GONE_SECONDS: Final = 120.0
CLEAR_SECONDS: Final = 60.0
"""What cleaning up may take together, all calls to delete."""
LATE_SECONDS: Final = 5.0
"""How long a namespace is looked for whose create was sent, but never answered: it may still be on its way."""
_POLL: Final = 0.1
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_PART: Final = 18  # of a namespace's name that the workload gives: all parts together fit in 63

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
"""What a demo does on a cluster; to delete comes first: what could not be cleaned up is not begun."""


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """A namespace that is asked for, and the answer: it comes also when nobody waits for it any more."""

    name: str
    answer: Future[tuple[int, dict[str, Any]]]


class Rooms:
    """All namespaces of one run. A context manager: whatever ends the block, what was made is deleted.

    Raises ``ReachError`` where the cluster can't be used: unreachable, credentials refused, a right missing.
    """

    def __init__(self, place: Place) -> None:
        """Ask nothing yet."""
        self.place = place
        self.run = "".join(secrets.choice(_ALPHABET) for _ in range(6))
        self._reach = Reach(place)
        self._made: list[_Made] = []
        self._going: list[str] = []
        self._cleared = False

    def __enter__(self) -> Self:
        """See that everything that is needed may be done, before anything is."""
        self._reach.version()
        for verb, resource in NEEDED:
            if self._reach.allowed(verb, resource) is False:
                raise self._forbidden(verb, resource, "")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete what was made, if nobody has tried yet, and disconnect. Does not wait until it is gone."""
        try:
            if not self._cleared:
                self.clear()
        finally:
            self._reach.close()

    @property
    def selector(self) -> str:
        """What finds the namespaces of this run, for kubectl's ``-l``."""
        return f"{RUN_LABEL}={self.run}"

    # -- making ---------

    def furnish(self, purpose: str, workload: Workload) -> tuple[Workload, dict[str, str]]:
        """Make a namespace with its quota for each of the workload's; returns when all are enforced.

        Gives the workload as it runs there, and the workload's own namespace for each new one.
        """
        parts = {namespace: f"{namespace[:_PART]}-{index}" for index, namespace in enumerate(workload.quotas)}
        names = {old: f"{PREFIX}-{self.run}-{purpose}-{part}" for old, part in parts.items()}
        for old, name in names.items():
            self._make_namespace(name)
            quota = {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": QUOTA_NAME},
                "spec": {"hard": workload.hard(old)},
            }
            self._do("create", "resourcequotas", "POST", f"/api/v1/namespaces/{name}/resourcequotas", quota)
        there = workload.in_namespaces(names)
        for pod in {pod.namespace: pod for pod in there.pods}.values():
            self._await(f"the quota in {pod.namespace} to be enforced", partial(self._enforced, pod.namespace))
            self._await(f"a pod to be welcome in {pod.namespace}", partial(self._welcome, pod.manifest()))
        return there, {name: old for old, name in names.items()}

    def _make_namespace(self, name: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {RUN_LABEL: self.run, "app.kubernetes.io/managed-by": "backoff-ctrl"}},
        }
        made = _Made(name, Future())
        self._made.append(made)  # first: an answer may be lost, and the namespace be there
        # In a thread of its own: Ctrl-C ends the wait, not the call, and so clearing up hears how it ended.
        answer_later(made.answer, lambda: self._reach.ask("POST", "/api/v1/namespaces", body))
        status, answer = made.answer.result()
        if 400 <= status < 500 and status != 408:  # none of ours is there: only 408 may be a proxy's word
            self._made.remove(made)
        self._check("create", "namespaces", "/api/v1/namespaces", status, answer)

    def _enforced(self, namespace: str) -> bool:
        path = f"/api/v1/namespaces/{namespace}/resourcequotas/{QUOTA_NAME}"
        return bool((self._do("get", "resourcequotas", "GET", path).get("status") or {}).get("hard"))

    def _welcome(self, pod: Mapping[str, Any]) -> bool:
        """Create nothing, but hear whether the server would: a fresh namespace may need a moment."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        status, answer = self._reach.ask("POST", path, set_apart(pod), query=[("dryRun", "All")])
        if status in (200, 201):
            return True
        message = str(answer.get("message", ""))
        if status == 400 and "dry run" in message:  # a webhook that knows no dry run: the replay will see
            return True
        if read_rejection(status, {}, message).retryable or status == 429:
            return False
        raise ReachError(f"{self.place.url} does not take the demo's pods ({status}: {message}); use another cluster")

    def _await(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise ReachError(
                    f"{self.place.url}: waited {READY_SECONDS:.0f} s for {what}; does its controller manager run?"
                )
            time.sleep(_POLL)

    def _do(self, verb: str, resource: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
        status, answer = self._reach.ask(method, path, body)
        self._check(verb, resource, path, status, answer)
        return answer

    def _check(self, verb: str, resource: str, path: str, status: int, answer: Mapping[str, Any]) -> None:
        message = str(answer.get("message", ""))
        if status == 403 and read_rejection(status, {}, message).lane == "rbac":
            raise self._forbidden(verb, resource, path)
        if not 200 <= status < 300:
            raise ReachError(f"{self.place.url} answers {status} to {verb} {resource}: {message or 'no reason given'}")

    def _forbidden(self, verb: str, resource: str, path: str) -> ReachError:
        found = f" ({self.place.found})" if not path else f" at {path}"
        return ReachError(
            f"this account may not {verb} {resource} on {self.place.url}{found}: ask for a role that allows "
            f"{_everything()}, cluster-admin on a test cluster, or run the demo without --kubeconfig"
        )

    # -- cleaning up ---------

    def clear(self) -> None:
        """Have every namespace of this run deleted; those that aren't stay known as ``left``. Does not wait.

        Ends at the first call that does not reach the server, and after ``CLEAR_SECONDS``. Interrupted, it can be
        called again for the rest.
        """
        self._cleared = True
        deadline = time.monotonic() + CLEAR_SECONDS
        for made in tuple(self._made):
            if time.monotonic() > deadline:
                return
            try:
                deleted = self._delete(made, deadline)
            except ReachError:
                return
            if deleted:
                self._made.remove(made)

    @property
    def left(self) -> list[str]:
        """The namespaces that are not deleted, or not yet."""
        return [each.name for each in self._made]

    @property
    def going(self) -> list[str]:
        """The namespaces that are deleted, but were not seen to be gone."""
        return list(self._going)

    def _delete(self, made: _Made, deadline: float) -> bool:
        """Delete one, unless it is not there or not ours; False where that failed."""
        if made.answer.cancel():  # it was never sent
            return True
        uid, late = _answered(made, deadline)
        path = f"/api/v1/namespaces/{made.name}"
        status, found = self._find(path, late=late)
        if status != 200:
            return status == 404
        metadata = found.get("metadata") or {}
        ours = (metadata.get("labels") or {}).get(RUN_LABEL) == self.run and uid in ("", metadata.get("uid"))
        if not ours:
            return True
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": metadata.get("uid")}}
        status, _ = self._reach.ask("DELETE", path, body)
        if status in (200, 202, 409):  # 409: it is going already
            self._going.append(made.name)
        return made.name in self._going or status == 404

    def _find(self, path: str, *, late: bool) -> tuple[int, dict[str, Any]]:
        """Get it; look again for a while where the server is too busy to say, or it may turn up ``late``."""
        until = time.monotonic() + LATE_SECONDS
        while True:
            status, found = self._reach.ask("GET", path)
            again = late if status == 404 else status == 429 or status >= 500
            if not again or time.monotonic() > until:
                return status, found
            time.sleep(_POLL)

    def await_gone(self) -> None:
        """Wait until the deleted namespaces are gone, ``GONE_SECONDS`` at most; those that are not stay ``going``."""
        deadline = time.monotonic() + GONE_SECONDS
        while self._going and time.monotonic() < deadline:
            for name in self.going:
                if self._reach.ask("GET", f"/api/v1/namespaces/{name}")[0] == 404:
                    self._going.remove(name)
            time.sleep(_POLL if self._going else 0)


def _answered(made: _Made, deadline: float) -> tuple[str, bool]:
    """Await how its create ended: the uid, if one was answered, and whether it may still turn up."""
    try:
        status, answer = made.answer.result(max(0.0, deadline - time.monotonic()))
    except (ReachError, TimeoutError):
        return "", True
    uid = str((answer.get("metadata") or {}).get("uid", "")) if 200 <= status < 300 else ""
    return uid, status >= 500


def _everything() -> str:
    """Spell what is needed as a role would."""
    verbs: dict[str, list[str]] = {}
    for verb, resource in NEEDED:
        verbs.setdefault(resource, []).append(verb)
    return "; ".join(f"{', '.join(sorted(each))} on {resource}" for resource, each in verbs.items())
