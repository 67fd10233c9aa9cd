"""CustomResourceDefinitions: kinds that come and go with their definition. Schemas are accepted and not applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .history import DELETED
from .identity import timestamp
from .kinds import BUILT_IN, DEFINITIONS, Kind

if TYPE_CHECKING:
    from .encoding import JSON
    from .history import Event
    from .kinds import Kinds
    from .store import Store

_ALWAYS = frozenset((kind.group, kind.plural) for kind in BUILT_IN)


class Definitions:
    """Follows the definitions in the store and serves what they define."""

    def __init__(self, store: Store, kinds: Kinds) -> None:
        """Listen to the store."""
        self._store = store
        self._kinds = kinds
        self._defined: dict[str, list[Kind]] = {}
        store.listen(self._follow)

    def _follow(self, kind: Kind, event: Event, obj: JSON) -> None:
        if kind is not DEFINITIONS:
            return
        for defined in self._defined.pop(event.name, ()):
            for stored in list(self._store.of(defined).within(None)) if event.type == DELETED else ():
                self._store.remove(defined, stored)
            self._kinds.remove(defined)
        if event.type == DELETED:
            return
        defined_now = [each for each in kinds_of(obj) if (each.group, each.plural) not in _ALWAYS]
        self._defined[event.name] = defined_now
        for each in defined_now:
            self._kinds.add(each)


def kinds_of(definition: JSON) -> list[Kind]:
    """One kind for each version that is served."""
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
    )


def problems_of_definition(obj: JSON) -> list[tuple[str, str, str]]:
    """A definition must say what it defines, and be named after it."""
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    required = (
        ("spec.group", spec.get("group")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
        ("spec.versions", spec.get("versions")),
    )
    problems = [("FieldValueRequired", field, "Required value") for field, value in required if not value]
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if not problems and obj["metadata"].get("name") != wanted:
        text = f'Invalid value: "{obj["metadata"].get("name")}": must be spec.names.plural+"."+spec.group'
        problems.append(("FieldValueInvalid", "metadata.name", text))
    return problems


def establish(obj: JSON, now: float) -> None:
    """Set the status that clients wait for: the names are accepted, the kind is served."""
    names = dict((obj.get("spec") or {}).get("names") or {})
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    obj["spec"]["names"] = names
    at = timestamp(now)
    conditions = [
        {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
        {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
         "message": "the initial names have been accepted"},
    ]  # fmt: skip
    stored = [each["name"] for each in obj["spec"].get("versions") or () if each.get("storage")]
    obj["status"] = {
        "acceptedNames": names,
        "conditions": [{**condition, "lastTransitionTime": at} for condition in conditions],
        "storedVersions": stored,
    }
