"""``serve`` beyond this machine: users of a real Kubernetes, and what each may see and try."""

from __future__ import annotations

import http.client
import json
import secrets
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import pytest

from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.cluster.asking import Reach, find_place
from backoff_ctrl.k8s.status.serving import Service
from tests.cluster.control_plane.servers import Server
from tests.kit.patience import PATIENCE
from tests.serve.serving import serving, until
from tests.status.asking import Answer

pytestmark = pytest.mark.long
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "x"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


class Served(NamedTuple):
    """Where it is, and the tokens of those who ask."""

    url: str
    mine: str
    tokens: dict[str, str]
    gate: Gate

    def ask(self, path: str, user: str = "", method: str = "GET", body: bytes | None = None, **more: str) -> Answer:
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        if user:
            headers["Authorization"] = f"Bearer {self.tokens[user]}"
        connection = http.client.HTTPSConnection(urlsplit(self.url).netloc, timeout=PATIENCE, context=trust)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def explain(self, user: str, namespace: str, *, confirm: bool = False) -> Answer:
        """Explain a pod in a namespace; ``confirm``: ask the server as well."""
        path = f"/v1/explain?namespace={namespace}" + ("&confirm=true" if confirm else "")
        return self.ask(path, user, "POST", json.dumps(POD).encode(), Content_Type="application/json")

    def act(self, user: str, action: str, **body: str) -> Answer:
        return self.ask(
            f"/v1/actions/{action}", user, "POST", json.dumps(body).encode(), Content_Type="application/json"
        )


@pytest.fixture(scope="module")
def gate() -> Iterator[tuple[Gate, str]]:
    """A gate that serves its status on this machine, and where."""
    made, service = Gate(), Service()
    service.add(made.ledger, "https://kubernetes")
    yield made, service.serve("127.0.0.1:0").url
    made.close()
    service.close()


@pytest.fixture(scope="module")
def served(kubernetes: Server, gate: tuple[Gate, str]) -> Iterator[Served]:
    """``creator`` may view every namespace and create in them, ``reader`` (a service account) may view one of them,
    ``editor`` create in that one, ``operator`` edit its quotas, ``learner`` view none.
    """
    reach = Reach(find_place(None, str(kubernetes.kubeconfig()), None, None))
    mine = f"seen-{secrets.token_hex(5)}"

    def made(path: str, body: dict[str, Any]) -> dict[str, Any]:
        status, answer = reach.ask("POST", path, body)
        assert status == 201, answer
        return answer

    base = f"/api/v1/namespaces/{mine}"
    made("/api/v1/namespaces", {"metadata": {"name": mine}})
    made(f"{base}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}})

    groups = "/apis/rbac.authorization.k8s.io/v1/namespaces"
    rule = {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["list", "update"]}
    made(f"{groups}/{mine}/roles", {"metadata": {"name": "quotas"}, "rules": [rule]})

    def account(name: str, role: str, kind: str = "ClusterRole") -> str:
        made(f"{base}/serviceaccounts", {"metadata": {"name": name}})
        binding = {
            "metadata": {"name": f"{name}-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": mine}],
        }
        made(f"{groups}/{mine}/rolebindings", binding)
        token: str = made(f"{base}/serviceaccounts/{name}/token", {"spec": {}})["status"]["token"]
        return token

    reader, editor, operator = (
        account("reader", "view"),
        account("editor", "edit"),
        account("operator", "quotas", "Role"),
    )
    reach.close()
    tokens = {
        "everywhere": kubernetes.token("creator"),
        "reader": reader,
        "editor": editor,
        "operator": operator,
        "nobody": kubernetes.token("learner"),
        "wrong": "wrong",
    }
    assert kubernetes.certificate is not None
    certificate = kubernetes.certificate
    files = ("--tls-cert", str(certificate), "--tls-key", str(certificate.with_suffix(".key")))
    ledger, place = gate
    options = ("--kubeconfig", str(kubernetes.kubeconfig()), "--gate", place, *files)
    with serving(*options, listen="0.0.0.0:0") as url:
        found = Served(url.replace("0.0.0.0", "127.0.0.1"), mine, tokens, ledger)
        until(lambda: found.ask("/readyz").status == 200)
        yield found


def test_each_sees_what_he_may(served: Served) -> None:
    """All of it, one namespace, nothing."""
    mine = f"/v1/ceilings?namespace={served.mine}"
    whole = ("/v1/ceilings", "/v1/namespaces", "/v1/gates", "/metrics", "/v1/ceilings?namespace=kube-system")
    for path in (*whole, mine):
        assert served.ask(path, "everywhere").status == 200, path
        assert served.ask(path, "nobody").status == 403, path
        for unknown in ("", "wrong"):
            answer = served.ask(path, unknown)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), path
    assert [each["quota"] for each in served.ask(mine, "reader").json["items"]] == ["q"]
    for path in whole:
        assert served.ask(path, "reader").status == 403, path
    refused = served.ask("/v1/ceilings", "reader").json
    assert "choose a namespace" in refused["detail"]
    assert refused["errors"][0]["pointer"] == "#/query/namespace"
    for path in ("/livez", "/readyz", "/version", "/files/page.css"):
        assert served.ask(path).status == 200, path


def test_explain_and_holders_are_checked_as_well(served: Served) -> None:
    """Holders show pods: who may not list them does not see them."""
    assert served.explain("reader", served.mine).json["verdict"] == "now"
    assert served.explain("reader", "kube-system").status == 403
    assert served.explain("nobody", served.mine).status == 403
    assert served.ask(f"/v1/holders?namespace={served.mine}", "reader").status == 200
    assert served.ask("/v1/holders?namespace=kube-system", "reader").status == 403
    assert served.ask(f"/pieces/namespaces?namespace={served.mine}", "reader").status == 200
    assert served.ask("/pieces/namespaces", "reader").status == 403
    assert served.ask("/pieces/holders?namespace=kube-system", "reader").status == 403


def test_a_dry_run_has_the_rights_of_who_asks(served: Served, kubernetes: Server) -> None:
    """Whoever may not create is told so by the server, though the account that ``serve`` runs as may do everything."""
    for user in ("everywhere", "editor"):
        found = served.explain(user, served.mine, confirm=True).json["confirmation"]
        assert (found["verdict"], found["agrees"], found["status"]) == ("now", True, 201), user
    reader = served.explain("reader", served.mine, confirm=True).json["confirmation"]
    assert (reader["verdict"], reader["agrees"], reader["lane"]) == ("refused", None, "rbac")
    assert f'User "system:serviceaccount:{served.mine}:reader" cannot create' in reader["message"]
    for user, namespace in (("reader", "kube-system"), ("editor", "kube-system"), ("nobody", served.mine)):
        assert served.explain(user, namespace, confirm=True).status == 403, user
    assert served.explain("wrong", served.mine, confirm=True).status == 401
    assert served.explain("", served.mine, confirm=True).status == 401


def test_each_acts_where_he_may_edit_quotas(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """And nowhere else, nor from a page of elsewhere; the audit line names the account, whatever the body says."""
    for user in ("everywhere", "reader", "editor", "nobody"):
        found = served.act(user, "pause", namespace=served.mine)
        assert (found.status, "may not update resourcequotas" in found.json["detail"]) == (403, True), user
    assert served.act("operator", "pause", namespace="kube-system").status == 403
    assert served.act("wrong", "pause", namespace=served.mine).status == 401
    body = json.dumps({"namespace": served.mine}).encode()
    for more in (
        {"Content_Type": "text/plain"},
        {"Content_Type": "application/json", "Origin": "https://evil.example"},
    ):
        refused = served.ask("/v1/actions/pause", "operator", "POST", body, **more)
        assert refused.status in {403, 415}, refused
    assert not served.gate.ledger.is_halted(served.mine)
    done = served.act("operator", "pause", namespace=served.mine, by="the president", why="drained")
    assert (done.status, done.json["action"]) == (200, "pause"), done
    assert served.gate.ledger.is_halted(served.mine)
    (line,) = [each.getMessage() for each in caplog.records if each.name == "backoff_ctrl.audit"]
    assert f"system:serviceaccount:{served.mine}:operator" in line
    assert "president" not in line
    assert served.act("operator", "resume", namespace=served.mine).status == 200
    assert not served.gate.ledger.is_halted(served.mine)
    unknown = served.act("operator", "forget", namespace=served.mine, quota="nowhere")
    assert (unknown.status, "no gate knows a quota" in unknown.json["detail"]) == (404, True)
    assert served.act("operator", "cancel", id="nobody").status == 404
    assert served.act("operator", "explode", namespace=served.mine).status == 404


def test_quota_admission_answers_a_dry_run_and_charges_nothing(served: Served, kubernetes: Server) -> None:
    """Refused as a create would be; what is used stays as it was, however often one asks."""
    reach = Reach(find_place(None, str(kubernetes.kubeconfig()), None, None))
    base = f"/api/v1/namespaces/{served.mine}"

    def used() -> Any:
        return reach.ask("GET", f"{base}/resourcequotas/q")[1].get("status", {}).get("used", {}).get("pods")

    until(lambda: used() == "0")
    for _ in range(4):  # twice as often as there is room
        assert served.explain("editor", served.mine, confirm=True).json["confirmation"]["status"] == 201
    assert used() == "0"
    for name in ("one", "two"):
        assert reach.ask("POST", f"{base}/pods", {**POD, "metadata": {"name": name}})[0] == 201
    until(lambda: used() == "2")
    until(lambda: served.explain("editor", served.mine).json["verdict"] == "wait")
    found = served.explain("editor", served.mine, confirm=True).json
    assert (found["confirmation"]["agrees"], found["confirmation"]["lane"]) == (True, "quota"), found
    assert "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2" in found["confirmation"]["message"]
    assert found["confirmation"]["blockers"] == found["blockers"]
    for name in ("one", "two"):
        assert reach.ask("DELETE", f"{base}/pods/{name}", {"gracePeriodSeconds": 0})[0] == 200
    until(lambda: used() == "0")
    until(lambda: served.explain("editor", served.mine).json["verdict"] == "now")
    reach.close()


def test_the_page_asks_for_a_token_and_keeps_it_from_scripts(served: Served) -> None:
    """Event streams can't send headers; a cookie goes with them. A page of elsewhere can't use it."""
    form = served.ask("/")
    assert (form.status, b'name="token"' in form.body) == (401, True)
    wrong = served.ask("/enter", method="POST", body=urlencode({"token": "wrong"}).encode())
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    body = urlencode({"token": served.tokens["everywhere"]}).encode()
    entered = served.ask("/enter", method="POST", body=body)
    cookie = entered.headers["set-cookie"]
    assert (entered.status, entered.headers["location"]) == (303, "/")
    assert {"httponly", "secure", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}
    mine = cookie.partition(";")[0]
    page = served.ask(f"/?namespace={served.mine}", Cookie=mine)  # others of the server are many
    assert (page.status, served.mine.encode() in page.body) == (200, True)
    elsewhere = served.ask("/enter", method="POST", body=body, Origin="https://evil.example")
    assert elsewhere.status == 403
    chosen = served.ask("/", Cookie=f"backoff_ctrl_token={served.tokens['reader']}")
    assert (chosen.status, b'name="namespace"' in chosen.body) == (403, True)
    left = served.ask("/leave", method="POST", Cookie=mine)
    assert 'backoff_ctrl_token=""' in left.headers["set-cookie"]
