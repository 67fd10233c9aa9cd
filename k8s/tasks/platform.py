"""The platform's present settings, and the plugins that it has enabled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from backoff_ctrl.k8s.tasks.plugins.config import GarbageCollection, K8sPluginConfig, PlatformSettings, TaskPlugins
    from backoff_ctrl.k8s.tasks.plugins.registry import Entry, Registry

log = logging.getLogger(__name__)

CONNECTOR: Final = "connector"
"""The plugin whose section the platform reads itself, for its task types depend on it."""


JUST_ASKED: Final = 1.0
"""Seconds for which an answer of a connector counts as new."""


class Platform:
    """The platform's present settings, and the plugins that it has enabled."""

    def __init__(self, file: str | None, flags: Sequence[str] = ()) -> None:
        """Read the file, and the settings that flags name. Raises ``ConfigError``."""
        from backoff_ctrl.k8s.tasks.plugins.config_file import LiveSettings  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.plugins.registry import Registry  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.services.connector.directory import Directory  # noqa: PLC0415 - likewise

        self._file = file
        self._connectors = Directory()
        self._changing = Lock()
        self.registry: Registry = Registry(())
        """The plugins; it follows the settings, and the task types that connectors tell."""
        self._live = LiveSettings(None if file is None else Path(file), flags, self._adopt)

    def _adopt(self, settings: PlatformSettings) -> list[Path]:
        """Use the plugins of these settings; return the files that describe some. Raises ``ConfigError``."""
        from backoff_ctrl.k8s.kube.operators.descriptions import DescriptionError, files_of  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.kube.operators.operator_config import OPERATORS  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.plugins.config_file import ConfigError  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.plugins.generic import entry_of  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.plugins.protocol import PluginError  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.services.connector.settings import section_of  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.services.rest.entry import entry_of as service_of  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.services.rest.service_config import SERVICES  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.services.webapi.settings import SettingsError, read_section  # noqa: PLC0415 - likewise

        folder = Path() if self._file is None else Path(self._file).parent
        generic, rest, before = settings.plugins.generic, settings.plugins.rest, self._connectors.section
        with self._changing:
            try:
                described: list[Entry] = [
                    *map(entry_of, OPERATORS.configured(generic, folder, self._file)),
                    *map(service_of, SERVICES.configured(rest, folder, self._file)),
                ]
                self._connectors.configure(section_of(settings.plugins.section))
                self._check_sections(settings, described)
                fresh = self._registry_of(settings.tasks.task_plugins, described)
                for entry in fresh.entries():
                    if isinstance(entry, WebPluginEntry):
                        read_section(entry.id, self._section(settings, entry.id), entry.own_keys)
            except DescriptionError as error:
                raise ConfigError(str(error)) from None
            except (PluginError, SettingsError) as error:
                self._connectors.configure(before)
                raise ConfigError(f"{self._file}: {error}" if self._file is not None else str(error)) from None
            self._chosen = settings.tasks.task_plugins, described
            self.registry.become(fresh)
        return [*files_of(generic, folder), *files_of(rest, folder)]

    def _check_sections(self, settings: PlatformSettings, described: Sequence[Entry]) -> None:
        """Raise ``ConfigError`` for a misspelt section of ``plugins``; log which other ones no plugin reads."""
        from backoff_ctrl.k8s.kube.answers.spelling import misspelt  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.plugins.config_file import KNOWN, ConfigError  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.plugins.protocol import PluginEntry  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.plugins.registry import installed_entries  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.tasks.services.connector.settings import SECTIONS  # noqa: PLC0415 - likewise

        from .builtin import builtin_entries  # noqa: PLC0415 - likewise

        entries = (*builtin_entries(), *installed_entries(), *described)
        readers = (each.id.strip().lower() for each in entries if not isinstance(each, PluginEntry))
        known = {*KNOWN, *SECTIONS, *readers}
        others = [name for name in settings.plugins.model_extra or {} if name.lower() not in known]
        where = "" if self._file is None else f"{self._file}: "
        for name in others:
            if meant := misspelt(name, known):
                raise ConfigError(f"{where}plugins.{name}: no plugin has this section: did you mean {meant}?")
        if others:
            log.warning("%sno plugin reads plugins.%s", where, ", plugins.".join(others))

    def _registry_of(self, chosen: TaskPlugins, described: Sequence[Entry]) -> Registry:
        """Return the registry with these operators, and with the task types that connectors have named."""
        from backoff_ctrl.k8s.tasks.services.connector.entry import entry_of  # noqa: PLC0415 - likewise

        from .builtin import registry  # noqa: PLC0415 - loads pydantic

        return registry(
            enabled=chosen.enabled_plugins,
            defaults=chosen.default_for_task_types,
            described=[*described, entry_of(self._connectors)],
        )

    def config(self) -> K8sPluginConfig:
        return self._live.current.k8s

    def section(self, plugin: str) -> Mapping[str, Any]:
        """Return the present section ``plugins.ID`` of a plugin, as it was written."""
        return self._section(self._live.current, plugin)

    def _section(self, settings: PlatformSettings, plugin: str) -> Mapping[str, Any]:
        if plugin == CONNECTOR:  # it may have Flyte's name, and the spelling of its older versions
            return self._connectors.section
        return settings.plugins.section(plugin)

    def policy(self) -> Mapping[str, float]:
        """Return the gate's policy in the settings, which takes effect at the start of the gate."""
        return self._live.current.tasks.backoff.policy()

    def gc(self) -> GarbageCollection:
        """Return how long tasks are kept after their end, at present."""
        return self._live.current.tasks.gc

    def poll(self) -> list[str]:
        """Apply changes of the file, and return them, a line for each key."""
        return self._live.poll()

    def ask(self) -> None:
        """Ask the connectors for their task types, and serve those. Blocks; one that is down is asked again later."""
        if self._connectors.ask(JUST_ASKED):
            with self._changing:
                self.registry.become(self._registry_of(*self._chosen))

    async def follow(self) -> None:
        """Apply changes of the file, and task types that connectors tell, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._live.follow(self._note))
            group.create_task(self._follow_connectors())

    async def _follow_connectors(self) -> None:
        while True:
            await asyncio.to_thread(self.ask)
            await asyncio.sleep(self._connectors.settings.poll_interval.total_seconds())

    def _note(self, changes: Sequence[str]) -> None:
        if any(each.startswith("tasks.backoff.") for each in changes):
            log.warning("%s: tasks.backoff has changed: it takes effect at the next start", self._file)
