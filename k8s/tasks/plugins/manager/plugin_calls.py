"""Calls of plugins: an exception is a bug of the plugin, becomes a failure with its name, and is counted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.charges.parts import Part, parts_of
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, flaw_of
from backoff_ctrl.k8s.tasks.plugins.protocol import (
    AbortBehavior,
    MakesPods,
    NamedPods,
    PluginAbortOverride,
    PluginBugError,
    PluginContext,
    PluginEntry,
    PluginProperties,
    RelatedPods,
    TaskContext,
    TaskMetadata,
    TaskSpecError,
)

from .figures import ManagerCounts

log = logging.getLogger(__name__)

T = TypeVar("T")


class PluginCalls:
    """Guarded calls of one plugin. Every method raises ``PluginBugError``; ``build`` also ``TaskSpecError``."""

    def __init__(self, entry: PluginEntry, counts: ManagerCounts) -> None:
        self.entry = entry
        self.id = entry.id
        self.kind = entry.resource_to_watch
        self._plugin = entry.plugin
        self._counts = counts

    def build(self, task: TaskContext) -> JSON:
        built: Any = self._call("build_resource", self._plugin.build_resource, task)
        if not isinstance(built, dict) or (built.get("apiVersion"), built.get("kind")) != (
            self.kind.api_version,
            self.kind.kind,
        ):
            made = f"{built.get('apiVersion')} {built.get('kind')}" if isinstance(built, dict) else type(built).__name__
            wrong = TypeError(f"it built {made} instead of {self.kind.api_version} {self.kind.kind}")
            raise self._bug("build_resource", wrong)
        return built

    def properties(self) -> PluginProperties:
        found = self._call("get_properties", self._plugin.get_properties)
        if not isinstance(found, PluginProperties):
            raise self._bug("get_properties", TypeError(f"it returned {type(found).__name__}, no PluginProperties"))
        return found

    def properties_at_the_end(self) -> PluginProperties:
        """Return the same, or the defaults if the plugin fails: its objects are cleaned up all the same."""
        try:
            return self.properties()
        except PluginBugError:
            return PluginProperties()

    def phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        said = self._call("get_task_phase", self._plugin.get_task_phase, context, resource)
        if flaw := flaw_of(said):
            raise self._bug("get_task_phase", TypeError(flaw))
        return said

    def is_terminal(self, resource: JSON) -> bool:
        return bool(self._call("is_terminal", self._plugin.is_terminal, resource))

    def pod_labels(self, resource: JSON) -> Mapping[str, str]:
        """Return the labels of the object's pods; empty: the plugin needs no pods."""
        if not isinstance(self._plugin, RelatedPods):
            return {}
        found: Any = self._call("pod_labels", self._plugin.pod_labels, resource) or {}
        if not (isinstance(found, Mapping) and all(isinstance(each, str) for pair in found.items() for each in pair)):
            raise self._bug("pod_labels", TypeError("it returned no labels: names and values are texts"))
        return dict(found)

    def pod_names(self, resource: JSON) -> tuple[str, ...]:
        """Return the names of the object's pods; empty: it does not know them."""
        if not isinstance(self._plugin, NamedPods):
            return ()
        found: Any = self._call("pod_names", self._plugin.pod_names, resource) or ()
        if not isinstance(found, list | tuple) or not all(isinstance(each, str) and each for each in found):
            raise self._bug("pod_names", TypeError("it returned no list of names"))
        return tuple(found)

    def parts(self, resource: JSON) -> tuple[Part, ...]:
        """Return what controllers make of an object; empty for an unreadable one, which the server will refuse."""
        try:
            if isinstance(self._plugin, MakesPods):
                return self._plugin.parts(resource)
            return parts_of(resource, resource=self.kind.resource)
        except (FieldError, TaskSpecError, AttributeError):
            return ()
        except Exception as error:
            raise self._bug("parts", error) from error

    def on_abort(self, task: TaskMetadata, resource: JSON) -> AbortBehavior | None:
        """Return how the object is ended; None: it is deleted."""
        if not isinstance(self._plugin, PluginAbortOverride):
            return None
        found = self._call("on_abort", self._plugin.on_abort, task, resource)
        if not isinstance(found, AbortBehavior):
            raise self._bug("on_abort", TypeError(f"it returned {type(found).__name__} instead of an AbortBehavior"))
        return found

    def _call(self, method: str, do: Callable[..., T], *given: Any) -> T:
        try:
            return do(*given)
        except Exception as error:
            if isinstance(error, TaskSpecError) and method == "build_resource":
                raise
            raise self._bug(method, error) from error

    def _bug(self, method: str, error: Exception) -> PluginBugError:
        self._counts.plugin_errors[self.id, method] += 1
        log.error("plugin %s failed in %s", self.id, method, exc_info=error)
        return PluginBugError(self.id, method, error)
