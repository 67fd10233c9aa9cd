"""Our own session goes through the proxy that the environment names, whatever the client's configuration has read."""

from __future__ import annotations

import pytest

from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from tests.kit.scripted_server import scripted_server


@pytest.fixture
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("_no_proxy")
async def test_a_session_goes_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = find_place("http://cluster.invalid:6443", None, None, None).configuration
    with scripted_server(lambda _: (200, {"gitVersion": "v1.36.3"})) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with ClusterSession(configuration) as session:
            answer = await session.ask("GET", "/version", timeout=10)
    assert answer.json() == {"gitVersion": "v1.36.3"}
    assert [each.path for each in proxy.seen] == ["http://cluster.invalid:6443/version"]
