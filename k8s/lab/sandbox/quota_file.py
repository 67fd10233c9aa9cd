"""The file for ``backoff-ctrl sandbox --quota-file``: the namespaces, quotas and limit ranges to start with."""

from __future__ import annotations

from typing import Any

import yaml

from backoff_ctrl.k8s.lab.sandbox.admission.amounts import AmountError, amount_of
from backoff_ctrl.k8s.lab.sandbox.objects.answers import ApiError
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import LIMIT_RANGES, NAMESPACES, PRIORITY_CLASSES, QUOTAS, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.yaml_text import KubernetesLoader

from .cluster import Sandbox

_ACCEPTED = {kind.kind: kind for kind in (NAMESPACES, QUOTAS, LIMIT_RANGES, PRIORITY_CLASSES)}


class QuotaFileError(ValueError):
    """The file cannot be used; the message says which document is wrong and why.

    ``document`` is the one that the server refuses, if it does.
    """

    document: dict[str, Any] | None = None


def load_quota_file(text: str) -> list[tuple[Kind, str, dict[str, Any]]]:
    """Parse the documents into (kind, namespace, object), namespaces first. Raises ``QuotaFileError``."""
    try:
        loaded = yaml.load_all(text, KubernetesLoader)
        documents = [document for document in loaded if document is not None]
    except yaml.MarkedYAMLError as error:
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if (mark := error.problem_mark) else ""
        raise QuotaFileError(f"is not valid YAML{place}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise QuotaFileError(f"is not valid YAML: {' '.join(str(error).split())}") from error
    found: list[tuple[Kind, str, dict[str, Any]]] = []
    for number, document in enumerate(_flat(documents), 1):
        found.append(_checked(number, document))
    if not found:
        raise QuotaFileError("holds no ResourceQuota")
    return sorted(found, key=lambda each: each[0].namespaced)


def _flat(documents: list[Any]) -> list[Any]:
    flat: list[Any] = []
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "List":
            items = document.get("items") or []
            if not isinstance(items, list):
                raise QuotaFileError("contains a List whose items are not a list")
            flat += items
        else:
            flat.append(document)
    return flat


def _checked(number: int, document: Any) -> tuple[Kind, str, dict[str, Any]]:
    if not isinstance(document, dict):
        raise QuotaFileError(f"document {number} is not an object: give ResourceQuotas and Namespaces")
    kind = _ACCEPTED.get(str(document.get("kind")))
    if kind is None:
        raise QuotaFileError(f"document {number} has kind {document.get('kind')!r}: give one of {', '.join(_ACCEPTED)}")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise QuotaFileError(f"document {number}, a {kind.kind}, has no metadata.name")
    namespace = metadata.get("namespace", "default") if kind.namespaced else ""
    if not isinstance(namespace, str):
        raise QuotaFileError(f"document {number}, {kind.kind} {metadata['name']}: metadata.namespace is not a string")
    hard = (document.get("spec") or {}).get("hard") if isinstance(document.get("spec"), dict) else None
    if kind is QUOTAS and not (isinstance(hard, dict) and hard):
        raise QuotaFileError(f"document {number}, ResourceQuota {metadata['name']}: spec.hard is missing")
    for resource, value in (hard or {}).items() if kind is QUOTAS else ():
        _check_quantity(f"document {number}, ResourceQuota {metadata['name']}: spec.hard.{resource}", value)
    return kind, namespace, document


def _check_quantity(field: str, value: Any) -> None:
    """Refuse an invalid quantity here: the server refuses it too, but its message does not name the field."""
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise QuotaFileError(f"{field} is not a quantity: give a number, or a string such as 500m or 1Gi")
    try:
        amount_of(value)
    except AmountError as error:
        raise QuotaFileError(f"{field} is not a quantity: {value!r}; {error}") from error


def apply_quota_file(sandbox: Sandbox, documents: list[tuple[Kind, str, dict[str, Any]]]) -> None:
    """Create everything, including namespaces that only the metadata names. Raises ``QuotaFileError``."""
    named = {namespace for kind, namespace, _ in documents if kind.namespaced}
    for kind, namespace, document in documents:
        if kind.namespaced and namespace in named:
            named.discard(namespace)
            _make(sandbox, NAMESPACES, "", {"metadata": {"name": namespace}}, existing=True)
        _make(sandbox, kind, namespace, document, existing=kind is NAMESPACES)
    sandbox.recount()


def _make(sandbox: Sandbox, kind: Kind, namespace: str, document: dict[str, Any], *, existing: bool) -> None:
    try:
        sandbox.create(kind, namespace, document, strict=True)
    except ApiError as error:
        if existing and error.status["reason"] == "AlreadyExists":
            return
        name = document["metadata"]["name"]
        refused = QuotaFileError(f"{kind.kind} {name}: {error.status['message']}")
        refused.document = document
        raise refused from error
