"""What marks an object in the cluster as a task's: name, labels, finalizer, owner, and the key of the attempt. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from backoff_ctrl.k8s.kube.answers.fields import mapping, metadata_of, text
from backoff_ctrl.k8s.kube.answers.objects import Object
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, NAME_LEAST

from .config import K8sPluginConfig
from .protocol import PluginProperties, TaskMetadata

Key: TypeAlias = tuple[str, int]
"""A task's uid and the number of the attempt: one object each."""

TASK_UID: Final = "backoff-ctrl.dev/task-uid"
ATTEMPT: Final = "backoff-ctrl.dev/attempt"
STORE: Final = "backoff-ctrl.dev/store"
"""The label that bounds what is watched, and what is swept."""
MARKS: Final = frozenset({TASK_UID, ATTEMPT, STORE})
"""The labels by which the task of an object is known."""
TASK_NAME: Final = "backoff-ctrl.dev/task-name"
PROJECT: Final = "backoff-ctrl.dev/project"
DOMAIN: Final = "backoff-ctrl.dev/domain"
"""Labels for people who look for a task's objects with kubectl; names that are not label values are adapted."""
FINALIZER: Final = "backoff-ctrl.dev/finalizer"
HASH: Final = 10
"""Characters of the hash, of 32 each, that ends a changed name: ten thousand long names stay different."""
LABEL_LONGEST: Final = 63
_NOT_DNS: Final = re.compile(r"[^a-z0-9-]+")
_NOT_LABEL: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LABEL: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def marks_of(key: Key, store: str) -> dict[str, str]:
    return {TASK_UID: key[0], ATTEMPT: str(key[1]), STORE: store}


def key_of(found: Object) -> Key | None:
    """Return the key of an object; None: it does not belong to a task."""
    uid, attempt = text(found.labels.get(TASK_UID)), text(found.labels.get(ATTEMPT))
    return (uid, int(attempt)) if uid and attempt.isdecimal() else None


def key_of_task(task: TaskMetadata) -> Key:
    return task.uid, task.attempt


def object_name(generated: str, longest: int) -> str:
    """Return a DNS-1123 label: a valid text unchanged, any other with characters replaced, cut, and with a hash."""
    longest = max(NAME_LEAST, min(longest, LABEL_LONGEST))
    plain = _NOT_DNS.sub("-", generated.lower()).strip("-")
    if plain == generated and len(plain) <= longest:
        return plain
    letters = min(HASH, longest - 2)
    digest = base64.b32encode(hashlib.sha256(generated.encode()).digest())[:letters].decode().lower()
    stem = plain[: longest - letters - 1].strip("-")
    return f"{stem}-{digest}" if stem else f"t{digest}"


def is_label_value(text: str) -> bool:
    return _LABEL.fullmatch(text) is not None


def label_value(text: str) -> str:
    """Return a label value: a valid text unchanged, any other with characters replaced, cut, and with a hash."""
    if is_label_value(text):
        return text
    digest = base64.b32encode(hashlib.sha256(text.encode()).digest())[:HASH].decode().lower()
    stem = _NOT_LABEL.sub("-", text)[: LABEL_LONGEST - HASH - 1].strip("-_.")
    return f"{stem}-{digest}" if stem else digest


def with_metadata(
    manifest: Mapping[str, Any],
    task: TaskMetadata,
    config: K8sPluginConfig,
    properties: PluginProperties,
    store: str,
) -> JSON:
    """Return the manifest as it is created.

    Labels and annotations are merged, later ones take precedence: the platform's defaults, the object's own, the
    task's; last the manager's own labels, with the names of the task, its project and its domain.
    """
    own = metadata_of(manifest)
    metadata: JSON = {
        **{name: value for name, value in own.items() if name != "generateName"},
        "namespace": task.namespace,
        "name": object_name(task.generated_name, properties.generated_name_max_length),
        "annotations": {**config.default_annotations, **mapping(own.get("annotations")), **task.annotations},
        "labels": {
            **config.default_labels,
            **mapping(own.get("labels")),
            **task.labels,
            **_names_of(task),
            **marks_of(key_of_task(task), store),
        },
    }
    unowned = properties.disable_inject_owner_references or config.disable_inject_owner_references
    if task.owner is not None and not unowned:
        metadata["ownerReferences"] = [*(own.get("ownerReferences") or ()), dict(task.owner)]
    if config.inject_finalizer and task.owner is not None and not properties.disable_inject_finalizer:
        # Without an owner in the cluster a manager that is gone for good would block each deletion.
        metadata["finalizers"] = [*(own.get("finalizers") or ()), FINALIZER]
    return {**manifest, "metadata": metadata}


def _names_of(task: TaskMetadata) -> dict[str, str]:
    """Return the labels by which people find a task's object, for what it names."""
    names = {TASK_NAME: task.name, PROJECT: task.project, DOMAIN: task.domain}
    return {label: label_value(name) for label, name in names.items() if name}
