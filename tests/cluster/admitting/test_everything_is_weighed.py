"""All that Jobs and JobSets need is weighed: claims, devices, Services and Jobs, by one truth for all who ask.

``explain``, a Task and the operator are asked about the same object under the same quota, on a control plane whose own
controllers make the claims of pods, with JobSet's controller beside it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from backoff_ctrl.api.main import cli
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.runtime.host import RuntimeAlarms
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.status.client import read
from backoff_ctrl.k8s.status.shapes import Explained
from backoff_ctrl.k8s.tasks.builtin import builtin_entries
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.registry import of_objects
from backoff_ctrl.k8s.workloads.admitting.admitting import Admitting
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB, JOB_SET, WAITS_FOR, AdmissibleKind
from tests.cluster.admitting.jobs_at_work import Jobs, admitting, job
from tests.cluster.admitting.jobset.controller import NAME_LABEL, managed
from tests.cluster.admitting.test_jobsets_wait import job_set
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import made, of_core, of_group
from tests.cluster.talking import MERGE, Api
from tests.kit.patience import PATIENCE
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import task

pytestmark = pytest.mark.long

JSON = dict[str, Any]
RESOURCES: Final = "resource.k8s.io/v1"
ADD: Final = ("ephemeral-volume-controller", "resourceclaim-controller")


def with_volumes(size: str, volumes: int = 1, storage_class: str | None = "", **spec: Any) -> JSON:
    """A Job whose pods bring ephemeral volumes of this size. ``storage_class`` None: of the default class."""
    claim: JSON = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    claim |= {} if storage_class is None else {"storageClassName": storage_class}
    body = job("j", **spec)
    body["spec"]["template"]["spec"]["volumes"] = [
        {"name": f"scratch-{n}", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}} for n in range(volumes)
    ]
    return body


def with_devices(template: str, **spec: Any) -> JSON:
    """A Job each of whose pods has a ResourceClaim made from this template."""
    body = job("j", **spec)
    body["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return body


def of_runtime_class(name: str, **spec: Any) -> JSON:
    """A Job whose pods have what this RuntimeClass adds."""
    body = job("j", **spec)
    body["spec"]["template"]["spec"]["runtimeClassName"] = name
    return body


def times(number: int) -> JSON:
    return {"parallelism": number, "completions": number}


@dataclass(frozen=True)
class Case:
    """An object, a quota that it exceeds, and one that it fits exactly. ``resource`` is what it lacks."""

    id: str
    body: JSON
    lacks: JSON
    fits: JSON
    resource: str
    never: bool = True
    kind: AdmissibleKind = field(default=JOB)
    default: JSON = field(default_factory=dict)
    """What a LimitRange gives to each container that asks for none."""


GPU: Final = "gpu.example.com.deviceclass.resource.k8s.io/devices"
CLAIM_COUNT: Final = "count/resourceclaims.resource.k8s.io"
STORAGE: Final = "requests.storage"
CLAIMS: Final = "persistentvolumeclaims"
FAST: Final = "requests.example.com/fast"
JOBS: Final = "count/jobs.batch"
CPU: Final = "requests.cpu"
MEMORY: Final = "requests.memory"
OF_CLASS: Final = "standard.storageclass.storage.k8s.io/persistentvolumeclaims"
CASES: Final = (
    Case("storage", with_volumes("5Gi", **times(3)), {STORAGE: "12Gi"}, {STORAGE: "15Gi"}, STORAGE),
    Case("claims", with_volumes("1Gi", **times(3)), {CLAIMS: "2"}, {CLAIMS: "3"}, CLAIMS),
    Case("two volumes", with_volumes("1Gi", 2, **times(2)), {CLAIMS: "3"}, {CLAIMS: "4", STORAGE: "4Gi"}, CLAIMS),
    Case("resource claims", with_devices("two", **times(2)), {CLAIM_COUNT: "1"}, {CLAIM_COUNT: "2"}, CLAIM_COUNT),
    Case("devices", with_devices("two", **times(2)), {GPU: "3"}, {GPU: "4"}, GPU),
    Case("extended resource", with_devices("fast", **times(2)), {FAST: "1"}, {FAST: "2"}, FAST),
    Case("defaults", job("j", **times(2)), {MEMORY: "1Gi"}, {MEMORY: "2Gi"}, MEMORY, default={"memory": "1Gi"}),
    Case("overhead", of_runtime_class("heavy", **times(2)), {CPU: "2"}, {CPU: "3"}, CPU),
    Case("default class", with_volumes("1Gi", 1, None, **times(2)), {OF_CLASS: "1"}, {OF_CLASS: "2"}, OF_CLASS),
    Case("its jobs", job_set("j"), {JOBS: "2"}, {JOBS: "3", "services": "1"}, JOBS, kind=JOB_SET),
    Case("its service", job_set("j"), {"services": "0"}, {"services": "1"}, "services", never=False, kind=JOB_SET),
)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
COLLECTED: Final = Case(
    "claims of all completions", with_volumes("1Gi", parallelism=1, completions=3), {CLAIMS: "2"}, {CLAIMS: "3"}, CLAIMS
)


@pytest.fixture(scope="module")
def makers(binaries: Binaries) -> Iterator[Bed]:
    """A control plane whose controllers make the claims of pods."""
    with Bed(binaries, kcm_qps=500, controllers=ADD) as bed:
        yield bed


@pytest.fixture
async def api(makers: Bed) -> AsyncIterator[Api]:
    async with Api(makers.server) as api:
        yield api


@pytest.fixture
async def namespace(api: Api) -> str:
    """A namespace with templates of claims: of two devices, and of one whose class is an extended resource, too."""
    name = f"test-{secrets.token_hex(5)}"
    made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
    classes: tuple[tuple[str, JSON], ...] = (
        ("gpu.example.com", {}),
        ("fast.example.com", {"extendedResourceName": "example.com/fast"}),
    )
    for device_class, more in classes:
        body = {"metadata": {"name": device_class}, "spec": more}
        assert (await api.post(f"/apis/{RESOURCES}/deviceclasses", body)).status in {201, 409}
    for template, device_class, count in (("two", "gpu.example.com", 2), ("fast", "fast.example.com", 1)):
        requests = [{"name": "r", "exactly": {"deviceClassName": device_class, "count": count}}]
        body = {"metadata": {"name": template}, "spec": {"spec": {"devices": {"requests": requests}}}}
        made(await api.post(of_group(RESOURCES, name, "resourceclaimtemplates"), body))
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    added: tuple[tuple[str, JSON, JSON], ...] = (
        ("node.k8s.io/v1/runtimeclasses", {"name": "heavy"},
         {"handler": "h", "overhead": {"podFixed": {"cpu": "500m"}}}),
        ("storage.k8s.io/v1/storageclasses", {"name": "standard", "annotations": default},
         {"provisioner": "example.com/none"}),
    )  # fmt: skip
    for path, metadata, content in added:
        assert (await api.post(f"/apis/{path}", {"metadata": metadata, **content})).status in {201, 409}
    return name


@asynccontextmanager
async def working(case: Case, api: Api, programs: Callable[[], GoPrograms], folder: Path) -> AsyncIterator[None]:
    """Have the controller of a case's kind work."""
    if case.kind is JOB:
        yield
        return
    async with managed(api, programs(), folder):
        yield


@pytest.fixture
def programs(request: pytest.FixtureRequest, jobset_programs: GoPrograms) -> Callable[[], GoPrograms]:
    return lambda: jobset_programs


async def limit(api: Api, namespace: str, hard: JSON, default: JSON | None = None) -> None:
    """Create a quota, or edit it, and wait until it holds; before, a LimitRange with this default."""
    if default:
        item = {"type": "Container", "default": default, "defaultRequest": default}
        made(await api.post(of_core(namespace, "limitranges"), {"metadata": {"name": "l"}, "spec": {"limits": [item]}}))
    path = of_core(namespace, "resourcequotas")
    if (await api.get(f"{path}/q")).status == 200:
        made(await api.delete(f"{path}/q"))
    made(await api.post(path, {"metadata": {"name": "q"}, "spec": {"hard": hard}}))
    await api.until(f"{path}/q", lambda q: q.get("status", {}).get("hard") == hard and "used" in q["status"])


async def until(holds: Callable[[], Any]) -> Any:
    """Wait until something holds, and return it."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + PATIENCE
    while not (found := holds()):
        assert clock() < deadline
        await asyncio.sleep(0.02)
    return found


async def explained(server: Server, namespace: str, body: JSON) -> Explained:
    """Return what ``explain --kubeconfig`` says of an object."""
    words = ["explain", "-f", "-", "-n", namespace, "--json", "--kubeconfig", str(server.kubeconfig("tester"))]
    done = await asyncio.to_thread(CliRunner().invoke, cli, words, json.dumps(body))
    assert done.exit_code in {0, 1}, done.output
    found: Explained = read(Explained, json.loads(done.stdout))
    return found


async def as_task(server: Server, namespace: str, case: Case) -> tuple[bool, str]:
    """Return what becomes of an object as a Task: whether it is created or waits, else why it fails."""
    entries = [of_objects(each) for each in builtin_entries() if each.id in {"job", "jobset"}]
    template = {key: case.body[key] for key in ("apiVersion", "kind")} | {
        "spec": {**case.body["spec"], "suspend": False}
    }
    config = K8sPluginConfig(delete_resource_on_finalize=True)
    authority = str(server.certificate)
    async with Bench(
        server.url, *entries, shared=True, token=server.token("tester"), tls=server.ssl(), authority=authority
    ) as bench:
        one = task(
            "t",
            type=case.kind.kind.lower(),
            namespace=namespace,
            spec={"template": template},
            config=config,
            uid=namespace,
        )
        info = await bench.until(
            one,
            Phase.QUEUED,
            Phase.WAITING_FOR_RESOURCES,
            Phase.PERMANENT_FAILURE,
            holds=lambda info: info.wait is None or (info.wait.quota and info.wait.reason != "never-fits"),
        )
        await bench.abort(one)
        await bench.finalize(one)
        return info.phase is Phase.QUEUED, info.reason if info.error is None else info.error.message


def refused(found: Admitting) -> JSON | None:
    """Return what the operator says of an object that it refuses, or that waits for a quota."""
    return next((each for each in found.waiting() if each.get("message") or each.get("quota")), None)


@pytest.mark.parametrize("case", [*CASES, COLLECTED], ids=lambda case: case.id)
async def test_explain_a_task_and_the_operator_say_the_same_of_the_same_object(
    case: Case, makers: Bed, api: Api, namespace: str, programs: Callable[[], GoPrograms], tmp_path: Path
) -> None:
    """Under a quota that it exceeds: the same resource, and where it never fits, the same sentence."""
    await limit(api, namespace, case.lacks, case.default)
    running = {**case.body, "spec": {**case.body["spec"], "suspend": False}}
    told = await explained(makers.server, namespace, running)
    pods = told.parts[1]
    assert pods.verdict in {"never", "wait"}
    assert [each.resource for each in pods.blockers] == [case.resource]

    async with working(case, api, programs, tmp_path):
        fits, said = await as_task(makers.server, namespace, case)
        assert not fits, said
        assert case.resource in said

        objects = Jobs(api, namespace, case.kind, NAME_LABEL)
        await objects.create(case.body)
        async with admitting(makers.server, namespaces=(namespace,)) as found:
            operator: JSON = await until(lambda: refused(found))
            assert (await objects.get("j"))["spec"]["suspend"] is True
            assert found.counts.admitted == {}
            assert found.counts.ungated == {}
    if case.never:
        assert operator["state"] == "refused"
        sentence, remedy = operator["message"].removeprefix("it never fits: ").split("; ")
        assert remedy == "make it smaller, or ask for a larger quota"
        assert sentence in said.replace(f"{case.kind.kind} t-0", f"{case.kind.kind} j"), said
        assert sentence in (told.note or "")
    else:
        assert (operator["state"], operator["resource"]) == ("waiting", case.resource)


@each_case
async def test_what_fits_exactly_is_let_in_and_no_controller_is_refused(
    case: Case, makers: Bed, api: Api, namespace: str, programs: Callable[[], GoPrograms], tmp_path: Path
) -> None:
    """Nothing of it counts twice: neither what is made while it is suspended, nor what its pods bring."""
    await limit(api, namespace, case.fits, case.default)
    running = {**case.body, "spec": {**case.body["spec"], "suspend": False}}
    assert {each.verdict for each in (await explained(makers.server, namespace, running)).parts} == {"now"}
    async with working(case, api, programs, tmp_path):
        objects = Jobs(
            api, namespace, case.kind, NAME_LABEL if case.kind is JOB_SET else "batch.kubernetes.io/job-name"
        )
        async with admitting(makers.server, namespaces=(namespace,)) as found:
            await objects.create(case.body)
            await objects.pods_of("j", 5 if case.kind is JOB_SET else case.body["spec"]["parallelism"])
            used = {name: amount for name, amount in case.fits.items() if name != "requests.storage"}
            await api.until(
                of_core(namespace, "resourcequotas", "q"), lambda q: used.items() <= q["status"]["used"].items()
            )
            assert found.counts.admitted == {case.kind.resource: 1}
        # JobSet's controller makes a Job once more that its cache does not show yet: the quota refuses that first.
        assert [each for each in await objects.refusals() if "creation failed" not in each] == []


async def test_the_room_of_claims_is_kept_while_its_job_runs_and_given_back_after_it(
    makers: Bed, api: Api, namespace: str
) -> None:
    """What a deleted pod leaves is for its Job's next one, 10 s later; another Job waits until claims are gone."""
    await limit(api, namespace, {"persistentvolumeclaims": "3", "pods": "10"})
    objects = Jobs(api, namespace)
    async with admitting(makers.server, namespaces=(namespace,)) as found:
        first, second, small = (with_volumes("1Gi", **times(number)) for number in (2, 1, 1))
        for name, body in (("first", first), ("second", second), ("small", small)):
            body["metadata"]["name"] = name
        await objects.create(first)
        await objects.pods_of("first", 2)
        await objects.create(second)
        await objects.pods_of("second", 1)  # its claim is the third: what the first Job has counts once
        await objects.create(small)
        await until(lambda: [each["name"] for each in found.waiting() if each.get("quota")] == ["small"])
        pod, _ = await objects.pods("first")
        path = of_core(namespace, "pods", pod["metadata"]["name"])
        made(await api.delete(path, params={"gracePeriodSeconds": "0"}))  # its claim goes with it
        await until_each_pod_has_a_claim(objects, 3)
        assert await objects.running() == ["first", "second"]
        for each in await objects.pods():
            await objects.end(each)
        for name in ("first", "second"):
            await objects.ended(name)
        assert [each["name"] for each in found.waiting()] == ["small"]  # a pod that has ended keeps its claim
        await claimed(api, namespace, 3)
        made(await api.delete(objects.path("first"), params={"propagationPolicy": "Background"}))
        await objects.pods_of("small", 1)
        await claimed(api, namespace, 2)
    assert await objects.refusals() == []


async def test_room_is_kept_for_the_claims_that_a_job_collects(makers: Bed, api: Api, namespace: str) -> None:
    """One pod at a time, three in all: each leaves a claim behind. None is refused, though another Job asks for one."""
    await limit(api, namespace, {CLAIMS: "3", "pods": "10"})
    objects = Jobs(api, namespace)
    async with admitting(makers.server, namespaces=(namespace,)) as found:
        await objects.create(COLLECTED.body)
        await objects.pods_of("j", 1)
        small = with_volumes("1Gi", **times(1))
        small["metadata"]["name"] = "small"
        await objects.create(small)
        for number in (1, 2, 3):
            (pod,) = await objects.pods_of("j", 1)
            await claimed(api, namespace, number)
            await until(lambda: [each["name"] for each in found.waiting() if each.get("quota")] == ["small"])
            await objects.end(pod)
        await objects.ended("j")
        await claimed(api, namespace, 3)
        made(await api.delete(objects.path("j"), params={"propagationPolicy": "Background"}))
        await objects.pods_of("small", 1)
    assert await objects.refusals() == []


async def until_each_pod_has_a_claim(objects: Jobs, number: int) -> None:
    """Wait until so many pods live, and just their claims."""

    def owners(listed: JSON) -> set[str]:
        return {each["metadata"]["ownerReferences"][0]["uid"] for each in listed["items"]}

    async with asyncio.timeout(PATIENCE):
        while True:
            pods = [each["metadata"] for each in await objects.pods()]
            living = {each["uid"] for each in pods if not each.get("deletionTimestamp")}
            claims = made(await objects.api.get(of_core(objects.namespace, "persistentvolumeclaims")))
            if len(pods) == len(living) == number and owners(claims) == living:
                return
            await asyncio.sleep(0.05)


async def claimed(api: Api, namespace: str, number: int) -> None:
    """Wait until there are so many claims.

    Not until the quota has counted them: its controller writes what its caches show, and when those lag behind, one
    claim too few stands there until something is deleted, or for the 5 minutes of a full recount.
    """
    claims = of_core(namespace, "persistentvolumeclaims")
    await api.until(claims, lambda listed: len(listed["items"]) == number)


async def test_whoever_leads_next_counts_claims_that_live_once(makers: Bed, api: Api, namespace: str) -> None:
    """Those of a Job that runs are charged already: beside them there is room for exactly one more."""
    await limit(api, namespace, {"persistentvolumeclaims": "3"})
    objects = Jobs(api, namespace)
    async with admitting(makers.server, namespaces=(namespace,)):
        first = with_volumes("1Gi", **times(2))
        first["metadata"]["name"] = "first"
        await objects.create(first)
        await objects.pods_of("first", 2)
        await claimed(api, namespace, 2)
    gate = AsyncGate(ledger=Ledger(RuntimeAlarms()))
    async with admitting(makers.server, namespaces=(namespace,), gate=gate):
        small = with_volumes("1Gi", **times(1))
        small["metadata"]["name"] = "small"
        await objects.create(small)
        await objects.pods_of("small", 1)
    assert await objects.refusals() == []


async def test_a_job_that_begins_small_grows_with_the_room_for_its_claims(
    makers: Bed, api: Api, namespace: str
) -> None:
    """Pods and what they bring grow together, of one without completions."""
    await limit(api, namespace, {"persistentvolumeclaims": "2", "pods": "10"})
    objects = Jobs(api, namespace)
    async with admitting(makers.server, namespaces=(namespace,)):
        body = with_volumes("1Gi", parallelism=3)
        body["metadata"]["annotations"] = {"backoff-ctrl.dev/min-parallelism": "1"}
        await objects.create(body)
        await objects.pods_of("j", 2)
        made(
            await api.patch(
                of_core(namespace, "resourcequotas", "q"), {"spec": {"hard": {"persistentvolumeclaims": "3"}}}, MERGE
            )
        )
        await objects.pods_of("j", 3)
    assert await objects.refusals() == []


async def test_a_job_set_whose_service_is_refused_is_let_in_once_that_is_made(
    makers: Bed, api: Api, namespace: str, jobset_programs: GoPrograms, tmp_path: Path
) -> None:
    """What it waits for is said; after the quota is edited its controller makes its Service, and it goes in."""
    await limit(api, namespace, {"services": "0"})
    async with managed(api, jobset_programs, tmp_path), admitting(makers.server, namespaces=(namespace,)) as found:
        objects = Jobs(api, namespace, JOB_SET, NAME_LABEL)
        await objects.create(job_set("j"))
        await until(lambda: refused(found))
        seen = await objects.until("j", lambda body: WAITS_FOR in body["metadata"].get("annotations", {}))
        assert json.loads(seen["metadata"]["annotations"][WAITS_FOR])["resource"] == "services"
        made(await api.patch(of_core(namespace, "resourcequotas", "q"), {"spec": {"hard": {"services": "1"}}}, MERGE))
        await objects.pods_of("j", 5)
        assert found.counts.admitted == {JOB_SET.resource: 1}
