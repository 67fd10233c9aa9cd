"""Every panel shows what is so: real gates under load, ``serve --store``, the webhook and faults, a real Prometheus.

No series is written by hand. What a panel says of now is compared exactly, what it says of a time has to be above 0.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from dashboards.suspension import SUSPENSION
from dashboards.tasks import WEB_APIS
from tests.kit.gated_creates import pod
from tests.kit.patience import PATIENCE
from tests.kit.watch_script import until
from tests.monitoring.prometheus.relay import Relay
from tests.monitoring.prometheus.server import RULES, Prometheus, running
from tests.monitoring.running import EVERY, certify, gate, injecting, pods_of, raise_quota, reads
from tests.serve.serving import serving
from tests.status.asking import ask
from tests.tasks.serving.test_tasks_over_http import post
from tests.tasks.tasks_written import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
    from tests.cluster.control_plane.go_programs import GoPrograms
    from tests.monitoring.running import Program

pytestmark = pytest.mark.long
BOARDS = sorted((Path(__file__).parents[2] / "dashboards").glob("*.json"))
POLL = 0.1  # seconds
CHOSEN = {"cluster": ".*", "namespace": "team", "resourcequota": ".*", "gate": ".*"}
CHOSEN |= {"__rate_interval": "5m", "__range": "5m"}
NAMESPACES = {
    "What is left of memory and storage?": "memory",
    "What would enforcing do here?": "shadowed",
    "Why does the gate decline creates?": "small",
    "Do probes find room?": "learned",
    "Which resources are refused?": "learned",
    "How often do small creates pass large ones?": "memory",
    "How many gangs wait, and how many are on their way?": "gangs",
    "How much of the admitted gangs exists?": "gangs",
}
"""Where something else is to be seen than in ``team``."""
QUOTAS = {
    "team": {"pods": "2"}, "memory": {"requests.memory": "1Gi"}, "learned": {"pods": "1"},
    "small": {"requests.cpu": "1"}, "shadowed": {"pods": "1"}, "gangs": {"pods": "3"}, "work": {"pods": "2"},
    "roomy": {"pods": "99"},
}  # fmt: skip
MI, GI = 2**20, 2**30
TEAM, LEARNED, GANGS, WORK = (
    f"namespace={name} resource=pods resourcequota=q" for name in ("team", "learned", "gangs", "work")
)
MEMORY = "namespace=memory resource=requests.memory resourcequota=q"
CONTAINER = {"name": "train", "image": "busybox", "imageID": "i", "ready": False, "restartCount": 0}
RUNNING = {
    "phase": "Running",
    "containerStatuses": [{**CONTAINER, "ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
}
SUCCEEDED = {"phase": "Succeeded", "containerStatuses": [{**CONTAINER, "state": {"terminated": {"exitCode": 0}}}]}
FAILED = {
    "phase": "Failed",
    "containerStatuses": [{**CONTAINER, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}],
}
NOW: dict[str, Any] = {
    "How many creates wait?": [{"": 6}],
    "How many namespaces wait for quota?": [{"": 5}],
    "Which quotas hold creates up?": [
        dict.fromkeys((TEAM, MEMORY, LEARNED, WORK, GANGS), 1),
        {TEAM: 1, MEMORY: 800 / 1024, LEARNED: 1, WORK: 1, GANGS: pytest.approx(2 / 3)},
        dict.fromkeys((TEAM, MEMORY, LEARNED, WORK, GANGS), 0),
    ],
    "How many creates wait here?": [{"": 2}],
    "Is the gate enforcing here?": [{"mode=enforce": 1}],
    "Are its quotas watched?": [{"": 1}],
    "Why do creates wait here?": [{"reason=quota": 2}],
    "What is left of cores, devices and objects?": [{TEAM: each} for each in (1, 2, 2, 0, 0, 0, 1)],
    "What is left of memory and storage?": [{MEMORY: each} for each in (800 / 1024, GI, 800 * MI, 0, 0, 224 * MI, 1)],
    "How many gangs wait, and how many are on their way?": [{"state=admitted": 1, "state=waiting": 1}],
    "How much of the admitted gangs exists?": [{"state=drawn": 1, "state=reserved": 1}],
    "Which labelled pods have no sidecar?": [{"namespace=roomy": 1}],
    "How many tasks are there, and in which phase?": [
        {"gate=tasks phase=Running": 2, "gate=tasks phase=WaitingForResources": 1}
    ],
    "Is the manager well informed?": [{"gate=tasks kind=pods": 1}],
    "Is it slowed by a webhook?": [{"": 0}],
    "Did a gate fail open?": [{"": 0}],
    "In how many namespaces is the watch lost?": [{"": 0}],
    "Are series left out?": [{"": 0}],
}
"""What panels say before anything breaks."""
GOOD_AT_ZERO = {"How many creates are in flight?", "Is it slowed by a webhook?", "Are series left out?"}
"""Panels that say 0 to the end: nothing of that is tried here. ``test_alerts_by_faults`` has series left out."""
BROKEN = {
    "Where is the watch lost, and since when?", "What could the watch not read?", "What went wrong inside?",
    "Did a gate fail open?", "In how many namespaces is the watch lost?", "When did the API server ask for patience?",
}  # fmt: skip
"""Panels with something to show only once it is broken."""


@dataclass
class Shown:
    """The panels, as Prometheus answers them."""

    prometheus: Prometheus

    def panels(self) -> dict[str, list[dict[str, float]]]:
        """Return the answers of each panel's queries, by title."""
        return {
            panel["title"]: [
                self.prometheus.series(_chosen(target["expr"], panel["title"])) for target in panel["targets"]
            ]
            for board in BOARDS
            for panel in json.loads(board.read_text())["panels"]
            if panel["type"] != "row"
        }

    def wrong(self) -> dict[str, Any]:
        """Return the panels that do not say what is so."""
        found = self.panels()
        return {title: found[title] for title, expected in NOW.items() if found[title] != expected}

    def empty(self) -> set[str]:
        """Return the panels that show nothing, or nothing but zeros."""
        return {title for title, answers in self.panels().items() if not any(any(each.values()) for each in answers)}


def _chosen(expr: str, title: str) -> str:
    """A query as Grafana sends it."""
    chosen = {**CHOSEN, "namespace": NAMESPACES.get(title, "team")}
    return re.sub(r"\$\{?(\w+)\}?", lambda found: chosen[found[1]], expr)


@contextmanager
def receiver() -> Iterator[str]:
    """Take notifications in; yield where."""

    class Take(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Take)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Work:
    """The load: what is done in each of several rounds, so that counters are seen to grow."""

    def __init__(self, sandbox: BackgroundSandbox, gates: dict[str, Program], tasks: str, hooks: str) -> None:
        """``tasks`` is where ``serve --store`` is, ``hooks`` where the webhook answers."""
        self._sandbox = sandbox
        self._core = pods_of(sandbox)
        self._gates = gates
        self._tasks = tasks
        self._hooks = hooks

    async def begin(self) -> None:
        """Fill the quotas, and let creates wait."""
        watched, learning = self._gates["b"], self._gates["a"]
        for name in ("first", "second"):
            watched.create("team", name)
        learning.create("learned", "first")
        watched.order(create=_of_memory("large"), namespace="memory")
        for namespace, used in (("team", "2"), ("learned", "1")):
            await self._until_used(namespace, {"pods": used})
        await self._until_used("memory", {"requests.memory": "600Mi"})
        for name in ("third", "fourth", "fifth", "sixth"):
            watched.create("team", name)
        learning.create("learned", "second")
        watched.order(create=_of_memory("as-large"), namespace="memory")
        watched.order(gang=[pod("m-0"), pod("m-1")], namespace="gangs")
        await self._until_used("gangs", {"pods": "1"})
        watched.order(gang=[pod("n-0"), pod("n-1")], namespace="gangs")
        bare = {**pod("bare"), "metadata": {"name": "bare", "labels": {"backoff-ctrl.dev/inject": "true"}}}
        for namespace in ("roomy", "excluded"):  # where the webhook is not asked, no pod lacks a sidecar
            self._core.create_namespaced_pod(namespace, bare)

    async def round(self, number: int) -> None:
        """Make a bit of room, and let one of everything happen."""
        watched, shadow = self._gates["b"], self._gates["c"]
        self._core.delete_namespaced_pod(("first", "second")[number], "team", grace_period_seconds=0)
        watched.create("small", f"never-{number}", cpu="2")
        watched.order(create=_of_memory(f"small-{number}", "100Mi"), namespace="memory")
        await self._until_used("memory", {"requests.memory": f"{700 + 100 * number}Mi"})
        for name in ("a", "b"):
            shadow.create("shadowed", f"{name}-{number}")
        self._review({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": _request(number)}, 200)
        self._review({}, 400)
        for name, status in (("done", SUCCEEDED), ("bad", FAILED)):
            await self._end(f"{name}-{number}", status)
        await self._lose(f"lost-{number}")

    async def fill_with_tasks(self) -> None:
        """Two run, and one waits."""
        for name in ("one", "two", "three"):
            self._ask_for(name)
        for name in ("one", "two"):
            await self._run(name)

    def _ask_for(self, name: str) -> None:
        task = manifest(name, retries={"user": 0, "system": 1})
        task["metadata"]["namespace"] = "work"
        assert post(self._tasks, task).status == 201

    def _task(self, name: str) -> Any:
        return ask(self._tasks, f"/v1/tasks/work/{name}").json

    async def _object(self, name: str) -> str:
        """Wait for a task's pod; return its name."""
        await until(lambda: any(each.metadata.name.startswith(f"{name}-") for each in self._pods()), every=POLL)
        return next(str(each.metadata.name) for each in self._pods() if each.metadata.name.startswith(f"{name}-"))

    def _pods(self) -> list[Any]:
        return list(self._core.list_namespaced_pod("work").items)

    async def _run(self, name: str, status: Any = None) -> None:
        self._core.patch_namespaced_pod_status(await self._object(name), "work", {"status": status or RUNNING})

    async def _end(self, name: str, status: Any) -> None:
        self._ask_for(name)
        await self._run(name, status)
        await until(lambda: not self._task(name)["unfinished"], every=POLL)

    async def _lose(self, name: str) -> None:
        """Somebody deletes a task's pod; the next attempt ends well."""
        self._ask_for(name)
        await self._run(name)
        await until(lambda: self._task(name)["phase"] == "Running", every=POLL)
        pod_name = await self._object(name)
        self._core.patch_namespaced_pod(pod_name, "work", {"metadata": {"finalizers": None}})
        self._core.delete_namespaced_pod(pod_name, "work", grace_period_seconds=0)
        await until(lambda: self._task(name)["attempt"] == 1, every=POLL)
        await self._run(name, SUCCEEDED)
        await until(lambda: not self._task(name)["unfinished"], every=POLL)

    async def _until_used(self, namespace: str, used: dict[str, str]) -> None:
        await until(lambda: self._sandbox.used(namespace, "q") == used, every=POLL)

    def _review(self, document: Any, status: int) -> None:
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(self._hooks, context=context, timeout=PATIENCE)
        connection.request("POST", "/inject", json.dumps(document), {"Content-Type": "application/json"})
        assert connection.getresponse().status == status
        connection.close()


def _of_memory(name: str, amount: str = "600Mi") -> Any:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = {"requests": {"memory": amount}}
    return made


def _request(number: int) -> Any:
    labelled = {**pod(f"labelled-{number}"), "metadata": {"labels": {"backoff-ctrl.dev/inject": "true"}}}
    return {
        "uid": str(number), "namespace": "roomy", "operation": "CREATE", "object": labelled,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
    }  # fmt: skip


ELSEWHERE = {panel.title for panel in (*WEB_APIS, *SUSPENSION)}
"""No task runs at another service here, and no Job waits: the sandbox calls no webhook.

``test_on_prometheus`` has the answers of these panels."""


async def test_every_panel_shows_what_is_so(
    programs: GoPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load the numbers are right; then the watch is cut, the API server overloaded and a gate broken."""
    with ExitStack() as stack:
        sandbox = stack.enter_context(running_sandbox())
        for namespace, hard in QUOTAS.items():
            sandbox.create_namespace(namespace)
            sandbox.create_quota(namespace, "q", hard)
        sandbox.create_namespace("excluded")
        relay = stack.enter_context(Relay(sandbox.url))
        file = tmp_path / "receivers.yaml"
        told = {"name": "ops", "url": stack.enter_context(receiver()), "longer-than": 0}
        file.write_text(yaml.safe_dump({"receivers": [told]}))
        monkeypatch.setenv("BACKOFF_CTRL_NOTIFY", str(file))
        gates = {
            "a": stack.enter_context(gate("a", server=sandbox.url, policy={"base": 1, "cap": 1}, watch=False)),
            "b": stack.enter_context(gate("b", server=relay.url, policy={}, watch=True)),
            "c": stack.enter_context(gate("c", server=sandbox.url, policy={}, watch=False, mode="shadow")),
        }
        monkeypatch.delenv("BACKOFF_CTRL_NOTIFY")
        monkeypatch.setenv("BACKOFF_CTRL_GATE", "tasks")
        store = str(tmp_path / "tasks.db")
        tasks = stack.enter_context(serving("--apiserver", sandbox.url, "--store", store, quiet=False))
        certify(tmp_path / "tls.pem")
        probes, hooks = stack.enter_context(injecting(sandbox.url, tmp_path, "--excluded=excluded"))
        addresses = {name: each.address for name, each in gates.items()}
        addresses |= {"tasks": tasks.removeprefix("http://"), "hooks": probes}
        targets = {name: f"{address}/metrics" for name, address in addresses.items()}
        shown = Shown(Prometheus(stack.enter_context(running(programs, tmp_path, targets, RULES, EVERY)), None))
        await until(lambda: reads(shown.prometheus, len(targets)), every=POLL)
        listening = http.client.HTTPConnection(gates["b"].address, timeout=PATIENCE)
        listening.request("GET", "/v1/decisions")
        stack.callback(listening.close)

        work = Work(sandbox, gates, tasks, hooks)
        await work.begin()
        for number in range(2):
            await work.round(number)
            await _scraped(shown.prometheus)
        await work.fill_with_tasks()
        await _right(shown)
        await _none_empty(shown, set(shown.panels()) - BROKEN - GOOD_AT_ZERO - ELSEWHERE)

        for broken in range(2):
            relay.garbles = (b'"MODIFIED"', b'"MUTILATE"')
            raise_quota(sandbox, "roomy", {"pods": str(90 + broken)})
            await _scraped(shown.prometheus)
        gates["b"].order(**{"break": True})
        gates["b"].create("roomy", "let-through")
        relay.cut()
        sandbox.faults.overload_share = 1
        gates["a"].create("roomy", "flooded")
        await _none_empty(shown, BROKEN)


async def _scraped(prometheus: Prometheus) -> None:
    """Wait until every target was read twice more: then what was counted has been seen."""
    count = "min(count_over_time(up[10m]))"

    def reads_of() -> float:
        return next(iter(prometheus.series(count).values()), 0)

    before = reads_of()
    await until(lambda: reads_of() >= before + 3, every=POLL)


async def _right(shown: Shown) -> None:
    try:
        await until(lambda: not shown.wrong(), 60, 1)
    except TimeoutError:
        raise AssertionError(shown.wrong()) from None


async def _none_empty(shown: Shown, panels: set[str]) -> None:
    try:
        await until(lambda: not shown.empty() & panels, 60, 1)
    except TimeoutError:
        raise AssertionError(shown.empty() & panels) from None
