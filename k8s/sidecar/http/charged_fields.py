"""The fields of protobuf messages that are read: metadata, and what is charged. Written by ``tools/charged_fields.py``.

Derived from the ``.proto`` files and Go types of Kubernetes 1.36 (Apache-2.0). A message whose fields do not matter is
empty here: that it is there is all that is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple


class Plain(Enum):
    """Types that are no messages of the table."""

    TEXT = auto()
    FLAG = auto()
    INT32 = auto()
    INT64 = auto()
    TIME = auto()
    QUANTITY = auto()


class Times(Enum):
    """How often a field comes."""

    ONCE = auto()  # zero means absent, and is left out of JSON
    POINTED = auto()  # a pointer in Go: zero is a value
    LIST = auto()
    MAP = auto()  # of texts to the type


class Field(NamedTuple):
    """A field: its name in JSON, its type (a name is that of a message), and how often it comes."""

    name: str
    type: Plain | str
    times: Times = Times.ONCE


MESSAGES: Final[Mapping[str, Mapping[int, Field]]] = {
    "core.v1.Affinity": {
        2: Field("podAffinity", "core.v1.PodAffinity", Times.POINTED),
        3: Field("podAntiAffinity", "core.v1.PodAntiAffinity", Times.POINTED),
    },
    "core.v1.Container": {
        1: Field("name", Plain.TEXT),
        8: Field("resources", "core.v1.ResourceRequirements"),
        24: Field("restartPolicy", Plain.TEXT, Times.POINTED),
    },
    "core.v1.ContainerStatus": {
        1: Field("name", Plain.TEXT),
        10: Field("allocatedResources", Plain.QUANTITY, Times.MAP),
        11: Field("resources", "core.v1.ResourceRequirements", Times.POINTED),
    },
    "core.v1.PersistentVolumeClaim": {
        1: Field("metadata", "meta.v1.ObjectMeta"),
        2: Field("spec", "core.v1.PersistentVolumeClaimSpec"),
        3: Field("status", "core.v1.PersistentVolumeClaimStatus"),
    },
    "core.v1.PersistentVolumeClaimSpec": {
        2: Field("resources", "core.v1.VolumeResourceRequirements"),
        5: Field("storageClassName", Plain.TEXT, Times.POINTED),
        9: Field("volumeAttributesClassName", Plain.TEXT, Times.POINTED),
    },
    "core.v1.PersistentVolumeClaimStatus": {
        5: Field("allocatedResources", Plain.QUANTITY, Times.MAP),
    },
    "core.v1.Pod": {
        1: Field("metadata", "meta.v1.ObjectMeta"),
        2: Field("spec", "core.v1.PodSpec"),
        3: Field("status", "core.v1.PodStatus"),
    },
    "core.v1.PodAffinity": {
        1: Field("requiredDuringSchedulingIgnoredDuringExecution", "core.v1.PodAffinityTerm", Times.LIST),
        2: Field("preferredDuringSchedulingIgnoredDuringExecution", "core.v1.WeightedPodAffinityTerm", Times.LIST),
    },
    "core.v1.PodAffinityTerm": {
        2: Field("namespaces", Plain.TEXT, Times.LIST),
        4: Field("namespaceSelector", "meta.v1.LabelSelector", Times.POINTED),
    },
    "core.v1.PodAntiAffinity": {
        1: Field("requiredDuringSchedulingIgnoredDuringExecution", "core.v1.PodAffinityTerm", Times.LIST),
        2: Field("preferredDuringSchedulingIgnoredDuringExecution", "core.v1.WeightedPodAffinityTerm", Times.LIST),
    },
    "core.v1.PodCondition": {
        1: Field("type", Plain.TEXT),
        2: Field("status", Plain.TEXT),
        5: Field("reason", Plain.TEXT),
    },
    "core.v1.PodSpec": {
        2: Field("containers", "core.v1.Container", Times.LIST),
        5: Field("activeDeadlineSeconds", Plain.INT64, Times.POINTED),
        10: Field("nodeName", Plain.TEXT),
        18: Field("affinity", "core.v1.Affinity", Times.POINTED),
        20: Field("initContainers", "core.v1.Container", Times.LIST),
        24: Field("priorityClassName", Plain.TEXT),
        32: Field("overhead", Plain.QUANTITY, Times.MAP),
        40: Field("resources", "core.v1.ResourceRequirements", Times.POINTED),
    },
    "core.v1.PodStatus": {
        1: Field("phase", Plain.TEXT),
        2: Field("conditions", "core.v1.PodCondition", Times.LIST),
        7: Field("startTime", Plain.TIME, Times.POINTED),
        8: Field("containerStatuses", "core.v1.ContainerStatus", Times.LIST),
        9: Field("qosClass", Plain.TEXT),
        10: Field("initContainerStatuses", "core.v1.ContainerStatus", Times.LIST),
    },
    "core.v1.ResourceRequirements": {
        1: Field("limits", Plain.QUANTITY, Times.MAP),
        2: Field("requests", Plain.QUANTITY, Times.MAP),
    },
    "core.v1.Service": {
        1: Field("metadata", "meta.v1.ObjectMeta"),
        2: Field("spec", "core.v1.ServiceSpec"),
    },
    "core.v1.ServicePort": {
        3: Field("port", Plain.INT32),
        5: Field("nodePort", Plain.INT32),
    },
    "core.v1.ServiceSpec": {
        1: Field("ports", "core.v1.ServicePort", Times.LIST),
        4: Field("type", Plain.TEXT),
        20: Field("allocateLoadBalancerNodePorts", Plain.FLAG, Times.POINTED),
    },
    "core.v1.VolumeResourceRequirements": {
        1: Field("limits", Plain.QUANTITY, Times.MAP),
        2: Field("requests", Plain.QUANTITY, Times.MAP),
    },
    "core.v1.WeightedPodAffinityTerm": {
        2: Field("podAffinityTerm", "core.v1.PodAffinityTerm"),
    },
    "meta.v1.LabelSelector": {},
    "meta.v1.ObjectMeta": {
        1: Field("name", Plain.TEXT),
        2: Field("generateName", Plain.TEXT),
        3: Field("namespace", Plain.TEXT),
        5: Field("uid", Plain.TEXT),
        6: Field("resourceVersion", Plain.TEXT),
        7: Field("generation", Plain.INT64),
        8: Field("creationTimestamp", Plain.TIME),
        9: Field("deletionTimestamp", Plain.TIME, Times.POINTED),
        10: Field("deletionGracePeriodSeconds", Plain.INT64, Times.POINTED),
        11: Field("labels", Plain.TEXT, Times.MAP),
        12: Field("annotations", Plain.TEXT, Times.MAP),
        13: Field("ownerReferences", "meta.v1.OwnerReference", Times.LIST),
        14: Field("finalizers", Plain.TEXT, Times.LIST),
    },
    "meta.v1.OwnerReference": {
        1: Field("kind", Plain.TEXT),
        3: Field("name", Plain.TEXT),
        4: Field("uid", Plain.TEXT),
        5: Field("apiVersion", Plain.TEXT),
        6: Field("controller", Plain.FLAG, Times.POINTED),
    },
    "meta.v1.Status": {
        2: Field("status", Plain.TEXT),
        3: Field("message", Plain.TEXT),
        4: Field("reason", Plain.TEXT),
        5: Field("details", "meta.v1.StatusDetails", Times.POINTED),
        6: Field("code", Plain.INT32),
    },
    "meta.v1.StatusCause": {
        1: Field("reason", Plain.TEXT),
        2: Field("message", Plain.TEXT),
        3: Field("field", Plain.TEXT),
    },
    "meta.v1.StatusDetails": {
        1: Field("name", Plain.TEXT),
        2: Field("group", Plain.TEXT),
        3: Field("kind", Plain.TEXT),
        4: Field("causes", "meta.v1.StatusCause", Times.LIST),
        5: Field("retryAfterSeconds", Plain.INT32),
        6: Field("uid", Plain.TEXT),
    },
    "resource.v1.DeviceClaim": {
        1: Field("requests", "resource.v1.DeviceRequest", Times.LIST),
    },
    "resource.v1.DeviceRequest": {
        2: Field("exactly", "resource.v1.ExactDeviceRequest", Times.POINTED),
        3: Field("firstAvailable", "resource.v1.DeviceSubRequest", Times.LIST),
    },
    "resource.v1.DeviceSubRequest": {
        2: Field("deviceClassName", Plain.TEXT),
        4: Field("allocationMode", Plain.TEXT),
        5: Field("count", Plain.INT64),
    },
    "resource.v1.ExactDeviceRequest": {
        1: Field("deviceClassName", Plain.TEXT),
        3: Field("allocationMode", Plain.TEXT),
        4: Field("count", Plain.INT64),
    },
    "resource.v1.ResourceClaim": {
        1: Field("metadata", "meta.v1.ObjectMeta"),
        2: Field("spec", "resource.v1.ResourceClaimSpec"),
    },
    "resource.v1.ResourceClaimSpec": {
        1: Field("devices", "resource.v1.DeviceClaim"),
    },
    "resource.v1beta1.DeviceClaim": {
        1: Field("requests", "resource.v1beta1.DeviceRequest", Times.LIST),
    },
    "resource.v1beta1.DeviceRequest": {
        2: Field("deviceClassName", Plain.TEXT),
        4: Field("allocationMode", Plain.TEXT),
        5: Field("count", Plain.INT64),
        7: Field("firstAvailable", "resource.v1beta1.DeviceSubRequest", Times.LIST),
    },
    "resource.v1beta1.DeviceSubRequest": {
        2: Field("deviceClassName", Plain.TEXT),
        4: Field("allocationMode", Plain.TEXT),
        5: Field("count", Plain.INT64),
    },
    "resource.v1beta1.ResourceClaim": {
        1: Field("metadata", "meta.v1.ObjectMeta"),
        2: Field("spec", "resource.v1beta1.ResourceClaimSpec"),
    },
    "resource.v1beta1.ResourceClaimSpec": {
        1: Field("devices", "resource.v1beta1.DeviceClaim"),
    },
}

KINDS: Final[Mapping[tuple[str, str], str]] = {
    ("v1", "Pod"): "core.v1.Pod",
    ("v1", "PersistentVolumeClaim"): "core.v1.PersistentVolumeClaim",
    ("v1", "Service"): "core.v1.Service",
    ("v1", "Status"): "meta.v1.Status",
    ("resource.k8s.io/v1", "ResourceClaim"): "resource.v1.ResourceClaim",
    ("resource.k8s.io/v1beta1", "ResourceClaim"): "resource.v1beta1.ResourceClaim",
    ("resource.k8s.io/v1beta2", "ResourceClaim"): "resource.v1.ResourceClaim",
}
"""By apiVersion and kind. Of all other kinds the metadata is read."""
