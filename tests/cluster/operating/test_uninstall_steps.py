"""``backoff-ctrl uninstall``, step by step on the sandbox: killed after any of its writes, or refused one of them."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from kubernetes.client import Configuration

from backoff_ctrl.api.operator.stopped import STOPPED, StepError, Switch
from backoff_ctrl.k8s.kube.cluster.objects import Objects
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.tasks.cluster.schema import NAME, definition
from tests.cluster.control_plane.servers import USERS, Server
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.objects import made
from tests.cluster.operating.leaving import DEPLOYMENT, HOOKS, Refused, begun, ended, killed, standing, way
from tests.cluster.shipping.test_chart_comes_and_goes import crowd, stranded
from tests.cluster.talking import MERGE, Api

JSON = dict[str, Any]
REPLICAS: Final = 3
WAITING: Final = 2
"""Jobs, and Tasks, that wait."""
STOPPING: Final = 3
"""Writes that stop something."""


VALIDATING: Final[JSON] = {  # a kind that the sandbox does not have by itself
    "metadata": {
        "name": "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
    },
    "spec": {
        "group": "admissionregistration.k8s.io",
        "scope": "Cluster",
        "names": {
            "plural": "validatingwebhookconfigurations", "singular": "validatingwebhookconfiguration",
            "kind": "ValidatingWebhookConfiguration", "listKind": "ValidatingWebhookConfigurationList",
        },
        "versions": [{
            "name": "v1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }],
    },
}  # fmt: skip


def hooks(path: str) -> JSON:
    url = {"url": "https://127.0.0.1:1/"}
    hook = {"name": "a.backoff-ctrl.dev", "clientConfig": url, "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    kind = "MutatingWebhookConfiguration" if path == HOOKS[0] else "ValidatingWebhookConfiguration"
    metadata = {"name": path.rsplit("/", 1)[1]}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "webhooks": [hook]}


@pytest.fixture
async def gates(tmp_path: Path) -> AsyncIterator[Api]:
    """An operator and its webhooks in namespace ``gates``, and what waits for it in ``team``."""
    with running_sandbox(seed=7) as running:
        tokens = {user: user for user in USERS}
        server = Server("sandbox", 36, running.url, None, tmp_path, tokens, lambda: None)
        async with Api(server, "admin") as api:
            for name in ("gates", "team"):
                made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
            made(await api.post(DEFINITIONS, definition()))
            await api.until(f"{DEFINITIONS}/{NAME}", is_established)
            labels = {"app": "operator"}
            template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
            spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
            folder, name = DEPLOYMENT.rsplit("/", 1)
            made(await api.post(folder, {"metadata": {"name": name}, "spec": spec}))
            made(await api.post(DEFINITIONS, VALIDATING))
            await api.until(f"{DEFINITIONS}/{VALIDATING['metadata']['name']}", is_established)
            for path in HOOKS:
                made(await api.post(path.rsplit("/", 1)[0], hooks(path)))
            await crowd(api, "team", "early", jobs=WAITING, tasks=WAITING)
            yield api


async def noted(api: Api, path: str) -> Any:
    """Return what is noted on an object; None: nothing, or it is gone."""
    found = (await api.get(path)).json
    return json.loads(found.get("metadata", {}).get("annotations", {}).get(STOPPED) or "null")


@pytest.mark.long
async def test_killed_after_each_of_its_writes_it_goes_on_and_ends_well(gates: Api, tmp_path: Path) -> None:
    """Also between its last DELETEs. Each run is killed at its first write, until one has none to make."""
    api = gates
    before = [each for each, _ in await standing(api)]
    runs, writes = 0, list[tuple[str, str]]()
    while (written := await killed(api.server, tmp_path, 1)) is not None:
        runs, writes = runs + 1, writes + written
        notes = [await noted(api, path) for path in (DEPLOYMENT, *HOOKS)]
        assert notes == [each and {"was": was} for each, was in zip(notes, before, strict=True)]
        assert notes[0], "it is forgotten how many there were"
    stops, goes = writes[:STOPPING], [each for each in writes if each[0] == "DELETE"]
    assert stops == [("PATCH", path) for path in (DEPLOYMENT, *HOOKS)]
    assert goes == [("DELETE", path) for path in HOOKS]
    assert writes[-2:] == goes
    kinds = [path.rsplit("/", 2)[1] for _, path in writes[STOPPING:-2]]
    assert kinds == sorted(kinds)  # Jobs, then Tasks
    assert {*kinds} == {"jobs", "tasks"}
    assert runs >= STOPPING + 2 + 2  # those of one kind are let go side by side
    assert await stranded(api, "team") == []
    assert [(await api.get(path)).status for path in HOOKS] == [404, 404]
    assert (await api.get(DEPLOYMENT)).json["spec"]["replicas"] == 0
    assert await noted(api, DEPLOYMENT) == {"was": REPLICAS}


@pytest.mark.long
async def test_what_a_killed_one_has_stopped_is_put_back_by_one_that_fails(gates: Api, tmp_path: Path) -> None:
    """Wherever it was killed, before it removes the webhooks."""
    api = gates
    before = await standing(api)
    for number in range(1, STOPPING + WAITING + 2):
        assert await killed(api.server, tmp_path, number)
        assert (await api.get(DEPLOYMENT)).json["spec"]["replicas"] == 0
        async with way(api.server, tmp_path, refused=("GET", "/tasks")) as (_, kubeconfig):
            code, said = await ended(kubeconfig)
        assert (code, "Tasks: GET /apis/backoff-ctrl.dev/v1alpha1/tasks: 403" in said) == (1, True), said
        assert await standing(api) == before, (number, said)
        await crowd(api, "team", f"after-{number}", jobs=WAITING, tasks=WAITING)


@pytest.mark.long
@pytest.mark.parametrize(
    ("refused", "left", "said"),
    [
        (("PATCH", DEPLOYMENT), 2 * WAITING, "the operator: PATCH"),
        (("PATCH", HOOKS[1]), 2 * WAITING, "the webhooks: PATCH"),
        (("PATCH", "/jobs/early-0"), 1, "Jobs: 1 are left: "),  # the other, and the Tasks, are let go
        (("PATCH", "/tasks/early-0"), 1, "Tasks: 1 are left: task team/early-0 keeps its finalizer"),
        (("DELETE", HOOKS[0]), 0, "the webhooks: DELETE"),
    ],
    ids=["operator", "webhooks", "a Job", "a Task", "removal"],
)
async def test_one_that_is_refused_a_step_puts_back_what_it_stopped(
    gates: Api, tmp_path: Path, refused: Refused, left: int, said: str
) -> None:
    """And lets nothing go before all is stopped that would have it wait again."""
    api = gates
    before = await standing(api)
    async with way(api.server, tmp_path, refused=refused) as (_, kubeconfig):
        code, told = await ended(kubeconfig)
    assert (code, said in told) == (1, True), told
    assert await standing(api) == before, told
    assert len(await stranded(api, "team")) == left


@pytest.mark.long
async def test_a_second_signal_does_not_stop_it_from_putting_back(gates: Api, tmp_path: Path) -> None:
    """A pod gets one from its kubelet, and may get another from its user."""
    api = gates
    before = await standing(api)
    async with way(api.server, tmp_path, last=1) as (made_way, kubeconfig):
        process = await begun(kubeconfig)
        await made_way.reached.wait()
        process.send_signal(signal.SIGTERM)
        made_way.go_on(last=2)  # which puts back
        await made_way.reached.wait()
        process.send_signal(signal.SIGTERM)
        made_way.go_on()
        said = (await process.communicate())[0].decode()
    assert (process.returncode, "the operator: started again" in said) == (1, True), said
    assert await standing(api) == before


# -- one field that is set for a while ---------

SWITCH: Final = Switch(DEPLOYMENT, ("spec", "replicas"), lambda _: 0)


@pytest.fixture
async def objects(gates: Api) -> AsyncIterator[Objects]:
    async with ClusterSession(Configuration(host=gates.server.url)) as session:
        yield Objects(session)


async def replicas(api: Api, number: int | None = None) -> int:
    """Return how many replicas are wanted; set them before, as others do."""
    if number is not None:
        made(await api.patch(DEPLOYMENT, {"spec": {"replicas": number}}, MERGE))
    found: int = (await api.get(DEPLOYMENT)).json["spec"]["replicas"]
    return found


async def test_a_field_that_is_set_twice_is_put_back_to_what_it_was_first(gates: Api, objects: Objects) -> None:
    assert [await SWITCH.turn(objects) for _ in range(2)] == [True, True]
    assert await noted(gates, DEPLOYMENT) == {"was": REPLICAS}
    assert [await SWITCH.turn_back(objects), await replicas(gates)] == [True, REPLICAS]
    assert await noted(gates, DEPLOYMENT) is None
    assert not await SWITCH.turn_back(objects)


async def test_a_field_that_others_have_set_since_is_theirs(gates: Api, objects: Objects) -> None:
    await SWITCH.turn(objects)
    await replicas(gates, 7)
    assert [await SWITCH.turn_back(objects), await replicas(gates)] == [False, 7]
    assert await noted(gates, DEPLOYMENT) is None


@pytest.mark.parametrize(
    "note", ["", "7", "{", '{"was": 1, "is": 2}', '{"is": 2}', pytest.param("[" * 10**5, id="deep")]
)
async def test_a_note_that_is_none_of_ours_is_none(gates: Api, objects: Objects, note: str) -> None:
    """And where nothing is to be set, there is nothing to put back."""
    await replicas(gates, 0)
    made(await gates.patch(DEPLOYMENT, {"metadata": {"annotations": {STOPPED: note}}}, MERGE))
    assert not await SWITCH.turn(objects)
    assert [await SWITCH.turn_back(objects), await replicas(gates)] == [False, 0]


async def test_where_there_is_no_object_there_is_nothing_to_set(gates: Api, objects: Objects) -> None:
    absent = Switch(f"{DEPLOYMENT}-2", SWITCH.field, SWITCH.change)
    assert [await absent.turn(objects), await absent.turn_back(objects)] == [False, False]


async def test_a_change_by_others_in_between_is_not_overwritten(gates: Api, objects: Objects) -> None:
    """Its certificates, its status: it is read again. What changes all the time ends with a sentence."""

    class Quick:
        """Others, who change the object after each read."""

        def __init__(self, times: int) -> None:
            self.times = times
            self.numbers = count(100)

        async def ask(self, method: str, path: str, *rest: Any, **more: Any) -> Any:
            answer = await objects.ask(method, path, *rest, **more)
            if method == "GET" and self.times:
                self.times -= 1
                await replicas(gates, next(self.numbers))
            return answer

    quick: Any = Quick(3)
    assert await SWITCH.turn(quick)
    assert [await replicas(gates), await noted(gates, DEPLOYMENT)] == [0, {"was": 102}]
    await replicas(gates, REPLICAS)
    for change in (SWITCH.turn, SWITCH.turn_back):
        with pytest.raises(StepError, match="changes all the time: run it again"):
            await asyncio.wait_for(change(Quick(10**6)), 60)  # type: ignore[arg-type]
