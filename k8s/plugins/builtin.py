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
    from .generic.loading import shipped_configs  # noqa: PLC0415 - loads pydantic, which who asks for help can spare
    from .generic.plugin import entry_of  # noqa: PLC0415 - likewise
    from .kinds import container, job, jobset, pod, sidecar  # noqa: PLC0415 - likewise

    kinds = (container.entry, job.entry, jobset.entry, pod.entry, sidecar.entry)
    return (*kinds, *(entry_of(config) for config in shipped_configs()))


def registry(
    *,
    enabled: Iterable[str] = (),
    defaults: Mapping[str, str] | None = None,
    operators: Iterable[PluginEntry] = (),
) -> Registry:
    """Return the registry of the built-in and the installed plugins. Raises ``PluginError``, see ``Registry``.

    ``operators`` are those that the platform describes to the generic plugin; one replaces what ships under its id.
    """
    own = tuple(operators)
    ids = {entry.id for entry in own}
    shipped = (entry for entry in builtin_entries() if entry.id not in ids)
    return Registry((*shipped, *own, *installed_entries()), enabled=enabled, defaults=defaults)
