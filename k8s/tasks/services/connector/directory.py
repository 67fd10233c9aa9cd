"""Which connector serves which task type. The directory asks each connector at the start and every minute.

A connector that is down keeps the types of its last answer. Until every connector has answered once, the directory is
not complete: an unknown type may belong to a silent one. A connector that can't list its types (``UNIMPLEMENTED``)
serves those in the settings.

Asking blocks, so it is done on a thread; the answer replaces the table in one step. Only asking loads grpcio.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from backoff_ctrl.k8s.tasks.services.webapi.settings import SettingsError

from .settings import DEFAULT, ID, ConnectorSettings, Deployment, TaskType, read_settings

log = logging.getLogger(__name__)

NEEDS_PACKAGES: Final = "connectors need further packages: pip install 'backoff-ctrl[connector]'"


@dataclass(frozen=True, slots=True)
class Route:
    """A connector that serves a task type. ``type`` is spelt as the connector spells it."""

    connector: str
    deployment: Deployment
    type: TaskType
    is_sync: bool = False

    def __str__(self) -> str:
        return f"connector {self.connector} at {self.deployment.endpoint}"


class _Listed(NamedTuple):
    """What a connector has answered: its types, and whether each is synchronous."""

    types: Mapping[TaskType, bool]
    lists: bool = True


class Directory:
    """The task types of all connectors in the settings."""

    def __init__(self) -> None:
        self.section: Mapping[str, Any] = {}
        """The section that was adopted last, in its present spelling."""
        self.settings = ConnectorSettings()
        self._told: dict[str, _Listed] = {}
        self._trouble: dict[str, str] = {}
        self._routes: Mapping[TaskType, Route] = {}
        self._asking = threading.Lock()
        self._asked = -math.inf

    def configure(self, section: Mapping[str, Any]) -> None:
        """Adopt a section. Raises ``SettingsError``, and then keeps the old section."""
        if section == self.section:
            return
        settings = read_settings(section)
        if settings.deployments() and not has_packages():
            raise SettingsError(f"plugins.{ID}: {NEEDS_PACKAGES}")
        self.section, self.settings = section, settings
        endpoints = {each.endpoint for each in settings.deployments().values()}
        self._told = {endpoint: told for endpoint, told in self._told.items() if endpoint in endpoints}
        self._trouble = {endpoint: said for endpoint, said in self._trouble.items() if endpoint in endpoints}
        self._arrange()

    @property
    def missing(self) -> str:
        """The connectors that have never listed their types, with the reason; empty when the directory is complete."""
        return "; ".join(
            f"connector {name} at {each.endpoint} has not listed its task types yet"
            f" ({self._trouble.get(each.endpoint, 'it was not asked')})"
            for name, each in self._silent().items()
        )

    def types(self) -> tuple[str, ...]:
        """Return the names of all task types."""
        return tuple(sorted({each.name for each in self._routes}))

    def find(self, wanted: TaskType) -> Route | None:
        """Return the connector that serves a task type, if any. Case of letters is ignored."""
        found = self._routes.get(wanted)
        if found is None:
            alike = TaskType(wanted.name.strip().lower(), wanted.version)
            found = next((route for known, route in self._routes.items() if _plain(known) == alike), None)
        default = self.settings.deployments().get(DEFAULT)
        if found is None and default is not None and self._does_not_list(default):
            return Route(DEFAULT, default, wanted)
        return found

    def deployment(self, name: str) -> Deployment | None:
        """Return a connector by its name."""
        return self.settings.deployments().get(name)

    def ask(self, unless_within: float = 0.0) -> bool:
        """Ask all connectors for their task types; say whether anything has changed. Blocks, at most for a time-out.

        They are not asked again within ``unless_within`` seconds. Any thread may call it.
        """
        with self._asking:
            if time.monotonic() - self._asked < unless_within:
                return False
            changed = self._ask()
            self._asked = time.monotonic()
            return changed

    def _ask(self) -> bool:
        before = self.types(), self._silent()
        deployments = {each.endpoint: (name, each) for name, each in self.settings.deployments().items()}
        if not deployments:
            return False
        from . import listing  # noqa: PLC0415 - loads grpcio

        for endpoint, answer in listing.ask_all([each for _, each in deployments.values()]).items():
            name = deployments[endpoint][0]
            if isinstance(answer, str):
                self._complain(endpoint, f"{name} at {endpoint}", answer)
            else:
                self._trouble.pop(endpoint, None)
                self._told[endpoint] = _Listed(answer or {}, lists=answer is not None)
        self._arrange()
        return (self.types(), self._silent()) != before

    def _silent(self) -> dict[str, Deployment]:
        """Return the connectors that have never answered."""
        found = self.settings.deployments()
        return {name: each for name, each in found.items() if each.endpoint not in self._told}

    # -- the table ---------

    def _arrange(self) -> None:
        """Make the table anew: what the settings say of a type, then connectors by name, the default one last."""
        routes: dict[TaskType, Route] = {}
        for name, each in self.settings.deployments().items():
            told = self._told.get(each.endpoint, _Listed({}))
            for task_type, is_sync in told.types.items():
                known = routes.setdefault(task_type, Route(name, each, task_type, is_sync))
                if known.connector != name and task_type.name not in self.settings.connector_for_task_types:
                    about = f"{name}, task type {task_type.name}"
                    said = f"{known.connector} serves it as well, and is used; connectorForTaskTypes decides"
                    self._complain(about, about, said)
        for route in self._by_settings():
            routes[route.type] = route
        self._routes = routes

    def _by_settings(self) -> Iterator[Route]:
        deployments = self.settings.deployments()
        for name in self.settings.supported_task_types:
            if not any(known.name == name for each in self._told.values() for known in each.types):
                yield Route(DEFAULT, deployments[DEFAULT], TaskType(name))
        for name, connector in self.settings.connector_for_task_types.items():
            chosen = deployments[connector]
            told = self._told.get(chosen.endpoint, _Listed({})).types
            found = [known for known in told if known.name == name] or [TaskType(name)]
            for task_type in found:
                yield Route(connector, chosen, task_type, told.get(task_type, False))

    def _does_not_list(self, deployment: Deployment) -> bool:
        told = self._told.get(deployment.endpoint)
        return told is not None and not told.lists

    def _complain(self, key: str, about: str, trouble: str) -> None:
        """Log a trouble, once until another one takes its place."""
        if self._trouble.get(key) != trouble:
            log.warning("plugins.%s, %s: %s", ID, about, trouble)
        self._trouble[key] = trouble


def has_packages() -> bool:
    """Whether the extra ``connector`` is installed."""
    return all(find_spec(each) is not None for each in ("grpc", "flyteidl", "msgpack"))


def _plain(task_type: TaskType) -> TaskType:
    return TaskType(task_type.name.strip().lower(), task_type.version)
