"""``backoff-ctrl doctor``: a line for each check, and a reliable exit code."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.gate.settings import VARIABLES
from backoff_ctrl.k8s.kube.cluster.asking import Reach, ReachError, find_place
from tests.admitting.trains import written
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.official import skip_without_proxy
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import Seen, failure, scripted_server

if TYPE_CHECKING:
    from pathlib import Path

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
    from tests.kit.scripted_server import Reply


def cluster(denied: set[str]) -> Any:
    """Script an API server that denies these rights."""

    def answer(seen: Seen) -> Any:
        if seen.path == "/version":
            return 200, {"gitVersion": "v1.36.3"}
        if seen.path.endswith("selfsubjectaccessreviews"):
            asked = seen.body["spec"]["resourceAttributes"]
            return 201, {"status": {"allowed": f"{asked['verb']} {asked['resource']}" not in denied}}
        return failure(403, "Forbidden", "no") if "list resourcequotas" in denied else (200, {"items": []})

    return answer


def kubeconfig(folder: Path, server: str, token: str = "t", **cluster_has: str) -> str:
    """Write a kubeconfig with a token and the namespace ``team``; return its path."""
    return write_kubeconfig(folder / "config", server, {"token": token}, namespace="team", **cluster_has)


def only_error(capsys: pytest.CaptureFixture[str], code: int) -> str:
    """Return the one line on stderr of a command that ended with 2."""
    errors = capsys.readouterr().err.splitlines()
    assert (code, len(errors)) == (2, 1), errors
    return errors[0]


@pytest.fixture(autouse=True)
def _no_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some machines name theirs to every program; doctor prints that, too."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


def test_all_is_well(sandbox: BackgroundSandbox, capsys: pytest.CaptureFixture[str]) -> None:
    """Every check has an ok line, and the exit code is 0."""
    sandbox.create_quota("team", "pods", {"pods": "3"})

    code = run(["doctor", "--apiserver", sandbox.url, "-n", "team"])
    lines = capsys.readouterr().out.splitlines()

    assert code == 0
    assert all(line.startswith(("ok", "    BACKOFF_CTRL_")) for line in lines)
    assert lines[-1].endswith("pods in team")


def test_a_missing_right_is_reported_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    """The gate works without watching quotas, but the user should know: exit code 1."""
    with scripted_server(cluster({"watch resourcequotas", "list resourcequotas"})) as server:
        code = run(["doctor", "--apiserver", server.url])
    out = capsys.readouterr().out

    assert code == 1
    assert "no  watch resourcequotas    not allowed in default" in out
    assert "bind the role view" in out


def test_a_gateway_of_all_namespaces_is_asked_about_all(capsys: pytest.CaptureFixture[str]) -> None:
    """Not about creating, which it never does with its own account."""
    with scripted_server(cluster({"create pods", "watch pods"})) as server:
        code = run(["doctor", "--apiserver", server.url, "--for", "gateway", "-A"])
        asked = [each.body["spec"]["resourceAttributes"] for each in server.of("POST")]
    out = capsys.readouterr().out
    assert (code, "no  watch pods              not allowed in all namespaces" in out) == (1, True), out
    assert {(each["verb"], each["resource"], each["namespace"]) for each in asked} == {
        (verb, kind, "") for verb in ("list", "watch") for kind in ("pods", "resourcequotas")
    }


@pytest.mark.parametrize(("mode", "denied"), [("operator", "patch trains"), ("webhooks", "list trains")])
def test_kinds_that_were_described_are_asked_for_too(
    mode: str, denied: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operator lets them in as it does Jobs, and the webhook suspends them."""
    pytest.importorskip("pydantic")
    with scripted_server(cluster({denied})) as server:
        code = run(["doctor", "--for", mode, "--kinds", str(written(tmp_path)), "--apiserver", server.url])
    out = capsys.readouterr().out
    assert (code, f"no  {denied}.example.com not allowed" in out) == (1, True), out


@pytest.mark.parametrize("page", [b"<html>Sign in</html>", b"[]", {"items": 3}])
def test_an_answer_that_is_no_list_of_quotas_is_reported(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """It must not count as a namespace without quotas."""
    well = cluster(set())
    with scripted_server(lambda seen: (200, page) if "resourcequotas" in seen.path else well(seen)) as server:
        code = run(["doctor", "--apiserver", server.url])
    out = capsys.readouterr().out

    assert code == 1
    assert "the answer is not a list" in out
    assert "not limited" not in out


def test_the_settings_in_force_are_printed_with_their_sources(
    sandbox: BackgroundSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the process and of its platform; no secret among them, and what is wrong is no setting but a check."""
    for name, value in {
        "BACKOFF_CTRL_MODE": "Shadow, team=enforce",
        "BACKOFF_CTRL_EVENTS": "0",
        "BACKOFF_CTRL_TIMEOUT": "soon",
        "BACKOFF_CTRL_STATUS_TOKEN": "a-secret-of-this-test",
        "BACKOFF_CTRL_PLUGINS__K8S__DEFAULT_CPUS": "2",
        "KUBECONFIG": "/nowhere",
    }.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "platform.yaml"
    file.write_text("plugins: {k8s: {default-cpus: 1, default-memory: 2Gi, default-env-vars: {KEY: a-secret}}}")
    options = ["--config", str(file), "--set", "tasks.backoff.base-second=3"]
    assert run(["doctor", "--apiserver", sandbox.url, "--json", *options]) == 1

    text = capsys.readouterr().out
    document = json.loads(text)
    found = {each["name"]: (each["value"], each["source"]) for each in document["settings"]}
    assert {name: found.pop(name) for name in list(found) if found[name][1] != "default"} == {
        "BACKOFF_CTRL_MODE": ("*=shadow,team=enforce", "environment"),
        "BACKOFF_CTRL_EVENTS": ("0", "environment"),
        "BACKOFF_CTRL_STATUS_TOKEN": ("(not shown)", "environment"),
        "KUBECONFIG": ("/nowhere", "environment"),
        "plugins.k8s.default-cpus": ("'2'", "environment"),
        "plugins.k8s.default-memory": ("'2Gi'", str(file)),
        "plugins.k8s.default-env-vars": ("{KEY} (values are not shown)", str(file)),
        "tasks.backoff.base-second": ("3", "flag"),
    }
    assert found["BACKOFF_CTRL_TIMEOUT"] == ("no limit", "default")
    assert set(found) < {each.name for each in VARIABLES.values() if each.ours}
    assert "a-secret" not in text
    assert [each["name"] for each in document["checks"] if not each["ok"]] == ["environment"]

    file.write_text("plugins: {k8s: {no-such-key: 1}}")
    assert run(["doctor", "--apiserver", sandbox.url, "--config", str(file)]) == 1
    assert f"no  settings                {file}: plugins.k8s.no-such-key: unknown key" in capsys.readouterr().out


def test_json_is_one_document(sandbox: BackgroundSandbox, capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints nothing else on stdout."""
    code = run(["doctor", "--apiserver", sandbox.url, "--json"])
    document = json.loads(capsys.readouterr().out)

    assert code == 0
    assert document["ok"] is True
    assert {"versions", "cluster", "create pods", "quotas"} <= {check["name"] for check in document["checks"]}


def test_json_is_one_document_even_if_no_cluster_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    """The document says why; so does one line on stderr, and the exit code is 2."""
    code = run(["doctor", "--apiserver", "http://127.0.0.1:9", "--json"])
    out, told = capsys.readouterr()
    document = json.loads(out)
    assert (code, document["ok"], document["checks"][0]["name"]) == (2, False, "versions")
    assert (document["checks"][-1]["name"], document["checks"][-1]["ok"]) == ("cluster", False)
    assert told == f"backoff-ctrl: {document['checks'][-1]['detail']}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["--apiserver", "http://127.0.0.1:9"], "cannot reach", id="no server"),
        pytest.param(["--apiserver", "127.0.0.1:9"], "must be a URL", id="no scheme"),
        pytest.param(["--apiserver", "http://"], "must be a URL", id="no host"),
        pytest.param(["--apiserver", "http://[::1"], "must be a URL", id="incomplete address"),
        pytest.param(["--apiserver", "http://127.0.0.1:99999"], "must be a URL", id="invalid port"),
        pytest.param(["--kubeconfig", "/does/not/exist"], "--kubeconfig", id="no kubeconfig"),
        pytest.param(
            ["--apiserver", "http://127.0.0.1:9", "--gates-in", "a"],
            "--gates-in is for --for serve",
            id="of another mode",
        ),
        pytest.param(
            ["--apiserver", "http://127.0.0.1:9", "--for", "injection", "--keeps", "a"],
            "belong together",
            id="half a place",
        ),
        pytest.param(["--apiserver", "http://a", "--context", "b"], "give only one of them", id="two clusters"),
    ],
)
def test_an_unusable_cluster_ends_with_one_line_and_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """stderr has one line, without a traceback."""
    assert sentence in only_error(capsys, run(["doctor", *arguments]))


@pytest.mark.parametrize("content", [b"a: [", b"\xd1\xff", b"[1]", b"x: 1", b""], ids=repr)
def test_a_malformed_kubeconfig_is_such_a_line(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the bytes, the line names the option that chooses another file."""
    path = tmp_path / "config"
    path.write_bytes(content)
    error = only_error(capsys, run(["doctor", "--kubeconfig", str(path)]))

    assert "the kubeconfig" in error
    assert error.endswith("choose another file with --kubeconfig")


@pytest.mark.parametrize("server", ["127.0.0.1:1", "", "https://127.0.0.1:99999", "https://127.0.0.1:abc", "ftp://a"])
def test_an_invalid_address_in_a_kubeconfig_is_one_before_anything_is_sent(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a scheme, the client would send the token over plain HTTP."""
    error = only_error(capsys, run(["doctor", "--kubeconfig", kubeconfig(tmp_path, server)]))

    assert "must be a URL such as https://10.0.0.1:6443" in error


UNAUTHORIZED = failure(401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize(
    ("version", "others", "said"),
    [
        pytest.param(UNAUTHORIZED, UNAUTHORIZED, "rejected the credentials", id="401"),
        # anyone may read the version; without credentials the next request is answered 401
        pytest.param((200, {"gitVersion": "v1"}), UNAUTHORIZED, "rejected the credentials", id="401 to a review"),
        pytest.param(
            (404, {}),
            UNAUTHORIZED,
            "answered 404 to /version: check that this is the address of an API server",
            id="a web server",
        ),
        pytest.param((200, b"[" * 100_000 + b"]" * 100_000), UNAUTHORIZED, "", id="nested too deeply for Python"),
        pytest.param((200, b"x" * 1001), UNAUTHORIZED, "more than 1000 bytes", id="too long, to fill the memory"),
    ],
)
def test_a_server_that_is_of_no_use_is_one(
    version: Reply, others: Reply, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And exit code 2, not a line per check."""
    if said.startswith("more than"):
        monkeypatch.setattr("backoff_ctrl.k8s.kube.cluster.asking.ANSWER_MAX", 1000)
    with scripted_server(lambda seen: version if seen.path == "/version" else others) as server:
        assert said in only_error(capsys, run(["doctor", "--apiserver", server.url]))


def test_the_context_of_the_kubeconfig_gives_cluster_and_namespace(
    sandbox: BackgroundSandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is used as kubectl would use it."""
    code = run(["doctor", "--kubeconfig", kubeconfig(tmp_path, sandbox.url)])
    out = capsys.readouterr().out

    assert code == 0
    assert "context here of the kubeconfig" in out
    assert "allowed in team" in out


@pytest.mark.parametrize(
    ("token", "certificate", "note"),
    [
        ("t", None, "send no token over plain HTTP"),
        (None, "client.crt", "needs a token"),
        ("t", "client.crt", "send no token over plain HTTP"),
        (None, None, ""),
    ],
)
def test_what_a_sidecar_could_not_pass_on_is_said(
    token: str | None, certificate: str | None, note: str, sandbox: BackgroundSandbox
) -> None:
    """It is no failure: without a sidecar these credentials work."""
    place = find_place(sandbox.url, None, None, "team")
    place.configuration.cert_file = certificate
    place.configuration.api_key = {"authorization": f"Bearer {token}"} if token else {}
    reach = Reach(place)
    said = [check for check in reach.checks() if check.name == "sidecar"]
    reach.close()
    assert len(said) == bool(note)
    assert all(check.ok and note in check.detail for check in said)


def test_a_namespace_that_does_not_exist_is_reported(
    sandbox: BackgroundSandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt namespace has no quotas either; it must not look unlimited."""
    code = run(["doctor", "--apiserver", sandbox.url, "-n", "taem"])

    assert code == 1
    assert "namespace taem does not exist" in capsys.readouterr().out


def test_a_missing_namespace_fails_its_own_check_and_the_rest_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Rights are denied in a namespace without role bindings: that must not read as a missing right to create pods."""
    others = cluster({"create pods"})

    def answer(seen: Seen) -> Any:
        if seen.path == "/api/v1/namespaces/taem":
            return failure(404, "NotFound", 'namespaces "taem" not found')
        return others(seen)

    with scripted_server(answer) as server:
        code = run(["doctor", "--apiserver", server.url, "-n", "taem", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]

    assert code == 1
    assert [check["name"] for check in checks] == ["versions", "cluster", "namespace"]
    assert checks[-1]["ok"] is False
    assert "kubectl create namespace taem" in checks[-1]["remedy"]


def test_an_answer_that_never_ends_is_abandoned() -> None:
    """The time limit is for the whole answer, since a server may send a byte now and then forever."""
    over = threading.Event()

    def answer(_: Seen) -> Any:
        over.wait(PATIENCE)
        return 200, {}

    with scripted_server(answer) as server:
        reach = Reach(find_place(server.url, None, None, None), limit=0.1)
        with pytest.raises(ReachError, match=r"the answer timed out \(incomplete after 0\.1 s\); check"):
            reach.version()
        over.set()
        reach.close()


def test_a_socks_proxy_needs_a_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kubectl supports SOCKS; the official Python client needs another package for it."""
    path = kubeconfig(tmp_path, "http://127.0.0.1:1", **{"proxy-url": "socks5://127.0.0.1:1"})
    skip_without_proxy(path)

    assert "pip install pysocks" in only_error(capsys, run(["doctor", "--kubeconfig", path]))


@pytest.mark.parametrize("odd", [{"status": "Failure"}, {"status": None}, {"status": [1]}, {}])
@pytest.mark.parametrize("items", [[1], [{"metadata": None}], [{"metadata": {"name": "a\x1b[31m\nb"}}], "x", None])
def test_answers_of_another_shape_are_survived(odd: Any, items: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each check has its line, and no control characters of the server reach the terminal."""

    def answer(seen: Seen) -> Any:
        if seen.path == "/version":
            return 200, {"gitVersion": "v1\x1b]0;x\x07\nok  FAKE LINE"}
        return (201, odd) if seen.path.endswith("reviews") else (200, {"items": items})

    with scripted_server(answer) as server:
        code = run(["doctor", "--apiserver", server.url])
    out, err = capsys.readouterr()

    assert code == 2  # as far as the server says, not even creates of pods are allowed
    assert "\x1b" not in out + err
    assert not [line for line in out.splitlines() if line.startswith("ok  FAKE")]
    assert "Traceback" not in err
