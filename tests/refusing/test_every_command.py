"""Every command with a server, a kubeconfig or an address that is of no use: one sentence, and exit code 2.

The commands are those of the parser: one that is new is tested here without being named. ``python -m tests.refusing``
prints the sentences as a table.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backoff_ctrl.api.main import run
from tests.kit.kubeconfigs import write_kubeconfig
from tests.refusing.commands import Command, asking, commands
from tests.refusing.faults import KUBECONFIGS, OF_LOGIN, SERVERS, Given, answering, powerless, refusal

Capsys = pytest.CaptureFixture[str]
LIMIT = 60
"""Seconds after which a command that does not end is stopped, as by Ctrl-C: its exit code is another one then."""
CLUSTERS = [each for each in asking() if each.takes_kubeconfig]
GATES = [each for each in asking() if each.url_of_gate]
LISTENING = [(each, option) for each in commands() for option in each.addresses]
NO_CLUSTER = "only a gate knows who waits"
"""What ``waiting`` says to each cluster that it is given: it asks gates alone."""
TABLE = os.environ.get("BACKOFF_TEST_TABLE", "")
"""A file that gets a line of JSON for each command and fault, for ``python -m tests.refusing``."""


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    """Stop what serves instead of refusing."""
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def sentence(capsys: Capsys, command: str, line: list[str], fault: str) -> str:
    """Run a command line; return the one sentence that it ends with."""
    code = run(line)
    out, err = capsys.readouterr()
    said = [each for each in err.splitlines() if not each.startswith("20")]  # what a server logs before
    assert code == 2, (line, code, out, err)
    assert out == "" or line[0] == "doctor", (line, out)
    assert len(said) == 1, (line, said)
    assert said[0].startswith("backoff-ctrl: "), said
    assert "Traceback" not in err
    assert "Error(" not in err
    note(command, fault, said[0])
    return said[0]


def note(command: str, fault: str, said: str) -> None:
    """Add a row to the table, if one is written."""
    if TABLE:
        with Path(TABLE).open("a", encoding="utf-8") as file:
            file.write(json.dumps([command, fault, said]) + "\n")


def test_all_commands_are_found() -> None:
    """Else nothing here would be tested."""
    names = {each.name for each in commands()}
    assert {"doctor", "jobs list", "jobs release", "task run", "act pause", "proxy", "explain"} <= names
    forgotten = {each.name for each in asking()} - {each.name for each in (*CLUSTERS, *GATES)}
    assert not forgotten, "commands that ask no server are named in commands.HERE"
    assert len(CLUSTERS) >= 14
    assert len(GATES) >= 8
    assert len(LISTENING) >= 6


@pytest.mark.parametrize("fault", KUBECONFIGS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("command", CLUSTERS, ids=lambda each: each.name)
def test_a_kubeconfig_that_is_of_no_use(
    command: Command, fault: Callable[[Path], Given], tmp_path: Path, capsys: Capsys
) -> None:
    """The sentence says what is wrong with it, and what there is."""
    if command.name == "proxy" and fault in OF_LOGIN:
        pytest.skip("creators bring their own credentials")
    options, words = fault(tmp_path)
    said = sentence(capsys, command.name, command.line(tmp_path, *options), fault.__name__)
    assert NO_CLUSTER in said if command.name == "waiting" else all(word in said for word in words), said


@pytest.mark.parametrize("fault", SERVERS)
@pytest.mark.parametrize("command", CLUSTERS, ids=lambda each: each.name)
def test_a_server_that_is_no_api_server(command: Command, fault: str, tmp_path: Path, capsys: Capsys) -> None:
    """Its answer to /version says so, or that it does not take these credentials."""
    scheme, serving, words = SERVERS[fault]
    own = ["--use-own-credentials"] if command.has("--use-own-credentials") else []
    with serving(tmp_path) as address:
        file = write_kubeconfig(tmp_path / "config", f"{scheme}://{address}", namespace="team")
        said = sentence(capsys, command.name, command.line(tmp_path, "--kubeconfig", file, *own), fault)
    assert NO_CLUSTER in said if command.name == "waiting" else all(word in said for word in words), said


@pytest.mark.parametrize("fault", SERVERS)
@pytest.mark.parametrize("command", [each for each in asking() if each.url_of_api_server], ids=lambda each: each.name)
def test_an_address_of_no_api_server(command: Command, fault: str, tmp_path: Path, capsys: Capsys) -> None:
    """The same where the address is given by an option of the command."""
    scheme, serving, words = SERVERS[fault]
    own = ["--use-own-credentials"] if command.has("--use-own-credentials") else []
    if own and fault == "rejected credentials":
        pytest.skip("an address comes without credentials")
    with serving(tmp_path) as address:
        line = command.line(tmp_path, command.url_of_api_server, f"{scheme}://{address}")
        said = sentence(capsys, command.name, line, f"{command.url_of_api_server} {fault}")
    assert NO_CLUSTER in said if command.name == "waiting" else all(word in said for word in words), said


@pytest.mark.parametrize(
    "command",
    [each for each in CLUSTERS if not each.serves and each.name != "uninstall"],
    ids=lambda each: each.name,
)
def test_an_account_without_rights(command: Command, tmp_path: Path, capsys: Capsys) -> None:
    """The sentence says which right is missing, and what to ask for."""
    with powerless() as url:
        file = write_kubeconfig(tmp_path / "config", url, namespace="team")
        said = sentence(capsys, command.name, command.line(tmp_path, "--kubeconfig", file), "no rights")
    assert command.name in {"waiting", "top"} or any(
        word in said for word in ("ask for a role", "with the role", ": allow ")
    ), said


def test_uninstall_reports_each_step_that_lacks_a_right(tmp_path: Path, capsys: Capsys) -> None:
    """It takes the steps that it can: one sentence each, and exit code 1."""
    with powerless() as url:
        file = write_kubeconfig(tmp_path / "config", url, namespace="team")
        assert run(["uninstall", "--yes", "--kubeconfig", file]) == 1
    lines = [each for each in capsys.readouterr().err.splitlines() if not each.startswith("20")]
    note("uninstall", "no rights", lines[0])
    assert [each.partition(":")[0] for each in lines] == ["Jobs", "Tasks"]
    assert all("; ask for a role that allows" in each for each in lines), lines


@pytest.mark.parametrize(
    ("name", "words"),
    [("operator", ": allow "), ("inject", ": allow "), ("serve", "cannot watch quotas"), ("proxy", "listening on")],
)
def test_a_server_goes_on_without_rights(name: str, words: str, tmp_path: Path) -> None:
    """It reports what it lacks, and at /readyz: rights may be given while it runs. ``proxy`` needs none of its own."""
    command = next(each for each in CLUSTERS if each.name == name)
    with powerless() as url:
        file = write_kubeconfig(tmp_path / "config", url, namespace="team")
        more = [*(_certificates(tmp_path) if name == "inject" else ()), "--kubeconfig", file]
        line = [sys.executable, "-m", "backoff_ctrl", *command.line(tmp_path, *more)]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            said = next((each for each in process.stdout if words in each), "")
            process.send_signal(signal.SIGTERM)
            rest = process.stdout.read()
    assert said
    assert (process.returncode, "Traceback" in rest) == (0, False), rest
    note(name, "no rights", f"goes on: {said.strip().partition('WARNING ')[2] or said.strip()}")


PROBLEM = b'{"title": "Forbidden", "status": 403, "detail": "not you", "errors": []}'
GATE_FAULTS = {
    "nothing": None,
    "a web page": (200, b"<html>hi</html>", "text/html"),
    "an API server": (404, refusal(404, "NotFound", "not found"), "application/json"),
    "JSON of another service": (200, b'{"ok": true}', "application/json"),
    "no rights": (403, PROBLEM, "application/problem+json"),
}


@pytest.mark.parametrize("fault", GATE_FAULTS)
@pytest.mark.parametrize("command", GATES, ids=lambda each: each.name)
def test_a_gate_that_is_none(command: Command, fault: str, tmp_path: Path, capsys: Capsys) -> None:
    """A command that asks a gate, at the address of something else, or of nothing."""
    answer = GATE_FAULTS[fault]
    line = [each for each in command.line(tmp_path, "--store", "none") if each not in ("--store", "none")]
    token = tmp_path / "token"
    token.write_text("a-token-of-this-test")
    more = ["--token-file", str(token)] if command.has("--token-file") and not command.has("--confirm") else []
    if answer is None:
        nobody = [*line, command.url_of_gate, "http://127.0.0.1:1", *more]
        said = sentence(capsys, command.name, nobody, f"gate: {fault}")
        assert "nothing listens" in said
        return
    with answering(answer[0], answer[1], content=answer[2]) as address:
        said = sentence(
            capsys, command.name, [*line, command.url_of_gate, f"http://{address}", *more], f"gate: {fault}"
        )
    assert address in said


@pytest.mark.parametrize(("command", "option"), LISTENING, ids=lambda each: getattr(each, "name", each))
@pytest.mark.parametrize("fault", ["in use", "no port", "no number", "empty"])
def test_an_address_that_can_not_be_listened_at(
    command: Command, option: str, fault: str, tmp_path: Path, capsys: Capsys
) -> None:
    """The sentence names the option, and what to write."""
    with socket.create_server(("127.0.0.1", 0)) as taken, answering(200, b'{"gitVersion": "v1.36.0"}') as address:
        port = taken.getsockname()[1]
        given = {
            "in use": f"127.0.0.1:{port}",
            "no port": "127.0.0.1:99999",
            "no number": "127.0.0.1:http",
            "empty": "",
        }
        file = write_kubeconfig(tmp_path / "config", f"http://{address}", namespace="team")
        more = ["--kubeconfig", file] if command.takes_kubeconfig else []
        if command.name == "inject":
            more += _certificates(tmp_path)
        line = command.line(tmp_path, *more, option, given[fault])
        said = sentence(capsys, command.name, line, f"{option} {fault}")
    assert option in said
    assert fault != "in use" or f"127.0.0.1:{port}" in said or f"port {port}" in said, said


def _certificates(folder: Path) -> list[str]:
    from tests.proxying.passing.certificates import make_pair  # noqa: PLC0415 - cryptography

    made = make_pair(folder / "tls")
    return ["--tls-cert", str(made.certificate), "--tls-key", str(made.key)]


def test_the_default_kubeconfig_is_named_with_its_contexts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    """Of a file that is not there: what is there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    write_kubeconfig(tmp_path / ".kube" / "config", "http://127.0.0.1:1")
    said = sentence(capsys, "doctor", ["doctor", "--kubeconfig", "/nope"], "default there")
    assert (
        f"there is no kubeconfig /nope; the default one, {tmp_path}/.kube/config, is there, with the contexts here"
        in said
    )

    (tmp_path / ".kube" / "config").unlink()
    said = sentence(capsys, "doctor", ["doctor", "--kubeconfig", "/nope"], "no default")
    assert f"there is no kubeconfig /nope, nor the default one, {tmp_path}/.kube/config" in said


def test_port_of_the_sandbox(capsys: Capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = sentence(capsys, "sandbox", ["sandbox", "--port", str(port)], "--port in use")
    assert f"cannot listen on port {port}" in said
    assert "--port 0" in said
