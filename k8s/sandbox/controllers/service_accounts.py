"""The service account ``default`` of every namespace, as kube-controller-manager's serviceaccount controller keeps it.

Source: ``pkg/controller/serviceaccount/serviceaccounts_controller.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sandbox.kinds.answers import ApiError
from backoff_ctrl.k8s.sandbox.kinds.kinds import NAMESPACES
from backoff_ctrl.k8s.sandbox.storage.history import DELETED
from backoff_ctrl.k8s.sandbox.verbs.requests import Target
from backoff_ctrl.k8s.sandbox.verbs.writing import Writer

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.core import Core
    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind
    from backoff_ctrl.k8s.sandbox.storage.history import Event
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

NAME = "default"
_DELAY = 0.002  # seconds: the controller acts only after the answer
_RETRY = 1.0  # seconds until a create that a quota refused is tried again


class ServiceAccounts:
    """Creates the account in every active namespace, and again when it is deleted. A quota may refuse it."""

    def __init__(self, core: Core, accounts: Kind) -> None:
        """Subscribe to the store. ``accounts`` is the kind ServiceAccount."""
        self._core = core
        # a generator of its own: when the account is made depends on the loop, and the seed must decide all other names
        self._writer = Writer(core, random.Random(core.settings.seed + 5))
        self._accounts = accounts
        core.store.listen(self._follow)

    def _follow(self, kind: Kind, event: Event, obj: JSON) -> None:
        if kind is NAMESPACES and event.type != DELETED and not obj["metadata"].get("deletionTimestamp"):
            self._later(_DELAY, event.name)
        elif kind is self._accounts and event.type == DELETED and event.name == NAME:
            self._later(_DELAY, event.namespace)

    def _later(self, delay: float, namespace: str) -> None:
        loop = self._core.pacing.loop
        if loop is None:
            self._ensure(namespace)
        else:
            loop.call_later(delay, self._ensure, namespace)

    def _ensure(self, namespace: str) -> None:
        """Create the account where it is missing."""
        store = self._core.store
        space = store.of(NAMESPACES).get("", namespace)
        if space is None or b'"deletionTimestamp"' in space.data or store.of(self._accounts).get(namespace, NAME):
            return
        try:
            self._writer.create(Target(self._accounts, namespace), {"metadata": {"name": NAME}})
        except ApiError:  # a quota is full, or a fault strikes; without a loop there is no later
            if self._core.pacing.loop is not None:
                self._later(_RETRY, namespace)
