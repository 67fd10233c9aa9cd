"""Shared by the tests of the status API: a plain HTTP client, and a gate whose creates wait on a sandbox."""

from __future__ import annotations

import http.client
import json
import threading
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from kubernetes import client

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.clients.gating import waiting
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.status.serving import Service
from tests.kit.gated_creates import Met, pod
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
    from backoff_ctrl.k8s.status.server import StatusServer


class Answer(NamedTuple):
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


def ask(url: str, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    """Send one request. ``If_None_Match`` becomes ``If-None-Match``."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return Answer(response.status, dict(response.headers.items()), response.read())
    finally:
        connection.close()


class Crowd:
    """A gated client on a sandbox, creates of its own threads, and the status of its gate."""

    def __init__(self, sandbox: BackgroundSandbox, *, mode: Any = "enforce", **policy: Any) -> None:
        """Serve the status at a port of its own."""
        self.sandbox = sandbox
        self.gate = Gate(mode=mode, policy=Policy(base=60, cap=60, **policy))  # no probe by time alone
        self.api = GatedApiClient(client.Configuration(host=sandbox.url), gate=self.gate)
        self.core: Any = client.CoreV1Api(self.api)
        self.service = Service()
        self.source = self.service.add(self.gate.ledger, sandbox.url)
        self.server: StatusServer = self.service.serve("127.0.0.1:0")
        self.threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """Where the status is."""
        return self.server.url

    def get(self, path: str) -> Any:
        """GET a document."""
        found = ask(self.url, path)
        assert found.status == 200, found
        return found.json

    def wait_with(self, name: str, namespace: str = "team", **options: Any) -> threading.Thread:
        """Create a pod that has to wait; return once it does."""
        met = Met()
        manifest = options.pop("manifest", None) or pod(name)

        def create() -> None:
            with waiting(on_wait=met, **options):
                self.core.create_namespaced_pod(namespace, manifest)

        thread = threading.Thread(target=create)
        thread.start()
        self.threads.append(thread)
        assert met.wait(PATIENCE)
        return thread

    def make_room(self, name: str, namespace: str = "team") -> None:
        """Delete a pod, and let the next create probe for its room."""
        self.core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)
        self.gate.ledger.hint_release(namespace)

    def close(self) -> None:
        """End everything; creates that still wait are cancelled."""
        self.gate.close()
        for thread in self.threads:
            thread.join(PATIENCE)
        self.service.close()
        self.api.close()
