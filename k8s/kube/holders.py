"""Reads what ``holders`` needs from a cluster: the quotas of a namespace and all objects that they charge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import FieldError, items, mapping, text
from backoff_ctrl.k8s.kube.answers.paging import EndlessListError, is_list
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.charges.attribution import Snapshot, charged_kinds, limits_extended, quota_name
from backoff_ctrl.k8s.kube.charges.device_claims import drive, reading_classes
from backoff_ctrl.k8s.kube.charges.devices import Classes, pays_for, pod_of, with_extended
from backoff_ctrl.k8s.kube.charges.live import Live, live
from backoff_ctrl.k8s.kube.charges.resources import DEVICE_CLAIMS, DEVICE_CLASSES, PODS, WHOLE
from backoff_ctrl.k8s.kube.cluster.asking import Reach
from backoff_ctrl.k8s.kube.cluster.finding import ReachError

from .paths import group_path, path_to

JSON = dict[str, Any]
Progress = Callable[[str, int, int], None]

_QUOTAS: Final = "resourcequotas"
_UNREAD: Final = "this account may not list {0}: ask for a role that allows list on {0}"
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_FRESH_STARTS: Final = 3
_MALFORMED: Final = (
    AttributeError,
    OverflowError,
    TypeError,
)  # raised for entries that are no objects, dates after the year 9999, lists in place of names


class AbsentError(ReachError):
    """The namespace or the quota that was asked for does not exist; ``what`` says which."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


class _RefusedError(Exception):
    """A list was answered 403 (this account may not), 404 (not served in this version) or 410 (the list expired)."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class HoldingsReader:
    """Lists quotas and objects page by page.

    ``progress`` is called for each page with the kind, the number read so far, and the total as far as it is known.
    All methods raise ``ReachError``.
    """

    def __init__(self, reach: Reach, progress: Progress = lambda *_: None) -> None:
        """Read from the namespace that ``reach`` was opened for."""
        self._reach = reach
        self._namespace = reach.place.namespace
        self._progress = progress
        self._versions: dict[str, list[str]] = {}

    def read(self, quota: str | None = None) -> Snapshot:
        """Read all quotas, or only the named one, and the objects that they charge."""
        before = self._quotas(quota)
        objects: list[Live] = []
        unread: dict[str, str] = {}
        malformed = 0
        classes = self._classes() if limits_extended(before) else {}
        extended = None if classes is None else tuple(classes.values())
        claims = self._objects(DEVICE_CLAIMS) if extended is None else []
        if claims and not isinstance(claims, str):
            unread[DEVICE_CLASSES] = _UNREAD.format(DEVICE_CLASSES)  # without claims, they don't matter
        pods: dict[str, tuple[JSON, Live]] = {}
        for kind in charged_kinds(before, extended or ()):
            items = self._objects(kind)
            if isinstance(items, str):
                unread[kind] = items
                continue
            now = datetime.now(UTC)
            for item in items:
                try:
                    found = live(kind, item, now)
                    if kind == PODS:
                        pods[found.name] = item, found
                    elif kind == DEVICE_CLAIMS:
                        charged = with_extended(found.charged, classes or {}, _paid(item, found.name, pods))
                        found = replace(found, charged=charged)
                    objects.append(found)
                except (FieldError, *_MALFORMED):
                    malformed += 1
        return Snapshot(self._namespace, before, objects, self._quotas(quota), unread, malformed, extended)

    def _classes(self) -> Classes | None:
        """Return the DeviceClasses that stand for an extended resource; None: they can't be listed."""

        def ask(path: str) -> tuple[int, JSON]:
            status, page = self._reach.ask("GET", path)
            self._reach.insist_on_credentials(status, page)
            return status, page

        return drive(reading_classes(), ask)

    def _quotas(self, wanted: str | None) -> list[JSON]:
        listed = self._objects(_QUOTAS)
        where = f"{printable(self._namespace)} on {self._reach.place.url}"
        if isinstance(listed, str):
            raise ReachError(
                f"this account may not list {_QUOTAS} in {where}: ask for a role that allows list on {_QUOTAS} and on "
                "the kinds that they charge, such as view, or choose another namespace with --namespace"
            )
        if not listed and (absence := self._reach.absence(self._namespace)):
            raise AbsentError("namespace", absence)
        found = [each for each in listed if isinstance(each, dict)]
        if wanted is None:
            return found
        by_name = {quota_name(each): each for each in found}
        if wanted not in by_name:
            known = f"choose one of {', '.join(by_name)}" if by_name else "that namespace has no quotas"
            raise AbsentError("quota", f"quota {wanted} does not exist in {where}: {known}")
        return [by_name[wanted]]

    def _objects(self, kind: str) -> list[Any] | str:
        """List a kind; empty if the server does not serve it. Return the reason if this account may not list it."""
        plural, _, group = kind.partition(".")
        for version in self._served(group):
            for _ in range(_FRESH_STARTS):
                try:
                    return [item for page in self._pages(version, plural, kind) for item in page]
                except _RefusedError as refused:
                    if refused.status == 403:
                        return _UNREAD.format(kind)
                    if refused.status == 404:
                        break
            else:
                raise ReachError(
                    f"the list of {kind} expired {_FRESH_STARTS} times before it was read completely: try again"
                )
        return []

    def _served(self, group: str) -> list[str]:
        """Return the API paths of a group's versions, the preferred version first."""
        if not group:
            return ["/api/v1"]
        if group not in self._versions:
            status, found = self._reach.ask("GET", path_to("/apis", group))
            if status not in (200, 404):
                raise ReachError(
                    f"{self._reach.place.url} answered {status} to the versions of API group {group}: try again"
                )
            first = _group_version(found.get("preferredVersion"))
            others = [_group_version(each) for each in items(found.get("versions"))]
            served = sorted((each for each in others if each), key=lambda each: each != first)
            self._versions[group] = [group_path(each) for each in served]
        return self._versions[group]

    def _pages(self, group: str, plural: str, kind: str) -> Iterator[list[Any]]:
        """Yield the pages of a list. Raises ``_RefusedError``."""
        accept = "application/json" if kind in WHOLE or kind == _QUOTAS else _METADATA
        seen, path = 0, path_to(group, plural, namespace=self._namespace)
        try:
            for status, page in self._reach.pages(path, accept=accept):
                self._reach.insist_on_credentials(status, page)
                if status in (403, 404, 410):
                    raise _RefusedError(status)
                if status != 200:
                    said = f" ({page['message']})" if page.get("message") else ""
                    where = f"{self._reach.place.url} answered {status} to the list of {kind}"
                    raise ReachError(f"{where}{said}: try again")
                metadata = page.get("metadata") or {}
                if not is_list(page) or not isinstance(metadata, dict):
                    raise self._no_list(kind)
                items = page["items"] or []
                seen += len(items)
                left = metadata.get("remainingItemCount")
                self._progress(kind, seen, seen + (left if isinstance(left, int) else 0))
                yield items
        except EndlessListError as error:
            raise self._no_list(kind) from error

    def _no_list(self, kind: str) -> ReachError:
        return ReachError(
            f"{self._reach.place.url} gave no valid answer to the list of {kind}: check that this is the address of an "
            "API server, not of a login proxy"
        )


def _paid(claim: JSON, name: str, pods: Mapping[str, tuple[JSON, Live]]) -> Mapping[str, int]:
    """Return what the pod is charged for whose extended resources this claim was made; empty for another claim."""
    owner = pod_of(claim)
    pod, found = pods.get(owner[0], (None, None)) if owner else (None, None)
    return found.charged.amounts if found and owner and pod and pays_for(pod, owner[1], name) else {}


def _group_version(found: object) -> str:
    """Return the ``groupVersion`` of an APIGroup entry, or an empty text."""
    return text(mapping(found).get("groupVersion"))
