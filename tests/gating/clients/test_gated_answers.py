"""What a caller of ``GatedApiClient`` gets: raw responses and errors as usual, with current credentials."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ForbiddenError

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.answers.rejections import Rejection
from backoff_ctrl.k8s.gate.aio import Gate
from backoff_ctrl.k8s.gated.client import GatedApiClient, waiting
from tests.gated_creates import core_of, pod
from tests.official import HAS_REQUEST_AUTH, token
from tests.scripted_server import Seen, failure, scripted_server

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox import BackgroundSandbox

QUICK = Policy(base=0.05, cap=0.2)


# -- raw responses ---------


def test_a_raw_response_can_still_be_read(sandbox: BackgroundSandbox, core: Any) -> None:
    """The gate reads the 201 to learn the charge; the caller's ``read()`` still returns the bytes."""
    raw = core.create_namespaced_pod("team", pod("raw"), _preload_content=False)

    assert json.loads(raw.read())["metadata"]["name"] == "raw"
    assert raw.status == 201


def test_a_raw_response_of_a_refused_create_raises_as_usual(sandbox: BackgroundSandbox, core: Any) -> None:
    """The error has a note with the reason."""
    sandbox.create_quota("team", "q", {"requests.cpu": "1"})

    with pytest.raises(ApiException) as caught:
        core.create_namespaced_pod("team", pod(), _preload_content=False)

    assert caught.value.status == 403
    assert "must-specify" in caught.value.__notes__[0]


# -- credentials ---------


def quota_once(answers: list[Any]) -> Any:
    """Refuse the first creates, then accept: the token may change in between."""

    def answer(seen: Seen) -> Any:
        if seen.method == "GET":
            return failure(404, "NotFound", "not found")
        return answers.pop(0) if answers else (201, seen.body)

    return answer


FULL = failure(
    403, "Forbidden", 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
)


@pytest.mark.parametrize(
    ("request_auth", "want"),
    [
        pytest.param(None, ["Bearer token-1", "Bearer token-2"], id="from the configuration"),
        pytest.param(
            {"type": "api_key", "in": "header", "key": "authorization", "value": "Bearer mine"},
            ["Bearer mine", "Bearer mine"],
            id="of the caller's",
            marks=pytest.mark.skipif(not HAS_REQUEST_AUTH, reason="this client has no token of one request"),
        ),
    ],
)
def test_each_send_takes_a_fresh_token_unless_the_caller_gave_one(request_auth: Any, want: list[str]) -> None:
    """A token that was put into the header before a long wait may have expired after it."""
    policy = Policy(base=0.2, cap=0.2)  # the token is asked for again after 50 ms
    with scripted_server(quota_once([FULL])) as server:
        configuration = client.Configuration(host=server.url, api_key=token("Bearer token-1"))
        with GatedApiClient(configuration, gate=Gate(policy=policy)) as api:
            renew = lambda _: configuration.api_key.update(token("Bearer token-2"))  # noqa: E731
            with waiting(on_wait=renew):
                options = {"_request_auth": request_auth} if request_auth else {}
                core_of(api).create_namespaced_pod("team", pod("x"), **options)

    sent = [each.headers["authorization"] for each in server.of("POST")]
    assert [sent[0], sent[-1]] == want


def test_a_refused_token_is_renewed_once_by_the_configurations_hook() -> None:
    """After a 401 the hook runs and the create is sent again; the caller would get a second 401."""
    with scripted_server(quota_once([failure(401, "Unauthorized", "Unauthorized")])) as server:
        configuration = client.Configuration(host=server.url, api_key=token("Bearer old"))
        with GatedApiClient(configuration, gate=Gate()) as api:
            core = core_of(api)
            calls: list[int] = []

            def renew(given: Any) -> None:
                calls.append(1)
                given.api_key.update(token(f"Bearer {len(calls)}"))

            configuration.refresh_api_key_hook = renew  # type: ignore[assignment]  # the client's own says None
            core.create_namespaced_pod("team", pod("x"))

    tokens = [each.headers["authorization"] for each in server.of("POST")]
    assert len(tokens) == 2
    assert tokens[0] != tokens[1]


# -- errors ---------


def test_a_create_that_never_fits_raises_the_clients_error_with_what_the_gate_knows(
    sandbox: BackgroundSandbox,
) -> None:
    """It is the client's ``ApiException``, with a note and the rejection as data."""
    sandbox.create_quota("team", "small", {"requests.cpu": "1"})
    policy = Policy(base=0.05, cap=0.1, never_confirm=0.1)
    with GatedApiClient(client.Configuration(host=sandbox.url), gate=Gate(policy=policy)) as api:
        core = core_of(api)
        with pytest.raises(ApiException) as caught, waiting(timeout=45):
            core.create_namespaced_pod("team", pod(cpu="4"))

    assert caught.value.status == 403
    assert caught.value.__notes__[0].startswith("backoff-ctrl: quota, after ")
    rejection = caught.value.quota_rejection  # type: ignore[attr-defined]
    assert isinstance(rejection, Rejection)
    assert rejection.quota == "small"
    assert rejection.never_fits


def test_the_dynamic_client_works_and_shows_the_reason_in_its_context(sandbox: BackgroundSandbox, core: Any) -> None:
    """It re-wraps errors and drops attributes; ours is in the context."""
    dynamic = DynamicClient(core.api_client)
    pods = dynamic.resources.get(api_version="v1", kind="Pod")
    made = pods.create(body=pod("dyn"), namespace="team")
    assert made.metadata.name == "dyn"

    sandbox.create_quota("team", "q", {"requests.cpu": "1"})
    with pytest.raises(ForbiddenError) as caught:
        pods.create(body=pod(), namespace="team")

    assert "must-specify" in caught.value.__context__.__notes__[0]  # type: ignore[union-attr]


def test_a_connection_that_cannot_be_made_raises_the_transports_own_error() -> None:
    """After some tries the caller gets the error that a plain client raises."""
    import urllib3  # noqa: PLC0415

    gate = Gate(policy=Policy(base=0.001, cap=0.01))
    with GatedApiClient(client.Configuration(host="http://127.0.0.1:9"), gate=gate) as api:
        core = core_of(api)
        with pytest.raises(urllib3.exceptions.MaxRetryError):
            core.create_namespaced_pod("team", pod())
