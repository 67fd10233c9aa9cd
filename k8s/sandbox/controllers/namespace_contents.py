"""What kube-controller-manager keeps in every namespace: the service account ``default``, and ``kube-root-ca.crt``.

Sources, of Kubernetes 1.36: ``pkg/controller/serviceaccount/serviceaccounts_controller.go`` and
``pkg/controller/certificates/rootcacertpublisher/publisher.go``.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

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

ACCOUNT: Final[JSON] = {"metadata": {"name": "default"}}
_ROOT_CA: Final = """\
-----BEGIN CERTIFICATE-----
MIIBlDCCATmgAwIBAgIUB7F5qpypid59fhieqcGwNRlZzdAwCgYIKoZIzj0EAwIw
HjEcMBoGA1UEAwwTc2FuZGJveC13aXRob3V0LXRsczAgFw0yNjExMjIyMDQ5MTha
GA8yMTI2MTAyOTIwNDkxOFowHjEcMBoGA1UEAwwTc2FuZGJveC13aXRob3V0LXRs
czBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOmOfRSKQfqUTJ4NQW97WY8P62Fw
64BkXjUWg6tmG7NRdCIXboLk2saCeX1cP2UDzmC6L2LSonVk5XS9ZChFDPCjUzBR
MB0GA1UdDgQWBBSdIijveS/LSGxsV+08ANsTToJBSDAfBgNVHSMEGDAWgBSdIijv
eS/LSGxsV+08ANsTToJBSDAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0kA
MEYCIQD7RXbQhD+eJR50LfPKy1OGmy5v2ke7nALYYjj8q70T6wIhAOg33ksuhTqc
L5CoI7h1raO5HhmwLl5Ed6OSKbR7GIN0
-----END CERTIFICATE-----
"""
"""A certificate that signs nothing, its key was thrown away: the sandbox speaks HTTP."""
_DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)
ROOT_CA: Final[JSON] = {
    "metadata": {"name": "kube-root-ca.crt", "annotations": {"kubernetes.io/description": _DESCRIPTION}},
    "data": {"ca.crt": _ROOT_CA},
}
_DELAY = 0.002  # seconds: the controllers act only after the answer
_RETRY = 1.0  # seconds until a write that a quota refused is tried again


class NamespaceContents:
    """Creates an object in every active namespace, and again when it is deleted. A quota may refuse it.

    What another client changes of its data and annotations is undone, as for ``kube-root-ca.crt``.
    """

    def __init__(self, core: Core, kind: Kind, wanted: JSON) -> None:
        """Subscribe to the store. ``wanted`` is the object, of this kind."""
        self._core = core
        # a generator of its own: when it is made depends on the loop, and the seed must decide all other names
        self._writer = Writer(core, random.Random(f"{core.settings.seed} {kind.plural}"))
        self._kind = kind
        self._wanted = wanted
        self._name = str(wanted["metadata"]["name"])
        core.store.listen(self._follow)

    def _follow(self, kind: Kind, event: Event, obj: JSON) -> None:
        if kind is NAMESPACES and event.type != DELETED and not obj["metadata"].get("deletionTimestamp"):
            self._later(_DELAY, event.name)
        elif kind is self._kind and event.name == self._name and (event.type == DELETED or self._differs(obj)):
            self._later(_DELAY, event.namespace)

    def _later(self, delay: float, namespace: str) -> None:
        loop = self._core.pacing.loop
        if loop is None:
            self._ensure(namespace)
        else:
            loop.call_later(delay, self._ensure, namespace)

    def _ensure(self, namespace: str) -> None:
        """Create the object where it is missing, or put it right."""
        store = self._core.store
        space = store.of(NAMESPACES).get("", namespace)
        if space is None or b'"deletionTimestamp"' in space.data:
            return
        stored = store.of(self._kind).get(namespace, self._name)
        try:
            if stored is None:
                self._writer.create(Target(self._kind, namespace), self._wanted)
            elif self._differs(stored.parse()):
                self._writer.change(Target(self._kind, namespace, self._name), self._mended)
        except ApiError:  # a quota is full, or a fault strikes; without a loop there is no later
            if self._core.pacing.loop is not None:
                self._later(_RETRY, namespace)

    def _differs(self, obj: JSON) -> bool:
        annotations, wanted = obj["metadata"].get("annotations") or {}, self._wanted["metadata"].get("annotations", {})
        return obj.get("data") != self._wanted.get("data") or any(annotations.get(n) != wanted[n] for n in wanted)

    def _mended(self, obj: JSON) -> JSON:
        metadata = obj["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **self._wanted["metadata"].get("annotations", {})}
        return {**obj, "metadata": {**metadata, "annotations": annotations}, "data": self._wanted["data"]}
