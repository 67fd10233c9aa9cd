"""Everything of a settings file that this project reads: ``plugins.k8s``, ``tasks.task-plugins`` and ``tasks.backoff``.

Other sections of the same file belong to others (Flyte keeps its whole platform in one): they are left alone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from backoff_ctrl.engine.policy import Policy

from .durations import Duration  # pydantic reads annotations at run time
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
    """The ids of the enabled plugins; empty: all."""
    default_for_task_types: dict[str, str] = Field(default_factory=dict)
    """The plugin of a task type; needed if several serve it."""


class Backoff(Settings):
    """How long a create that a quota has refused waits before it is tried again, where quotas can't be watched."""

    base_second: int | None = Field(default=None, ge=0, le=3600)
    """Seconds of the first delay; 1 by default. 0, which turns Flyte's back-off off, changes nothing."""
    max_duration: Annotated[Duration, Field(ge=timedelta(milliseconds=1), le=timedelta(days=1))] | None = None
    """The longest delay; by default `20s`, as in Flyte. It limits the first delay as well."""

    def policy(self) -> dict[str, float]:
        """Return what it sets of the gate's policy: ``base`` and ``cap``."""
        found: dict[str, float] = {}
        if self.max_duration is not None:
            found["cap"] = self.max_duration.total_seconds()
        if self.base_second:
            found["base"] = float(self.base_second)
        if found:
            found["base"] = min(found.get("base", Policy().base), found.get("cap", Policy().cap))
        return found


class Tasks(Settings):
    """The section ``tasks``."""

    model_config = ConfigDict(extra="ignore")

    task_plugins: TaskPlugins = TaskPlugins()
    backoff: Backoff = Backoff()


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
