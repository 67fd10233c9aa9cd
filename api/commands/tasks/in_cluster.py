"""``task list``, ``show`` and ``delete`` on tasks in the cluster: the calls of a store, for code that blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from backoff_ctrl.k8s.kube.cluster.finding import ClusterAccess
from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore
from backoff_ctrl.k8s.tasks.store import Stored, Wish


class TasksInCluster:
    """A store of the cluster on an event loop of its own. A context manager; its methods raise ``StoreError``."""

    def __init__(self, cluster: ClusterAccess, namespaces: Sequence[str] = ()) -> None:
        """``namespaces``: those that are listed; empty: all."""
        self._store = ClusterStore(cluster.configuration, namespaces)

    def __enter__(self) -> Self:
        """Open the session, without a request."""
        self._runner = asyncio.Runner()
        self._runner.run(self._store.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session, and end the loop."""
        self._runner.run(self._store.__aexit__(kind, error, trace))
        self._runner.close()

    def list(self, after: int = 0, *, namespace: str | None = None) -> Sequence[Stored]:
        """Return a page of tasks, in the order of their creation."""
        return self._runner.run(self._store.list(after, namespace=namespace))

    def get(self, namespace: str, name: str) -> Stored:
        """Return a task. Raises ``AbsentError``."""
        return self._runner.run(self._store.get(namespace, name))

    def signal(self, namespace: str, name: str, value: Any, _by: str = "") -> Stored:
        """Signal a task, as the user that the API server takes us for. Raises ``AbsentError`` and ``ConflictError``."""
        return self._runner.run(self._store.signal(namespace, name, value))

    def replace(self, uid: str, wish: Wish) -> Stored:
        """Replace a task that has ended. Raises ``ConflictError``."""
        return self._runner.run(self._store.replace(uid, wish))

    def delete(self, namespace: str, name: str) -> Stored:
        """Delete a task that has ended. Raises ``AbsentError`` and ``ConflictError``."""
        return self._runner.run(self._store.delete(namespace, name))
