"""The CustomResourceDefinition of Tasks, written from the shapes of ``tasks/model``: one source for all who check.

Structural, as Kubernetes demands of it: what holds Kubernetes JSON or parameters of a plugin keeps unknown fields, all
other fields are typed, and kubectl refuses an unknown one with its path. It writes no defaults into a Task, so that a
spec stays as its author wrote it.

Rules in CEL hold what a type can't: what was applied does not change, but for ``MUTABLE``. CEL does not see fields
whose names the schema does not know: a container may change unseen here, and the webhook of Tasks, which compares
hashes, refuses that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from backoff_ctrl.k8s.tasks.model import API_VERSION, DURATION, JSON, KIND, MUTABLE, NOTED_WITH, TaskSpec, TaskStatus

GROUP: Final = API_VERSION.partition("/")[0]
VERSION: Final = API_VERSION.partition("/")[2]
PLURAL: Final = "tasks"
NAME: Final = f"{PLURAL}.{GROUP}"
_FREE: Final = "x-kubernetes-preserve-unknown-fields"
_ATOMIC: Final = "x-kubernetes-map-type"
_RULES: Final = "x-kubernetes-validations"
_KEPT: Final = ("type", "description", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "maxItems",
                "minItems", "maxProperties", "format")  # fmt: skip
_PLAIN: Final = re.compile(r"``([^`]*)``")

COLUMNS: Final[tuple[JSON, ...]] = (
    {"name": "Type", "type": "string", "jsonPath": ".spec.type", "description": "The task type."},
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "How far it is."},
    {"name": "Try", "type": "integer", "jsonPath": ".status.try", "description": "The attempt; 1 is the first."},
    {"name": "Waits for", "type": "string", "jsonPath": ".status.waitsFor", "description": "The quota, or the task."},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "Since its creation."},
)  # fmt: skip

OF_CLUSTER: Final[dict[str, JSON]] = {
    "try": {"type": "integer", "format": "int64", "description": "The present attempt; 1 is the first."},
    "waitsFor": {"type": "string", "description": "What it waits for, in a few words: a quota, or another task."},
    "observedGeneration": {
        "type": "integer", "format": "int64", "description": "The generation of the spec that this status is about."
    },
    "conditions": {
        "type": "array",
        "description": "Progressing, Succeeded and Failed, for kubectl wait --for=condition=Succeeded.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string", "description": "Progressing, Succeeded or Failed."},
                "status": {"type": "string", "enum": ["True", "False"], "description": "Whether it holds."},
                "reason": {"type": "string", "description": "Why, in one word: Executing, WaitingForResources, ..."},
                "message": {"type": "string", "description": "Why, in a sentence."},
                "lastTransitionTime": {
                    "type": "string", "format": "date-time", "description": "When its status changed."
                },
            },
        },
    },
}  # fmt: skip
"""Fields of the status that only the cluster has: for its columns, and for those who wait with kubectl."""


def definition() -> JSON:
    """Return the CustomResourceDefinition, as it is applied."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _task()},
        "subresources": {"status": {}},
        "additionalPrinterColumns": list(COLUMNS),
    }
    names = {"plural": PLURAL, "singular": KIND.lower(), "kind": KIND, "listKind": f"{KIND}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def written() -> str:
    """Return the definition as YAML: JSON with one field a line, which YAML is."""
    return json.dumps(definition(), indent=2) + "\n"


def _task() -> JSON:
    spec, status = _structural(TaskSpec.model_json_schema()), _structural(TaskStatus.model_json_schema())
    spec[_RULES] = _spec_rules(spec["properties"])
    for each in ("timeout", "deadline", "ttl"):
        spec["properties"][each][_RULES] = [
            _rule(
                f"self.matches('{DURATION}') && self.matches('[1-9]')",
                'write a duration such as "90s", "15m" or "1h30m"',
            )
        ]
    status["properties"].update(OF_CLUSTER)
    return {
        "type": "object",
        "description": "A task: work to run once the quota has room for it, and again if it fails.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }


def _spec_rules(properties: Mapping[str, JSON]) -> list[JSON]:
    """Return the rules that hold what CEL sees of a spec; of a field with unknown parts that is whether it is there."""
    rules = [
        _rule("!has(oldSelf.abort) || !oldSelf.abort || (has(self.abort) && self.abort)",
              "abort can't be taken back", "abort"),
        *(_rule(f"!has(oldSelf.{note}) || (has(self.{note}) && self.{note} == oldSelf.{note})",
                f"it is written with {asked}, and can't be changed", note) for asked, note in NOTED_WITH.items()),
        _rule("!has(oldSelf.again) || (has(self.again) && self.again >= oldSelf.again)",
              "it counts how often the task runs again: raise it", "again"),
        _rule("!has(self.abort) || !self.abort || !has(self.again) || "
              "(has(oldSelf.again) && self.again == oldSelf.again)",
              "a task that was aborted does not run again: delete it, and create it anew", "again"),
    ]  # fmt: skip
    for name, field in properties.items():
        if name in MUTABLE or not _is_seen(field):
            continue
        there = f"has(self.{name}) == has(oldSelf.{name})"
        if not _has_free_parts(field):
            there += f" && (!has(self.{name}) || self.{name} == oldSelf.{name})"
        rules.append(_rule(there, "it can't be changed: delete the task, or give the new one another name", name))
    return rules


def _rule(rule: str, message: str, field: str = "") -> JSON:
    where = {"fieldPath": f".{field}"} if field else {}
    return {"rule": rule, "message": message, "reason": "FieldValueInvalid", **where}


def _is_seen(field: JSON) -> bool:
    """Return whether CEL sees a field: not what may be of any type, nor a list of that."""
    return "type" in field and ("items" not in field or _is_seen(field["items"]))


def _has_free_parts(field: JSON) -> bool:
    return bool(field.get(_FREE)) or any(
        _has_free_parts(each)
        for each in [*field.get("properties", {}).values(), *[field[key] for key in ("items",) if key in field]]
    )


def _structural(schema: JSON) -> JSON:
    """Return a JSON schema of pydantic as a structural one."""
    return _converted(schema, schema.get("$defs", {}))


def _converted(given: JSON, known: Mapping[str, JSON]) -> JSON:
    if "$ref" in given:
        named = known[given["$ref"].rpartition("/")[2]]
        return _converted({**named, **{key: value for key, value in given.items() if key != "$ref"}}, known)
    if "anyOf" in given:
        kinds = [each for each in given["anyOf"] if each.get("type") != "null"]
        told = {"description": given["description"]} if "description" in given else {}
        if len(kinds) > 1:  # Kubernetes knows no fields of several types
            return {_FREE: True, **told}
        nullable = {"nullable": True} if len(kinds) < len(given["anyOf"]) else {}
        return {**_converted({**kinds[0], **told}, known), **nullable}
    found: JSON = {key: given[key] for key in _KEPT if key in given}
    if "description" in found:
        found["description"] = _PLAIN.sub(r"\1", " ".join(found["description"].split()))
    if "const" in given:
        found |= {"type": "string", "enum": [given["const"]]}
    if given.get("type") == "integer":
        found["format"] = "int64"
        if "exclusiveMaximum" in given:
            found["maximum"] = given["exclusiveMaximum"] - 1
    return {**found, **_parts(given, known)}


def _parts(given: JSON, known: Mapping[str, JSON]) -> JSON:
    """Return what a schema says of the parts of a value."""
    if given.get("type") == "array":
        return {"items": _converted(given.get("items", {}), known)}
    if "type" not in given and "const" not in given:
        return {_FREE: True}
    return _fields(given, known) if given.get("type") == "object" else {}


def _fields(given: JSON, known: Mapping[str, JSON]) -> JSON:
    """Return what a schema says of an object: fields with names, values of any name, or anything at all."""
    if "properties" in given:
        required = {"required": given["required"]} if given.get("required") else {}
        return {"properties": {name: _converted(each, known) for name, each in given["properties"].items()}, **required}
    for pattern, each in given.get("patternProperties", {}).items():
        rule = _rule(f"self.all(name, name.matches('{pattern}'))", f"a name has to match {pattern}")
        return {"additionalProperties": _converted(each, known), _RULES: [rule]}
    values: Any = given.get("additionalProperties")
    if isinstance(values, dict):
        return {"additionalProperties": _converted(values, known)}
    return {_FREE: True, _ATOMIC: "atomic"}
