"""The official Python client, synchronous and asynchronous, works with the sandbox unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kubernetes
import kubernetes.aio
import pytest
from kubernetes.dynamic import DynamicClient

from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox, running_sandbox
from tests.sandbox.talking import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.lab.sandbox import Sandbox


@pytest.fixture
def server() -> Iterator[BackgroundSandbox]:
    """A sandbox in its own thread, with room for two pods."""
    with running_sandbox(seed=3) as running:
        running.create_namespace("team")
        running.create_quota("team", "q", {"pods": "2"})
        yield running


@pytest.fixture
def client(server: BackgroundSandbox) -> Iterator[kubernetes.client.ApiClient]:
    """The synchronous client."""
    with kubernetes.client.ApiClient(kubernetes.client.Configuration(host=server.url)) as made:
        yield made


def test_the_synchronous_client_takes_a_pod_through_its_life(
    server: BackgroundSandbox, client: kubernetes.client.ApiClient
) -> None:
    """Create, read, list, patch, replace the status, delete."""
    api: Any = kubernetes.client.CoreV1Api(client)
    made = api.create_namespaced_pod("team", pod("x", labels={"app": "a"}))
    assert (made.metadata.name, made.status.phase) == ("x", "Pending")

    api.patch_namespaced_pod("x", "team", {"metadata": {"labels": {"more": "b"}}})
    found = api.list_namespaced_pod("team", label_selector="app=a,more in (b,c)")
    assert [each.metadata.name for each in found.items] == ["x"]
    current = api.read_namespaced_pod("x", "team")
    current.status.phase = "Running"
    assert api.replace_namespaced_pod_status("x", "team", current).status.phase == "Running"
    api.delete_namespaced_pod("x", "team")
    with pytest.raises(kubernetes.client.ApiException) as caught:
        api.read_namespaced_pod("x", "team")
    assert (caught.value.status, caught.value.reason) == (404, "Not Found")


def test_the_synchronous_client_gets_the_quota_refusal(client: kubernetes.client.ApiClient) -> None:
    """As an ApiException whose body is the Status."""
    api: Any = kubernetes.client.CoreV1Api(client)
    for name in ("a", "b"):
        api.create_namespaced_pod("team", pod(name))

    with pytest.raises(kubernetes.client.ApiException, match="exceeded quota: q") as caught:
        api.create_namespaced_pod("team", pod("c"))
    assert caught.value.status == 403


@pytest.mark.long
def test_the_synchronous_client_watches(client: kubernetes.client.ApiClient) -> None:
    """From the version of the list that it made."""
    api: Any = kubernetes.client.CoreV1Api(client)
    version = api.list_namespaced_pod("team").metadata.resource_version
    api.create_namespaced_pod("team", pod("x"))
    api.delete_namespaced_pod("x", "team")
    watch: Any = kubernetes.watch.Watch()
    seen = [
        (event["type"], event["object"].metadata.name)
        for event in watch.stream(api.list_namespaced_pod, "team", resource_version=version, timeout_seconds=1)
    ]

    assert seen == [("ADDED", "x"), ("MODIFIED", "x"), ("DELETED", "x")]


def test_the_other_apis_of_the_synchronous_client(client: kubernetes.client.ApiClient) -> None:
    """Jobs, custom objects, quotas, reviews."""
    batch: Any = kubernetes.client.BatchV1Api(client)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    batch.create_namespaced_job("team", {"metadata": {"name": "j"}, "spec": {"template": template}})
    assert batch.read_namespaced_job("j", "team").spec.backoff_limit == 6
    custom: Any = kubernetes.client.CustomObjectsApi(client)
    body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": {}}
    custom.create_namespaced_custom_object("ray.io", "v1", "team", "rayclusters", body)
    assert custom.get_namespaced_custom_object("ray.io", "v1", "team", "rayclusters", "r")["kind"] == "RayCluster"
    core: Any = kubernetes.client.CoreV1Api(client)
    quotas = core.list_resource_quota_for_all_namespaces()
    assert [each.status.hard for each in quotas.items] == [{"pods": "2"}]
    reviews: Any = kubernetes.client.AuthorizationV1Api(client)
    review = reviews.create_self_subject_access_review({"spec": {}})
    assert review.status.allowed


def test_the_dynamic_client_discovers_what_is_served(client: kubernetes.client.ApiClient) -> None:
    """And it can use server-side apply."""
    dynamic: Any = DynamicClient(client)
    maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}}
    maps.server_side_apply(body, namespace="team", field_manager="tests")

    assert maps.get(name="m", namespace="team").data.a == "1"


@pytest.mark.long
async def test_the_asynchronous_client_takes_a_pod_through_its_life(sandbox: Sandbox) -> None:
    """Create, watch, patch the status, delete."""
    configuration = kubernetes.aio.client.Configuration(host=sandbox.url)
    async with kubernetes.aio.client.ApiClient(configuration) as client:
        api: Any = kubernetes.aio.client.CoreV1Api(client)
        version = (await api.list_namespaced_pod("team")).metadata.resource_version
        await api.create_namespaced_pod("team", pod("x"))
        await api.patch_namespaced_pod_status("x", "team", {"status": {"phase": "Succeeded"}})
        await api.delete_namespaced_pod("x", "team")
        seen = []
        async with kubernetes.aio.watch.Watch() as watch:
            stream = watch.stream(api.list_namespaced_pod, "team", resource_version=version, timeout_seconds=1)
            async for event in stream:
                seen.append((event["type"], event["object"].status.phase))  # noqa: PERF401 - a stream

    done = "Succeeded"
    assert seen == [("ADDED", "Pending"), ("MODIFIED", done), ("MODIFIED", done), ("DELETED", done)]


async def test_the_asynchronous_client_gets_the_quota_refusal(sandbox: Sandbox) -> None:
    """As an exception with the status code and the body."""
    sandbox.create_quota("team", "q", {"pods": "0"})
    configuration = kubernetes.aio.client.Configuration(host=sandbox.url)
    async with kubernetes.aio.client.ApiClient(configuration) as client:
        api: Any = kubernetes.aio.client.CoreV1Api(client)
        with pytest.raises(kubernetes.aio.client.ApiException) as caught:
            await api.create_namespaced_pod("team", pod("x"))

    assert caught.value.status == 403
    assert "exceeded quota: q" in str(caught.value.body)
