"""The plugins that come with the package, and the registry of all that there are.

A module of ``kinds`` and ``generic`` ends with its entry; add it to ``entries`` here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .registry import Registry, installed_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .protocol import PluginEntry


def builtin_entries() -> tuple[PluginEntry, ...]:
    """Return the built-in plugins."""
    return ()


def registry(*, enabled: Iterable[str] = (), defaults: Mapping[str, str] | None = None) -> Registry:
    """Return the registry of the built-in and the installed plugins. Raises ``PluginError``, see ``Registry``."""
    return Registry((*builtin_entries(), *installed_entries()), enabled=enabled, defaults=defaults)
