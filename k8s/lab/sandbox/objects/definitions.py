"""CustomResourceDefinitions: the kinds they define are served for as long as they exist.

Source of the rules: ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .answers import Problem, bad, missing, unsupported
from .kinds import BUILT_IN, DEFINITIONS, Kind, Kinds
from .metadata import timestamp
from .store import DELETED, Event, Pacing, Store, Stored
from .texts import JSON

_DELAY = 0.005  # seconds: the controllers handle a definition only after the answer
_ALWAYS = frozenset((kind.group, kind.plural) for kind in BUILT_IN)


def default_definition(obj: JSON) -> None:
    """Fill in names that follow from others, and the status of a new definition."""
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})
    stored = [each.get("name") for each in spec.get("versions") or () if each.get("storage")]
    obj["status"] = {"acceptedNames": {"plural": "", "kind": ""}, "conditions": [], "storedVersions": stored}


def problems_of_definition(obj: JSON) -> list[Problem]:
    spec = obj.get("spec") or {}
    names, name = spec.get("names") or {}, obj["metadata"].get("name")
    problems: list[Problem] = []
    if name != f"{names.get('plural', '')}.{spec.get('group', '')}":
        problems.append(bad("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if not spec.get("group"):
        problems.append(missing("spec.group"))
    if not spec.get("scope"):
        problems.append(missing("spec.scope"))
    elif spec["scope"] not in {"Cluster", "Namespaced"}:
        problems.append(unsupported("spec.scope", spec["scope"], "Cluster", "Namespaced"))
    problems += _version_problems(spec.get("versions") or [])
    problems += [missing(f"spec.names.{field}") for field in ("plural", "kind") if not names.get(field)]
    return problems


def _version_problems(versions: list[JSON]) -> Iterator[Problem]:
    if sum(bool(each.get("storage")) for each in versions) != 1:
        yield bad("spec.versions", versions, "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield missing(f"spec.versions[{index}].schema.openAPIV3Schema")


class Definitions:
    """Follows the definitions in the store: accepts their names, serves their kinds, and removes them again."""

    def __init__(self, store: Store, kinds: Kinds, pacing: Pacing, clock: Callable[[], float]) -> None:
        self._store = store
        self._kinds = kinds
        self._pacing = pacing
        self._clock = clock
        self._served: dict[str, list[Kind]] = {}
        store.listen(self._follow)

    def _follow(self, kind: Kind, event: Event, obj: JSON) -> None:
        if kind is not DEFINITIONS:
            return
        if event.type == DELETED:
            self._withdraw(event.name)
        else:
            if _is_established(obj):
                self._serve(event.name, obj)
            self._pacing.later(_DELAY, self._accept, event.name)

    def _find(self, name: str) -> Stored | None:
        return self._store.of(DEFINITIONS).get("", name)

    def _accept(self, name: str) -> None:
        """Accept the names, and set the conditions that clients wait for."""
        stored = self._find(name)
        if stored is None:
            return
        obj = stored.parse()
        status = obj.setdefault("status", {})
        status["acceptedNames"] = dict(obj["spec"]["names"])
        if not _is_established(obj):
            now = timestamp(self._clock())
            wanted = (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
            status["conditions"] = [
                {"type": type_, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
                for type_, reason, message in wanted
            ]
        if obj != stored.parse():
            self._store.replace(DEFINITIONS, stored, obj)

    def _serve(self, name: str, obj: JSON) -> None:
        kinds = [each for each in kinds_of(obj) if (each.group, each.plural) not in _ALWAYS]
        before = self._served.get(name)
        for each in before or ():
            self._kinds.remove(each)
        for each in kinds:
            self._kinds.add(each)
            if before is None:
                self._store.of(each).history.forget_all(self._store.version)  # it could not be watched before
        self._served[name] = kinds

    def _withdraw(self, name: str) -> None:
        for kind in self._served.pop(name, ()):
            for stored in list(self._store.of(kind).within(None)):
                self._store.remove(kind, stored)
            self._kinds.remove(kind)
            self._store.of(kind).history.show()  # wakes the watches, which then end


def _is_established(obj: JSON) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Established" and each.get("status") == "True" for each in conditions)


def kinds_of(definition: JSON) -> list[Kind]:
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    return [_kind_of(spec, names, version) for version in spec.get("versions") or () if version.get("served", True)]


def _kind_of(spec: JSON, names: JSON, version: JSON) -> Kind:
    return Kind(
        str(spec.get("group", "")),
        str(version.get("name", "")),
        str(names.get("plural", "")),
        str(names.get("kind", "")),
        singular=str(names.get("singular") or ""),
        namespaced=spec.get("scope") != "Cluster",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(version.get("subresources") or ()),
        strategic=False,
        columns=tuple(version.get("additionalPrinterColumns") or ()),
        schema=(version.get("schema") or {}).get("openAPIV3Schema"),
    )
