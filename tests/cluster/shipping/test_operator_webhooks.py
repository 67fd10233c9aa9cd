"""The operator's webhooks as the chart installs them, called by a real API server, with the chart's account."""

from __future__ import annotations

import asyncio
import copy
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID
from backoff_ctrl.k8s.kube.cluster.rights import operator
from backoff_ctrl.k8s.tasks.plugins.marks import FINALIZER
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, RELEASED_BY, SUSPENDED_BY, WAIT, WAITS_FOR, WEBHOOK
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.shipping.installed import Account, Doctor, Mode, account, audited, chart, granted, running
from tests.cluster.shipping.rendering import CHART, DATA, JSON
from tests.cluster.talking import MERGE, Api, Reply

NAME = "backoff-ctrl-webhooks"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
TASKS = "/apis/backoff-ctrl.dev/v1alpha1/namespaces/{}/tasks"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}"
AUDIT = ("--audit-log-path=-", f"--audit-policy-file={DATA / 'audit.yaml'}")
VALUES: JSON = {"injection": {"enabled": False}, "operator": {"enabled": True}}
pytestmark = [pytest.mark.long, pytest.mark.parametrize("breakable", [AUDIT], ids=["audited"], indirect=True)]


@pytest.fixture
async def api(bed: Bed) -> AsyncIterator[Api]:
    async with Api(bed.server, "admin") as made:
        yield made


@pytest.fixture
async def installed(bed: Bed, api: Api, helm_program: GoPrograms) -> Api:
    """The chart with the operator, in namespace gates, once for the module."""
    if (await api.get("/api/v1/namespaces/gates")).status == 200:
        return api
    assert (await api.post("/api/v1/namespaces", {"metadata": {"name": "gates"}})).status == 201
    chart(bed, "install", "backoff-ctrl", str(CHART), "--namespace=gates", values=VALUES)
    await api.until(f"{DEFINITIONS}/tasks.backoff-ctrl.dev", is_established)
    services = "/api/v1/namespaces/gates/services"
    assert (await api.delete(f"{services}/{NAME}")).status == 200
    here = {"metadata": {"name": NAME}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    assert (await api.post(services, here)).status == 201  # no proxy of a node routes addresses of the cluster here
    return api


@asynccontextmanager
async def called(api: Api, folder: Path) -> AsyncIterator[Mode]:
    """Run the webhooks; the API server calls them, and trusts what they wrote."""
    async with running(api, "gates", "webhooks", folder) as mode:
        await lead_to(api, int(mode.urls["--listen"].rpartition(":")[2]))
        await answers(api)
        yield mode


async def lead_to(api: Api, port: int) -> None:
    """Have the API server call this port."""
    for kind in KINDS:
        hooks = await api.until(
            f"{HOOKS}/{kind}/{NAME}-gates",
            lambda found: all("caBundle" in each["clientConfig"] for each in found["webhooks"]),
        )
        for each in hooks["webhooks"]:
            each["clientConfig"]["service"]["port"] = port
        assert (await api.put(f"{HOOKS}/{kind}/{NAME}-gates", hooks)).status == 200


async def forgotten(api: Api) -> None:
    """Take away the certificates that the webhooks have kept, as after an installation."""
    secret = await api.patch(f"/api/v1/namespaces/gates/secrets/{NAME}", {"data": None}, MERGE)
    assert secret.status == 200, secret.text
    for kind in KINDS:
        hooks = (await api.get(f"{HOOKS}/{kind}/{NAME}-gates")).json
        for each in hooks["webhooks"]:
            each["clientConfig"].pop("caBundle", None)
        assert (await api.put(f"{HOOKS}/{kind}/{NAME}-gates", hooks)).status == 200


async def answers(api: Api) -> None:
    """Return once the API server works with both configurations as they are now."""
    asked = {"params": {"dryRun": "All"}}
    while "annotations" not in (await api.post(jobs("gates-canary"), job("canary"), **asked)).json["metadata"]:
        pass
    while (await api.post(TASKS.format("gates-canary"), task("canary"), **asked)).status != 201:
        pass


@dataclass(frozen=True)
class Team:
    """A namespace, and people in it."""

    api: Api
    name: str

    async def person(self, name: str, *rules: tuple[str, str, str], named: str = "") -> Account:
        """Return an account with these rights here: verbs, API group, resources."""
        base, roles = f"/api/v1/namespaces/{self.name}/serviceaccounts", RBAC.format(self.name)
        assert (await self.api.post(base, {"metadata": {"name": name}})).status == 201
        given = [
            {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
            for verbs, group, resources in (("create patch get update", "backoff-ctrl.dev", "tasks"), *rules)
        ]
        assert (await self.api.post(f"{roles}/roles", {"metadata": {"name": name}, "rules": given})).status == 201
        bound = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.name}],
        }
        assert (await self.api.post(f"{roles}/rolebindings", bound)).status == 201
        made = await account(self.api, self.name, name)
        for verbs, group, resources in rules:
            for resource in resources.split():
                await made.until(f"{verbs.split()[0]} {resource}{f'.{group}' if group else ''}", allowed=True)
        return made

    async def create(self, who: Account, body: JSON) -> Reply:
        return await who.ask("POST", TASKS.format(self.name), body)


async def team(api: Api, name: str, *, waits: bool = False) -> Team:
    labels = {WAIT: "true"} if waits else {}
    made = await api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    assert made.status in (201, 409), made.text
    return Team(api, name)


def jobs(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


def job(name: str, *, labels: JSON | None = None, annotations: JSON | None = None, **spec: object) -> JSON:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}
    marked = {"labels": {WAIT: "true"} if labels is None else labels, "annotations": annotations or {}}
    return {"metadata": {"name": name, **marked}, "spec": {"template": template, **spec}}


def task(name: str, **spec: object) -> JSON:
    given = {"type": "container", "container": {"image": "busybox"}, **spec}
    return {"apiVersion": "backoff-ctrl.dev/v1alpha1", "kind": "Task", "metadata": {"name": name}, "spec": given}


@pytest.fixture
async def canary(installed: Api) -> None:
    await team(installed, "gates-canary")


@pytest.mark.usefixtures("canary")
async def test_labelled_jobs_are_suspended_and_what_is_not_ours_is_left_alone(
    bed: Bed, installed: Api, tmp_path: Path
) -> None:
    """By their own label, and by their namespace's. The chart gives the account what it uses, and nothing else."""
    plain, waits = await team(installed, "plain"), await team(installed, "waits", waits=True)
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "1", "controller": True}
    cron = {**owner, "apiVersion": "batch/v1", "kind": "CronJob"}
    cases: list[tuple[Team, JSON, bool]] = [
        (plain, job("labelled"), True),
        (plain, job("unlabelled", labels={}), False),
        (waits, job("of-namespace", labels={}), True),
        (waits, job("both"), True),
        (waits, job("says-gang", labels={"backoff-ctrl.dev/gang": "g"}), True),
        (waits, job("says-gated", annotations={CREATE_ID: "a"}), True),
        (waits, job("of-kueue", labels={"kueue.x-k8s.io/queue-name": "q"}), False),
        (waits, job("managed", managedBy="example.com/other"), False),
        (waits, {**job("of-jobset"), "metadata": {"name": "of-jobset", "ownerReferences": [owner]}}, False),
        (waits, {**job("of-cron"), "metadata": {"name": "of-cron", "ownerReferences": [cron]}}, True),
    ]
    await forgotten(installed)
    before = await installed.post(jobs("plain"), job("before-the-webhook"))
    assert (before.status, before.json["spec"]["suspend"]) == (201, False)
    with audited(bed, "webhooks") as used:
        async with called(installed, tmp_path) as mode:
            for where, body, suspended in cases:
                made = await installed.post(jobs(where.name), body)
                assert made.status == 201, made.text
                marks = made.json["metadata"].get("annotations", {})
                found = (made.json["spec"]["suspend"], marks.get(SUSPENDED_BY))
                assert found == ((True, WEBHOOK) if suspended else (False, None)), body["metadata"]
            ours = await account(installed, "gates", "backoff-ctrl-operator")
            reply = await ours.ask("POST", jobs("waits"), job("of-a-task", annotations={CREATE_ID: "a"}))
            assert (reply.status, reply.json["spec"]["suspend"]) == (201, False), reply.text
            copied = dict.fromkeys((ADMITTED, SUSPENDED_BY, RELEASED_BY, WAITS_FOR), "x")
            body = job("of-its-user", suspend=True, annotations={**copied, "example.com/a": "b"})
            users = await installed.post(jobs("waits"), body)
            assert (users.json["spec"]["suspend"], users.json["metadata"]["annotations"]) == (
                True,
                {"example.com/a": "b"},
            )
            text = await mode.until(
                "--probe-listen",
                "/metrics",
                lambda _, text: 'suspension_reviews_total{namespace="waits",outcome="suspended"} 5' in text,
            )
            assert 'suspension_ungated{namespace="plain"} 1' in await mode.until(
                "--probe-listen", "/metrics", lambda _, text: "suspension_ungated{" in text
            )
            for outcome in ("reserved", "kueue", "elsewhere", "part", "held"):
                assert f'namespace="waits",outcome="{outcome}"' in text
    assert used == await granted(installed, "webhooks")


@pytest.mark.usefixtures("canary")
async def test_the_operator_works_with_exactly_its_account(bed: Bed, installed: Api, tmp_path: Path) -> None:
    """Jobs and Tasks of a namespace with a quota, from their creation to their end: nothing is refused to it."""
    await forgotten(installed)
    there = await team(installed, "works", waits=True)
    quotas = f"/api/v1/namespaces/{there.name}/resourcequotas"
    hard = {"pods": "1"}
    assert (await installed.post(quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})).status == 201
    await installed.until(f"{quotas}/q", lambda found: (found.get("status") or {}).get("hard") == hard)
    folders = [tmp_path / name for name in ("webhooks", "operator")]
    for each in folders:
        each.mkdir()
    with audited(bed, "operator"):
        async with called(installed, folders[0]), running(installed, "gates", "operator", folders[1]) as mode:
            for name in ("first", "second"):
                made = await installed.post(jobs(there.name), job(name))
                assert (made.status, made.json["spec"]["suspend"]) == (201, True), made.text
            await installed.until(f"{jobs(there.name)}/first", lambda found: not found["spec"]["suspend"])
            await installed.until(
                f"{jobs(there.name)}/second",
                lambda found: "backoff-ctrl.dev/waits-for" in found["metadata"].get("annotations", {}),
            )
            nap = {**task("nap"), "spec": {"type": "sleep", "custom": {"seconds": 0.1}}}
            assert (await installed.post(TASKS.format(there.name), nap)).status == 201
            await installed.until(
                f"{TASKS.format(there.name)}/nap", lambda found: found.get("status", {}).get("phase") == "Success"
            )
            said = await mode.until("--probe-listen", "/readyz", lambda status, _: status == 200)
            assert said.splitlines()[1:] == []


@pytest.mark.usefixtures("canary")
async def test_nobody_has_more_done_by_a_task_than_they_may_do(installed: Api, tmp_path: Path) -> None:
    """Things that are refused, one by one, each with a sentence; and that each right makes the difference."""
    here = await team(installed, "people")
    pods = ("create delete", "", "pods")
    async with called(installed, tmp_path):
        nobody = await here.person("nobody")
        maker = await here.person("maker", pods)
        chief = await here.person("chief", pods, ("update", "", "resourcequotas"))
        guest = await here.person("guest", ("use", "backoff-ctrl.dev", "webplugins"))
        client = await here.person("client", ("use", "backoff-ctrl.dev", "webplugins"), ("get", "", "secrets"))
        ray = {"type": "ray-job", "custom": {"entrypoint": "python a.py"}}
        secret = {"T": {"secret": "token", "key": "t"}}
        for who, body in (
            (maker, task("ok")),
            (chief, task("first", priority=5)),
            (client, task("calls", type="sleep", container=None, custom={"seconds": 1}, secrets=secret)),
        ):
            body["spec"] = {name: value for name, value in body["spec"].items() if value is not None}
            made = await here.create(who, body)
            assert made.status == 201, (who.name, made.text)
        template = {"apiVersion": "batch/v1", "kind": "Job", **job("x", labels={})}
        sleeps = {"type": "sleep", "custom": {"seconds": 1}}
        path = f"{TASKS.format('people')}/ok"
        change = {"spec": {"container": {"image": "other"}}}
        unseen = {"spec": {"container": {"image": "busybox", "securityContext": {"privileged": True}}}}
        refused = [
            (await here.create(nobody, task("a")), "may not create pods in namespace people"),
            (await here.create(guest, task("b")), "may not create pods in namespace people"),
            (await maker.ask("POST", TASKS.format("gates"), task("c")), "cannot create resource"),
            (await here.create(maker, _only(task("d"), type="job", template=template)), "may not create jobs.batch"),
            (await here.create(maker, task("e", priority=1)), "may not update resourcequotas in namespace people"),
            (await here.create(maker, _only(task("f"), **ray)), "may not use webplugins.backoff-ctrl.dev/"),
            (await here.create(guest, _only(task("g"), **sleeps, secrets=secret)), "may not get secrets/token"),
            (await here.create(maker, _only(task("h"), type="of-nobody")), "spec.type: "),
            (await here.create(maker, task("i", needs=["ok", {"task": "b", "ended": "No"}])), "spec.needs[1].ended: "),
            (
                await maker.ask("PATCH", path, {"spec": {"signal": 1}}, MERGE),
                "spec.signal: task people/ok is of the type",
            ),
            (await maker.ask("PATCH", path, change, MERGE), "spec.container.image can't be changed"),
            (await maker.ask("PATCH", path, unseen, MERGE), "spec.container.securityContext can't be changed"),
            (await nobody.ask("PATCH", path, {"spec": {"abort": True}}, MERGE), "may not delete pods"),
        ]
        for reply, sentence in refused:
            assert (reply.status in (403, 422), sentence in reply.json["message"]) == (True, True), reply.text
        held = {"metadata": {"finalizers": [FINALIZER]}}
        assert (await nobody.ask("PATCH", path, held, MERGE)).status == 200  # that is not in question
        for marks in ({"labels": {"a": "b"}}, {"annotations": {"sidecar.example.com/inject": "false"}}):
            marked = await nobody.ask("PATCH", path, {"metadata": marks}, MERGE)  # its next pod would have them
            assert (marked.status, "may not create pods" in marked.json["message"]) == (403, True), marked.text
            assert (await maker.ask("PATCH", path, {"metadata": marks}, MERGE)).status == 200
        assert (await maker.ask("PATCH", path, {"spec": {"abort": True}}, MERGE)).status == 200
        dry = await maker.ask("POST", f"{TASKS.format('people')}?dryRun=All", task("dry"))
        assert dry.status == 201, dry.text


@pytest.mark.usefixtures("canary")
async def test_while_the_webhooks_are_away_jobs_run_and_tasks_are_refused(installed: Api, tmp_path: Path) -> None:
    """What is not the spec of a Task still changes; once they are back, both are asked again."""
    here = await team(installed, "outage")
    maker = await here.person("maker", ("create", "", "pods"))
    async with called(installed, tmp_path):
        assert (await here.create(maker, task("before"))).status == 201
    path = f"{TASKS.format('outage')}/before"
    made = await installed.post(jobs("outage"), job("ungated"))
    assert (made.status, made.json["spec"]["suspend"]) == (201, False)
    lost = await here.create(maker, task("lost"))
    assert lost.status == 500
    assert 'failed calling webhook "tasks.backoff-ctrl.dev"' in lost.json["message"]
    held = await installed.patch(path, {"metadata": {"finalizers": [FINALIZER]}}, MERGE)
    assert held.status == 200, held.text
    assert (await installed.patch(f"{path}/status", {"status": {"phase": "Queued"}}, MERGE)).status == 200
    assert (await installed.patch(path, {"metadata": {"finalizers": None}}, MERGE)).status == 200
    async with called(installed, tmp_path):
        assert (await installed.post(jobs("outage"), job("gated"))).json["spec"]["suspend"] is True


def _only(body: JSON, **spec: object) -> JSON:
    """Return a Task with another spec."""
    changed = copy.deepcopy(body)
    changed["spec"] = spec
    return changed


@pytest.mark.usefixtures("canary")
async def test_the_hook_before_deletion_leaves_nothing_that_waits(bed: Bed, installed: Api, tmp_path: Path) -> None:
    """Its Job, run as a process with its own account: the operator, the webhooks, Jobs, finalizers of Tasks."""
    here = await team(installed, "leaving")
    values: JSON = {**VALUES, "operator": {"enabled": True, "crd": False}}
    suspended = job("waits", labels={WAIT: "true"}, annotations={SUSPENDED_BY: WEBHOOK}, suspend=True)
    assert (await installed.post(jobs(here.name), suspended)).status == 201
    assert (await installed.post(jobs(here.name), job("of-its-user", labels={}, suspend=True))).status == 201
    async with called(installed, tmp_path):
        held = {**task("held"), "metadata": {"name": "held", "finalizers": [FINALIZER, "example.com/other"]}}
        assert (await installed.post(TASKS.format(here.name), held)).status == 201
    chart(bed, "install", "backoff-ctrl", str(CHART), "--namespace=leaving", values=values)
    hooks = [*yaml.safe_load_all(chart(bed, "get", "hooks", "backoff-ctrl", "--namespace=leaving"))]
    (work,) = [each for each in hooks if each["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"]
    for each in hooks:
        if each["kind"] != "Job" and "pre-delete" in each["metadata"]["annotations"]["helm.sh/hook"].split(","):
            assert (await installed.post(path_of(each), each)).status == 201, each
    spec = work["spec"]["template"]["spec"]
    mine = await account(installed, "leaving", spec["serviceAccountName"])
    await mine.until("list jobs.batch", allowed=True)
    args = [each.replace("=/config", f"={tmp_path / 'none'}") for each in spec["containers"][0]["args"]]
    (tmp_path / "none").mkdir()
    command = [sys.executable, "-m", "backoff_ctrl", *args]
    kubeconfig = f"--kubeconfig={mine.kubeconfig(tmp_path)}"
    process = await asyncio.create_subprocess_exec(*command, kubeconfig, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    said = out.decode().splitlines()
    assert (process.returncode, said[:2]) == (0, ["the operator: stopped", "the webhooks: stopped"]), said
    assert said[-1] == "the webhooks: removed"
    assert (await installed.get(f"{jobs(here.name)}/waits")).json["spec"]["suspend"] is False
    assert (await installed.get(f"{jobs(here.name)}/of-its-user")).json["spec"]["suspend"] is True
    left = (await installed.get(f"{TASKS.format(here.name)}/held")).json["metadata"]
    assert left["finalizers"] == ["example.com/other"]
    for kind in KINDS:
        assert (await installed.get(f"{HOOKS}/{kind}/{NAME}-leaving")).status == 404
    deployment = await installed.get("/apis/apps/v1/namespaces/leaving/deployments/backoff-ctrl-operator")
    assert deployment.json["spec"]["replicas"] == 0
    chart(bed, "uninstall", "backoff-ctrl", "--namespace=leaving", "--no-hooks")
    assert (await installed.get(f"{DEFINITIONS}/tasks.backoff-ctrl.dev")).status == 200


def path_of(manifest: JSON) -> str:
    """Return where an object of the hook is created."""
    plural, version = f"{manifest['kind'].lower()}s", manifest["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    return f"{base}/namespaces/{namespace}/{plural}" if namespace else f"{base}/{plural}"


ROLE_FOR_ALL: JSON = {"metadata": {"name": "x"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
QUOTA: JSON = {"metadata": {"name": "x"}, "spec": {"hard": {"pods": "1"}}}
FORBIDDEN: list[tuple[str, str, str, JSON | None]] = [
    ("operator", "GET", "/api/v1/namespaces/people/secrets", None),
    ("operator", "GET", "/api/v1/namespaces/gates/secrets/backoff-ctrl-webhooks", None),
    ("operator", "POST", "/api/v1/namespaces/people/resourcequotas", QUOTA),
    ("operator", "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", ROLE_FOR_ALL),
    ("operator", "POST", "/apis/backoff-ctrl.dev/v1alpha1/namespaces/people/tasks", task("x")),
    ("operator", "DELETE", f"{HOOKS}/validatingwebhookconfigurations/{NAME}-gates", None),
    (
        "operator",
        "PUT",
        "/apis/coordination.k8s.io/v1/namespaces/gates/leases/another",
        {"metadata": {"name": "another"}},
    ),
    ("operator", "GET", "/api/v1/nodes", None),
    ("operator", "POST", "/api/v1/namespaces/people/pods/x/exec", None),
    ("operator", "POST", "/api/v1/namespaces/people/serviceaccounts/default/token", {"spec": {}}),
    ("operator", "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tasks.backoff-ctrl.dev", None),
    ("webhooks", "POST", jobs("people"), job("x")),
    ("webhooks", "PATCH", f"{jobs('people')}/x", {"spec": {"suspend": False}}),
    ("webhooks", "GET", "/apis/backoff-ctrl.dev/v1alpha1/tasks", None),
    ("webhooks", "GET", "/api/v1/namespaces/gates/secrets", None),
    ("webhooks", "POST", "/api/v1/namespaces/people/pods", {"metadata": {"name": "x"}}),
]


async def test_what_neither_account_needs_is_refused(installed: Api) -> None:
    """Each of these, by the API server: the accounts that the chart makes, with the rights that it gives."""
    await team(installed, "people")
    accounts = {mode: await account(installed, "gates", f"backoff-ctrl-{mode}") for mode in ("operator", "webhooks")}
    for who, method, path, body in FORBIDDEN:
        answer = await accounts[who].ask(method, path, body, MERGE if method == "PATCH" else None)
        assert (answer.status, answer.json["reason"]) == (403, "Forbidden"), (who, method, path, answer.text)


async def test_doctor_names_each_right_that_the_webhooks_lack(bed: Bed, installed: Api, tmp_path: Path) -> None:
    """By the command that NOTES has: nothing is missing, then all that the chart's roles give."""
    notes = chart(bed, "get", "notes", "backoff-ctrl", "--namespace=gates")
    (words,) = re.findall(rf"kubectl -n gates exec deployment/{NAME} -- backoff-ctrl (doctor .*)", notes)
    asks, wanted = await account(installed, "gates", NAME), await granted(installed, "webhooks")
    assert await asks.doctor(words, tmp_path) == Doctor(0, [])
    paths = [f"{RBAC.format('gates')}/roles/{NAME}", f"{RBAC.partition('/namespaces')[0]}/clusterroles/{NAME}-gates"]
    before = {path: (await installed.get(path)).json["rules"] for path in paths}
    for path in paths:
        assert (await installed.patch(path, {"rules": []}, MERGE)).status == 200
    for right in wanted:
        await asks.until(right, allowed=False)
    said = await asks.doctor(words, tmp_path)
    for path, rules in before.items():
        assert (await installed.patch(path, {"rules": rules}, MERGE)).status == 200
    for right in wanted:
        await asks.until(right, allowed=True)
    assert (said.code, set(said.missing)) == (1, wanted)


async def test_doctor_names_each_right_that_the_operator_lacks(bed: Bed, installed: Api, tmp_path: Path) -> None:
    """By the command that NOTES has: the chart's account lacks none of them, another one all."""
    notes = chart(bed, "get", "notes", "backoff-ctrl", "--namespace=gates")
    (words,) = re.findall(r"kubectl -n gates exec deployment/backoff-ctrl-operator -- backoff-ctrl (doctor .*)", notes)
    operators = await account(installed, "gates", "backoff-ctrl-operator")
    assert await operators.doctor(words, tmp_path) == Doctor(0, [])
    said = await (await account(installed, "gates", "default")).doctor(words, tmp_path)
    wanted = {str(right) for right in operator("backoff-ctrl-operator", "gates", (), ["jobs.batch"])}
    assert (said.code, set(said.missing)) == (1, wanted)
