"""Everything of a settings file that this project reads: ``plugins.k8s`` and ``tasks.task-plugins``.

Other sections of the same file belong to others (Flyte keeps its whole platform in one): they are left alone.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import ConfigDict, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from .settings import K8sPluginConfig, Settings

PREFIX: Final = "BACKOFF_CTRL_"
"""What environment variables begin with: ``BACKOFF_CTRL_PLUGINS__K8S__DEFAULT_CPUS``."""


class Plugins(Settings):
    """The section ``plugins``."""

    model_config = ConfigDict(extra="ignore")

    k8s: K8sPluginConfig = K8sPluginConfig()
    generic: Any = None
    """The operators that the generic plugin is told of, as they are written: it reads them itself."""


class TaskPlugins(Settings):
    """Which plugins there are, and which of them serves a task type that several could serve."""

    enabled_plugins: list[str] = Field(default_factory=list)
    """The ids of the plugins that there are; empty: all of them."""
    default_for_task_types: dict[str, str] = Field(default_factory=dict)
    """The plugin of a task type: needed where several serve it."""


class Tasks(Settings):
    """The section ``tasks``."""

    model_config = ConfigDict(extra="ignore")

    task_plugins: TaskPlugins = TaskPlugins()


class PlatformSettings(Settings):
    """The sections that are read."""

    model_config = ConfigDict(extra="ignore")

    plugins: Plugins = Plugins()
    tasks: Tasks = Tasks()

    @property
    def k8s(self) -> K8sPluginConfig:
        """What the platform sets for all plugins."""
        return self.plugins.k8s


class Sources(BaseSettings):
    """The same sections, as pydantic-settings looks for them in the environment and in flags."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="ignore")

    plugins: Plugins = Plugins()
    tasks: Tasks = Tasks()
