"""Where connectors are: the section ``plugins.connector``, with the keys that Flyte's users know.

Flyte 1.16 renamed agents to connectors; keys of both names are read, and its sections ``connector-service`` and
``agent-service`` as well, so that a file of Flyte works as it is. Beside these keys the section has those of every web
API plugin; Flyte nests them below ``webApi``, which is accepted, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from backoff_ctrl.k8s.kube.answers.spelling import hint
from backoff_ctrl.k8s.kube.operators.sections import Duration
from backoff_ctrl.k8s.tasks.services.webapi.settings import Section, SettingsError, plain, sentence, spelt

ID: Final = "connector"
SECTIONS: Final = (ID, "connector-service", "agent-service")
"""The names of the section below ``plugins``; the first that is there is read."""
DEFAULT: Final = "defaultConnector"
OPERATIONS: Final = ("CreateTask", "GetTask", "DeleteTask", "ExecuteTaskSync", "ListAgents")
_OLDER: Final = {"defaultagent": DEFAULT, "agents": "connectors", "agentfortasktypes": "connectorForTaskTypes"}
_ROUND_ROBIN: Final = '{"loadBalancingConfig": [{"round_robin": {}}]}'


class TaskType(NamedTuple):
    """A task type and its version, as Flyte's ``TaskCategory``."""

    name: str
    version: int = 0


def _operations(value: object) -> object:
    """Read the keys of ``timeouts``, in any case; ``ListConnectors`` is the newer name of ``ListAgents``."""
    if not isinstance(value, Mapping):
        return value
    known = {plain(each): each for each in OPERATIONS} | {"listconnectors": "ListAgents"}
    for key in value:
        if plain(key) not in known:
            raise ValueError(f"there is no call {key}: {hint(str(key), OPERATIONS)}")
    return {known[plain(key)]: each for key, each in value.items()}


class Deployment(Section):
    """One connector."""

    endpoint: str = ""
    """Its address, `host:port` or `dns:///host:port`."""
    insecure: bool = False
    """Whether it is spoken to without TLS."""
    default_service_config: str = _ROUND_ROBIN
    """gRPC's service config, as JSON."""
    timeouts: Annotated[dict[str, Duration], BeforeValidator(_operations)] = Field(default_factory=dict)
    """How long each call may take: CreateTask, GetTask, DeleteTask, ExecuteTaskSync, ListAgents."""
    default_timeout: Duration = timedelta(seconds=10)
    """How long any other call may take; 0: as long as `callTimeout` allows."""

    @field_validator("default_service_config")
    @classmethod
    def _is_json(cls, value: str) -> str:
        try:
            if value:
                json.loads(value)
        except ValueError:
            raise ValueError('it has to be JSON, such as {"loadBalancingConfig": [{"round_robin": {}}]}') from None
        return value

    def timeout(self, operation: str) -> float | None:
        """Return the seconds that a call may take; None: no limit of its own."""
        return self.timeouts.get(operation, self.default_timeout).total_seconds() or None


class DefaultDeployment(Deployment):
    """The connector for all task types that no other serves."""

    insecure: bool = True


class ConnectorSettings(Section):
    """The keys of the section that the plugin reads."""

    default_connector: DefaultDeployment = DefaultDeployment()
    """The connector for task types that no other one serves."""
    connectors: dict[str, Deployment] = Field(default_factory=dict)
    """Further connectors, by a name of your own."""
    connector_for_task_types: dict[str, str] = Field(default_factory=dict)
    """The connector of a task type: for one that several serve, or that does not list its types."""
    supported_task_types: list[str] = Field(default_factory=list)
    """Task types that the default connector serves although it does not list them."""
    poll_interval: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(hours=1))] = timedelta(minutes=1)
    """How often connectors are asked for their task types."""
    output_prefix: str = ""
    """Where connectors write what tasks compute, such as `s3://bucket/outputs`; a folder for each attempt is added."""

    def deployments(self) -> dict[str, Deployment]:
        """Return all connectors by name, the default one last."""
        default = {DEFAULT: self.default_connector} if self.default_connector.endpoint else {}
        return {**dict(sorted(self.connectors.items())), **default}


OWN_KEYS: Final = frozenset(str(field.alias) for field in ConnectorSettings.model_fields.values())


def section_of(find: Callable[[str], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the section in its present spelling; ``find`` returns a section of ``plugins`` as it was written."""
    written = next(filter(None, map(find, SECTIONS)), {})
    section: dict[str, Any] = {}
    for key, value in written.items():
        if plain(key) == "webapi" and isinstance(value, Mapping):
            section |= value
        elif plain(key) == "resourceconstraints":
            section[str(key)] = _constraints(value)
        else:
            section[_OLDER.get(plain(key), str(key))] = value
    return section


def _constraints(value: Any) -> Any:
    """Read ``{ProjectScopeResourceConstraint: {Value: 100}}``, as Flyte writes it."""
    if not isinstance(value, Mapping):
        return value
    flyte = {"projectscoperesourceconstraint": "project", "namespacescoperesourceconstraint": "namespace"}
    found: dict[str, Any] = {}
    for key, each in value.items():
        inner = {plain(name): limit for name, limit in each.items()} if isinstance(each, Mapping) else {}
        found[flyte.get(plain(key), str(key))] = inner.get("value", each)
    return found


def read_settings(section: Mapping[str, Any]) -> ConnectorSettings:
    """Read the plugin's own keys of a section. Raises ``SettingsError``, which names the key."""
    own = {plain(key) for key in OWN_KEYS}
    mine = spelt({key: value for key, value in section.items() if plain(key) in own}, ConnectorSettings)
    named = mine.get("connectors")
    if isinstance(named, Mapping):
        mine["connectors"] = {
            name: spelt(each, Deployment) if isinstance(each, Mapping) else each for name, each in named.items()
        }
    try:
        settings = ConnectorSettings.model_validate(mine)
    except ValidationError as error:
        raise SettingsError("; ".join(sentence(ID, each, ConnectorSettings) for each in error.errors())) from None
    if wrong := _contradiction(settings):
        raise SettingsError(f"plugins.{ID}.{wrong}")
    return settings


def _contradiction(settings: ConnectorSettings) -> str:
    """Return the first setting that can't work, with its key, or an empty text."""
    for name, each in settings.connectors.items():
        if not each.endpoint:
            return f"connectors.{name}.endpoint: it is missing: write an address, such as {name}:8000"
    known = settings.deployments()
    for task_type, name in settings.connector_for_task_types.items():
        if name not in known:
            there = ", ".join(known) or "none"
            return f"connectorForTaskTypes.{task_type}: there is no connector {name!r}: choose from {there}"
    if settings.supported_task_types and DEFAULT not in known:
        return "supportedTaskTypes: the default connector serves them: write defaultConnector.endpoint"
    return ""
