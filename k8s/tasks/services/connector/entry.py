"""The connector plugin's entry in the registry, with the task types that connectors have listed so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.k8s.tasks.plugins.protocol import PluginError, TaskContext, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry

from .directory import NEEDS_PACKAGES, Directory, has_packages
from .settings import ID, OWN_KEYS

if TYPE_CHECKING:
    from backoff_ctrl.k8s.tasks.plugins.web_protocol import AsyncPlugin, PluginSetup


def entry_of(directory: Directory) -> WebPluginEntry:
    """Return the plugin with the task types of now. It always serves ``connector``, whose template names the type."""

    def load(setup: PluginSetup) -> AsyncPlugin:
        if not has_packages():
            raise PluginError(NEEDS_PACKAGES)
        from .plugin import ConnectorPlugin  # noqa: PLC0415 - loads grpcio and flyteidl

        return ConnectorPlugin(setup, directory)

    return WebPluginEntry(
        ID,
        (ID,),
        load,
        check=_check,
        own_keys=OWN_KEYS,
        discovered_task_types=directory.types(),
        discovering=bool(directory.missing),
    )


def _check(task: TaskContext) -> None:
    """Make the messages of a task, which are not kept. Raises ``TaskSpecError``."""
    if not has_packages():
        raise TaskSpecError("spec.type", NEEDS_PACKAGES)
    from .requests import request_of  # noqa: PLC0415 - loads flyteidl

    request_of(task)
