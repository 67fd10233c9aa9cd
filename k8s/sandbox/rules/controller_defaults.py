"""Defaults for the kinds that create pods (``defaults.go`` of ``pkg/apis/apps/v1`` and ``batch/v1``)."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from .pod_defaults import default_template

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

TEMPLATED = frozenset({"cronjobs", "daemonsets", "deployments", "jobs", "podtemplates", "replicasets",
                       "replicationcontrollers", "statefulsets"})  # fmt: skip
_FIELDS: dict[str, JSON] = {
    "cronjobs": {"concurrencyPolicy": "Allow", "suspend": False, "successfulJobsHistoryLimit": 3,
                 "failedJobsHistoryLimit": 1},
    "daemonsets": {"revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate"}},
    "deployments": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                    "strategy": {"type": "RollingUpdate"}},
    "jobs": {"backoffLimit": 6, "suspend": False, "completionMode": "NonIndexed", "manualSelector": False,
             "podReplacementPolicy": "TerminatingOrFailed"},
    "replicasets": {"replicas": 1},
    "replicationcontrollers": {"replicas": 1},
    "statefulsets": {"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady",
                     "updateStrategy": {"type": "RollingUpdate"},
                     "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}},
}  # fmt: skip
_ROLLING: dict[str, tuple[str, JSON]] = {
    "daemonsets": ("updateStrategy", {"maxSurge": 0, "maxUnavailable": 1}),
    "deployments": ("strategy", {"maxSurge": "25%", "maxUnavailable": "25%"}),
    "statefulsets": ("updateStrategy", {"partition": 0}),
}


def default_controller(plural: str, obj: JSON) -> None:
    """Fill in the defaults of an object whose plural is in ``TEMPLATED``. Raises ``AmountError``."""
    if plural == "podtemplates":
        _template(obj.get("template"))
        return
    spec = obj.setdefault("spec", {})
    _set(spec, _FIELDS.get(plural, {}))
    if plural in _ROLLING:
        field, values = _ROLLING[plural]
        if spec[field].get("type", "RollingUpdate") == "RollingUpdate":
            spec[field]["type"] = "RollingUpdate"
            _set(spec[field].setdefault("rollingUpdate", {}), values)
    if plural == "cronjobs":
        template = spec.setdefault("jobTemplate", {})
        template.setdefault("metadata", {})
        spec = template.setdefault("spec", {})
    _template(spec.get("template"))
    if plural == "jobs":
        _job(obj, spec)
    elif plural == "replicationcontrollers":
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        for holder, field in ((spec, "selector"), (obj["metadata"], "labels")):
            if labels and not holder.get(field):
                holder[field] = dict(labels)


def _job(job: JSON, spec: JSON) -> None:
    """Set parallelism and completions to 1, and a selector for the job's uid."""
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    template, metadata = spec.get("template"), job["metadata"]
    if isinstance(template, dict) and not spec["manualSelector"] and "selector" not in spec and metadata.get("uid"):
        labels = template["metadata"].setdefault("labels", {})
        for prefix in ("", "batch.kubernetes.io/"):
            labels[f"{prefix}controller-uid"] = metadata["uid"]
            labels[f"{prefix}job-name"] = metadata["name"]
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": metadata["uid"]}}
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)


def _template(template: Any) -> None:
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        template.setdefault("metadata", {})
        default_template(template["spec"])


def _set(holder: JSON, values: JSON) -> None:
    for field, value in values.items():
        holder.setdefault(field, deepcopy(value))
