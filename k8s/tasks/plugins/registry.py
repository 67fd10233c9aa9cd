"""All plugins, and the choice of one for a task type: an exact match, then the default, then a clear error.

Plugins are built in, described by the platform for the generic or the rest plugin, or offered by installed packages
through entry points of the group ``backoff_ctrl.plugins``. The choice is made at the start, and again when the settings
change; a contradiction is an error then. A module of ``kinds`` ends with its entries; add them to ``builtin_entries``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NamedTuple, TypeAlias

from backoff_ctrl.k8s.kube.cluster.kinds import Kind

from .core import CoreEntry
from .protocol import PluginEntry, PluginError
from .web_entry import WebPluginEntry

Entry: TypeAlias = PluginEntry | CoreEntry | WebPluginEntry
"""A plugin: of Kubernetes objects, of a web API, or one that carries its tasks out by itself."""


GROUP: Final = "backoff_ctrl.plugins"
"""The group of entry points. One is an ``Entry``, or a function that returns one or several."""
ENABLED: Final = "enabled-plugins"
DEFAULTS: Final = "default-for-task-types"
"""The settings, below ``tasks.task-plugins``, as users write them."""


class _Chosen(NamedTuple):
    """The choice by the settings, as one value that changes in one step."""

    by_id: Mapping[str, Entry]
    by_type: Mapping[str, Entry]
    by_kind: Mapping[Kind, PluginEntry]
    """The first by its id of those whose objects are of this kind."""
    fallback: Entry | None
    """Serves the types that no other plugin serves: a default plugin, else one that does not know all its types yet."""


class Registry:
    """The enabled plugins, by task type."""

    def __init__(
        self,
        entries: Iterable[Entry],
        *,
        enabled: Iterable[str] = (),
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        """Choose. ``enabled`` are ids, empty: all. ``defaults`` is a plugin's id for each task type in it.

        Names are trimmed and lower-cased. Raises ``PluginError``, which names the setting.
        """
        found = _by_id(entries)
        chosen = _enabled(found, enabled)
        by_type = _by_type(chosen, _defaults(chosen, found, defaults or {}))
        fallbacks = [entry for entry in chosen.values() if entry.is_default]
        if len(fallbacks) > 1:
            names = ", ".join(entry.id for entry in fallbacks)
            raise PluginError(f"plugins {names} all serve whatever no other plugin serves: name one in {ENABLED}")
        undecided = [entry for entry in chosen.values() if isinstance(entry, WebPluginEntry) and entry.discovering]
        of_kinds = [each for _, each in sorted(chosen.items(), reverse=True) if isinstance(each, PluginEntry)]
        by_kind = {each.resource_to_watch: each for each in of_kinds}
        self._chosen = _Chosen(chosen, by_type, by_kind, next(iter((*fallbacks, *undecided)), None))

    def become(self, other: Registry) -> None:
        """Take over the plugins of another registry, after the settings have changed: this one is referred to."""
        self._chosen = other._chosen

    def resolve(self, task_type: str) -> Entry:
        """Return the plugin of a task type. Raises ``PluginError``."""
        chosen = self._chosen  # other threads may change the registry meanwhile
        found = chosen.by_type.get(_clean(task_type)) or chosen.fallback
        if found is None:
            served = ", ".join(sorted(chosen.by_type)) or "none"
            raise PluginError(
                f"no plugin serves the task type {task_type!r}: choose one of {served}. "
                f"Install a plugin for it, or enable one in {ENABLED}"
            )
        return found

    def get(self, plugin: str) -> Entry | None:
        """Return the plugin with this id; None: it is not enabled."""
        return self._chosen.by_id.get(_clean(plugin))

    def of_kind(self, kind: Kind) -> PluginEntry | None:
        """Return the plugin whose objects are of this kind, or None."""
        return self._chosen.by_kind.get(kind)

    def serves(self, entry: Entry, task_type: str) -> bool:
        """Say whether a plugin serves a task type, by default or if the settings choose it."""
        chosen = self._chosen
        found = chosen.by_type.get(_clean(task_type)) or chosen.fallback
        default = isinstance(entry, PluginEntry) and entry.is_default
        return default or found is entry or _may_serve(entry, _clean(task_type))

    def entries(self) -> tuple[Entry, ...]:
        return tuple(entry for _, entry in sorted(self._chosen.by_id.items()))

    def task_types(self) -> Mapping[str, Entry]:
        return dict(self._chosen.by_type)


def of_objects(entry: Entry) -> PluginEntry:
    """Return the entry of a plugin of Kubernetes objects. Raises ``PluginError`` for any other plugin."""
    if not isinstance(entry, PluginEntry):
        raise PluginError(f"plugin {entry.id} makes no Kubernetes objects")
    return entry


def installed_entries() -> tuple[Entry, ...]:
    """Return the plugins that installed packages offer. Raises ``PluginError`` for one that can't be loaded."""
    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    return tuple(entry for point in points for entry in _loaded(point))


def _loaded(point: EntryPoint) -> tuple[Entry, ...]:
    package = point.dist.name if point.dist is not None else "an unknown package"
    where = f"plugin {point.name} of package {package} ({point.value})"
    try:
        found = point.load()
        made = found() if callable(found) and not isinstance(found, Entry) else found
        entries = (made,) if isinstance(made, Entry) else tuple(made)
    except Exception as error:
        raise PluginError(
            f"{where} can't be loaded: {type(error).__name__}: {error}. Fix or uninstall {package}"
        ) from error
    for entry in entries:
        if not isinstance(entry, Entry):
            raise PluginError(
                f"{where} gives {type(entry).__name__} instead of a PluginEntry, or a function that returns some"
            )
    return entries


def _clean(name: str) -> str:
    return name.strip().lower()


def _by_id(entries: Iterable[Entry]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for entry in entries:
        if _clean(entry.id) in found:
            raise PluginError(f"two plugins are called {_clean(entry.id)}: uninstall the package of one, or rename it")
        found[_clean(entry.id)] = entry
    return found


def _enabled(found: Mapping[str, Entry], enabled: Iterable[str]) -> dict[str, Entry]:
    if isinstance(enabled, str):
        raise PluginError(f"{ENABLED} is a list of plugins, such as [{enabled}], not a text")
    names = [_clean(name) for name in enabled]
    for name in names:
        if name not in found:
            raise PluginError(
                f"{ENABLED} names {name!r}, which is not a plugin: choose from {', '.join(sorted(found))}"
            )
        if names.count(name) > 1:
            raise PluginError(f"{ENABLED} names {name!r} twice: once is enough")
    return {name: found[name] for name in names} if names else dict(found)


def _defaults(chosen: Mapping[str, Entry], found: Mapping[str, Entry], defaults: Mapping[str, str]) -> dict[str, Entry]:
    result: dict[str, Entry] = {}
    for given, plugin in defaults.items():
        task_type, name = _clean(given), _clean(plugin)
        entry = chosen.get(name)
        if entry is None:
            why = f"which {ENABLED} does not name: add it there" if name in found else "which is not a plugin"
            raise PluginError(f"{DEFAULTS} gives task type {task_type!r} to {name!r}, {why}")
        if not _may_serve(entry, task_type):
            types = ", ".join(entry.registered_task_types)
            raise PluginError(f"{DEFAULTS} gives task type {task_type!r} to {name!r}, which serves only: {types}")
        if task_type in result:
            raise PluginError(f"{DEFAULTS} names task type {task_type!r} twice: once is enough")
        result[task_type] = entry
    return result


def _by_type(chosen: Mapping[str, Entry], defaults: Mapping[str, Entry]) -> dict[str, Entry]:
    served: dict[str, list[Entry]] = {}
    discovered: dict[str, Entry] = {}
    for entry in chosen.values():
        if isinstance(entry, WebPluginEntry):
            discovered = {_clean(each): entry for each in entry.discovered_task_types or ()} | discovered
        for task_type in dict.fromkeys(map(_clean, entry.registered_task_types)):
            served.setdefault(task_type, []).append(entry)
    for task_type, entries in served.items():
        own = [entry for entry in entries if _is_default_for(entry, task_type)]
        if len(own) == 1:
            entries[:] = own
        elif len(entries) > 1 and task_type not in defaults:
            names = " and ".join(entry.id for entry in entries)
            raise PluginError(
                f"plugins {names} both serve task type {task_type!r}: say which one does in {DEFAULTS}, "
                f"as {{{task_type}: {entries[0].id}}}"
            )
    return discovered | {task_type: entries[0] for task_type, entries in served.items()} | dict(defaults)


def _is_default_for(entry: Entry, task_type: str) -> bool:
    return isinstance(entry, WebPluginEntry) and task_type in map(_clean, entry.default_for_task_types)


def _may_serve(entry: Entry, task_type: str) -> bool:
    """Whether a plugin serves a task type, or may do so once its service tells it of that type."""
    if isinstance(entry, WebPluginEntry) and entry.discovered_task_types is not None:
        return True
    return task_type in map(_clean, entry.registered_task_types)
