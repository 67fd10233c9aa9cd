"""The plugins that ship, and the registry of these, of those that are installed and of those that the platform
describes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from backoff_ctrl.k8s.tasks.plugins.registry import Entry, Registry, installed_entries


def builtin_entries() -> tuple[Entry, ...]:
    from backoff_ctrl.k8s.kube.operators.operator_config import OPERATORS  # noqa: PLC0415 - likewise
    from backoff_ctrl.k8s.tasks.plugins.generic import entry_of  # noqa: PLC0415 - loads pydantic, which --help does not need
    from backoff_ctrl.k8s.tasks.plugins.kinds import job, jobset, pods  # noqa: PLC0415 - likewise
    from backoff_ctrl.k8s.tasks.services.connector import directory  # noqa: PLC0415 - likewise
    from backoff_ctrl.k8s.tasks.services.connector.entry import entry_of as connector_of  # noqa: PLC0415 - likewise
    from backoff_ctrl.k8s.tasks.services.rest.entry import entry_of as service_of  # noqa: PLC0415 - likewise
    from backoff_ctrl.k8s.tasks.services.rest.service_config import SERVICES  # noqa: PLC0415 - likewise

    from .plugins import signal, sleep  # noqa: PLC0415 - likewise

    kinds = (pods.container, job.entry, jobset.entry, pods.pod, pods.sidecar)
    operators, services = map(entry_of, OPERATORS.shipped()), map(service_of, SERVICES.shipped())
    return (*kinds, *operators, *services, sleep.entry, signal.entry, connector_of(directory.Directory()))


def registry(
    *,
    enabled: Iterable[str] = (),
    defaults: Mapping[str, str] | None = None,
    described: Iterable[Entry] = (),
) -> Registry:
    """Return the registry of the built-in and the installed plugins. Raises ``PluginError``, see ``Registry``.

    ``described`` are plugins that follow from the platform's settings: the operators and services that it describes,
    and its connectors; one replaces what ships under its id.
    """
    own = tuple(described)
    ids = {entry.id for entry in own}
    shipped = (entry for entry in builtin_entries() if entry.id not in ids)
    return Registry((*shipped, *own, *installed_entries()), enabled=enabled, defaults=defaults)
