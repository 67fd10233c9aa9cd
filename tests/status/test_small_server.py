"""The small HTTP server: ETags, paging, bad queries, who may ask, a port in use, a fork, the environment."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.cluster.address import is_loopback, read_address
from backoff_ctrl.k8s.status.server import PATIENCE
from backoff_ctrl.k8s.status.serving import Service
from tests.status.asking import ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.status.asking import Crowd


@pytest.fixture
def service() -> Iterator[Service]:
    """A gate that knows three ceilings in each of five namespaces, and its status."""
    made = Service()
    gate = Gate()
    made.add(gate.ledger)
    for number in range(5):
        observe(gate, f"team-{number}")
    made.serve("127.0.0.1:0")
    yield made
    made.close()


def observe(gate: Gate, namespace: str) -> None:
    """Let the gate know a quota."""
    from backoff_ctrl.engine.facts.quotas import ObservedQuota  # noqa: PLC0415

    amounts = dict.fromkeys(("pods", "requests.cpu", "requests.memory"), 4 * 10**9)
    gate.ledger.observe_quota(namespace, "q", ObservedQuota(amounts, amounts, dict.fromkeys(amounts, 10**9)))


def url_of(service: Service) -> str:
    """Where it is."""
    assert service.server is not None
    return service.server.url


def test_a_poll_that_finds_nothing_new_costs_no_body(service: Service) -> None:
    """``as_of`` does not count for the ETag, any change of an item does."""
    first = ask(url_of(service), "/v1/ceilings")
    again = ask(url_of(service), "/v1/ceilings", If_None_Match=first.headers["ETag"])
    assert (again.status, again.body, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    gate = service.sources[0].ledger
    gate.forget_quota("team-0", "q")
    changed = ask(url_of(service), "/v1/ceilings", If_None_Match=first.headers["ETag"])
    assert changed.status == 200
    assert len(changed.json["items"]) == 12


@pytest.mark.parametrize("path", ["/v1/ceilings", "/v1/namespaces"])
@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_pages_together_are_the_whole_list_once(service: Service, path: str, limit: int) -> None:
    """Whatever their length."""
    whole = ask(url_of(service), f"{path}?limit=1000").json["items"]
    found, after = [], ""
    while after is not None:
        page = ask(url_of(service), f"{path}?limit={limit}" + (f"&after={after}" if after else "")).json
        assert 0 < len(page["items"]) <= limit
        found += page["items"]
        after = page["next"]
    assert found == whole


def test_pages_go_on_behind_a_namespace_that_is_gone(service: Service) -> None:
    """A cursor names a place, not an item."""
    page = ask(url_of(service), "/v1/ceilings?limit=4").json
    service.sources[0].ledger.forget_quota("team-1", "q")
    rest = ask(url_of(service), f"/v1/ceilings?after={page['next']}").json
    assert [each["namespace"] for each in rest["items"]] == ["team-2"] * 3 + ["team-3"] * 3 + ["team-4"] * 3


def test_filters_choose_by_namespace_quota_and_resource(service: Service) -> None:
    """All that are given must hold."""
    found = ask(url_of(service), "/v1/ceilings?namespace=team-3&quota=q&resource=requests.memory").json["items"]
    assert [(each["namespace"], each["resource"], each["limited"]) for each in found] == [
        ("team-3", "requests.memory", "4")
    ]
    assert ask(url_of(service), "/v1/ceilings?quota=none").json["items"] == []


@pytest.mark.parametrize(
    ("path", "status", "pointer"),
    [
        ("/v1/ceilings?limit=0", 400, "#/query/limit"),
        ("/v1/ceilings?limit=1001", 400, "#/query/limit"),
        ("/v1/ceilings?limit=many", 400, "#/query/limit"),
        ("/v1/ceilings?limit=%C2%B2", 400, "#/query/limit"),
        ("/v1/ceilings?namespce=a", 400, "#/query/namespce"),
        ("/v1/ceilings?after=nonsense", 400, "#/query/after"),
        ("/v1/ceilings?after=WyJ3YWl0aW5nIiwwLCIiXQ", 400, "#/query/after"),
        ("/v1/ceilings?after=WyJjZWlsaW5ncyIsWzFdXQ", 400, "#/query/after"),
        ("/v1/ceilings?after=WyJjZWlsaW5ncyJd", 400, "#/query/after"),
        ("/v1/waiting?after=WyJ3YWl0aW5nIiwwLCJhIiwieCIsInkiXQ", 400, "#/query/after"),
        ("/v1/ceilings?namespace=a&namespace=b", 400, "#/query/namespace"),
        ("/v1/ceilings?namespace=" + "a" * 600, 400, "#/query/namespace"),
        ("/v1/ceilings?%FF=1", 400, "#/query"),
        ("/v1/policy?limit=1", 400, "#/query/limit"),
        ("/v1/requests/none", 404, "#/path/id"),
        ("/v1/nothing", 404, "#/path"),
    ],
)
def test_a_wrong_question_gets_a_problem_that_points_at_it(
    service: Service, path: str, status: int, pointer: str
) -> None:
    """RFC 9457, with a JSON Pointer."""
    found = ask(url_of(service), path)
    assert (found.status, found.headers["Content-Type"]) == (status, "application/problem+json")
    assert found.json["status"] == status
    assert [each["pointer"] for each in found.json["errors"]] == [pointer]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_nothing_can_be_changed(service: Service, method: str) -> None:
    """Any web page can post to loopback."""
    found = ask(url_of(service), "/v1/ceilings", method=method, body=b"{}")
    assert (found.status, found.headers["Allow"]) == (405, "GET, HEAD")
    assert "POST" in found.json["detail"]


def test_a_foreign_name_for_this_machine_is_refused(service: Service) -> None:
    """A web page may bind its own name to 127.0.0.1 and would then read everything."""
    for host in ("evil.example", "evil.example:9095", "10.0.0.1", "127.0.0.1.evil.example", ""):
        assert ask(url_of(service), "/v1/ceilings", Host=host).status == 403, host
    for host in ("localhost:1", "127.0.0.1", "[::1]:8080", "LOCALHOST"):
        assert ask(url_of(service), "/v1/ceilings", Host=host).status == 200, host
    assert not is_loopback("[::]")


def test_a_proxy_beside_the_gate_may_use_the_names_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of the pod, that is: Prometheus comes with no other. Nothing else, and no page of it, gets in."""
    monkeypatch.setenv("BACKOFF_CTRL_STATUS_HOSTS", "10.1.2.3, [fd00::7],gates.example,,")
    service = Service()
    url = service.serve("127.0.0.1:0").url
    for host in ("10.1.2.3:8443", "[fd00::7]:8443", "GATES.example", "localhost"):
        assert ask(url, "/metrics", Host=host).status == 200, host
    for host in ("10.1.2.4:8443", "x.gates.example", "evil.example", ""):
        assert ask(url, "/metrics", Host=host).status == 403, host
    assert ask(url, "/v1/ceilings", Host="10.1.2.3", Origin="https://10.1.2.3").status == 403
    service.close()


def test_a_request_that_is_no_http_gets_a_problem(service: Service) -> None:
    """Not the standard library's HTML."""
    assert service.server is not None
    with socket.create_connection(("127.0.0.1", service.server.port), 10) as connection:
        connection.sendall(b"NONSENSE\r\n\r\n")
        said = b"".join(iter(lambda: connection.recv(4096), b""))
    assert b"application/problem+json" in said or b'"status": 400' in said


def test_a_connection_serves_several_requests_and_head_has_no_body(service: Service) -> None:
    """HTTP/1.1 keeps it open."""
    assert service.server is not None
    connection = http.client.HTTPConnection("127.0.0.1", service.server.port, timeout=10)
    for method, length in (("GET", 3), ("HEAD", 0), ("GET", 3)):
        connection.request(method, "/livez")
        response = connection.getresponse()
        assert (response.status, response.headers["Content-Length"], len(response.read())) == (200, "3", length)
    connection.close()


def test_a_connection_that_is_kept_alive_ends_with_the_server(service: Service) -> None:
    """Else Prometheus would go on scraping a gate that is gone."""
    server = service.serve("127.0.0.1:0")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE / 2)
    connection.request("GET", "/livez")
    assert connection.getresponse().read() == b"ok\n"
    server.close()
    assert connection.sock.recv(1) == b""
    connection.close()


def test_a_port_in_use_is_a_warning_and_the_next_port(caplog: pytest.LogCaptureFixture) -> None:
    """Workers share their environment; none of them may fail for it."""
    first, second = Service(), Service()
    try:
        taken = first.serve("127.0.0.1:0").port
        found = second.serve(f"127.0.0.1:{taken}")
        assert taken < found.port
        assert ask(found.url, "/livez").status == 200
        assert [line.getMessage() for line in caplog.records if line.levelname == "WARNING"] == [
            f"port {taken} is in use: the status of this gate is at {found.url}"
        ]
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("listen", ["0.0.0.0:9095", "10.1.2.3:1", "example.com:80", "[::]:1"])
def test_other_machines_are_not_served(listen: str) -> None:
    """There is no access control here."""
    with pytest.raises(ValueError, match="on this machine alone"):
        read_address(listen)


@pytest.mark.parametrize("listen", ["", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", ":9095", "127.0.0.1:-1"])
def test_a_wrong_address_says_how_it_must_look(listen: str) -> None:
    """With an example."""
    with pytest.raises(ValueError, match=r"must look like 127\.0\.0\.1:9095"):
        read_address(listen)


def test_addresses_are_read() -> None:
    """With a default for either half."""
    assert read_address("localhost:1") == read_address("1") == ("127.0.0.1", 1)
    assert read_address("[::1]:7") == ("::1", 7)
    assert read_address("127.0.0.1") == ("127.0.0.1", 9095)


def test_a_forked_child_serves_its_own_gates_on_its_own_port(crowd: Crowd) -> None:
    """It has none of its parent's waiters, and the parent goes on."""
    crowd.wait_with("second")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            crowd.service.renew()
            assert crowd.service.server is not None
            crowd.server = crowd.service.server
            found = crowd.get("/v1/gates")["items"][0]
            own = crowd.service.server.port
            os.write(writing, f"{own} {found['gate']} {found['waiting']}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    port, name, waiting = os.read(reading, 1000).decode().split()
    os.close(reading)
    assert int(port) != crowd.server.port
    assert (name == crowd.source.name, waiting) == (False, "0")
    assert crowd.get("/v1/gates")["items"][0]["waiting"] == 1


PROGRAM = textwrap.dedent(
    """\
    import logging, os, sys, urllib.request
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
    from kubernetes import client
    from backoff_ctrl import GatedApiClient
    with GatedApiClient(client.Configuration(host="http://127.0.0.1:1")):
        loaded = sorted(name for name in sys.modules if name.startswith("backoff_ctrl.k8s.status"))
        print(len(loaded), "prometheus_client" in sys.modules)
        if loaded:
            from backoff_ctrl.k8s.status.serving import SERVICE
            if SERVICE.server is not None:
                print(urllib.request.urlopen(SERVICE.server.url + "/v1/gates").status)
    """
)


def program(tmp_path: Path, **environment: str) -> str:
    """Run it and return what it printed; it must end by itself."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.long
def test_an_environment_variable_is_enough_and_nothing_is_loaded_without_it(tmp_path: Path) -> None:
    """Where the process' ledger is made. A wrong address is one warning, never an exit."""
    assert program(tmp_path) == "0 False\n"
    assert program(tmp_path, BACKOFF_CTRL_STATUS="127.0.0.1:0").endswith("200\n")
    assert "WARNING the status of this gate is not served: " in program(tmp_path, BACKOFF_CTRL_STATUS="0.0.0.0:9")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/version"])
def test_probes_and_scrapers_may_add_parameters_of_their_own(service: Service, path: str) -> None:
    """A probe may say what it is by them."""
    assert ask(url_of(service), f"{path}?probe=1").status == 200


def test_an_origin_that_is_no_url_is_refused(service: Service) -> None:
    """It is no error of ours."""
    assert ask(url_of(service), "/v1/ceilings", Origin="http://[").status == 403
