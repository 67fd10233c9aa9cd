"""What the API server adds to an object's pods and claims before it charges them. Pure: who drives a reading asks.

LimitRanges add requests and limits to containers, a RuntimeClass its overhead to pods, and the default StorageClass
itself to claims without one. ``reading`` asks for the classes that an object needs, ``filled`` adds everything.

Sources, v1.36: ``plugin/pkg/admission/limitranger``, ``plugin/pkg/admission/runtimeclass`` and
``pkg/volume/util/storageclass.go`` (``GetDefaultClass``).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.field_paths import found_at
from backoff_ctrl.k8s.kube.answers.fields import annotations_of, items, mapping, mapping_in, mappings, metadata_of, text
from backoff_ctrl.k8s.kube.answers.paging import is_list
from backoff_ctrl.k8s.kube.paths import PathError, path_to

from .admission_rules import Item, fill_in, items_of
from .device_claims import OK, Reading
from .parts import Part
from .resources import CLAIMS, PODS

_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_DEFAULTS: Final = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


@dataclass(frozen=True, slots=True)
class Classes:
    """What classes of the cluster add. Classes that may not be read add no amounts.

    ``overheads``: of each RuntimeClass, what a pod has beside its containers. ``storage_class``: the name of the
    default StorageClass, or empty.
    """

    overheads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    storage_class: str = ""


NO_CLASSES: Final = Classes()


def pod_specs(manifest: Any, resource: str, parts: Iterable[Part]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each pod spec of a manifest with its path: its own, and those in the pod templates of its parts."""
    templates = (part.template for part in parts if part.kind == "Pod" and part.template)
    for path in ["spec"] if resource == PODS else [f"{each}.spec" for each in templates]:
        spec = found_at(path, manifest)
        if isinstance(spec, dict):
            yield spec, path


def reading(manifest: Mapping[str, Any], resource: str, parts: Sequence[Part]) -> Reading[Classes]:
    """Ask for the classes that add something to this manifest and its parts."""
    pods = list(pod_specs(manifest, resource, parts))
    named = dict.fromkeys(text(spec.get("runtimeClassName")) for spec, _ in pods)
    overheads: dict[str, Mapping[str, Any]] = {}
    for name in filter(None, named):
        try:
            path = path_to("/apis/node.k8s.io/v1", "runtimeclasses", name=name)
        except PathError:
            continue  # no class can have this name
        status, found = yield path
        if status == OK and (fixed := mapping_in(found.get("overhead"), "podFixed")):
            overheads[name] = fixed
    if not any(_lacks_class(claim) for claim, _ in _claims(manifest, resource, pods)):
        return Classes(overheads)
    status, listed = yield path_to("/apis/storage.k8s.io/v1", "storageclasses")
    return Classes(overheads, _default_of(mappings(listed.get("items"))) if status == OK and is_list(listed) else "")


def reading_limits(namespace: str) -> Reading[Sequence[Item]]:
    """Ask for the limits of a namespace's LimitRanges."""
    status, listed = yield path_to("/api/v1", "limitranges", namespace=namespace)
    return items_of(mappings(listed.get("items"))) if status == OK and is_list(listed) else ()


def filled(
    manifest: Mapping[str, Any], resource: str, parts: Sequence[Part], limits: Sequence[Item], classes: Classes
) -> dict[str, Any]:
    """Return a copy of a manifest with what the limits of LimitRanges, and classes, add to its pods and claims."""
    made = copy.deepcopy(dict(manifest))
    for spec in {id(spec): spec for spec, _ in pod_specs(made, resource, parts)}.values():
        fill_in(spec, limits)
        if (overhead := classes.overheads.get(text(spec.get("runtimeClassName")))) is not None:
            spec.setdefault("overhead", dict(overhead))
    if classes.storage_class:
        for claim, _ in claims(made, resource, parts):
            if _lacks_class(claim):
                claim["spec"]["storageClassName"] = classes.storage_class
    return made


def claims(manifest: Any, resource: str, parts: Sequence[Part]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the claims that a manifest is or has templates of, with their paths, as far as they have a spec."""
    return _claims(manifest, resource, pod_specs(manifest, resource, parts))


def _claims(
    manifest: Any, resource: str, pods: Iterable[tuple[dict[str, Any], str]]
) -> Iterator[tuple[dict[str, Any], str]]:
    spec = mapping_in(manifest, "spec")
    paths = [""] if resource == CLAIMS else []
    paths += [f"spec.volumeClaimTemplates[{n}]" for n, _ in enumerate(items(spec.get("volumeClaimTemplates")))]
    for place, policy in enumerate(items(spec.get("volumeClaimPolicies"))):  # of a JobSet
        templates = enumerate(items(mapping(policy).get("templates")))
        paths += [f"spec.volumeClaimPolicies[{place}].templates[{n}]" for n, _ in templates]
    if resource != PODS:  # a bare pod is charged for itself alone
        for pod, at in pods:
            volumes = enumerate(items(pod.get("volumes")))
            paths += [f"{at}.volumes[{n}].ephemeral.volumeClaimTemplate" for n, _ in volumes]
    for path in dict.fromkeys(paths):
        claim = found_at(path, manifest) if path else manifest
        if isinstance(claim, dict) and isinstance(claim.get("spec"), dict):
            yield claim, f"{path}.spec".lstrip(".")


def _lacks_class(claim: Mapping[str, Any]) -> bool:
    """Return whether a claim names no class: one that names an empty class wants no class."""
    return claim["spec"].get("storageClassName") is None and _BETA_CLASS not in annotations_of(claim)


def _default_of(listed: Iterable[Mapping[str, Any]]) -> str:
    """Return the default StorageClass: of several the newest, and of equally old ones the first by name."""
    defaults = [each for each in listed if "true" in map(annotations_of(each).get, _DEFAULTS)]
    defaults.sort(key=lambda each: text(metadata_of(each).get("name")))
    found = max(defaults, key=lambda each: text(metadata_of(each).get("creationTimestamp")), default={})
    return text(metadata_of(found).get("name"))
