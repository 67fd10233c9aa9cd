"""A cluster that cannot be used as asked: one sentence that says what to do, exit code 2, never a traceback."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import yaml

from backoff_ctrl.api.main import run
from tests.kubeconfigs import write_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.control_plane.servers import Server
    from tests.cluster.talking import Api

COMMANDS = ("doctor", "demo", "holders")
NOTHING = b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
NO_AUTHORITY = (
    b"current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
    b"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', certificate-authority: /no/such/file}}]\n"
    b"users: [{name: u, user: {token: t}}]\n"
)


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest) -> list[str]:
    """Each command that talks to a cluster, with as few arguments as possible."""
    return ["demo", "--pods", "5"] if request.param == "demo" else [request.param]


def said(capsys: pytest.CaptureFixture[str], code: int) -> str:
    """The only line on stderr of a command that exited with 2."""
    lines = capsys.readouterr().err.splitlines()
    assert code == 2, lines
    assert len(lines) == 1, lines
    assert lines[0].startswith("backoff-ctrl: ")
    return lines[0]


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """A port that answers each connection with these bytes or, with None, closes it at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # closed
                    return
                with connection:
                    if answer is not None:
                        connection.recv(65536)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=45)


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


# -- unreachable ---------


def test_a_server_that_is_not_running(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The connection is refused: the sentence has the address and says to check it."""
    url = f"https://127.0.0.1:{free_port()}"
    sentence = said(capsys, run([*command, "--kubeconfig", write_kubeconfig(tmp_path / "k", url)]))

    assert url in sentence
    assert "no server is listening there" in sentence
    assert "check the address" in sentence


def test_a_host_that_does_not_exist(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names ending in .invalid never resolve."""
    sentence = said(
        capsys, run([*command, "--kubeconfig", write_kubeconfig(tmp_path / "k", "https://cluster.invalid")])
    )

    assert "cluster.invalid" in sentence
    assert "check the address and the network" in sentence


@pytest.mark.parametrize(
    ("answer", "scheme", "words"),
    [
        pytest.param(None, "http", "cannot reach", id="hangs up"),
        pytest.param(None, "https", "TLS failed", id="hangs up on TLS"),
        pytest.param(b"HTTP/1.1 200 OK" + NOTHING, "https", "TLS failed", id="plain HTTP"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", "http", "cannot reach", id="not HTTP"),
        pytest.param(b"HTTP/1.1 404 Not Found" + NOTHING, "http", "address of an API server", id="a web server"),
    ],
)
def test_a_server_that_is_not_an_api_server(
    command: list[str],
    answer: bytes | None,
    scheme: str,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Something listens there, but it does not answer as an API server does."""
    with listening(answer) as address:
        path = write_kubeconfig(tmp_path / "k", f"{scheme}://{address}")
        sentence = said(capsys, run([*command, "--kubeconfig", path]))

    assert words in sentence


def test_a_certificate_that_is_not_trusted(
    kubernetes: Server, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kubeconfig lacks the cluster's certificate authority: the sentence says where it belongs."""
    path = write_kubeconfig(tmp_path / "k", kubernetes.url, {"token": kubernetes.token("tester")})
    sentence = said(capsys, run([*command, "--kubeconfig", path]))

    assert "its certificate is not trusted" in sentence
    assert "set certificate-authority in the kubeconfig" in sentence


def test_a_certificate_of_another_host(
    kubernetes: Server, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tunnel or an old address: the certificate is trusted, but issued for another host."""
    document = yaml.safe_load(kubernetes.kubeconfig().read_text())
    document["clusters"][0]["cluster"]["tls-server-name"] = "other.example"
    path = tmp_path / "k"
    path.write_text(yaml.safe_dump(document))
    sentence = said(capsys, run([*command, "--kubeconfig", str(path)]))

    assert "its certificate is for another host" in sentence
    assert "tls-server-name" in sentence


def test_an_invalid_certificate_authority(
    kubernetes: Server, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The certificate in the kubeconfig was cut off: the sentence says that certificates are the problem."""
    document = yaml.safe_load(kubernetes.kubeconfig().read_text())
    cluster = document["clusters"][0]["cluster"]
    del cluster["certificate-authority"]
    cluster["certificate-authority-data"] = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMIIB").decode()
    path = tmp_path / "k"
    path.write_text(yaml.safe_dump(document))

    sentence = said(capsys, run([*command, "--kubeconfig", str(path)]))

    assert "certificate" in sentence


# -- kubeconfigs ---------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"a: [",
        b"\xff\xfe",
        b"just words",
        b"clusters: 3",
        b"kind: Config\nclusters: []\nusers: []\ncontexts: []\ncurrent-context: gone\n",
        b"current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: []\nusers: []\n",
        b"current-context: a\ncontexts: [{name: a}]\nclusters: []\nusers: []\n",
        b"current-context: a\ncontexts: null\nclusters: null\nusers: null\n",
        NO_AUTHORITY,
    ],
    ids=lambda content: repr(content[:40]),
)
def test_an_invalid_kubeconfig(
    command: list[str], content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever its bytes are, the sentence names the kubeconfig as the problem, and the option to choose another."""
    path = tmp_path / "config"
    path.write_bytes(content)
    sentence = said(capsys, run([*command, "--kubeconfig", str(path)]))

    assert "the kubeconfig" in sentence
    assert sentence.endswith("choose another file with --kubeconfig")


@pytest.mark.parametrize("what", ["missing", "a folder"])
def test_a_missing_kubeconfig(
    command: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, but does not exist or is not a file."""
    path = tmp_path if what == "a folder" else tmp_path / "nowhere"
    sentence = said(capsys, run([*command, "--kubeconfig", str(path)]))

    assert str(path) in sentence
    assert sentence.endswith("choose another file with --kubeconfig")


def test_a_context_that_is_not_in_the_kubeconfig(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence contains its name."""
    path = write_kubeconfig(tmp_path / "k", "https://127.0.0.1:1")
    sentence = said(capsys, run([*command, "--kubeconfig", path, "--context", "elsewhere"]))

    assert "elsewhere" in sentence


def test_a_login_program_that_is_not_installed(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Managed clusters log in with a program; without it there are no credentials to try."""
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/login", "interactiveMode": "Never"}
    path = write_kubeconfig(tmp_path / "k", "https://127.0.0.1:1", {"exec": login})
    sentence = said(capsys, run([*command, "--kubeconfig", path]))

    assert "/no/such/login" in sentence


# -- credentials and rights ---------


def _forged() -> str:
    """A token in the usual form that no cluster has signed."""
    parts = [{"alg": "RS256"}, {"iss": "https://kubernetes.default.svc", "exp": 1}]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*texts, "c2lnbmF0dXJl"])


async def _expired(api: Api, namespace: str) -> str:
    """A token of a deleted service account: it gets the same answer as an expired one, without the wait."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await api.post(accounts, {"metadata": {"name": "leaver"}})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    token = (await api.post(f"{accounts}/leaver/token", asked)).json["status"]["token"]
    await api.delete(f"{accounts}/leaver")
    return str(token)


@pytest.mark.parametrize("why", ["of an account that is gone", "forged"])
async def test_a_token_that_is_no_longer_valid(
    kubernetes: Server,
    real_api: Api,
    real_namespace: str,
    command: list[str],
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """401: the sentence says that the credentials are refused, and to get fresh ones."""
    token = _forged() if why == "forged" else await _expired(real_api, real_namespace)
    path = tmp_path / "k"
    document = yaml.safe_load(kubernetes.kubeconfig().read_text())
    document["users"][0]["user"]["token"] = token
    path.write_text(yaml.safe_dump(document))

    sentence = said(capsys, await asyncio.to_thread(run, [*command, "--kubeconfig", str(path)]))

    assert "rejected the credentials" in sentence
    assert "get a fresh token" in sentence


def test_no_credentials_at_all(
    kubernetes: Server, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server treats unknown users as anonymous, and lets them ask only for its version."""
    document = yaml.safe_load(kubernetes.kubeconfig().read_text())
    document["users"][0]["user"] = {"username": "u", "password": "p"}
    path = tmp_path / "k"
    path.write_text(yaml.safe_dump(document))
    code = run([*command, "--kubeconfig", str(path)])
    lines = capsys.readouterr().err.splitlines()

    assert code == 2
    assert [line for line in lines if "credentials" in line] == lines[-1:]
    assert not any("delet" in line for line in lines)


@pytest.mark.parametrize(
    ("user", "verb"),
    [("nobody", "delete namespaces"), ("learner", "delete namespaces"), ("creator", "delete namespaces")],
)
async def test_a_demo_that_may_not_clean_up_does_not_start(
    kubernetes: Server, user: str, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """403: the sentence names the verb and the role to ask for; nothing was created."""
    arguments = ["demo", "--pods", "5", "--kubeconfig", str(kubernetes.kubeconfig(user))]
    sentence = said(capsys, await asyncio.to_thread(run, arguments))

    assert f"may not {verb}" in sentence
    assert "ask for a role that allows" in sentence
    assert "patch on pods/status" in sentence


@pytest.mark.parametrize("missing", ["create resourcequotas", "patch pods/status", "watch resourcequotas"])
async def test_a_demo_whose_role_lacks_one_verb(
    kubernetes: Server,
    real_api: Api,
    real_namespace: str,
    missing: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If everything but one verb is allowed, that one is named."""
    verb, resource = missing.split()
    token = await _account_without(real_api, real_namespace, verb, resource)
    path = tmp_path / "k"
    document = yaml.safe_load(kubernetes.kubeconfig().read_text())
    document["users"][0]["user"]["token"] = token
    path.write_text(yaml.safe_dump(document))

    sentence = said(capsys, await asyncio.to_thread(run, ["demo", "--pods", "5", "--kubeconfig", str(path)]))

    assert f"may not {missing}" in sentence


async def _account_without(api: Api, namespace: str, verb: str, resource: str) -> str:
    """Create an account that may do everything a demo does, except one thing; returns its token."""
    verbs = ["create", "get", "list", "watch", "patch", "delete"]
    resources = ["namespaces", "pods", "pods/status", "resourcequotas"]
    rules = [
        {"apiGroups": [""], "resources": [each], "verbs": [v for v in verbs if (v, each) != (verb, resource)]}
        for each in resources
    ]
    group = "rbac.authorization.k8s.io"
    roles = f"/apis/{group}/v1"
    await api.post(f"{roles}/clusterroles", {"metadata": {"name": namespace}, "rules": rules})
    account = {"kind": "ServiceAccount", "name": "tester", "namespace": namespace}
    ref = {"apiGroup": group, "kind": "ClusterRole", "name": namespace}
    binding = {"metadata": {"name": namespace}, "roleRef": ref, "subjects": [account]}
    await api.post(f"{roles}/clusterrolebindings", binding)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await api.post(accounts, {"metadata": {"name": "tester"}})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    return str((await api.post(f"{accounts}/tester/token", asked)).json["status"]["token"])


async def test_doctor_without_the_right_to_create_exits_with_2(
    kubernetes: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines with "no", and a sentence that says what to ask for; without that right nothing can be done here."""
    code = await asyncio.to_thread(run, ["doctor", "--kubeconfig", str(kubernetes.kubeconfig("nobody"))])
    captured = capsys.readouterr()

    assert code == 2
    assert "no  create pods" in captured.out
    assert "may not create pods" in captured.err
    assert len(captured.err.strip().splitlines()) == 1


async def test_doctor_explains_what_is_worse_without_rights_on_quotas(
    kubernetes: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gate works without them: exit code 1, not 2."""
    code = await asyncio.to_thread(run, ["doctor", "--kubeconfig", str(kubernetes.kubeconfig("learner"))])

    assert code == 1
    assert "bind the role view" in capsys.readouterr().out
