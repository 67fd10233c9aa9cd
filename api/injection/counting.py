"""Metrics of the webhook: its reviews, and labelled pods without a sidecar, in Prometheus' text format."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.status.metrics import Gathered, Sample, written
from backoff_ctrl.k8s.watching.objects import Kind

from .sidecar import sidecar_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from backoff_ctrl.k8s.watching.informer import ClusterSource

    from .sidecar import JSON

LABEL: Final = "backoff-ctrl.dev/inject"
LABELLED: Final = Kind("/api/v1", "pods", frozenset({"Pod"}), labels=f"{LABEL}=true")
NAMESPACES_MAX: Final = 1000
"""Namespaces that are counted separately; all others count as ``(others)``."""
_OTHERS: Final = "(others)"
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class Counts:
    """The counts of one webhook."""

    def __init__(self) -> None:
        self.reviews: Counter[tuple[str, str]] = Counter()
        """By namespace and outcome."""
        self.malformed = 0
        self.without: dict[str, int] | None = None
        """Labelled pods without a sidecar, by namespace; None: they could not be listed."""
        self.certificate_ends: float | None = None
        """Unix time at which the certificate expires; None: there is none yet."""
        self._namespaces: set[str] = set()

    def count(self, namespace: str, outcome: str) -> None:
        if namespace not in self._namespaces and len(self._namespaces) >= NAMESPACES_MAX:
            namespace = _OTHERS
        self._namespaces.add(namespace)
        self.reviews[namespace, outcome] += 1

    def metrics(self) -> str:
        found = Gathered()
        found.take(self._samples(), always=True)
        return b"".join(written(found)).decode()

    def _samples(self) -> Iterator[Sample]:
        for labels, count in sorted(self.reviews.items()):
            yield Sample("injection_reviews_total", labels, count)
        yield Sample("injection_malformed_total", (), self.malformed)
        for namespace, count in sorted((self.without or {}).items()):
            yield Sample("injection_pods_without_sidecar", (namespace,), count)
        if self.certificate_ends is not None:
            yield Sample("injection_certificate_expiry_timestamp_seconds", (), round(self.certificate_ends))

    def listed(self, found: Counter[str]) -> None:
        """Note which namespaces have labelled pods without a sidecar. One without any is reported once more, as 0."""
        shown = dict(found.most_common(NAMESPACES_MAX))
        if rest := found.total() - sum(shown.values()):
            shown[_OTHERS] = rest
        gone = {name: 0 for name, count in (self.without or {}).items() if count and name not in shown}
        self.without = {**shown, **gone}


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
