"""Tasks without an object: a delete removes them at once; their status keeps who signalled or aborted them."""

from __future__ import annotations

from functools import partial
from typing import Any

from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.cluster.objects import read_spec
from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore
from backoff_ctrl.k8s.tasks.plugins.marks import FINALIZER
from tests.cluster.objects import made
from tests.cluster.talking import MERGE, Api
from tests.cluster.tasks.custom_resources.conftest import configured, managed, path, task
from tests.cluster.tasks.custom_resources.test_owning import gone

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def is_in(phase: str, found: dict[str, Any]) -> bool:
    return bool(found.get("status", {}).get("phase") == phase)


def of(type_: str, name: str, **spec: Any) -> dict[str, Any]:
    """A Task without a container."""
    return {**task(name), "spec": {"type": type_, **spec}}


async def test_a_task_without_an_object_has_no_finalizer(kind: Api, namespace: str) -> None:
    """It goes at once when it is deleted, and its plugin forgets it; a task of a pod is held, as ever."""
    async with managed(kind.server, namespace, registry()):
        for each in (of("signal", "go"), of("sleep", "nap", custom={"seconds": 3600}), task("train")):
            made(await kind.post(path(namespace), each))
        for name, phase in (("go", "Paused"), ("nap", "Running"), ("train", "Queued")):
            await kind.until(path(namespace, name), partial(is_in, phase))
        held = {
            name: (await kind.get(path(namespace, name))).json["metadata"].get("finalizers")
            for name in ("go", "nap", "train")
        }
        assert held == {"go": None, "nap": None, "train": [FINALIZER]}
        made(await kind.delete(path(namespace, "nap")))
        await gone(kind, path(namespace, "nap"))
        made(await kind.post(path(namespace), of("sleep", "nap", custom={"seconds": 0})))
        await kind.until(path(namespace, "nap"), lambda found: found.get("status", {}).get("phase") == "Success")


async def test_the_status_says_who_signalled_and_when(kind: Api, namespace: str) -> None:
    """The user by the API server's own word, or whom a server signals for; of a bare patch the program, if known."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    me = (await kind.post(REVIEW, review)).json["status"]["userInfo"]["username"]
    async with managed(kind.server, namespace, registry()):
        for name in ("mine", "hers", "bare"):
            made(await kind.post(path(namespace), of("signal", name)))
        async with ClusterStore(configured(kind.server), [namespace]) as store:
            await store.signal(namespace, "mine", True)
            await store.signal(namespace, "hers", True, "ada")
        made(await kind.patch(path(namespace, "bare"), {"spec": {"signal": True}}, MERGE))
        said: dict[str, str] = {}
        found: dict[str, Any] = {}
        for name in ("mine", "hers", "bare"):
            found = await kind.until(path(namespace, name), lambda found: found.get("status", {}).get("endedAt"))
            said[name] = found["status"]["reason"]
            given = read_spec(found).spec.get("signalled", {})
            assert given.get("at", "") in said[name]
    assert said["mine"].startswith(f"it was signalled by {me} at 2")
    assert said["hers"].startswith("it was signalled by ada at 2")
    known = [each for each in found["metadata"].get("managedFields", ()) if "f:signal" in str(each)]
    assert said["bare"].startswith("it was signalled by the program backoff-ctrl-tests at 2" if known else "it was sig")
    changed = await kind.patch(path(namespace, "mine"), {"spec": {"signalled": {"by": "bob"}}}, MERGE)
    assert changed.status == 422 or kind.server.certificate is None


async def test_the_status_says_who_asked_for_the_end_and_when(kind: Api, namespace: str) -> None:
    """As it says who signalled."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    me = (await kind.post(REVIEW, review)).json["status"]["userInfo"]["username"]
    async with managed(kind.server, namespace, registry()):
        for name in ("mine", "hers", "bare"):
            made(await kind.post(path(namespace), of("signal", name)))
        async with ClusterStore(configured(kind.server), [namespace]) as store:
            await store.request_abort(namespace, "mine")
            await store.request_abort(namespace, "hers", "ada")
        made(await kind.patch(path(namespace, "bare"), {"spec": {"abort": True}}, MERGE))
        said: dict[str, str] = {}
        found: dict[str, Any] = {}
        for name in ("mine", "hers", "bare"):
            found = await kind.until(path(namespace, name), lambda found: found.get("status", {}).get("endedAt"))
            assert found["status"]["phase"] == "Aborted"
            said[name] = found["status"]["reason"].partition("; ")[2]
            assert read_spec(found).spec.get("aborted", {}).get("at", "") in said[name]
    assert said["mine"].startswith(f"asked for by {me} at 2")
    assert said["hers"].startswith("asked for by ada at 2")
    known = [each for each in found["metadata"].get("managedFields", ()) if "f:abort" in str(each)]
    assert said["bare"].startswith("asked for by the program backoff-ctrl-tests at 2" if known else "")
    changed = await kind.patch(path(namespace, "mine"), {"spec": {"aborted": {"by": "bob"}}}, MERGE)
    assert changed.status == 422 or kind.server.certificate is None
