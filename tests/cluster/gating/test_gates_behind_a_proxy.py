"""A gate in a pod behind a proxy in TLS, as docs/operations.md says it: found, and asked by whom the page lets ask."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import socket
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from kubernetes import client

from backoff_ctrl import GatedApiClient, waiting
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.cluster.asking import Reach, find_place
from backoff_ctrl.k8s.status.serving import Service
from tests.cluster.control_plane.servers import Server
from tests.cluster.gating.gated_workload import configuration_of
from tests.cluster.gating.reviewing_proxy import COMMAND
from tests.cluster.kubectl.test_yaml_of_the_docs import text_of_the_page
from tests.kit.gated_creates import Met, pod
from tests.kit.patience import PATIENCE
from tests.proxying.passing.certificates import make_pair
from tests.serve.serving import serving, until
from tests.status.asking import ask

pytestmark = pytest.mark.long
AUDIENCE = "backoff-ctrl-gates"


class Page(NamedTuple):
    """The objects of the page in a namespace of their own, and a gate that a proxy stands before."""

    namespace: str
    reach: Reach
    folder: Path
    authority: Path
    kubeconfig: Path
    """Of ``serve``'s account."""

    def token(self, account: str, *audiences: str) -> Path:
        """Return a file with a token of an account."""
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        status, made = self.reach.ask("POST", path, {"spec": {"audiences": list(audiences)} if audiences else {}})
        assert status == 201, made
        file = self.folder / f"{account}-{'-'.join(audiences) or 'plain'}.token"
        file.write_text(made["status"]["token"])
        return file

    def served(self, token: Path, authority: Path | None = None) -> contextlib.AbstractContextManager[str]:
        """Run ``serve`` with the options of the page."""
        found = ("--gates-in", self.namespace, "--gate-ca", str(authority or self.authority))
        return serving("--kubeconfig", str(self.kubeconfig), *found, "--gate-token-file", str(token))


def of_the_page(namespace: str, suffix: str) -> list[dict[str, Any]]:
    """Its objects in this namespace; those of the cluster under names of their own."""
    objects = list(yaml.safe_load_all(text_of_the_page().replace("namespace: platform", f"namespace: {namespace}")))
    own = {each["metadata"]["name"] for each in objects if each["kind"] == "ClusterRole"}
    for each in objects:
        if each["kind"].startswith("ClusterRole"):
            each["metadata"]["name"] += suffix
        if each.get("roleRef", {}).get("name") in own:
            each["roleRef"]["name"] += suffix
    return objects


@pytest.fixture(scope="module")
def page(kubernetes: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A create waits at the gate; its pod runs at 127.0.0.1."""
    suffix, folder = f"-{secrets.token_hex(5)}", tmp_path_factory.mktemp("behind")
    namespace = f"platform{suffix}"
    reach = Reach(find_place(None, str(kubernetes.kubeconfig("admin")), None, None))
    rights = "/apis/rbac.authorization.k8s.io/v1"
    paths = {
        "ServiceAccount": f"/api/v1/namespaces/{namespace}/serviceaccounts",
        "ClusterRole": f"{rights}/clusterroles",
        "ClusterRoleBinding": f"{rights}/clusterrolebindings",
    }

    def make(path: str, body: dict[str, Any]) -> None:
        status, made = reach.ask("POST", path, body)
        assert status == 201, made

    make("/api/v1/namespaces", {"metadata": {"name": namespace}})
    objects = of_the_page(namespace, suffix)
    for each in objects:
        if each["kind"] in paths:
            make(paths[each["kind"]], each)
    make(paths["ServiceAccount"], {"metadata": {"name": "stranger"}})
    (deployment,) = [each for each in objects if each["metadata"]["name"] == "my-platform" and "spec" in each]
    pair = make_pair(folder / "pair")
    found = Page(namespace, reach, folder, pair.certificate, folder / "serve.kubeconfig")
    kubeconfig = kubernetes.kubeconfig("admin").read_text()
    for account, file in (("backoff-ctrl-serve", found.kubeconfig), ("my-platform", folder / "proxy.kubeconfig")):
        file.write_text(kubeconfig.replace(kubernetes.token("admin"), found.token(account).read_text()))
    with contextlib.ExitStack() as ends:
        gate, service = Gate(), Service()
        ends.callback(service.close)
        ends.callback(gate.close)
        service.add(gate.ledger, kubernetes.url)
        port = ends.enter_context(proxied(deployment, service.serve("127.0.0.1:0").url, folder))
        run_pod(found, deployment["spec"]["template"], port)
        make(
            f"/api/v1/namespaces/{namespace}/resourcequotas",
            {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}},
        )
        until(lambda: used(found) == "1")
        ends.enter_context(waits(kubernetes, gate, namespace))
        yield found
    for each in objects:
        if each["kind"].startswith("ClusterRole"):
            reach.ask("DELETE", f"{paths[each['kind']]}/{each['metadata']['name']}")
    reach.ask("DELETE", f"/api/v1/namespaces/{namespace}")
    reach.close()


def used(page: Page) -> Any:
    _, quota = page.reach.ask("GET", f"/api/v1/namespaces/{page.namespace}/resourcequotas/q")
    return quota.get("status", {}).get("used", {}).get("pods")


@contextlib.contextmanager
def proxied(deployment: dict[str, Any], url: str, folder: Path) -> Iterator[int]:
    """Run the proxy with the arguments of the page, before a gate; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = {
        "--secure-listen-address": f"127.0.0.1:{port}",
        "--upstream": f"{url}/",
        "--tls-cert-file": str(folder / "pair" / "tls.crt"),
        "--tls-private-key-file": str(folder / "pair" / "tls.key"),
    }
    written = dict(each.split("=", 1) for each in deployment["spec"]["template"]["spec"]["containers"][1]["args"])
    arguments = [f"{name}={given.get(name, value)}" for name, value in written.items()]
    command = [*COMMAND, *arguments, f"--kubeconfig={folder / 'proxy.kubeconfig'}"]
    with subprocess.Popen(command) as process:
        try:
            until(lambda: process.poll() is not None or answers(port))
            yield port
        finally:
            process.terminate()


def answers(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def run_pod(page: Page, template: dict[str, Any], port: int) -> None:
    """Place the pod of the page's Deployment, and say that it runs here."""
    metadata = {"name": "p", **template["metadata"]}
    metadata["annotations"] = {**metadata["annotations"], "backoff-ctrl.dev/status-port": str(port)}
    pods = f"/api/v1/namespaces/{page.namespace}/pods"
    status, made = page.reach.ask("POST", pods, {"metadata": metadata, "spec": template["spec"]})
    assert status == 201, made
    made["status"] |= {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    status, made = page.reach.ask("PUT", f"{pods}/p/status", made)
    assert status == 200, made


@contextlib.contextmanager
def waits(kubernetes: Server, gate: Gate, namespace: str) -> Iterator[None]:
    met = Met()
    core: Any = client.CoreV1Api(GatedApiClient(configuration_of(kubernetes, "tester"), gate=gate))

    def create() -> None:
        with (
            contextlib.suppress(client.ApiException),
            waiting(on_wait=met, timeout=600),
        ):  # the gate is closed at the end
            core.create_namespaced_pod(namespace, pod("late"))

    thread = threading.Thread(target=create)
    thread.start()
    assert met.wait(PATIENCE)
    yield
    gate.close()
    thread.join()


def names(url: str) -> list[str]:
    found = ask(url, "/v1/waiting")
    return [each["name"] for each in found.json["items"]] if found.status == 200 else []


def why_not(url: str) -> str:
    """Why the gate is not heard; empty while it is, or is yet to be found."""
    return "".join(str(each) for each in ask(url, "/v1/namespaces").json["unreachable"])


def test_serve_finds_the_gate_over_tls_and_hears_it(page: Page) -> None:
    """Who waits, explanations and decisions come through the proxy, by the token of the page's audience."""
    with page.served(page.token("backoff-ctrl-serve", AUDIENCE)) as url:
        until(lambda: names(url) == ["late"])
        (ceiling,) = ask(url, f"/v1/ceilings?namespace={page.namespace}&resource=pods").json["items"]
        assert (ceiling["used"], ceiling["limited"]) == ("1", "1")
        body = json.dumps(pod("x")).encode()
        explained = ask(
            url, f"/v1/explain?namespace={page.namespace}", method="POST", body=body, Content_Type="application/json"
        ).json
        assert explained["verdict"] == "wait"
        assert explained["note"] is None, "the gate was asked, and not left out"
        with urllib.request.urlopen(f"{url}/v1/decisions?after=0", timeout=PATIENCE) as stream:
            told = next(line for line in stream if line.startswith(b"data:") and b"late" in line)
        assert page.namespace.encode() in told


@pytest.mark.parametrize(
    ("account", "audiences", "answer"),
    [("stranger", (AUDIENCE,), "403"), ("backoff-ctrl-serve", (), "401")],
    ids=["no-right", "another-audience"],
)
def test_the_proxy_lets_nobody_else_ask(page: Page, account: str, audiences: tuple[str, ...], answer: str) -> None:
    """An account without the role, and a token for the API server alone: the page says so, and shows nothing."""
    with page.served(page.token(account, *audiences)) as url:
        until(lambda: answer in why_not(url))
        assert names(url) == []


def test_a_proxy_with_a_certificate_of_others_is_not_asked(page: Page, tmp_path: Path) -> None:
    """The token is not shown to it."""
    other = make_pair(tmp_path / "other").certificate
    with page.served(page.token("backoff-ctrl-serve", AUDIENCE), other) as url:
        until(lambda: "certificate verify failed" in why_not(url).lower())
        assert names(url) == []


def test_no_action_passes_the_proxy(page: Page) -> None:
    """Whoever may look can't act."""
    token = page.token("backoff-ctrl-serve", AUDIENCE).read_text()
    trust = ssl.create_default_context(cafile=page.authority)
    (item,) = page.reach.ask("GET", f"/api/v1/namespaces/{page.namespace}/pods")[1]["items"]
    port = item["metadata"]["annotations"]["backoff-ctrl.dev/status-port"]
    for method, path, status in (("GET", "/v1/waiting", 200), ("POST", "/v1/actions/pause", 404)):
        connection = http.client.HTTPSConnection("127.0.0.1", int(port), timeout=PATIENCE, context=trust)
        connection.request(method, path, headers={"Authorization": f"Bearer {token}", "Host": "localhost"})
        assert connection.getresponse().status == status
        connection.close()
