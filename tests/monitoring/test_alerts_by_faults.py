"""Each alert fires by a real fault and resolves when that is mended: two gates on one quota, ``serve``, a Prometheus.

Days do not fit into a test, so its rule files are ours with every time divided by ``FASTER``: how long an alert has to
last, the windows of its rates, and the three thresholds that are seconds. Only how long a gate that is gone is
remembered stays as it is. Nothing else differs: queries, labels and texts are those of ``dashboards/``.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubernetes import client

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from dashboards.alerts import ALERTS, ENDS_WITHIN, SEEN_WITHIN, STALE_AFTER, WAITS_TOO_LONG
from tests.cluster.proxying.crowd import free_port
from tests.kit.gated_creates import pod
from tests.kit.watch_script import until
from tests.monitoring.prometheus.relay import Relay
from tests.monitoring.prometheus.server import RULES, Prometheus, running
from tests.monitoring.running import EVERY, Program, certify, gate, injecting, operating, pods_of, raise_quota, reads
from tests.serve.serving import serving

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
    from tests.cluster.control_plane.go_programs import GoPrograms

pytestmark = pytest.mark.long
FASTER = 300
POLL = 0.1  # seconds
LEASE = "backoff-ctrl-operator"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LEARNING = {"base": 1, "cap": 2, "idle_ttl": 4, "waiters_max": 1}  # it forgets faster, too
PATIENT = {"on_never_fits": "wait"}
AT_ONCE = {
    "WaitingTooLong", "NeverFits", "Declined", "QuotaAlmostFullWithWaiters", "StaleCeilings", "WatchLost", "Overload",
    "FailedOpen", "PodsWithoutSidecar", "JobsUngated", "NobodyLeads", "CertificateEnds",
}  # fmt: skip
"""The alerts whose faults are made at the same time; the others are those of gates that are killed."""


def scaled(text: str) -> str:
    """Return a rule file with its times divided."""
    rules = yaml.safe_load(text)
    for rule in rules["groups"][0]["rules"]:
        if "for" in rule:
            rule["for"] = _faster(rule["for"])
        expr = re.sub(r"(?<=\[)\w+(?=\])|(?<=offset )\w+", lambda found: _faster(found[0]), rule["expr"])
        for seconds in (WAITS_TOO_LONG, STALE_AFTER, ENDS_WITHIN):
            expr = re.sub(rf"(?<=[<>] ){seconds}\b", str(seconds / FASTER), expr)
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
        page = stack.enter_context(serving("--apiserver", sandbox.url)).removeprefix("http://")
        certificate = tmp_path / "tls.pem"
        certify(certificate, timedelta(seconds=ENDS_WITHIN / FASTER))
        hooks, _ = stack.enter_context(injecting(sandbox.url, tmp_path, "--for=pods", "--for=jobs"))
        hold_the_lease(sandbox)
        operator = f"127.0.0.1:{free_port()}"
        replicas = stack.enter_context(ExitStack())
        replicas.enter_context(operating(sandbox.url, operator))
        listed = (("a", a.address), ("b", b.address), ("page", page), ("hooks", hooks), ("operator", operator))
        targets = {name: f"{address}/metrics" for name, address in listed}
        url = stack.enter_context(running(programs, tmp_path, targets, files, EVERY))
        prometheus = Prometheus(url, None)
        alerts = Alerts(prometheus)
        await until(lambda: reads(prometheus, 5), every=POLL)

        await _break_everything(sandbox, relay, a, b, alerts)
        await alerts.fire(AT_ONCE)
        _mend(sandbox, relay)
        certify(certificate)
        await alerts.resolve()

        a.kill()
        b.kill()
        replicas.close()
        await alerts.fire({"GateDown", "NoGates"})
        replicas.enter_context(operating(sandbox.url, operator))
        a.start()
        b.start(BACKOFF_CTRL_SERIES_MAX="10")
        await alerts.fire({"TooManySeries"})
        b.kill()
        b.start()
        await alerts.resolve()
        assert alerts.seen == {alert.name.removeprefix("BackoffCtrl") for alert in ALERTS}


def hold_the_lease(sandbox: BackgroundSandbox) -> None:
    """Let the operator's Lease be that of a replica that does not exist, for an hour."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "gone", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}
    leases_of(sandbox).create_namespaced_lease("default", {"metadata": {"name": LEASE}, "spec": spec})


def leases_of(sandbox: BackgroundSandbox) -> Any:
    return client.CoordinationV1Api(client.ApiClient(client.Configuration(host=sandbox.url)))


def jobs_of(sandbox: BackgroundSandbox) -> Any:
    return client.BatchV1Api(client.ApiClient(client.Configuration(host=sandbox.url)))


async def _break_everything(sandbox: BackgroundSandbox, relay: Relay, a: Program, b: Program, alerts: Alerts) -> None:
    """Make all faults whose alerts do not exclude each other."""
    prometheus = alerts.prometheus
    bare = {**pod("bare"), "metadata": {"name": "bare", "labels": {"backoff-ctrl.dev/inject": "true"}}}
    pods_of(sandbox).create_namespaced_pod("roomy", bare)
    spec = {"template": {"spec": {**bare["spec"], "restartPolicy": "Never"}}}
    job = {"metadata": {"name": "bare", "labels": {"backoff-ctrl.dev/wait": "true"}}, "spec": spec}
    jobs_of(sandbox).create_namespaced_job("roomy", job)
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
    await until(lambda: reads(prometheus, 1, "backoff_ctrl_failed_open_total > 0"), every=POLL)
    b.create("small", "large-again", cpu="2")  # the first was let through when the engine broke
    await until(lambda: prometheus.series("sum(backoff_ctrl_waiting)") == {"": 2}, every=POLL)
    relay.cut()
    sandbox.faults.overload_share = 1
    a.create("roomy", "flooded")


def _mend(sandbox: BackgroundSandbox, relay: Relay) -> None:
    """Mend all of them."""
    sandbox.faults.clear()
    relay.mend()
    leases_of(sandbox).patch_namespaced_lease(LEASE, "default", {"spec": {"holderIdentity": ""}})
    pods_of(sandbox).delete_namespaced_pod("bare", "roomy", grace_period_seconds=0)
    jobs_of(sandbox).delete_namespaced_job("bare", "roomy", propagation_policy="Background")
    raise_quota(sandbox, "team", {"pods": "9"})
    raise_quota(sandbox, "small", {"requests.cpu": "9"})
