"""Metrics of the webhook: its reviews, and labelled pods without a sidecar, in Prometheus' text format."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.answers.printing import metric_head, metric_sample
from backoff_ctrl.k8s.watching.objects import Kind

from .sidecar import sidecar_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

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
        """Start with none."""
        self.reviews: Counter[tuple[str, str]] = Counter()
        """By namespace and outcome."""
        self.malformed = 0
        self.without: dict[str, int] | None = None
        """Labelled pods without a sidecar, by namespace; None: they could not be listed."""
        self.certificate_ends: float | None = None
        """Unix time at which the certificate expires; None: there is none yet."""
        self._namespaces: set[str] = set()

    def count(self, namespace: str, outcome: str) -> None:
        """Count the outcome of a pod."""
        if namespace not in self._namespaces and len(self._namespaces) >= NAMESPACES_MAX:
            namespace = _OTHERS
        self._namespaces.add(namespace)
        self.reviews[namespace, outcome] += 1

    def metrics(self) -> str:
        """Return the text."""
        reviews = [
            ((("namespace", name), ("outcome", outcome)), count)
            for (name, outcome), count in sorted(self.reviews.items())
        ]
        text = _family("reviews_total", "counter", "Pods that the webhook was asked about, by outcome.", reviews)
        text += _family("malformed_total", "counter", "Requests without an AdmissionReview.", [((), self.malformed)])
        if self.without is not None:
            without = [((("namespace", name),), count) for name, count in sorted(self.without.items())]
            text += _family("pods_without_sidecar", "gauge", "Labelled pods that have no sidecar.", without)
        if self.certificate_ends is not None:
            ends, about = round(self.certificate_ends), "When the webhook's certificate expires."
            text += _family("certificate_expiry_timestamp_seconds", "gauge", about, [((), ends)])
        return text

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


def _family(short: str, kind: str, about: str, samples: Iterable[tuple[Iterable[tuple[str, str]], int]]) -> str:
    name = f"backoff_ctrl_injection_{short}"
    return metric_head(name, kind, about) + "".join(metric_sample(name, *each) for each in samples)
