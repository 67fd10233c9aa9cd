"""Whatever a client sends, the sandbox answers with a Status that blames the client, and keeps running."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox, Sandbox, running_sandbox
from tests.kit.patience import PATIENCE
from tests.sandbox.talking import APPLY, JSON_PATCH, MERGE, PODS, STRATEGIC, TEAM, ask, create, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=8,
)
PLACES = ["pods", "services", "persistentvolumeclaims", "resourcequotas", "limitranges", "configmaps", "secrets"]
FIELDS = ("metadata", "spec", "status", "kind", "apiVersion", "data")
SPECS = ("containers", "initContainers", "resources", "overhead", "tolerations", "affinity", "priorityClassName",
         "activeDeadlineSeconds", "nodeName", "terminationGracePeriodSeconds")  # fmt: skip
METADATA = (
    "name",
    "generateName",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "namespace",
    "managedFields",
)
CONTAINERS = ("name", "image", "resources", "ports", "restartPolicy", "env")


def objects(names: tuple[str, ...], below: st.SearchStrategy[Any] = ANYTHING) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of these fields, of any content."""
    return st.dictionaries(st.sampled_from(names), below, max_size=4)


RESOURCES = objects(("limits", "requests"), ANYTHING | objects(("cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi")))
CONTAINER = st.builds(lambda a, r: {"name": "c", "image": "i", **a, "resources": r}, objects(CONTAINERS), RESOURCES)
SPEC = st.builds(lambda s, c: {**s, "containers": c}, objects(SPECS), st.lists(CONTAINER, max_size=2) | ANYTHING)
BODIES = st.builds(
    lambda rest, metadata, spec: {**rest, "metadata": metadata, "spec": spec},
    objects(FIELDS), objects(METADATA) | ANYTHING, SPEC | ANYTHING,
) | ANYTHING  # fmt: skip
WORDS = st.sampled_from(
    ["/metadata/labels", "/spec", "add", "remove", "copy", "move", "test", "/spec/containers/0", ""]
)
OPERATIONS = st.lists(objects(("op", "path", "from", "value"), ANYTHING | WORDS), max_size=3)


@pytest.fixture(scope="module")
def server() -> Iterator[BackgroundSandbox]:
    """One server for all examples, with a quota that applies to every create."""
    with running_sandbox() as running:
        running.create_namespace("team")
        running.create_quota("team", "q", {"pods": "1000000", "requests.cpu": "1000000", "requests.storage": "1Ei"})
        yield running


def send(server: BackgroundSandbox, method: str, path: str, data: bytes, content_type: str = "") -> tuple[int, Any]:
    """Send one request with http.client: raw bytes, raw path."""
    import http.client  # noqa: PLC0415

    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=PATIENCE)
    connection.request(method, path, body=data, headers={"Content-Type": content_type or "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, text if "text/plain" in answer.headers["Content-Type"] else json.loads(text)


@given(body=BODIES, place=st.sampled_from(PLACES))
def test_any_json_as_a_body_is_created_or_refused(server: BackgroundSandbox, body: Any, place: str) -> None:
    """2xx or 4xx, never a server error."""
    code, answer = send(server, "POST", f"{TEAM}/{place}", json.dumps(body).encode())

    assert code in {201, 400, 403, 404, 409, 422}, answer
    assert answer["kind"]


@given(data=st.binary(max_size=60), kind=st.sampled_from(["application/json", "application/yaml", "text/plain", "x",
                                                          "application/vnd.kubernetes.protobuf"]))  # fmt: skip
def test_any_bytes_as_a_body_are_refused(server: BackgroundSandbox, data: bytes, kind: str) -> None:
    """Whether sent as JSON, YAML, protobuf or another type."""
    code, answer = send(server, "POST", PODS, data, kind)

    assert code in {400, 415, 422}, answer


@given(patch=BODIES | OPERATIONS, kind=st.sampled_from([MERGE, STRATEGIC, JSON_PATCH, APPLY]))
def test_any_json_as_a_patch_is_applied_or_refused(server: BackgroundSandbox, patch: Any, kind: str) -> None:
    """Each of the four patch types, on a pod and on its status."""
    send(server, "POST", PODS, json.dumps(pod("patched")).encode())
    for subresource in ("", "/status"):
        path = f"{PODS}/patched{subresource}?fieldManager=tests"
        code, answer = send(server, "PATCH", path, json.dumps(patch).encode(), kind)
        assert code in {200, 201, 400, 403, 404, 409, 415, 422}, answer
    send(server, "PATCH", f"{PODS}/patched", b'{"metadata":{"finalizers":null}}', MERGE)
    send(server, "DELETE", f"{PODS}/patched?gracePeriodSeconds=0", b"")


@given(path=st.text(st.characters(codec="ascii", exclude_categories=["C"], exclude_characters=" #"), max_size=40),
       head=st.sampled_from(["/", "/api/", "/apis/", "/api/v1/", "/api/v1/namespaces/team/", "/apis/batch/v1/",
                             "/sandbox/", "/openapi/", "/api/v1/namespaces/team/pods?"]),
       method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"]))  # fmt: skip
def test_any_path_has_an_answer(server: BackgroundSandbox, head: str, path: str, method: str) -> None:
    """A document, an object, or a Status with a client error."""
    if "watch" in path:
        return
    code, answer = send(server, method, head + path, b"{}" if method in {"PUT", "POST"} else b"")

    assert code < 500, answer


async def test_a_body_above_the_limit_is_refused() -> None:
    """413, and the server keeps running."""
    async with Sandbox(largest_body=10_000) as sandbox, aiohttp.ClientSession(sandbox.url) as session:
        sandbox.create_namespace("team")
        code, answer = await ask(session, "POST", PODS, pod("x", annotations={"a": "x" * 20_000}))
        assert (code, answer["reason"]) == (413, "RequestEntityTooLarge")
        await create(session, pod("x"))


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        pytest.param(b"[" * 100_000, "application/json", id="nested-json"),
        pytest.param(b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "application/json", id="nested-objects"),
        pytest.param(b"a: &a [x]\nb: [*a, *a]\n", "application/yaml", id="aliases"),
        pytest.param(b"!!python/object/apply:os.system ['true']", "application/yaml", id="tags"),
        pytest.param(b"1" * 5_000, "application/json", id="long-number"),
        pytest.param(b"\xff\xfe", "application/json", id="no-text"),
    ],
)
async def test_what_could_grow_or_run_is_refused(
    session: aiohttp.ClientSession, body: bytes, content_type: str
) -> None:
    """400, at once."""
    code, answer = await ask(session, "POST", PODS, body, content_type=content_type)

    assert (code, answer["reason"]) == (400, "BadRequest")


async def test_it_listens_on_the_local_machine_by_default() -> None:
    """On 127.0.0.1, unless another host is given."""
    async with Sandbox() as sandbox:
        assert sandbox.url.startswith("http://127.0.0.1:")
