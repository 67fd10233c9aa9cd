"""The token of a configuration: asked for at most once a second, and never older than the one the caller has set."""

from __future__ import annotations

from typing import Any

from kubernetes import client

from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.clients.transport import ASKED_EVERY, ConfiguredToken, LastToken
from backoff_ctrl.k8s.gate.threads import Gate
from tests.kit.gated_creates import core_of
from tests.kit.official import only_since_37
from tests.kit.scripted_server import scripted_server

pytestmark = only_since_37
HEADER = ConfiguredToken("Bearer a")


def configuration(token: str = "a") -> client.Configuration:
    """A configuration with a token."""
    return client.Configuration(api_key={"BearerToken": token}, api_key_prefix={"BearerToken": "Bearer"})


def test_a_header_is_remembered_for_a_second() -> None:
    """It is not known before it was noted, nor after a second."""
    now = [10.0]
    last, asked = LastToken(lambda: now[0]), configuration()
    assert last.of(asked) is None
    last.note(asked, HEADER)
    assert last.of(asked) is HEADER

    now[0] += ASKED_EVERY
    assert last.of(asked) is HEADER
    now[0] += 0.001
    assert last.of(asked) is None


def test_another_token_or_prefix_counts_at_once() -> None:
    """The objects are compared, whatever their text."""
    last, asked = LastToken(), configuration()
    last.note(asked, HEADER)
    asked.api_key["BearerToken"] = "b"
    assert last.of(asked) is None

    last.note(asked, HEADER)
    asked.api_key_prefix["BearerToken"] = "Token"
    assert last.of(asked) is None


def test_a_header_that_is_not_of_the_configured_token_is_not_remembered() -> None:
    """Another thread may have set a token meanwhile, or a subclass made the header."""
    last, asked = LastToken(), configuration("b")
    last.note(asked, HEADER)

    assert last.of(asked) is None


def test_the_token_of_one_call_stays_with_that_call() -> None:
    """A raw call with its own header, as another user, does not pass the header on to later calls."""
    with scripted_server(lambda _: (200, {})) as server:
        made = configuration("mine")
        made.host = server.url
        with GatedApiClient(made, gate=Gate()) as api:
            for headers, settings in (({}, ["BearerToken"]), ({"authorization": "Bearer hers"}, [])) * 2:
                request = api.param_serialize("GET", "/version", header_params=dict(headers), auth_settings=settings)
                api.call_api(*request).read()

    sent = [each.headers["authorization"] for each in server.of("GET")]
    assert sent == ["Bearer mine", "Bearer hers"] * 2


def test_a_refused_token_is_not_sent_again() -> None:
    """After a 401 the configuration is asked first, as by the plain client."""
    with scripted_server(lambda seen: (401 if seen.headers["authorization"] == "Bearer old" else 200, {})) as server:
        made = configuration("old")
        made.host = server.url
        tokens = iter(["old", "new"])

        def renew(given: Any) -> None:
            given.api_key["BearerToken"] = next(tokens)

        made.refresh_api_key_hook = renew  # type: ignore[assignment]  # the client's own says None
        with GatedApiClient(made, gate=Gate()) as api:
            statuses = []
            for _ in range(3):
                request = api.param_serialize("GET", "/version", auth_settings=["BearerToken"])
                statuses.append(api.call_api(*request).status)

    assert statuses == [401, 200, 200]


def test_where_no_token_is_configured_nothing_is_remembered() -> None:
    """A caller's own header is not the configuration's."""
    last, bare = LastToken(), client.Configuration()
    last.note(bare, HEADER)

    assert last.of(bare) is None


def test_the_hook_of_a_configuration_is_asked_once_for_many_creates() -> None:
    """Its token is sent with each create; a token that is set meanwhile is sent with the next."""
    asked: list[Any] = []
    with scripted_server(lambda seen: (201, {**seen.body, "status": {}})) as server:
        made = configuration("first")
        made.host = server.url
        made.refresh_api_key_hook = asked.append  # type: ignore[assignment]  # the client's own says None
        with GatedApiClient(made, gate=Gate()) as api:
            core = core_of(api)
            for name in "abc":
                core.create_namespaced_config_map("team", {"kind": "ConfigMap", "metadata": {"name": name}})
            made.api_key["BearerToken"] = "second"
            core.create_namespaced_config_map("team", {"kind": "ConfigMap", "metadata": {"name": "d"}})

    sent = [each.headers["authorization"] for each in server.of("POST")]
    assert sent == ["Bearer first"] * 3 + ["Bearer second"]
    assert len(asked) == 2
