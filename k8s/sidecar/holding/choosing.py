"""Chooses the requests that are read: creates that a quota may refuse. All others stream past unread."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.k8s.gate.creates.calls import UNSTORED, URGENT, Target, read_target
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.charges.quotas import quotas_of
from backoff_ctrl.k8s.kube.charges.resources import CLAIMS, PODS, SERVICES, kinds_of
from backoff_ctrl.k8s.sidecar.http.messages import LARGEST, Head

ALWAYS: Final = frozenset({PODS, CLAIMS, SERVICES})
"""Kinds that are gated in every namespace: most quotas are about them, and most creators make them."""
NEVER: Final = UNSTORED | URGENT
NAMESPACES_MAX: Final = 10_000
"""Namespaces whose other kinds are remembered; beyond that, the oldest are forgotten."""
APPLY: Final = b"application/apply-patch"


class Way(StrEnum):
    """How a request is treated."""

    GATED = "waits its turn, then is sent"
    ONCE = "is sent once, and waits if a quota refuses it"


class Chosen(NamedTuple):
    """A request that is read."""

    target: Target
    way: Way


class ChargedKinds(Subscriber):
    """The kinds of each namespace that a quota charges, as far as they were learned from quotas or refusals."""

    def __init__(self) -> None:
        self._kinds: dict[str, frozenset[str]] = {}

    def charges(self, namespace: str, resource: str) -> bool:
        return resource in ALWAYS or resource in self._kinds.get(namespace, ())

    def observed(self, namespace: str, quota: str, seen: ObservedQuota) -> None:  # noqa: ARG002 - a fixed signature
        """Learn the kinds that a quota names."""
        self.named(namespace, {**seen.spec, **seen.hard})

    def named(self, namespace: str, resources: Iterable[str]) -> None:
        """Learn the kinds that are charged under these resource names of a quota."""
        self.add(namespace, *(kind for name in resources for kind in kinds_of(name)))

    def listed(self, namespace: str, answer: Answer) -> None:
        """Learn from a list of the namespace's quotas, if the answer is one."""
        for quota, seen in quotas_of(answer):
            self.observed(namespace, quota, seen)

    def add(self, namespace: str, *kinds: str) -> None:
        known = self._kinds.get(namespace, frozenset())
        more = known.union(kinds) - ALWAYS
        if more != known:
            self._kinds[namespace] = more
            if len(self._kinds) > NAMESPACES_MAX:
                del self._kinds[next(iter(self._kinds))]


def choose(head: Head, kinds: ChargedKinds) -> Chosen | None:
    """Choose a request by its head; None: it passes unread."""
    if head.method not in (b"POST", b"PATCH", b"PUT"):
        return None
    target = read_target("", head.target.decode("latin-1"))
    if target is None or target.dry_run or target.resource in NEVER:
        return None
    way = _way(head, target)
    if way is None or not kinds.charges(target.namespace, target.resource) or _is_too_long(head):
        return None
    return Chosen(target, way)


def creates(head: Head, target: Target) -> bool:
    """Return whether a request stores a new object of a kind that may wait."""
    return head.method == b"POST" and not target.rest and target.resource not in NEVER


def _way(head: Head, target: Target) -> Way | None:
    if creates(head, target):
        return Way.GATED
    _, *rest = target.rest.split("/")
    if target.resource == PODS and rest[1:] == ["resize"] and head.method != b"POST":
        return Way.ONCE
    applies = head.method == b"PATCH" and (head.get(b"content-type") or b"").lower().startswith(APPLY)
    return Way.ONCE if applies and len(rest) == 1 else None


def _is_too_long(head: Head) -> bool:
    length = head.get(b"content-length") or b""
    return length.isdigit() and (len(length) > 20 or int(length) > LARGEST)
