"""``backoff-ctrl proxy`` from its start to its end, as a process."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from socket import AF_UNIX, socket

import pytest

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.status.token import read_token
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import VERSION, scripted_server
from tests.proxying.passing.wire import GET, OK, VERSION_ANSWER, Side, Upstream
from tests.status.asking import ask

PROGRAM = [sys.executable, "-m", "backoff_ctrl", "proxy"]


@asynccontextmanager
async def _running(upstream: Upstream, *arguments: str) -> AsyncIterator[tuple[subprocess.Popen[str], int]]:
    """Start the proxy and answer its first question; yield it and its port."""
    command = [*PROGRAM, "--listen", "127.0.0.1:0", "--apiserver", f"http://127.0.0.1:{upstream.port}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - uvloop hangs on its own
    try:
        server = await upstream.connection()
        assert (await server.head()).startswith(b"GET /version HTTP/1.1\r\n")
        server.send(VERSION_ANSWER)
        await server.close()
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        assert line.startswith("listening on http://127.0.0.1:")
        yield process, int(line.rpartition(":")[2])
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate)
        await upstream.stop()


@pytest.mark.long
async def test_sigterm_lets_requests_end_and_exits_zero(tmp_path: Path) -> None:
    """Ready when the upstream has answered; at the end connections have their last requests, which are answered."""
    upstream = Upstream()
    await upstream.listen()
    ready = tmp_path / "ready"
    async with _running(upstream, "--ready-file", str(ready)) as (process, port):
        assert ready.exists()
        caller = Side(*await asyncio.open_connection("127.0.0.1", port))
        caller.send(GET)
        server = await upstream.connection()
        await server.head()
        process.send_signal(signal.SIGTERM)
        while not await _is_last(port, upstream):
            pass
        server.send(OK)
        assert b"\r\nConnection: close\r\n" in await caller.head()
        await caller.close()
        assert await asyncio.to_thread(process.wait, 10) == 0
        assert not ready.exists()


def given_a_socket(listening: socket, *arguments: str) -> subprocess.Popen[str]:
    """Start the proxy with a socket that is handed over as systemd does."""
    command = 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@" 3<&"$GIVEN"'
    os.set_inheritable(listening.fileno(), True)
    return subprocess.Popen(
        ["bash", "-c", command, "bash", *PROGRAM, *arguments],
        env={**os.environ, "GIVEN": str(listening.fileno())}, pass_fds=[listening.fileno()],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.long
def test_a_socket_at_a_path_outlives_a_process_that_it_was_handed_to(tmp_path: Path) -> None:
    """As systemd does: its socket serves the next process, too, so the file of it stays."""
    path = tmp_path / "s"
    with scripted_server(lambda _: VERSION) as script, socket(AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        for _ in range(2):
            process = given_a_socket(listening, "--listen", f"unix:{path}", "--apiserver", script.url)
            assert process.stdout is not None
            assert process.stdout.readline() == f"listening on unix:{path}\n"
            process.terminate()
            process.communicate(timeout=PATIENCE)
            assert (process.returncode, path.exists()) == (0, True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "the socket 0.0.0.0:{} that was handed over can be reached from other machines"),
        (("--use-own-credentials",), "everybody who reaches 0.0.0.0:{} act as the proxy: listen on 127.0.0.1"),
    ],
)
def test_a_socket_that_others_reach_is_refused_though_handed_over(
    tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    """As ``--listen`` would be: systemd's ``ListenStream=8001`` means all addresses."""
    kubeconfig = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:9")
    with socket() as listening:
        listening.bind(("0.0.0.0", 0))
        listening.listen()
        _refused(listening, reason.format(listening.getsockname()[1]), kubeconfig, *options)


@pytest.mark.long
def test_a_path_that_others_may_use_is_refused_with_our_credentials(tmp_path: Path) -> None:
    """Whatever process has made it: systemd's own default lets everybody of the machine connect."""
    kubeconfig = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:9")
    with socket(AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        (tmp_path / "s").chmod(0o660)
        listening.listen()
        _refused(listening, "the proxy: set SocketMode=0600", kubeconfig, "--use-own-credentials")
        (tmp_path / "s").chmod(0o600)
        _refused(listening, "the API server at http://127.0.0.1:9 can't be used", kubeconfig, "--use-own-credentials")


def _refused(listening: socket, reason: str, kubeconfig: str, *options: str) -> None:
    """The proxy ends with 2 and a sentence for this socket, in place of which it would have one of its own."""
    given = given_a_socket(listening, "--listen", "127.0.0.1:0", "--kubeconfig", kubeconfig, *options)
    _, said = given.communicate(timeout=PATIENCE)
    assert (given.returncode, reason in said, "Traceback" in said) == (2, True, False), said


@pytest.mark.long
async def test_a_ready_file_is_left_to_the_process_that_wrote_it_last(tmp_path: Path) -> None:
    """With ``--reuse-port`` the next one is ready before this one ends."""
    upstream, ready = Upstream(), tmp_path / "ready"
    await upstream.listen()
    async with _running(upstream, "--ready-file", str(ready)) as (process, _):
        ready.write_text("ready\n")
        process.terminate()
        assert (await asyncio.to_thread(process.wait, 10), ready.exists()) == (0, True)


@pytest.mark.long
async def test_the_status_of_a_proxy_that_follows_is_served_where_it_was() -> None:
    """With ``--reuse-port`` it starts before the first one ends, and its token stays."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--reuse-port", "--admin", f"127.0.0.1:{port}")
    before, after = Upstream(), Upstream()
    await before.listen()
    await after.listen()
    async with _running(before, *options) as (first, _):
        drawn = read_token(port)
        async with _running(after, *options) as (second, _):
            first.terminate()
            assert await asyncio.to_thread(first.wait, 10) == 0
            gates = await asyncio.to_thread(ask, f"http://127.0.0.1:{port}", "/v1/gates")
            assert (gates.status, read_token(port) not in {"", drawn}) == (200, True)
            second.terminate()
            assert (await asyncio.to_thread(second.wait, 10), read_token(port)) == (0, "")


@pytest.mark.long
async def test_a_terminal_that_closes_ends_it_in_peace(tmp_path: Path) -> None:
    """Unless it was started to outlive that, as nohup does."""
    upstream, ready = Upstream(), tmp_path / "ready"
    await upstream.listen()
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run below nohup themselves
    try:
        async with _running(upstream, "--ready-file", str(ready)) as (process, _):
            process.send_signal(signal.SIGHUP)
            assert (await asyncio.to_thread(process.wait, 10), ready.exists()) == (0, False)
        upstream = Upstream()
        await upstream.listen()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a process that is started now inherits it
        async with _running(upstream) as (process, port):
            process.send_signal(signal.SIGHUP)
            assert not await _is_last(port, upstream)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 10) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


async def _is_last(port: int, upstream: Upstream) -> bool:
    """Say whether a request on a new connection is answered as its last one."""
    caller = Side(*await asyncio.open_connection("127.0.0.1", port))
    caller.send(GET)
    server = await upstream.connection()
    await server.head()
    server.send(OK)
    head = await caller.head()
    await caller.close()
    return b"\r\nConnection: close\r\n" in head


@pytest.mark.long
async def test_probes_say_whether_it_is_ready() -> None:
    """And its counts, at an address of their own; nothing else is there."""
    upstream = Upstream()
    await upstream.listen()
    with socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    async with _running(upstream, "--probe-listen", f"127.0.0.1:{port}"):
        for path, expected in (
            (b"/livez", b"HTTP/1.1 200 OK"),
            (b"/startupz", b"HTTP/1.1 200 OK"),
            (b"/readyz", b"HTTP/1.1 200 OK"),
            (b"/metrics", b'\nbackoff_ctrl_proxy_requests_total{way="passed"} 0\n'),
            (b"/api", b"HTTP/1.1 404 Not Found"),
        ):
            caller = Side(*await asyncio.open_connection("127.0.0.1", port))
            caller.send(b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n")
            assert expected in await caller.rest()
            await caller.close()


@pytest.mark.long
async def test_a_sidecar_listens_before_the_api_server_answers_and_waits_for_it() -> None:
    """Else an API server that is away keeps pods from starting. It has started; it is ready when that is there."""
    with socket() as one, socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        away, probes = one.getsockname()[1], other.getsockname()[1]
    command = [*PROGRAM, "--listen=127.0.0.1:0", f"--apiserver=http://127.0.0.1:{away}", "--listen-first"]
    command.append(f"--probe-listen=127.0.0.1:{probes}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220 - as above
        try:
            assert process.stdout is not None
            assert (await asyncio.to_thread(process.stdout.readline)).startswith("listening on http://127.0.0.1:")
            assert await _said(probes, b"/startupz") == b"200"
            assert await _said(probes, b"/readyz") == b"503"
            upstream = Upstream()
            upstream.port = away
            await upstream.listen()
            server = await upstream.connection()
            assert (await server.head()).startswith(b"GET /version HTTP/1.1\r\n")
            server.send(VERSION_ANSWER)
            await server.close()
            while await _said(probes, b"/readyz") != b"200":  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            await upstream.stop()
        finally:
            process.terminate()
    assert process.returncode == 0


async def _said(port: int, path: bytes) -> bytes:
    caller = Side(*await asyncio.open_connection("127.0.0.1", port))
    caller.send(b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    answer = await caller.rest()
    await caller.close()
    return answer.split(b" ")[1]


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each sentence says what to do."""
    wrong = write_kubeconfig(tmp_path / "c", "https://127.0.0.1:1", None, **{"certificate-authority": "none.crt"})
    with scripted_server(lambda _: VERSION) as script:
        port = script.url.rpartition(":")[2]
        here = ["--listen", "127.0.0.1:0", "--apiserver"]
        given = ["--tls-cert", str(tmp_path / "none.crt"), "--tls-key", str(tmp_path / "none.key")]
        for arguments, sentence in (
            (["--listen", "0.0.0.0:0", "--apiserver", script.url], "without TLS they would read its tokens"),
            (["--listen", "0.0.0.0:0", "--apiserver", script.url, "--use-own-credentials"], "act as the proxy"),
            (["--listen", f"127.0.0.1:{port}", "--apiserver", script.url], "Address already in use"),
            ([*here, "ftp://x"], "--apiserver must be a URL such as"),
            (
                ["--listen", "127.0.0.1:0", "--kubeconfig", str(tmp_path / "none")],
                f"there is no kubeconfig {tmp_path / 'none'}",
            ),
            (["--listen", "127.0.0.1:0", "--kubeconfig", wrong], "No such file or directory"),
            ([*here, f"http://127.0.0.1:{port}", "--ready-file", "/proc/none"], "--ready-file"),
            ([*here, script.url, "--admin", f"127.0.0.1:{port}"], "--admin: can't listen on"),
            ([*here, script.url, "--admin", "0.0.0.0:0"], "on this machine alone"),
            ([*here, script.url, "--hold", "nan"], "--hold must be a number of seconds"),
            ([*here, script.url, "--tls-account", str(tmp_path)], "TLS mode needs --tls-authority"),
            ([*here, script.url, "--tls-cert", str(tmp_path / "c")], "--tls-cert and --tls-key belong together"),
            ([*here, script.url, *given, "--tls-name", "n"], "--tls-cert brings a certificate, --tls-name makes one"),
            ([*here, script.url, "--tls-leaf-life", "60"], "TLS mode needs --tls-authority and --tls-account"),
            ([*here, script.url, *given], "No such file"),
        ):
            code, said = run(["proxy", *arguments]), capsys.readouterr().err
            assert (code, said.count("\n")) == (2, 1), said
            assert sentence in said


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (400, b"Client sent an HTTP request to an HTTPS server.\n", "it speaks TLS, so write https://"),
        (404, b"nothing here", "it answered 404 to /version: check that this is the address of an API server"),
        (302, b"", "it answered 302 to /version without a body"),
        (401, b"{}", "it does not accept the proxy's own credentials (401)"),
    ],
)
def test_a_wrong_upstream_is_noticed_at_the_start(
    status: int, body: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not by the first creator, and at once: what answers so will go on to."""
    with scripted_server(lambda _: (status, body)) as script:
        account = write_kubeconfig(tmp_path / "c", script.url)
        code = run(["proxy", "--listen=127.0.0.1:0", f"--kubeconfig={account}", "--use-own-credentials"])
        said = capsys.readouterr().err
        assert (code, said.count("\n"), len(script.seen)) == (2, 1, 1), said
        assert sentence in said


@pytest.mark.parametrize("user", [{"exec": {"command": "x"}}, {"auth-provider": {"name": "x"}}])
def test_credentials_of_another_program_can_not_be_added(
    user: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kubeconfigs of clouds have no others: without a word, every request would be anonymous."""
    account = write_kubeconfig(tmp_path / "c", "https://127.0.0.1:1", user)
    code = run(["proxy", "--listen=127.0.0.1:0", f"--kubeconfig={account}", "--use-own-credentials"])
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1), said
    assert f"gets credentials by {next(iter(user))}, which the proxy does not run" in said


def cpu_of(program: str, argument: str, kept: Path, running: list[subprocess.Popen[bytes]]) -> float:
    """Run a program to its end; return the CPU seconds it took, with its bytecode kept as an installation keeps it."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(kept)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen([sys.executable, "-c", program, argument], env=environment) as process:
        running[:] = [process]
        assert process.wait(PATIENCE) == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.long
def test_it_starts_with_little_work(tmp_path: Path) -> None:
    """At most half a second of CPU (the least of three: others use the machine), and nothing loaded but what serves.

    A machine on which asyncio alone takes more than its usual 0.1 s has that much more.
    """
    program = (
        "import sys; from backoff_ctrl.api.main import run\n"
        "code = run(['proxy', '--listen', '127.0.0.1:0', '--apiserver', sys.argv[1]])\n"
        "late = {'kubernetes', 'aiohttp', 'yaml', 'cryptography'} & set(sys.modules)\n"
        "assert not late, late\nsys.exit(code)"
    )
    running: list[subprocess.Popen[bytes]] = []
    answered = []

    def answer(seen: object) -> tuple[int, dict[str, str]]:
        answered.append(seen)
        running[0].send_signal(signal.SIGTERM)
        return 200, {"gitVersion": "v1.36.0"}

    with scripted_server(answer) as script:
        taken = [cpu_of(program, script.url, tmp_path, running) for _ in range(4)][1:]  # the first writes the bytecode
    bare = min(cpu_of("import asyncio, ssl", "", tmp_path, running) for _ in range(3))
    assert len(answered) == 4
    assert min(taken) < 0.5 * max(1.0, bare / 0.1), (taken, bare)


@pytest.mark.parametrize("loading", ["click", "asyncio", "backoff_ctrl.k8s.sidecar.serving"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_still_loads_ends_it_with_zero(loading: str, number: signal.Signals) -> None:
    """A kubelet that changes its mind sends one in the first second: that is no failure of the container."""
    command = [
        sys.executable,
        "-X",
        "importtime",
        *PROGRAM[1:],
        "--listen",
        "127.0.0.1:0",
        "--apiserver",
        "http://[::1]:9",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        loaded = (line.rpartition("|")[2].strip() for line in process.stderr)
        assert loading in loaded
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "Traceback" not in said


@pytest.mark.long
@pytest.mark.parametrize(
    ("listen", "scheme", "said"),
    [("127.0.0.1:0", "https", True), ("127.0.0.1:0", "http", False), ("unix", "https", False)],
)
def test_over_plain_http_it_says_that_go_programs_send_no_token(
    tmp_path: Path, listen: str, scheme: str, said: bool
) -> None:
    """Where the API server wants one: they would be anonymous, and the server's 401 doesn't say why."""
    with socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens there: the proxy ends
        url = f"{scheme}://127.0.0.1:{bound.getsockname()[1]}"
        where = f"unix:{tmp_path / 'socket'}" if listen == "unix" else listen
        done = subprocess.run(
            [*PROGRAM, f"--listen={where}", f"--apiserver={url}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    assert done.returncode == 2
    assert ("Go programs send no token to an http:// address" in done.stderr) is said
