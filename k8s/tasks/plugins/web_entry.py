"""How a web API plugin is offered to the registry. Light: the plugin itself is loaded at its first task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.kube.cluster.rights import Right

from .core import accept_any
from .phases import PhaseInfo
from .protocol import TaskContext, check_names, rights_on_tasks

if TYPE_CHECKING:
    from .web_protocol import AsyncPlugin, PluginSetup, SyncPlugin  # loads aiohttp, which --help does not need

USE: Final = "use"
WEB_PLUGINS: Final = "webplugins.backoff-ctrl.dev"
"""The resource, named by a plugin's id, whose ``use`` a caller needs for the plugin's tasks."""


@dataclass(frozen=True, slots=True)
class WebPluginEntry:
    """A web API plugin in the registry; the fields are those of Flyte's ``webapi.PluginEntry``.

    ``loader`` makes the plugin. It runs once, at the first task, and may raise. ``default_for_task_types`` are those of
    ``supported_task_types`` that it serves although other plugins could, too; ``is_default``: it serves the task types
    that no other plugin serves. ``check`` raises ``TaskSpecError`` for a task that the plugin could not run, before the
    task is stored; it is pure.

    A plugin may learn task types from its service. ``discovered_task_types`` are those that it knows of, and serves
    where no other plugin does; None: it learns none. ``discovering``: the service has not listed all of them yet, so a
    task of a type that nobody serves is given to this plugin, which waits for the answer.
    """

    id: str
    supported_task_types: tuple[str, ...]
    loader: Callable[[PluginSetup], AsyncPlugin | SyncPlugin]
    is_default: bool = False
    default_for_task_types: tuple[str, ...] = ()
    check: Callable[[TaskContext], None] = accept_any
    own_keys: frozenset[str] = frozenset()
    """The keys below ``plugins.ID`` that the plugin reads by itself, beside those of ``settings``."""
    discovered_task_types: tuple[str, ...] | None = None
    discovering: bool = False
    made_of: object = None
    """What the plugin is made of beside its settings, such as a description: if that changes, it is loaded anew."""
    phase_of: Callable[[Mapping[str, Any]], PhaseInfo] | None = None
    """What an answer of the service means, for `backoff-ctrl phase`. Pure; None: it can't be tried so."""

    def __post_init__(self) -> None:
        """Raise ``PluginError`` for an invalid entry."""
        check_names(self.id, self.supported_task_types)

    @property
    def registered_task_types(self) -> tuple[str, ...]:
        return self.supported_task_types

    def rights(self, verb: str, spec: Mapping[str, Any]) -> tuple[Right, ...]:
        """Return the rights that a caller over HTTP needs to ``create``, ``get`` or ``delete`` such a task."""
        use = (Right.on(USE, WEB_PLUGINS, self.id),) if verb == "create" else ()
        return rights_on_tasks(verb, spec) + use
