"""What a CustomResourceDefinition must contain, and its defaults (``k8s.io/apiextensions-apiserver``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.wire.problems import bad, fixed, missing, unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON
    from backoff_ctrl.k8s.sandbox.wire.problems import Problem

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
