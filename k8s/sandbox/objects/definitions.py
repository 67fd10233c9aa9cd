"""CustomResourceDefinitions: the kinds they define are served for as long as they exist.

Source of the rules: ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from backoff_ctrl.k8s.sandbox.objects.answers import Problem, bad, fixed, missing, unsupported
from backoff_ctrl.k8s.sandbox.objects.kinds import BUILT_IN, DEFINITIONS, Kind, Kinds
from backoff_ctrl.k8s.sandbox.objects.metadata import timestamp
from backoff_ctrl.k8s.sandbox.objects.store import DELETED, Event, Pacing, Store, Stored
from backoff_ctrl.k8s.sandbox.objects.texts import JSON

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_ROOT = "spec.validation.openAPIV3Schema"
_UNTYPED = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")


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
    """Everything that is wrong with a new definition."""
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
    problems += [missing(f"spec.names.{field}") for field in ("plural", "singular", "kind", "listKind")
                 if not names.get(field)]  # fmt: skip
    if not (obj.get("status") or {}).get("storedVersions"):
        text = "Invalid value: null: must have at least one stored version"
        problems.append(("FieldValueInvalid", "status.storedVersions", text))
    return problems


def problems_of_definition_update(before: JSON, obj: JSON) -> list[Problem]:
    """What an update must not change: group, scope, plural and kind."""
    old, new = before["spec"], obj["spec"]
    kept = [(f"spec.{field}", old.get(field), new.get(field)) for field in ("group", "scope")]
    kept += [(f"spec.names.{field}", old["names"].get(field), new["names"].get(field)) for field in ("plural", "kind")]
    problems = [fixed(field, after) for field, was, after in kept if was != after]
    return [*problems, *_version_problems(new.get("versions") or [])]


def _version_problems(versions: list[JSON]) -> Iterator[Problem]:
    if sum(bool(each.get("storage")) for each in versions) != 1:
        yield bad("spec.versions", versions, "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        root = _ROOT if len(versions) == 1 else f"spec.versions[{index}].schema.openAPIV3Schema"
        if not schema:
            yield missing(f"spec.versions[{index}].schema.openAPIV3Schema")
        else:
            yield from _schema_problems(schema, root, root=True)


def _schema_problems(schema: JSON, path: str, *, root: bool = False) -> Iterator[Problem]:
    """Problems of a structural schema: every value needs a type, except where any value is allowed."""
    for name, below in (schema.get("properties") or {}).items():
        if not (root and name == "metadata"):
            yield from _schema_problems(below, f"{path}.properties[{name}]")
    for field in ("items", "additionalProperties"):
        inner: Any = schema.get(field)
        if isinstance(inner, dict):
            yield from _schema_problems(inner, f"{path}.{field}")
    type_ = schema.get("type")
    if type_ and type_ not in _TYPES:
        yield unsupported(f"{path}.type", type_, *_TYPES)
    if not type_ and not any(schema.get(each) for each in _UNTYPED):
        yield missing(f"{path}.type", "must not be empty at the root" if root else
                      "must not be empty for specified object fields")  # fmt: skip


CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_DELAY = 0.005  # seconds: the controllers handle a definition only after the answer
_ALWAYS = frozenset((kind.group, kind.plural) for kind in BUILT_IN)
_CONFLICTS = (("plural", "PluralConflict"), ("singular", "SingularConflict"), ("kind", "KindConflict"),
              ("listKind", "ListKindConflict"))  # fmt: skip


class Definitions:
    """Follows the definitions in the store: accepts their names, serves their kinds, and removes them again."""

    def __init__(self, store: Store, kinds: Kinds, pacing: Pacing, clock: Callable[[], float]) -> None:
        """Subscribe to the store. ``clock`` gives Unix seconds."""
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
            for other in list(self._store.of(DEFINITIONS).within("")):
                self._later(self._accept, other.name)  # names may be free again
        elif obj["metadata"].get("deletionTimestamp"):
            self._later(self._clean, event.name)
        else:
            if _is_established(obj):
                self._serve(event.name, obj)
            self._later(self._accept, event.name)

    def _later(self, work: Callable[[str], None], name: str) -> None:
        if self._pacing.loop is None:
            work(name)
        else:
            self._pacing.loop.call_later(_DELAY, work, name)

    def _find(self, name: str) -> Stored | None:
        return self._store.of(DEFINITIONS).get("", name)

    def _accept(self, name: str) -> None:
        """Set the conditions that clients wait for, and accept the names that no other definition has taken."""
        stored = self._find(name)
        if stored is None or b'"deletionTimestamp"' in stored.data:
            return
        obj = stored.parse()
        names, taken = obj["spec"]["names"], self._taken(obj)
        conflicts = [(field, reason) for field, reason in _CONFLICTS if names.get(field) in taken]
        free = {field: value for field, value in names.items() if field not in dict(conflicts)}
        status = obj.setdefault("status", {})
        status["acceptedNames"] = {"plural": "", "kind": "", **free}
        self._set_conditions(status, names, conflicts)
        if obj != stored.parse():
            self._store.replace(DEFINITIONS, stored, obj)

    def _set_conditions(self, status: JSON, names: JSON, conflicts: list[tuple[str, str]]) -> None:
        if conflicts:
            field, reason = conflicts[-1]
            wanted = [("NamesAccepted", "False", reason, f'"{names[field]}" is already in use'),
                      ("Established", "False", "NotAccepted", "not all names are accepted")]  # fmt: skip
        else:
            text = "the initial names have been accepted"
            wanted = [("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
                      ("Established", "True", "InitialNamesAccepted", text)]  # fmt: skip
        before = {each["type"]: each for each in status.get("conditions") or ()}
        now = timestamp(self._clock())
        status["conditions"] = [
            before[type_]
            if type_ in before and before[type_]["status"] == value
            else {"type": type_, "status": value, "lastTransitionTime": now, "reason": reason, "message": message}
            for type_, value, reason, message in wanted
        ]

    def _taken(self, obj: JSON) -> set[str]:
        """The names of a group that other definitions have taken."""
        group, own = obj["spec"].get("group"), obj["metadata"]["name"]
        taken: set[str] = set()
        for definition, kinds in self._served.items():
            if definition != own:
                for kind in kinds:
                    if kind.group == group:
                        taken |= {kind.plural, kind.singular, kind.kind, kind.list_kind}
        return taken

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

    def _clean(self, name: str) -> None:
        """Remove the objects of a definition that is being deleted, then the definition itself."""
        stored = self._find(name)
        if stored is None:
            return
        for kind in self._served.get(name, ()):
            for each in list(self._store.of(kind).within(None)):
                self._store.remove(kind, each)
        obj = stored.parse()
        left = [each for each in obj["metadata"].get("finalizers") or () if each != CLEANUP]
        if left:
            obj["metadata"]["finalizers"] = left
            if obj != stored.parse():
                self._store.replace(DEFINITIONS, stored, obj)
        else:
            self._store.remove(DEFINITIONS, stored)


def mark_terminating(obj: JSON, now: str) -> None:
    """Add the finalizer and the condition of a deleted definition, which stay until its objects are gone."""
    obj["metadata"]["finalizers"] = [*(obj["metadata"].get("finalizers") or ()), CLEANUP]
    text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    condition = {"type": "Terminating", "status": "True", "lastTransitionTime": now,
                 "reason": "InstanceDeletionPending", "message": text}  # fmt: skip
    status = obj.setdefault("status", {})
    status["conditions"] = [*(status.get("conditions") or ()), condition]


def _is_established(obj: JSON) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Established" and each.get("status") == "True" for each in conditions)


def kinds_of(definition: JSON) -> list[Kind]:
    """One kind for each served version."""
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    return [_kind_of(spec, names, version) for version in spec.get("versions") or () if version.get("served", True)]


def _kind_of(spec: JSON, names: JSON, version: JSON) -> Kind:
    columns: list[dict[str, Any]] = version.get("additionalPrinterColumns") or []
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
        schema=(version.get("schema") or {}).get("openAPIV3Schema"),
        columns=tuple(columns),
    )
