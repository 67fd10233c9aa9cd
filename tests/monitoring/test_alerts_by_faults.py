"""Each alert fires by a real fault and resolves when that is mended: two gates on one quota, ``serve``, a Prometheus.

Days do not fit into a test, so its rule files are ours with every time divided by ``FASTER``: how long an alert has to
last, the windows of its rates, and the two thresholds that are seconds. Only how long a gate that is gone is remembered
stays as it is. Nothing else differs: queries, labels and texts are those of ``dashboards/``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from backoff_ctrl.k8s.proxy.certificates.issuing import new_authority
from backoff_ctrl.k8s.sandbox import running_sandbox
from dashboards.alerts import ALERTS, SEEN_WITHIN, STALE_AFTER, WAITS_TOO_LONG
from tests.gated_creates import pod
from tests.monitoring.prometheus.relay import Relay
from tests.monitoring.prometheus.server import RULES, Prometheus, running
from tests.serve.serving import serving
from tests.watch_script import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.sandbox import BackgroundSandbox
    from tests.cluster.control_plane.go_programs import GoPrograms

pytestmark = pytest.mark.long
FASTER = 300
POLL = 0.1  # seconds
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
EVERY = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
PROGRAM = Path(__file__).parent / "gate_program.py"
LEARNING = {"base": 1, "cap": 2, "idle_ttl": 4, "waiters_max": 1}  # it forgets faster, too
PATIENT = {"on_never_fits": "wait"}
AT_ONCE = {
    "WaitingTooLong", "NeverFits", "Declined", "QuotaAlmostFullWithWaiters", "StaleCeilings", "WatchLost", "Overload",
    "FailedOpen", "PodsWithoutSidecar",
}  # fmt: skip
"""The alerts whose faults are made at the same time; the others are those of gates that are killed."""


class Program:
    """A gate's program: killed and started again at the same port."""

    def __init__(self, name: str, **settings: Any) -> None:
        """Start it. ``settings`` are those of the program."""
        self._name = name
        self._settings = {"listen": "127.0.0.1:0", **settings}
        self.start()

    def start(self, **environment: str) -> None:
        """Run it until it says where its status is."""
        import os  # noqa: PLC0415

        command = [sys.executable, str(PROGRAM), json.dumps(self._settings)]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "BACKOFF_CTRL_GATE": self._name, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip().removeprefix("http://")
        self._settings["listen"] = self.address

    def order(self, **order: Any) -> None:
        """Give an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def create(self, namespace: str, name: str, cpu: str | None = None) -> None:
        """Let it create a pod."""
        self.order(create=pod(name, cpu), namespace=namespace)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def gate(name: str, **settings: Any) -> Iterator[Program]:
    """Run a gate's program."""
    program = Program(name, **settings)
    try:
        yield program
    finally:
        program.kill()


def scaled(text: str) -> str:
    """Return a rule file with its times divided."""
    rules = yaml.safe_load(text)
    for rule in rules["groups"][0]["rules"]:
        if "for" in rule:
            rule["for"] = _faster(rule["for"])
        expr = re.sub(r"(?<=\[)\w+(?=\])|(?<=offset )\w+", lambda found: _faster(found[0]), rule["expr"])
        for seconds in (WAITS_TOO_LONG, STALE_AFTER):
            expr = re.sub(rf"(?<=> ){seconds}\b", str(seconds / FASTER), expr)
        rule["expr"] = expr
    return yaml.safe_dump(rules)


def _faster(duration: str) -> str:
    if duration == SEEN_WITHIN:
        return duration
    return f"{int(duration[:-1]) * UNITS[duration[-1]] * 1000 // FASTER}ms"


class Alerts:
    """The alerts of a Prometheus, by the part of their names that differs."""

    def __init__(self, prometheus: Prometheus) -> None:
        """None was seen yet."""
        self.prometheus = prometheus
        self.seen: set[str] = set()

    def firing(self) -> set[str]:
        """Those that fire now."""
        found = self.prometheus.ask("alerts")["alerts"]
        now = {each["labels"]["alertname"].removeprefix("BackoffCtrl") for each in found if each["state"] == "firing"}
        self.seen |= now
        return now

    async def fire(self, wanted: set[str]) -> None:
        """Wait until each of these has been seen firing."""
        try:
            await until(lambda: self.firing() is not None and self.seen >= wanted, 40, POLL)
        except TimeoutError:
            raise AssertionError(f"{wanted - self.seen} did not fire") from None

    async def resolve(self) -> None:
        """Wait until none fires."""
        try:
            await until(lambda: not self.firing(), 40, POLL)
        except TimeoutError:
            raise AssertionError(f"{self.firing()} did not resolve") from None


@contextmanager
def injecting(server: str, folder: Path) -> Iterator[str]:
    """Run the injection webhook; yield where its metrics are. No API server calls it: the sandbox has no webhooks."""
    authority = new_authority(datetime.now(UTC))
    (folder / "tls.pem").write_bytes(authority.issue(["localhost"], datetime.now(UTC), timedelta(days=1)).pem)
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        probes = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        sys.executable, "-m", "backoff_ctrl", "inject", "--listen=127.0.0.1:0", f"--probe-listen={probes}",
        f"--tls-cert={folder / 'tls.pem'}", f"--tls-key={folder / 'tls.pem'}", f"--server={server}",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("listening on https://")
            yield probes
        finally:
            process.terminate()


def pods_of(sandbox: BackgroundSandbox) -> Any:
    """Return the official client for the sandbox."""
    from kubernetes import client  # noqa: PLC0415

    return client.CoreV1Api(client.ApiClient(client.Configuration(host=sandbox.url)))


def raise_quota(sandbox: BackgroundSandbox, namespace: str, hard: dict[str, str]) -> None:
    """Give a quota other limits, as kubectl would."""
    pods_of(sandbox).patch_namespaced_resource_quota("q", namespace, {"spec": {"hard": hard}})


async def test_each_alert_fires_by_a_fault_and_resolves_when_it_is_mended(programs: GoPrograms, tmp_path: Path) -> None:
    """Full, too small, cut, flooded, broken, killed: each is seen firing in Prometheus' API, and then resolved."""
    files = []
    for path in RULES:
        files.append(tmp_path / path.name)
        files[-1].write_text(scaled(path.read_text()))
    with ExitStack() as stack:
        sandbox = stack.enter_context(running_sandbox())
        for namespace, hard in (("team", {"pods": "2"}), ("small", {"requests.cpu": "1"}), ("roomy", {"pods": "99"})):
            sandbox.create_namespace(namespace)
            sandbox.create_quota(namespace, "q", hard)
        relay = stack.enter_context(Relay(sandbox.url))
        a = stack.enter_context(gate("a", server=sandbox.url, policy=LEARNING, watch=False))
        b = stack.enter_context(gate("b", server=relay.url, policy=PATIENT, watch=True))
        page = stack.enter_context(serving("--server", sandbox.url)).removeprefix("http://")
        hooks = stack.enter_context(injecting(sandbox.url, tmp_path))
        listed = (("a", a.address), ("b", b.address), ("page", page), ("hooks", hooks))
        targets = {name: f"{address}/metrics" for name, address in listed}
        url = stack.enter_context(running(programs, tmp_path, targets, files, EVERY))
        prometheus = Prometheus(url, None)
        alerts = Alerts(prometheus)
        await until(lambda: _reads(prometheus, 4), every=POLL)

        await _break_everything(sandbox, relay, a, b, alerts)
        await alerts.fire(AT_ONCE)
        _mend(sandbox, relay)
        await alerts.resolve()

        a.kill()
        b.kill()
        await alerts.fire({"GateDown", "NoGates"})
        a.start()
        b.start(BACKOFF_CTRL_SERIES_MAX="10")
        await alerts.fire({"TooManySeries"})
        b.kill()
        b.start()
        await alerts.resolve()
        assert alerts.seen == {alert.name.removeprefix("BackoffCtrl") for alert in ALERTS}


async def _break_everything(sandbox: BackgroundSandbox, relay: Relay, a: Program, b: Program, alerts: Alerts) -> None:
    """Make all faults whose alerts do not exclude each other."""
    prometheus = alerts.prometheus
    bare = {**pod("bare"), "metadata": {"name": "bare", "labels": {"backoff-ctrl.dev/inject": "true"}}}
    pods_of(sandbox).create_namespaced_pod("roomy", bare)
    for name in ("first", "second"):  # the quota of two pods is full
        a.create("team", name)
    await until(lambda: sandbox.used("team", "q") == {"pods": "2"}, every=POLL)
    a.create("team", "third")
    b.create("small", "large", cpu="2")  # a quota of one core
    await until(lambda: prometheus.series("sum(backoff_ctrl_waiting)") == {"": 2}, every=POLL)
    await alerts.fire({"NeverFits"})  # before the engine breaks, which ends that wait
    a.create("team", "fourth")  # one may wait there, not two
    b.order(**{"break": True})
    b.create("roomy", "let-through")
    await until(lambda: _reads(prometheus, 1, "backoff_ctrl_failed_open_total > 0"), every=POLL)
    b.create("small", "large-again", cpu="2")  # the first was let through when the engine broke
    await until(lambda: prometheus.series("sum(backoff_ctrl_waiting)") == {"": 2}, every=POLL)
    relay.cut()
    sandbox.faults.overload_share = 1
    a.create("roomy", "flooded")


def _mend(sandbox: BackgroundSandbox, relay: Relay) -> None:
    """Mend all of them."""
    sandbox.faults.clear()
    relay.mend()
    pods_of(sandbox).delete_namespaced_pod("bare", "roomy", grace_period_seconds=0)
    raise_quota(sandbox, "team", {"pods": "9"})
    raise_quota(sandbox, "small", {"requests.cpu": "9"})


def _reads(prometheus: Prometheus, count: int, expr: str = "up == 1") -> bool:
    try:
        return len(prometheus.series(expr)) == count
    except OSError:  # it does not listen yet
        return False
