"""The platform's settings and plugins, as ``task`` and ``serve`` use them: from ``--config``, or the defaults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backoff_ctrl.api.exits import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backoff_ctrl.k8s.plugins.config.settings import K8sPluginConfig
    from backoff_ctrl.k8s.plugins.registry import Registry


SET: Callable[[Any], Any] = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting that wins over the file, such as plugins.k8s.default-cpus=2. May be repeated.",
)


class Platform:
    """What a platform has set, as it is now, and the plugins that it enabled at the start."""

    def __init__(self, file: str | None, flags: Sequence[str] = ()) -> None:
        """Read the file, and the settings that flags name. Raises ``BadInput``."""
        from backoff_ctrl.k8s.plugins.builtin import registry  # noqa: PLC0415 - loads pydantic
        from backoff_ctrl.k8s.plugins.config.live import LiveSettings  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.config.loading import ConfigError  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.generic.config import OperatorConfigError  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.generic.loading import configured  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.generic.plugin import entry_of  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.protocol import PluginError  # noqa: PLC0415 - likewise

        path = None if file is None else Path(file)
        try:
            self._live = LiveSettings(path, flags)
            settings = self._live.current
            where = f"{file}: plugins.generic"
            operators = configured(settings.plugins.generic, Path() if path is None else path.parent, where)
            self.registry: Registry = registry(
                enabled=settings.tasks.task_plugins.enabled_plugins,
                defaults=settings.tasks.task_plugins.default_for_task_types,
                operators=[entry_of(each) for each in operators],
            )
        except (ConfigError, OperatorConfigError) as error:  # these say where it stands
            raise BadInput(str(error)) from None
        except PluginError as error:
            raise BadInput(f"{file}: {error}" if file is not None else str(error)) from None

    def config(self) -> K8sPluginConfig:
        """Return the settings of plugins' objects."""
        return self._live.current.k8s

    async def follow(self) -> None:
        """Take over what changes in the file, until cancelled."""
        await self._live.follow()
