"""The section ``plugins.connector``: Flyte's keys in every spelling, and a sentence with the key for what is wrong."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from backoff_ctrl.k8s.tasks.services.connector.plugin import OWN
from backoff_ctrl.k8s.tasks.services.connector.settings import (
    OPERATIONS,
    OWN_KEYS,
    ConnectorSettings,
    Deployment,
    read_settings,
    section_of,
)
from backoff_ctrl.k8s.tasks.services.webapi.settings import SettingsError, read_section, settings_of

FLYTE: dict[str, Any] = yaml.safe_load(
    """
    connector-service:
      defaultConnector:
        endpoint: flyteconnector.flyte.svc.cluster.local:8000
        timeouts: {CreateTask: 5s, GetTask: 2s, ListConnectors: 3s}
        defaultTimeout: 9s
      connectors:
        bigquery:
          endpoint: dns:///bigquery:8000
          insecure: false
          defaultServiceConfig: '{"loadBalancingConfig": [{"pick_first": {}}]}'
      connectorForTaskTypes: {bigquery_query_job_task: bigquery}
      supportedTaskTypes: [sensor]
      pollInterval: 10s
      webApi:
        caching: {resyncInterval: 20s, workers: 4}
        readRateLimiter: {qps: 7, burst: 8}
        resourceQuotas: {default: 30}
      resourceConstraints:
        ProjectScopeResourceConstraint: {Value: 20}
        NamespaceScopeResourceConstraint: {Value: 10}
    """
)


def test_a_section_of_flyte_is_read_as_it_is() -> None:
    section = section_of(lambda name: FLYTE.get(name, {}))
    settings = read_settings(section)
    assert list(settings.deployments()) == ["bigquery", "defaultConnector"]
    default, bigquery = settings.default_connector, settings.connectors["bigquery"]
    assert [default.timeout(each) for each in ("CreateTask", "GetTask", "ListAgents", "DeleteTask")] == [5, 2, 3, 9]
    assert (default.insecure, bigquery.insecure) == (True, False)
    assert settings.poll_interval == timedelta(seconds=10)
    others = settings_of(read_section("connector", section, OWN_KEYS), OWN)
    assert (others.caching.workers, others.read.qps, others.read.burst) == (4, 7, 8)
    assert (others.pools, others.project, others.namespace) == ({"default": 30}, 20, 10)


def test_without_settings_the_limits_are_those_of_flytes_plugin() -> None:
    section = section_of(lambda _: {})
    assert read_settings(section).deployments() == {}
    found = settings_of(read_section("connector", section, OWN_KEYS), OWN)
    assert (found.pools, found.project, found.namespace) == ({"default": 1000}, 100, 50)
    assert (found.read.qps, found.read.burst, found.write.qps, found.write.burst) == (10, 100, 10, 100)


def test_the_older_names_and_the_spelling_of_variables_are_read_as_well() -> None:
    older = {"agent-service": {"defaultAgent": {"endpoint": "a:1"}, "agents": {"b": {"endpoint": "b:1"}},
                               "agentForTaskTypes": {"t": "b"}}}  # fmt: skip
    settings = read_settings(section_of(lambda name: older.get(name, {})))
    assert settings.deployments()["b"].endpoint == "b:1"
    assert settings.connector_for_task_types == {"t": "b"}
    variables = {"connector": {"defaultconnector": {"endpoint": "a:1", "default_timeout": "3s"},
                               "connectors": {"b": {"endpoint": "b:1", "default-timeout": "4s"}}}}  # fmt: skip
    settings = read_settings(section_of(lambda name: variables.get(name, {})))
    assert [each.timeout("GetTask") for each in settings.deployments().values()] == [4, 3]


def test_the_page_has_every_key() -> None:
    page = (Path(__file__).parents[4] / "docs" / "how-to" / "connectors.md").read_text("utf-8")
    keys = [str(field.alias) for model in (ConnectorSettings, Deployment) for field in model.model_fields.values()]
    assert [key for key in keys if f"`{key}`" not in page] == []
    assert [each for each in OPERATIONS if f"`{each}`" not in page] == []


def test_our_own_section_goes_first() -> None:
    both = {"connector": {"outputPrefix": "s3://a"}, **FLYTE}
    assert read_settings(section_of(lambda name: both.get(name, {}))).output_prefix == "s3://a"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"defaultConnector": 3}, "plugins.connector.defaultConnector: must be an object with keys, not int"),
    ({"defaultConnector": {"adress": "a"}}, "plugins.connector.defaultConnector.adress: unknown key"),
    ({"defaultConnector": {"endpiont": "a"}}, "defaultConnector.endpiont: unknown key: did you mean endpoint?"),
    ({"defaultConnector": {"insecure": "maybe"}}, "plugins.connector.defaultConnector.insecure: 'maybe' is not possible"),
    ({"defaultConnector": {"timeouts": {"Ask": "1s"}}}, "defaultConnector.timeouts: .* there is no call Ask: "),
    ({"defaultConnector": {"timeouts": {"GetTask": "x"}}}, "defaultConnector.timeouts.GetTask: 'x' is not possible"),
    ({"defaultConnector": {"defaultServiceConfig": "{"}}, "defaultServiceConfig: '{' is not possible: it has to be JSON"),
    ({"connectors": {"a": {}}}, "plugins.connector.connectors.a.endpoint: it is missing: write an address, such as a:8"),
    ({"connectors": {"a": 3}}, "plugins.connector.connectors.a: must be an object with keys, not int"),
    ({"connectorForTaskTypes": {"t": "a"}}, "connectorForTaskTypes.t: there is no connector 'a': choose from none"),
    ({"supportedTaskTypes": ["t"]}, "plugins.connector.supportedTaskTypes: .* write defaultConnector.endpoint"),
    ({"pollInterval": "10ms"}, "plugins.connector.pollInterval: '10ms' is not possible"),
    ({"pollInterval": "2h"}, "plugins.connector.pollInterval: '2h' is not possible"),
]  # fmt: skip


@pytest.mark.parametrize(("section", "said"), BAD, ids=[each[1][:50] for each in BAD])
def test_what_is_wrong_is_said_with_its_key(section: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        read_settings(section)
