"""Protection of claims that pods use: the finalizer kubernetes.io/pvc-protection and the controller that removes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from backoff_ctrl.k8s.sandbox.objects.kinds import CLAIMS, PODS, Kind
from backoff_ctrl.k8s.sandbox.objects.store import DELETED, Event, Pacing, Store
from backoff_ctrl.k8s.sandbox.objects.texts import JSON

PROTECTION = "kubernetes.io/pvc-protection"
_DELAY = 0.005  # seconds: the controller acts only after the answer


class ClaimProtection:
    """Follows claims that are being deleted, and the pods that may still use them."""

    def __init__(self, store: Store, pacing: Pacing) -> None:
        """Subscribe to the store."""
        self._store = store
        self._pacing = pacing
        self._waiting: set[tuple[str, str]] = set()
        store.listen(self._follow)

    def _follow(self, kind: Kind, event: Event, obj: JSON) -> None:
        key = (event.namespace, event.name)
        if kind is CLAIMS:
            if event.type == DELETED:
                self._waiting.discard(key)
            elif obj["metadata"].get("deletionTimestamp") and PROTECTION in (obj["metadata"].get("finalizers") or ()):
                self._waiting.add(key)
                self._later(self._release, *key)
        elif kind is PODS and self._waiting and (event.type == DELETED or _is_over(obj)):
            for name in _claims(obj):
                if (event.namespace, name) in self._waiting:
                    self._later(self._release, event.namespace, name)

    def _later(self, work: Callable[[str, str], None], namespace: str, name: str) -> None:
        if self._pacing.loop is None:
            work(namespace, name)
        else:
            self._pacing.loop.call_later(_DELAY, work, namespace, name)

    def _release(self, namespace: str, name: str) -> None:
        stored = self._store.of(CLAIMS).get(namespace, name)
        if stored is None or b'"deletionTimestamp"' not in stored.data or self._is_used(namespace, name):
            return
        obj = stored.parse()
        left = [each for each in obj["metadata"].get("finalizers") or () if each != PROTECTION]
        if left:
            obj["metadata"]["finalizers"] = left
            self._store.replace(CLAIMS, stored, obj)
        else:
            self._store.remove(CLAIMS, stored)

    def _is_used(self, namespace: str, name: str) -> bool:
        quoted = f'"{name}"'.encode()
        pods = (each for each in self._store.of(PODS).within(namespace) if quoted in each.data)
        return any(name in _claims(pod) and not _is_over(pod) for pod in (each.parse() for each in pods))


def _claims(pod: JSON) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if name:
            yield name


def _is_over(pod: JSON) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
