"""What waits is listed and released through the API server, with no operator; an operator that comes leaves it so."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.objects import Objects
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.workloads.admitting.jobs import JobsError, list_jobs, release, release_one
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB, RELEASED_BY, AdmissibleKind
from tests.admitting.trains import DESCRIPTION, written
from tests.cluster.admitting.jobs_at_work import Jobs, admitting, job
from tests.cluster.control_plane.servers import Server
from tests.cluster.custom_kinds import definition, establish, fresh_group
from tests.cluster.objects import made, of_core
from tests.cluster.talking import Api

pytestmark = pytest.mark.long


@pytest.fixture
def jobs(real_api: Api, real_namespace: str) -> Jobs:
    return Jobs(real_api, real_namespace)


@pytest.fixture
def configuration(kubernetes: Server) -> Any:
    return find_place(None, str(kubernetes.kubeconfig("tester")), None, None).configuration


async def test_what_waits_is_released_by_name_or_all_of_it(kubernetes: Server, jobs: Jobs, configuration: Any) -> None:
    await jobs.limit(1)
    for name in ("a", "b", "c"):
        await jobs.create(job(name))
    await jobs.create(job("held", asks=False))
    here = (jobs.namespace,)

    assert [each.name for each in (await list_jobs(configuration, namespaces=here)).jobs] == ["a", "b", "c"]
    with pytest.raises(JobsError, match="nothing of the name held waits"):
        await release(configuration, "held", by="me", namespaces=here)
    assert [each.error for each in await release(configuration, "job/b", by="me", namespaces=here)] == [""]
    assert (await jobs.get("b"))["metadata"]["annotations"][RELEASED_BY] == "me"
    assert await jobs.running() == ["b"]
    async with admitting(kubernetes, namespaces=here, kinds=(JOB,)):
        await jobs.pods_of("b", 1)
        assert await jobs.running() == ["b"]
    assert len(await release(configuration, by="me", namespaces=here)) == 2
    assert await jobs.running() == ["a", "b", "c"]
    assert (await list_jobs(configuration, namespaces=here)).jobs == []
    made(await jobs.api.delete(f"/api/v1/namespaces/{jobs.namespace}"))


async def test_what_is_deleted_meanwhile_is_no_failure(jobs: Jobs, configuration: Any) -> None:
    """A hook that failed for it would stop an upgrade."""
    await jobs.create(job("a"))
    (listed,) = (await list_jobs(configuration, namespaces=(jobs.namespace,))).jobs
    await jobs.patch("a", {"metadata": {"labels": {"changed": "since"}}})
    async with ClusterSession(configuration) as session:
        assert (await jobs.api.delete(jobs.path("a"), {"propagationPolicy": "Background"})).status == 200
        ended = await release_one(Objects(session), asyncio.Semaphore(1), listed, "me")
    assert (ended.error, ended.gone) == ("", True)


async def test_what_is_edited_all_the_time_is_released(jobs: Jobs, configuration: Any) -> None:
    """Each try met a conflict: whoever may edit his Job kept `jobs release --all` and `uninstall` from success."""
    edits = count()

    async def edit() -> None:
        while True:
            await jobs.patch("a", {"metadata": {"annotations": {"edited": str(next(edits))}}})

    await jobs.create(job("a"))
    editing = [asyncio.create_task(edit()) for _ in range(8)]
    try:
        (ended,) = await release(configuration, "a", by="me", namespaces=(jobs.namespace,))
    finally:
        for each in editing:
            each.cancel()
        await asyncio.gather(*editing, return_exceptions=True)
    assert (ended.error, (await jobs.get("a"))["spec"]["suspend"]) == ("", False)


async def test_whoever_may_not_list_is_told_so(kubernetes: Server) -> None:
    configuration = find_place(None, str(kubernetes.kubeconfig("nobody")), None, None).configuration
    with pytest.raises(JobsError, match=r"can't list jobs\.batch in all namespaces: 403"):
        await list_jobs(configuration)


async def test_kinds_that_one_may_not_list_are_left_out_and_named(
    real_api: Api, kubernetes: Server, jobs: Jobs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who may edit a namespace has no right on custom resources there; what the server does not have is not missed."""
    group, here = fresh_group(), (jobs.namespace,)
    await establish(real_api, definition(group))
    things, absent = (AdmissibleKind(f"{group}/v1", kind, kind.lower() + "s") for kind in ("Thing", "Other"))
    await real_api.until(f"{things.path}/things", lambda listed: "items" in listed)
    elsewhere = AdmissibleKind(f"no.{group}/v1", "Thing", "things")
    kinds = (JOB, things, absent, elsewhere)
    nobody = kubernetes.kubeconfig("nobody").read_text()
    own = tmp_path / "editor.kubeconfig"
    own.write_text(nobody.replace(kubernetes.token("nobody"), await editor(real_api, jobs.namespace)))
    configuration = find_place(None, str(own), None, None).configuration
    for name in ("a", "b"):
        await jobs.create(job(name))

    found = await list_jobs(configuration, namespaces=here, kinds=kinds)
    assert [each.name for each in found.jobs] == ["a", "b"]
    assert [(each.resource, each.where) for each in found.unlisted] == [(things.resource, jobs.namespace)]
    with pytest.raises(JobsError, match=f"nothing of the name c waits.*can't list {things.resource}"):
        await release(configuration, "c", by="me", namespaces=here, kinds=kinds)
    assert [each.error for each in await release(configuration, "a", by="me", namespaces=here, kinds=kinds)] == [""]
    let_go, missed = await release(configuration, by="me", namespaces=here, kinds=kinds)
    assert (let_go.error, missed.label) == ("", f"{things.resource} in {jobs.namespace}")
    assert "403" in missed.error
    resource = f"{group}/v1, kind: Thing, plural: things"
    file = written(tmp_path, DESCRIPTION.replace("example.com/v1, kind: Train, plural: trains", resource))
    words = ["jobs", "list", "--kubeconfig", str(own), "-n", jobs.namespace, "--kinds", str(file)]
    assert await asyncio.to_thread(run, words) == 0
    assert f"left out: can't list {things.resource} in {jobs.namespace}: 403" in capsys.readouterr().err
    assert await asyncio.to_thread(run, [*words, "--json"]) == 0
    (left_out,) = [
        each for each in json.loads(capsys.readouterr().out)["leftOut"] if each["resource"] == things.resource
    ]
    assert left_out["where"] == jobs.namespace
    assert await jobs.running() == ["a", "b"]


async def editor(api: Api, namespace: str) -> str:
    """Make an account that may edit a namespace; return its token."""
    accounts = of_core(namespace, "serviceaccounts")
    made(await api.post(accounts, {"metadata": {"name": "editor"}}))
    binding = {
        "metadata": {"name": "editor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "editor", "namespace": namespace}],
    }
    made(await api.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding))
    token: str = made(await api.post(f"{accounts}/editor/token", {"spec": {}}))["status"]["token"]
    return token
