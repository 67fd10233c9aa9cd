"""How a described service is offered to the registry. Light: aiohttp is loaded at the first task."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry

from .answers import id_of, phase_of
from .parameters import checked
from .service_config import ID, URL, ServiceConfig

if TYPE_CHECKING:
    from backoff_ctrl.k8s.tasks.plugins.web_protocol import PluginSetup

    from .plugin import RestPlugin


def entry_of(config: ServiceConfig) -> WebPluginEntry:
    return WebPluginEntry(
        config.id,
        tuple(config.task_types),
        partial(_load, config),
        check=partial(checked, config),
        own_keys=frozenset({URL}),
        made_of=config,
        phase_of=partial(_phase_of, config),
    )


def _load(config: ServiceConfig, setup: PluginSetup) -> RestPlugin:
    from .plugin import load  # noqa: PLC0415 - loads aiohttp

    return load(config, setup)


def _phase_of(config: ServiceConfig, answer: Mapping[str, Any]) -> PhaseInfo:
    return phase_of(config, answer, {ID: id_of(config, answer), URL: config.url})
