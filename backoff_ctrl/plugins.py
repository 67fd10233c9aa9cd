"""What a plugin is written with: the protocol, what it says of its objects, and the objects that it builds.

    from backoff_ctrl.plugins import Kind, PluginEntry, object_of, pod_template, running, success

``docs/how-to/write-a-plugin.md`` makes one. These names stay; where they are defined does not.
"""

from __future__ import annotations

from backoff_ctrl.k8s.kube.charges.parts import Part
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, PODS, Kind
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.tasks.plugins.core import CoreEntry, CorePlugin, CoreSetup, Handled
from backoff_ctrl.k8s.tasks.plugins.phases import (
    PhaseInfo,
    TaskError,
    TaskLog,
    failed,
    initializing,
    queued,
    running,
    success,
)
from backoff_ctrl.k8s.tasks.plugins.pod_building import container, object_of, pod, pod_template, scheduling
from backoff_ctrl.k8s.tasks.plugins.pod_phases import demystify_pod_status as pod_phase
from backoff_ctrl.k8s.tasks.plugins.pod_phases import get_completion_time as pod_ended_at
from backoff_ctrl.k8s.tasks.plugins.pod_phases import is_terminal as pod_ended
from backoff_ctrl.k8s.tasks.plugins.protocol import (
    AbortBehavior,
    Plugin,
    PluginContext,
    PluginEntry,
    PluginProperties,
    TaskContext,
    TaskMetadata,
    TaskSpecError,
)
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry
from backoff_ctrl.k8s.tasks.plugins.web_protocol import (
    AsyncPlugin,
    CallContext,
    Created,
    PluginConfig,
    PluginSetup,
    RateLimit,
    RemoteError,
    ResourceRequirements,
    SecretError,
    StatusContext,
    SyncPlugin,
)

__all__ = [
    "JSON",
    "PODS",
    "AbortBehavior",
    "AsyncPlugin",
    "CallContext",
    "CoreEntry",
    "CorePlugin",
    "CoreSetup",
    "Created",
    "ErrorKind",
    "Handled",
    "Kind",
    "Part",
    "Phase",
    "PhaseInfo",
    "Plugin",
    "PluginConfig",
    "PluginContext",
    "PluginEntry",
    "PluginProperties",
    "PluginSetup",
    "RateLimit",
    "RemoteError",
    "ResourceRequirements",
    "SecretError",
    "StatusContext",
    "SyncPlugin",
    "TaskContext",
    "TaskError",
    "TaskLog",
    "TaskMetadata",
    "TaskSpecError",
    "WebPluginEntry",
    "container",
    "failed",
    "initializing",
    "object_of",
    "pod",
    "pod_ended",
    "pod_ended_at",
    "pod_phase",
    "pod_template",
    "queued",
    "running",
    "scheduling",
    "success",
]
