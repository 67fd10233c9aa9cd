"""A cluster that cannot be used as asked: one sentence that says what to do, exit code 2, never a traceback."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from backoff_ctrl.api.main import run
from tests.cluster.control_plane.servers import Server
from tests.cluster.talking import Api
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.patience import PATIENCE

Capsys = pytest.CaptureFixture[str]
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


def said(capsys: Capsys, code: int) -> str:
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
        thread.join(timeout=PATIENCE)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


# -- no API server is asked ---------


def _nobody(folder: Path) -> tuple[list[str], tuple[str, ...]]:
    url = f"https://127.0.0.1:{free_port()}"
    return [write_kubeconfig(folder / "k", url)], (url, "no server is listening there", "check the address")


def _nowhere(folder: Path) -> tuple[list[str], tuple[str, ...]]:
    said = ("cluster.invalid", "check the address and the network")  # names ending in .invalid never resolve
    return [write_kubeconfig(folder / "k", "https://cluster.invalid")], said


def _context(folder: Path) -> tuple[list[str], tuple[str, ...]]:
    return [write_kubeconfig(folder / "k", "https://127.0.0.1:1"), "--context", "elsewhere"], ("elsewhere",)


def _login(folder: Path) -> tuple[list[str], tuple[str, ...]]:
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/login", "interactiveMode": "Never"}
    return [write_kubeconfig(folder / "k", "https://127.0.0.1:1", {"exec": login})], ("/no/such/login",)


def _missing(folder: Path) -> tuple[list[str], tuple[str, ...]]:
    return [str(folder / "nowhere")], (str(folder / "nowhere"), "choose another file with --kubeconfig")


def _folder(folder: Path) -> tuple[list[str], tuple[str, ...]]:
    return [str(folder)], (str(folder), "choose another file with --kubeconfig")


@pytest.mark.parametrize("case", [_nobody, _nowhere, _context, _login, _missing, _folder])
def test_what_can_not_be_reached_or_read_is_named(
    command: list[str], case: Callable[[Path], tuple[list[str], tuple[str, ...]]], tmp_path: Path, capsys: Capsys
) -> None:
    """A server that does not run, a host that does not exist; a context, a login program, a file that is not there."""
    options, words = case(tmp_path)
    sentence = said(capsys, run([*command, "--kubeconfig", *options]))

    assert all(word in sentence for word in words), sentence


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
    command: list[str], answer: bytes | None, scheme: str, words: str, tmp_path: Path, capsys: Capsys
) -> None:
    """Something listens there, but it does not answer as an API server does."""
    with listening(answer) as address:
        path = write_kubeconfig(tmp_path / "k", f"{scheme}://{address}")
        assert words in said(capsys, run([*command, "--kubeconfig", path]))


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"a: [", b"\xff\xfe", b"just words", b"clusters: 3",
        b"kind: Config\nclusters: []\nusers: []\ncontexts: []\ncurrent-context: gone\n",
        b"current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: []\nusers: []\n",
        b"current-context: a\ncontexts: [{name: a}]\nclusters: []\nusers: []\n",
        b"current-context: a\ncontexts: null\nclusters: null\nusers: null\n", NO_AUTHORITY,
    ],
    ids=lambda content: repr(content[:40]),
)  # fmt: skip
def test_an_invalid_kubeconfig(command: list[str], content: bytes, tmp_path: Path, capsys: Capsys) -> None:
    """Whatever its bytes are, the sentence names the kubeconfig as the problem, and the option to choose another."""
    (tmp_path / "config").write_bytes(content)
    sentence = said(capsys, run([*command, "--kubeconfig", str(tmp_path / "config")]))

    assert "the kubeconfig" in sentence
    assert sentence.endswith("choose another file with --kubeconfig")


# -- certificates, credentials and rights ---------


def changed(kubernetes: Server, folder: Path, *, user: dict[str, str] | None = None, **cluster: str | None) -> str:
    """Write a kubeconfig of the server with other credentials, or with another cluster; None leaves a key out."""
    document = yaml.safe_load(kubernetes.kubeconfig().read_text())
    place = document["clusters"][0]["cluster"]
    for key, value in cluster.items():
        place.pop(key, None)
        place |= {key: value} if value else {}
    if user is not None:
        document["users"][0]["user"] = user
    (folder / "k").write_text(yaml.safe_dump(document))
    return str(folder / "k")


CUT = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMIIB").decode()
FORGED = ".".join(
    base64.urlsafe_b64encode(part).rstrip(b"=").decode()
    for part in (b'{"alg": "RS256"}', b'{"iss": "https://kubernetes.default.svc", "exp": 1}', b"signature")
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            {"certificate-authority": None},
            ("its certificate is not trusted", "set certificate-authority in the kubeconfig"),
            id="authority unknown",
        ),
        pytest.param(
            {"tls-server-name": "other.example"},
            ("its certificate is for another host", "tls-server-name"),
            id="another host",
        ),
        pytest.param(
            {"certificate-authority": None, "certificate-authority-data": CUT}, ("certificate",), id="authority cut off"
        ),
        pytest.param(
            {"user": {"token": FORGED}}, ("rejected the credentials", "get a fresh token"), id="no such token"
        ),
    ],
)
def test_a_server_that_does_not_fit_the_kubeconfig(
    kubernetes: Server, command: list[str], change: Any, words: tuple[str, ...], tmp_path: Path, capsys: Capsys
) -> None:
    """The sentence says what of it to correct. A token that has expired gets the answer of one that was never given."""
    sentence = said(capsys, run([*command, "--kubeconfig", changed(kubernetes, tmp_path, **change)]))

    assert all(word in sentence for word in words), sentence


def test_no_credentials_at_all(kubernetes: Server, command: list[str], tmp_path: Path, capsys: Capsys) -> None:
    """The server treats unknown users as anonymous, and lets them ask only for its version."""
    path = changed(kubernetes, tmp_path, user={"username": "u", "password": "p"})
    code = run([*command, "--kubeconfig", path])
    lines = capsys.readouterr().err.splitlines()

    assert code == 2
    assert [line for line in lines if "credentials" in line] == lines[-1:]
    assert not any("delet" in line for line in lines)


@pytest.mark.parametrize("user", ["nobody", "learner", "creator"])
async def test_a_demo_that_may_not_clean_up_does_not_start(kubernetes: Server, user: str, capsys: Capsys) -> None:
    """403: the sentence names the verb and the role to ask for; nothing was created."""
    arguments = ["demo", "--pods", "5", "--kubeconfig", str(kubernetes.kubeconfig(user))]
    sentence = said(capsys, await asyncio.to_thread(run, arguments))

    assert "may not delete namespaces" in sentence
    assert "ask for a role that allows" in sentence
    assert "patch on pods/status" in sentence


@pytest.mark.parametrize("missing", ["create resourcequotas", "patch pods/status", "watch resourcequotas"])
async def test_a_demo_whose_role_lacks_one_verb(
    kubernetes: Server, real_api: Api, real_namespace: str, missing: str, tmp_path: Path, capsys: Capsys
) -> None:
    """If everything but one verb is allowed, that one is named."""
    path = changed(
        kubernetes, tmp_path, user={"token": await _account_without(real_api, real_namespace, *missing.split())}
    )
    sentence = said(capsys, await asyncio.to_thread(run, ["demo", "--pods", "5", "--kubeconfig", path]))

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


async def test_doctor_without_the_right_to_create_exits_with_2(kubernetes: Server, capsys: Capsys) -> None:
    """Lines with "no", and a sentence that says what to ask for; without that right nothing can be done here."""
    code = await asyncio.to_thread(run, ["doctor", "--kubeconfig", str(kubernetes.kubeconfig("nobody"))])
    captured = capsys.readouterr()

    assert code == 2
    assert "no  create pods" in captured.out
    assert "may not create pods" in captured.err
    assert len(captured.err.strip().splitlines()) == 1


async def test_doctor_explains_what_is_worse_without_rights_on_quotas(kubernetes: Server, capsys: Capsys) -> None:
    """The gate works without them: exit code 1, not 2."""
    code = await asyncio.to_thread(run, ["doctor", "--kubeconfig", str(kubernetes.kubeconfig("learner"))])

    assert code == 1
    assert "bind the role view" in capsys.readouterr().out
