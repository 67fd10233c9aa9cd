"""Metrics of the webhooks in Prometheus' text format: reviews, and what came past them while they were away."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.kube.watching.objects import WatchedKind
from backoff_ctrl.k8s.status.metrics import Gathered, Sample, written

from .sidecar import sidecar_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from backoff_ctrl.k8s.kube.watching.informer import ClusterSource

    from .sidecar import JSON

LABEL: Final = "backoff-ctrl.dev/inject"
LABELLED: Final = WatchedKind("/api/v1", "pods", frozenset({"Pod"}), labels=f"{LABEL}=true")
NAMESPACES_MAX: Final = 1000
"""Namespaces that are counted separately; all others count as ``(others)``."""
_OTHERS: Final = "(others)"
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class Reviews:
    """Reviews by namespace and outcome, and malformed requests."""

    def __init__(self) -> None:
        self.malformed = 0
        self.by_outcome: Counter[tuple[str, str]] = Counter()
        self._namespaces: set[str] = set()

    def count(self, namespace: str, outcome: str) -> None:
        if namespace not in self._namespaces and len(self._namespaces) >= NAMESPACES_MAX:
            namespace = _OTHERS
        self._namespaces.add(namespace)
        self.by_outcome[namespace, outcome] += 1


class Listed:
    """What the last list had, by namespace; empty while it can't be listed."""

    def __init__(self) -> None:
        self.by_namespace: dict[str, int] | None = None

    def take(self, found: Counter[str]) -> None:
        """Note what each namespace has. One that no longer has any is reported once more, as 0."""
        shown = dict(found.most_common(NAMESPACES_MAX))
        if rest := found.total() - sum(shown.values()):
            shown[_OTHERS] = rest
        gone = {name: 0 for name, count in (self.by_namespace or {}).items() if count and name not in shown}
        self.by_namespace = {**shown, **gone}

    def forget(self) -> None:
        self.by_namespace = None


class Counts:
    """The counts of one process: ``pods`` of the webhook that injects, and of those ``beside_operator``."""

    def __init__(self, *, pods: bool = True, beside_operator: bool = False) -> None:
        self.pods, self.jobs, self.tasks = Reviews(), Reviews(), Reviews()
        self._serves = pods, beside_operator
        self.without, self.ungated = Listed(), Listed()
        """Labelled pods without a sidecar, and Jobs that run although they should have waited."""
        self.certificate_ends: float | None = None
        """Unix time at which the certificate expires; None before the first certificate."""

    def metrics(self) -> str:
        found = Gathered()
        found.take(self._samples(), always=True)
        return b"".join(written(found)).decode()

    def _samples(self) -> Iterator[Sample]:
        for name, reviews in (
            ("injection_reviews_total", self.pods),
            ("suspension_reviews_total", self.jobs),
            ("task_reviews_total", self.tasks),
        ):
            for labels, count in sorted(reviews.by_outcome.items()):
                yield Sample(name, labels, count)
        pods, beside_operator = self._serves
        if pods:
            yield Sample("injection_malformed_total", (), self.pods.malformed)
        if beside_operator:
            yield Sample("suspension_malformed_total", (), self.jobs.malformed + self.tasks.malformed)
        for name, listed in (
            ("injection_pods_without_sidecar", self.without),
            ("suspension_ungated", self.ungated),
        ):
            for namespace, count in sorted((listed.by_namespace or {}).items()):
                yield Sample(name, (namespace,), count)
        if self.certificate_ends is not None:
            yield Sample("injection_certificate_expiry_timestamp_seconds", (), round(self.certificate_ends))


async def pods_without_sidecar(source: ClusterSource, excluded: Collection[str] = ()) -> Counter[str]:
    """List the living labelled pods, and count those without a sidecar, by namespace; ``excluded`` are left out.

    Raises what ``ClusterSource.pages`` raises.
    """
    found: Counter[str] = Counter()
    async for page in source.pages(LABELLED, None):
        for pod in page.get("items") or ():
            namespace = pod["metadata"]["namespace"]
            if namespace not in excluded and _lives(pod) and sidecar_in(pod["spec"]) is None:
                found[namespace] += 1
    return found


def _lives(pod: JSON) -> bool:
    return pod.get("status", {}).get("phase") not in _ENDED and "deletionTimestamp" not in pod["metadata"]
