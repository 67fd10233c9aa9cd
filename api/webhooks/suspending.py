"""Suspends Jobs and their like when they are created, so that they wait for room in their quota. Pure.

The API server calls it for objects that carry the label, and on another path for all objects of a namespace that
carries it: a review does not say which labels a namespace has, so the webhook's configuration selects. It never refuses
an object: one that may not be suspended, or that a bug of ours keeps from being suspended, is created as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import mapping, metadata_of, text
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from backoff_ctrl.k8s.kube.watching.objects import WatchAbsentError, WatchedKind
from backoff_ctrl.k8s.workloads.admitting.kinds import (
    KINDS,
    RELEASED_BY,
    SUSPENDED_BY,
    TRUE,
    WAIT,
    WAITING_NAMESPACES,
    AdmissibleKind,
    Left,
    asks,
    cleaning,
    left_alone,
    may_suspend,
    subject_of,
    suspension,
)
from backoff_ctrl.k8s.workloads.admitting.patches import merged

from .review import allowed, namespace_of, note_bug, request_in
from .sidecar import JSON

_ASKING: Final = {"metadata": {"labels": {WAIT: TRUE}}}
_SILENT: Final[JSON] = {}


@dataclass(frozen=True, slots=True)
class Suspension:
    """The outcome for an object, as a word for counting.

    ``suspended``, ``failed`` after an internal error, ``unreadable``, or why it is left alone: ``held`` (by its user),
    ``reserved``, ``part``, ``kueue``, ``elsewhere``, ``unfit``, ``unasked``.
    """

    outcome: str
    patch: Sequence[JSON] = ()
    warnings: tuple[str, ...] = ()


def answer_about_job(
    body: bytes, *, whole_namespace: bool, kinds: Sequence[AdmissibleKind] = KINDS, accounts: Collection[str] = ()
) -> tuple[JSON, str, str]:
    """Return the answer to a review, the object's namespace, and the outcome. Raises ``ReviewError``.

    ``whole_namespace``: it was asked because its namespace carries the label. ``accounts``: the user names of
    operators, whose Tasks have reserved room for what they create. If empty, all that a Task controls counts as such.
    """
    request = request_in(body)
    by_us = text(mapping(request.get("userInfo")).get("username")) in accounts if accounts else None
    what = _suspended(request, _ASKING if whole_namespace else _SILENT, kinds, by_us)
    return allowed(request, what.patch, what.warnings), namespace_of(request), what.outcome


def _suspended(
    request: JSON, namespace: Mapping[str, Any], kinds: Sequence[AdmissibleKind], by_us: bool | None
) -> Suspension:
    resource, body = mapping(request.get("resource")), request.get("object")
    named = (resource.get("group") or "", resource.get("resource"))
    kind = next((each for each in kinds if (each.group, each.plural) == named), None)
    if kind is None or request.get("operation") != "CREATE" or not isinstance(body, dict):
        return Suspension("unreadable")
    try:
        left, cleaned = may_suspend(kind, body, namespace, kinds=kinds, by_us=by_us), cleaning(body)
        if left is None:
            return Suspension("suspended", [*operations(body, merged(cleaned, suspension(kind)))])
        warnings = (f"backoff-ctrl: {kind.may_not_be_suspended(body)}",) if left is Left.UNFIT else ()
        return Suspension(left.name.lower(), [*operations(body, cleaned)], warnings)
    except Exception as error:  # noqa: BLE001 - it is not validated yet, or a bug of ours: it is created as it is
        note_bug(error, f"a {kind.kind} could not be suspended")
        return Suspension("failed")


def operations(body: Mapping[str, Any], merge: Mapping[str, Any], path: str = "") -> Iterator[JSON]:
    """Yield a merge patch as operations of RFC 6902: a webhook can answer with no other form."""
    for name, value in merge.items():
        there, below = body.get(name), f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if value is None:
            if name in body:
                yield {"op": "remove", "path": below}
        elif isinstance(value, dict) and isinstance(there, dict):
            yield from operations(there, value, below)
        else:
            yield {"op": "add", "path": below, "value": value}


# -- what an outage has let through ---------


async def ungated(
    source: ClusterSource, excluded: Collection[str] = (), kinds: Sequence[AdmissibleKind] = KINDS
) -> Counter[str]:
    """List what should have waited, and count what runs without having been let in, by namespace.

    It was created while the webhook did not answer, or before its namespace got the label. Raises what
    ``ClusterSource.pages`` raises, but for kinds that the server lacks.
    """
    asking = {text(metadata_of(each).get("name")) async for each in _items(source, WAITING_NAMESPACES)}
    found: Counter[str] = Counter()
    for kind in kinds:
        listed = WatchedKind(kind.path, kind.plural, frozenset({kind.kind}), labels=f"{WAIT}={TRUE}")
        with suppress(WatchAbsentError):  # its operator is not installed: there are no such objects
            async for body in _items(source, replace(listed, labels="") if asking else listed):
                namespace = text(metadata_of(body).get("namespace"))
                asked = namespace in asking or asks(body)
                if namespace not in excluded and runs_ungated(kind, body, asked=asked, kinds=kinds):
                    found[namespace] += 1
    return found


def runs_ungated(
    kind: AdmissibleKind, body: Mapping[str, Any], *, asked: bool, kinds: Sequence[AdmissibleKind] = KINDS
) -> bool:
    """Return whether an object runs that should have waited: it was neither suspended nor let in nor released."""
    subject = subject_of(kind, body)
    let_in = subject.admitted and not subject.never_waited  # the operator notes it on what others let run, too
    known = not let_in and not {SUSPENDED_BY, RELEASED_BY} & subject.annotations.keys()
    runs = not (subject.is_suspended or subject.is_over)
    return known and runs and left_alone(subject, asked=asked, kinds=kinds) is None


async def _items(source: ClusterSource, kind: WatchedKind) -> AsyncIterator[JSON]:
    async for page in source.pages(kind, None):
        for each in page.get("items") or ():
            yield each
