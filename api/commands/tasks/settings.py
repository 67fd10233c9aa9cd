"""The platform's settings and plugins, as ``task`` and ``serve`` use them: from ``--config``, or the defaults."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backoff_ctrl.api.exits import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from backoff_ctrl.k8s.plugins.config import K8sPluginConfig, PlatformSettings
    from backoff_ctrl.k8s.plugins.registry import Registry

log = logging.getLogger(__name__)

SET: Callable[[Any], Any] = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting that wins over the file, such as plugins.k8s.default-cpus=2. May be repeated.",
)


class Platform:
    """What a platform has set, and the plugins that it has enabled, as they are now."""

    def __init__(self, file: str | None, flags: Sequence[str] = ()) -> None:
        """Read the file, and the settings that flags name. Raises ``BadInput``."""
        from backoff_ctrl.k8s.plugins.config_file import ConfigError, LiveSettings  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.registry import Registry  # noqa: PLC0415 - likewise

        self._file = file
        self.registry: Registry = Registry(())
        """The plugins; it follows the settings."""
        try:
            self._live = LiveSettings(None if file is None else Path(file), flags, self._adopt)
        except ConfigError as error:  # it says where it stands
            raise BadInput(str(error)) from None

    def _adopt(self, settings: PlatformSettings) -> list[Path]:
        """Have the plugins of these settings; return the files that describe operators. Raises ``ConfigError``."""
        from backoff_ctrl.k8s.plugins.config_file import ConfigError  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.generic import entry_of  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.operator_config import (  # noqa: PLC0415 - likewise
            OperatorConfigError,
            configured,
            files_of,
        )
        from backoff_ctrl.k8s.plugins.protocol import PluginError  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.registry import registry  # noqa: PLC0415 - loads pydantic

        folder = Path() if self._file is None else Path(self._file).parent
        generic, chosen = settings.plugins.generic, settings.tasks.task_plugins
        try:
            fresh = registry(
                enabled=chosen.enabled_plugins,
                defaults=chosen.default_for_task_types,
                operators=[entry_of(each) for each in configured(generic, folder, f"{self._file}: plugins.generic")],
            )
        except OperatorConfigError as error:
            raise ConfigError(str(error)) from None
        except PluginError as error:
            raise ConfigError(f"{self._file}: {error}" if self._file is not None else str(error)) from None
        self.registry.become(fresh)
        return files_of(generic, folder)

    def config(self) -> K8sPluginConfig:
        """Return the settings of plugins' objects."""
        return self._live.current.k8s

    def policy(self) -> Mapping[str, float]:
        """Return what the settings say of the gate's policy: it is in force from the start of the gate on."""
        return self._live.current.tasks.backoff.policy()

    def poll(self) -> list[str]:
        """Take over what has changed in the file, and return that, a line a key."""
        return self._live.poll()

    async def follow(self) -> None:
        """Take over what changes in the file, until cancelled."""
        await self._live.follow(self._note)

    def _note(self, changes: Sequence[str]) -> None:
        if any(each.startswith("tasks.backoff.") for each in changes):
            log.warning("%s: tasks.backoff has changed: it takes effect at the next start", self._file)
