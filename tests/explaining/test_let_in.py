"""Whether the operator lets an object in that waits suspended: ``explain`` says it as the operator then does it."""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backoff_ctrl.api.main import cli
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox, running_sandbox
from backoff_ctrl.k8s.status.explaining import asking_listed
from backoff_ctrl.k8s.workloads.admitting.admitting import Admitting
from backoff_ctrl.k8s.workloads.admitting.judging import NO_LEADER, NO_LEASES, NO_LINE, Surroundings, judged
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, STAY_SUSPENDED, WAIT
from tests.explaining.asking import JSON, job, quota
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.patience import PATIENCE
from tests.status.asking import ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LABEL = {WAIT: "true"}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def waiting(number: int = 1, *, name: str = "j", labels: JSON | None = None, **metadata: Any) -> JSON:
    """A suspended Job of so many pods of 1 CPU, with the label that asks for waiting."""
    body = job(number, {"cpu": "1"}, suspend=True)
    body["metadata"] = {"name": name, "labels": LABEL if labels is None else labels, **metadata}
    return body


@dataclass
class Cluster:
    """A sandbox, and a namespace of the test's own with 4 CPUs."""

    sandbox: BackgroundSandbox
    folder: Path
    namespace: str = ""

    def post(self, path: str, body: JSON) -> JSON:
        answer = ask(
            self.sandbox.url, path, method="POST", body=json.dumps(body).encode(), Content_Type="application/json"
        )
        assert answer.status == 201, answer
        made: JSON = answer.json
        return made

    def create(self, body: JSON) -> JSON:
        return self.post(f"/apis/batch/v1/namespaces/{self.namespace}/jobs", body)

    def get(self, name: str) -> JSON:
        found: JSON = ask(self.sandbox.url, f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}").json
        return found

    def explained(self, *manifests: JSON) -> Any:
        """Return the document of ``explain``; the namespace is that of the kubeconfig's context."""
        file = write_kubeconfig(self.folder / "config", self.sandbox.url, namespace=self.namespace)
        done = CliRunner().invoke(
            cli,
            ["explain", "-f", "-", "--kubeconfig", file, "--json"],
            input="\n---\n".join(map(json.dumps, manifests)),
        )
        assert done.exit_code == 0, done.output
        found: JSON = json.loads(done.output)
        return found

    def said(self, manifest: JSON) -> tuple[str, str]:
        """Return the verdict, and all sentences."""
        found = self.explained(manifest)["let_in"]
        return found["verdict"], "; ".join(found["why"])

    def lease(self, **spec: Any) -> None:
        """Let an operator lead, as its Lease says."""
        ask(self.sandbox.url, f"{LEASES}/backoff-ctrl-operator", method="DELETE")
        given = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": stamp(), **spec}
        self.post(LEASES, {"metadata": {"name": "backoff-ctrl-operator"}, "spec": given})


def stamp(ago: float = 0.0) -> str:
    return (datetime.now(UTC) - timedelta(seconds=ago)).isoformat(timespec="microseconds").replace("+00:00", "Z")


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundSandbox]:
    with running_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def cluster(running: BackgroundSandbox, tmp_path: Path) -> Cluster:
    name = f"team-{secrets.token_hex(4)}"
    running.create_namespace(name)
    running.create_quota(name, "q", {"requests.cpu": "4", "pods": "9"})
    found = Cluster(running, tmp_path, name)
    found.lease()
    return found


def pods(cluster: Cluster, number: int) -> None:
    """Take so many CPUs."""
    body = {"spec": job(1, {"cpu": str(number)})["spec"]["template"]["spec"]}
    cluster.post(f"/api/v1/namespaces/{cluster.namespace}/pods", {"metadata": {"name": "other"}, **body})


LEFT = {
    "unlabelled": (waiting(labels={}), f'neither it nor its namespace has the label {WAIT}: "true"'),
    "held": (waiting(annotations={STAY_SUSPENDED: "true"}), f'its annotation {STAY_SUSPENDED}: "true"'),
    "of Kueue": (waiting(labels={**LABEL, "kueue.x-k8s.io/queue-name": "a"}), "so Kueue lets it in"),
    "managed": (
        {**waiting(), "spec": {**waiting()["spec"], "managedBy": "example.com/a"}},
        "spec.managedBy names another",
    ),
    "a part": (
        waiting(
            ownerReferences=[
                {
                    "apiVersion": "jobset.x-k8s.io/v1alpha2",
                    "kind": "JobSet",
                    "name": "s",
                    "uid": "u",
                    "controller": True,
                }
            ]
        ),
        "JobSet s is let in as a whole",
    ),
}


@pytest.mark.parametrize(("manifest", "why"), LEFT.values(), ids=LEFT)
def test_what_the_operator_leaves_alone(cluster: Cluster, manifest: JSON, why: str) -> None:
    """And whose it is, or what to do."""
    verdict, said = cluster.said(manifest)
    assert (verdict, why in said) == ("left", True), said


def test_the_label_of_a_namespace_counts(running: BackgroundSandbox, tmp_path: Path) -> None:
    """As for the operator."""
    running.create_namespace("labelled", labels=LABEL)
    cluster = Cluster(running, tmp_path, "labelled")
    cluster.lease()
    assert cluster.said(waiting(labels={})) == ("now", "")


@pytest.mark.parametrize(
    ("manifest", "taken", "verdict", "why"),
    [
        (waiting(4), 0, "now", ""),
        (waiting(4), 1, "wait", ""),
        (waiting(5), 0, "never", "4"),
        (waiting(5, annotations={"backoff-ctrl.dev/min-parallelism": "2"}), 2, "now", ""),
        (waiting(5, annotations={"backoff-ctrl.dev/min-parallelism": "2"}), 3, "wait", ""),
        ({**waiting(2), "spec": {**waiting(2)["spec"], "completions": 1}}, 3, "now", ""),
        (waiting(annotations={"backoff-ctrl.dev/priority": "7"}), 0, "now", "counts as 0"),
    ],
)
def test_room_decides_for_the_whole(cluster: Cluster, manifest: JSON, taken: int, verdict: str, why: str) -> None:
    """All its pods at a time, or as many as it may begin with."""
    if taken:
        pods(cluster, taken)
    found = cluster.explained(manifest)["let_in"]
    said = "; ".join(found["why"])
    assert (found["verdict"], why in said) == (verdict, True), found
    assert bool(found["blockers"]) == (verdict == "wait"), found


def test_who_goes_first_is_named(cluster: Cluster) -> None:
    """Those that wait already, unless priority goes first; a stored one stands where it was created."""
    pods(cluster, 4)
    for name in ("a", "b"):
        cluster.create(waiting(name=name))
    ahead = [f"Job {cluster.namespace}/{name}" for name in ("a", "b")]
    assert cluster.explained(waiting(name="c"))["let_in"]["behind"] == ahead
    assert cluster.explained(waiting(name="b"))["let_in"]["behind"] == ahead[:1]
    ask(
        cluster.sandbox.url,
        f"/api/v1/namespaces/{cluster.namespace}/resourcequotas/q",
        method="PATCH",
        body=json.dumps({"metadata": {"annotations": {"backoff-ctrl.dev/max-priority": "90"}}}).encode(),
        Content_Type="application/merge-patch+json",
    )
    urgent = waiting(name="c", annotations={"backoff-ctrl.dev/priority": "90"})
    assert cluster.explained(urgent)["let_in"]["behind"] == []
    file = write_kubeconfig(cluster.folder / "config", cluster.sandbox.url, namespace=cluster.namespace)
    done = CliRunner().invoke(cli, ["explain", "-f", "-", "--kubeconfig", file], input=json.dumps(waiting(name="c")))
    assert done.output.splitlines() == [
        f"Job {cluster.namespace}/c: would be created now",
        "  it waits in line",
        "  quota q: requests.cpu asks 1, left 0 of 4",
        f"  before it: {', '.join(ahead)}",
        "note: Pods of Job are made when it is resumed",
    ]


@pytest.mark.parametrize(
    "spec",
    [{"holderIdentity": ""}, {"renewTime": stamp(ago=3600)}, {"renewTime": None}, None],
    ids=["held by none", "not renewed", "never renewed", "no Lease"],
)
def test_it_is_said_that_no_operator_runs(cluster: Cluster, spec: JSON | None) -> None:
    """It gave its Lease back, is gone without a word, or never ran."""
    if spec is None:
        ask(cluster.sandbox.url, f"{LEASES}/backoff-ctrl-operator", method="DELETE")
    else:
        cluster.lease(**spec)
    assert cluster.said(waiting()) == ("wait", NO_LEADER)
    assert cluster.said(waiting(labels={}))[0] == "left"


def test_one_that_is_suspended_each_time_is_not_let_in_again(cluster: Cluster) -> None:
    """Until its spec changes: the sentence says who does it, and what to do."""
    made = cluster.create(waiting())
    note = {"uid": made["metadata"]["uid"], "at": stamp(), "times": 2, "suspended": {"generation": 1, "by": "argocd"}}
    ask(
        cluster.sandbox.url,
        f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs/j",
        method="PATCH",
        body=json.dumps({"metadata": {"annotations": {ADMITTED: json.dumps(note)}}}).encode(),
        Content_Type="application/merge-patch+json",
    )
    verdict, said = cluster.said(waiting())
    assert (verdict, "the field manager argocd has suspended it twice" in said) == ("never", True), said


def test_what_is_not_suspended(cluster: Cluster) -> None:
    """A labelled one is suspended by the webhook; others, and what makes no pods of its own, are no concern of it."""
    runs = job(1, {"cpu": "1"})
    runs["metadata"] = {"name": "j", "labels": LABEL}
    verdict, said = cluster.said(runs)
    assert (verdict, "without the webhook it runs at once" in said) == ("now", True)
    runs["metadata"] = {"name": "j"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": runs["spec"]["template"]["spec"]}
    assert [each["let_in"] for each in cluster.explained(runs, pod)] == [None, None]
    cluster.create({**runs, "metadata": {"name": "j", "labels": LABEL}})
    assert "it runs already" in cluster.said(waiting())[1]


def test_what_may_not_be_read_is_said() -> None:
    """To an account that may list the quotas alone, nothing is made up."""
    outlook, _ = asking_listed("team", [quota("q", {"pods": "1"})])
    around = Surroundings([], (), None)

    def forbidden(_method: str, _path: str, _body: object) -> tuple[int, JSON]:
        return 403, {"kind": "Status"}

    found = judged(waiting(), "team", around, outlook, forbidden, datetime.now(UTC))
    assert found is not None
    assert (found.verdict, found.why) == ("now", [NO_LINE, NO_LEASES])
    found = judged(waiting(labels={}), "team", around, outlook, forbidden, datetime.now(UTC))
    assert found is not None
    assert (found.verdict, "its namespace has the label" in found.why[0]) == ("unknown", True)


@pytest.mark.long
async def test_the_operator_does_as_was_said(cluster: Cluster) -> None:
    """Each is explained, then created: it is resumed, waits, is refused, or is left alone."""
    heavy = waiting(3, name="heavy")
    heavy["spec"]["template"]["spec"]["runtimeClassName"] = "heavy"
    overhead = {"podFixed": {"cpu": "500m"}}
    cluster.post(
        "/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "heavy"}, "handler": "h", "overhead": overhead}
    )
    manifests = {
        "first": waiting(3, name="first"),
        "second": waiting(2, name="second"),
        "huge": waiting(5, name="huge"),
        "heavy": heavy,
        "small": waiting(1, name="small"),
        "held": waiting(1, name="held", annotations={STAY_SUSPENDED: "true"}),
        "plain": waiting(1, name="plain", labels={}),
    }
    expected = dict.fromkeys(("first", "small"), "now") | dict.fromkeys(("huge", "heavy"), "never")
    expected |= {"second": "wait", "held": "left", "plain": "left"}
    configuration = find_place(cluster.sandbox.url, None, None, None).configuration
    clock = asyncio.get_running_loop().time
    async with Admitting(configuration, namespaces=(cluster.namespace,), events=False) as operator:
        leading = asyncio.create_task(operator.lead())
        try:
            for name, manifest in manifests.items():
                found = await asyncio.to_thread(cluster.explained, manifest)
                assert found["let_in"]["verdict"] == expected[name], (name, found)
                assert ("as one it never fits" in found["note"]) is (expected[name] == "never"), (name, found)
                await asyncio.to_thread(cluster.create, manifest)
                deadline = clock() + PATIENCE
                while (seen := await asyncio.to_thread(_state, cluster, operator, name)) != expected[name]:
                    assert clock() < deadline, (name, seen)
                    await asyncio.sleep(0.02)
                if expected[name] == "now":
                    number = manifest["spec"]["parallelism"]
                    await asyncio.to_thread(_run_pods, cluster, name, number)
        finally:
            leading.cancel()
            with suppress(asyncio.CancelledError):
                await leading


def _state(cluster: Cluster, operator: Admitting, name: str) -> str:
    """Return what has become of a Job, in the words of ``explain``."""
    found = {each["name"]: each["state"] for each in operator.waiting()}
    if name in found:
        return {"waiting": "wait", "refused": "never"}[found[name]]
    return "now" if not cluster.get(name)["spec"]["suspend"] else "left"


def _run_pods(cluster: Cluster, name: str, number: int) -> None:
    """Create the pods of a Job that was let in, as its controller would."""
    made = cluster.get(name)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"], "controller": True}
    template = made["spec"]["template"]
    for each in range(number):
        metadata = {
            "name": f"{name}-{each}",
            "labels": template.get("metadata", {}).get("labels", {}),
            "ownerReferences": [owner],
        }
        cluster.post(f"/api/v1/namespaces/{cluster.namespace}/pods", {"metadata": metadata, "spec": template["spec"]})
