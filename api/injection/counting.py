"""What the webhook did, and which labelled pods came out without a sidecar, in Prometheus' text format."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.watching.objects import Kind

from .sidecar import sidecar_in

if TYPE_CHECKING:
    from collections.abc import Collection

    from backoff_ctrl.k8s.watching.informer import ClusterSource

    from .sidecar import JSON

LABEL: Final = "backoff-ctrl.dev/inject"
LABELLED: Final = Kind("/api/v1", "pods", frozenset({"Pod"}), labels=f"{LABEL}=true")
NAMESPACES_MAX: Final = 1000
"""Namespaces that are counted apart; those of the others are counted as ``(others)``."""
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
        """Unix time at which the certificate ends; None: there is none yet."""
        self._namespaces: set[str] = set()

    def count(self, namespace: str, outcome: str) -> None:
        """Note what became of a pod."""
        if namespace not in self._namespaces and len(self._namespaces) >= NAMESPACES_MAX:
            namespace = _OTHERS
        self._namespaces.add(namespace)
        self.reviews[namespace, outcome] += 1

    def metrics(self) -> str:
        """Return the text."""
        lines = [
            "# HELP backoff_ctrl_injection_reviews_total Pods that it was asked about, by what became of them.",
            "# TYPE backoff_ctrl_injection_reviews_total counter",
            *(
                f"backoff_ctrl_injection_reviews_total{_labels(namespace=namespace, outcome=outcome)} {count}"
                for (namespace, outcome), count in sorted(self.reviews.items())
            ),
            "# HELP backoff_ctrl_injection_malformed_total Requests that were no AdmissionReview.",
            "# TYPE backoff_ctrl_injection_malformed_total counter",
            f"backoff_ctrl_injection_malformed_total {self.malformed}",
        ]
        if self.without is not None:
            lines += [
                "# HELP backoff_ctrl_injection_pods_without_sidecar Labelled pods that have no sidecar.",
                "# TYPE backoff_ctrl_injection_pods_without_sidecar gauge",
                *(
                    f"backoff_ctrl_injection_pods_without_sidecar{_labels(namespace=namespace)} {count}"
                    for namespace, count in sorted(self.without.items())
                ),
            ]
        if self.certificate_ends is not None:
            name = "backoff_ctrl_injection_certificate_expiry_timestamp_seconds"
            lines += [
                f"# HELP {name} When the certificate that the webhook serves ends.",
                f"# TYPE {name} gauge",
                f"{name} {self.certificate_ends:.0f}",
            ]
        return "\n".join([*lines, ""])

    def listed(self, found: Counter[str]) -> None:
        """Note which namespaces have labelled pods without a sidecar. One that has none any longer says 0 once."""
        shown = dict(found.most_common(NAMESPACES_MAX))
        if rest := found.total() - sum(shown.values()):
            shown[_OTHERS] = rest
        gone = {name: 0 for name, count in (self.without or {}).items() if count and name not in shown}
        self.without = {**shown, **gone}


async def pods_without_sidecar(source: ClusterSource, excluded: Collection[str] = ()) -> Counter[str]:
    """List the labelled pods that live, and count those without a sidecar, by namespace; ``excluded`` are left out.

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


def _labels(**labels: str) -> str:
    escaped = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for value in labels.values())
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(labels, escaped, strict=True)) + "}"
