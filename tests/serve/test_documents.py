"""What ``serve`` answers: the cluster's quotas as it observes them, and the lines of the gates as one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.status.bodies import BODY_MAX
from tests.kit.gated_creates import pod
from tests.kit.patience import PATIENCE
from tests.serve.serving import serving, until
from tests.status.asking import ask

if TYPE_CHECKING:
    from tests.serve.conftest import Served
    from tests.status.asking import Answer

MANIFEST: dict[str, Any] = {**pod("x"), "metadata": {"name": "x", "namespace": "team"}}


def explain(url: str, manifest: dict[str, Any], **headers: str) -> Answer:
    """POST a manifest."""
    body = json.dumps(manifest).encode()
    return ask(url, "/v1/explain", method="POST", body=body, Content_Type="application/json", **headers)


def whole(url: str, path: str, limit: int) -> list[Any]:
    """All pages of a list."""
    found: list[Any] = []
    after = ""
    while True:
        page = ask(url, f"{path}?limit={limit}" + (f"&after={quote(after)}" if after else ""))
        assert page.status == 200, page
        assert len(page.json["items"]) <= limit
        found += page.json["items"]
        after = page.json["next"]
        if after is None:
            return found


def test_quotas_are_observed_without_any_gate(alone: str) -> None:
    """Ceilings with filters, and which namespaces there are."""
    items = ask(alone, "/v1/ceilings?namespace=team").json["items"]
    assert [(each["quota"], each["resource"], each["used"], each["limited"], each["source"]) for each in items] == [
        ("q", "pods", "1", "1", "observed")
    ]
    assert ask(alone, "/v1/ceilings?resource=cpu").json["items"] == []
    seen = {each["namespace"]: each for each in ask(alone, "/v1/namespaces").json["items"]}
    assert {name: each["fullest"] for name, each in seen.items()} == {"other": 1.0, "roomy": 0.1, "team": 1.0}
    assert seen["team"]["watch"]["state"] == "watching quotas"


def test_without_a_gate_nothing_pretends_that_nothing_waits(alone: str) -> None:
    """Unknown is null, and an empty list says that no gate is connected."""
    found = ask(alone, "/v1/waiting").json
    assert (found["items"], found["note"]) == (
        [],
        "no gate connected: lines are in gates; start serve with --gate URL, or with --gates-in NAMESPACE to find them",
    )  # fmt: skip
    item = ask(alone, "/v1/namespaces").json["items"][0]
    assert (item["waiting"], item["oldest_since"], item["in_flight"]) == (None, None, None)
    assert ask(alone, "/v1/gates").json["items"] == []


def test_the_commands_pass_on_that_no_gate_is_connected(alone: str) -> None:
    """In words, and as a key of their JSON."""

    def said(*arguments: str) -> str:
        command = [sys.executable, "-m", "backoff_ctrl", *arguments, "--gate", alone]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout

    assert said("waiting").startswith("Who waits is not known: no gate connected: lines are in gates; ")
    for command in (("waiting", "--json"), ("ceilings", "--json"), ("top", "--json")):
        assert json.loads(said(*command))["note"].startswith("no gate connected")


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_the_lines_of_all_gates_are_one_list(served: Served, limit: int) -> None:
    """Page by page, whatever their length: each waiting create once."""
    items = whole(served.url, "/v1/waiting", limit)
    gates = [gate.source.name for gate in served.gates]
    assert [(each["namespace"], each["name"]) for each in items] == [
        ("team", "a"), ("team", "b"), ("other", "d"), ("team", "c")
    ]  # fmt: skip
    assert {each["gate"] for each in items} == set(gates)
    assert whole(served.url, "/v1/namespaces", limit) == whole(served.url, "/v1/namespaces", 100)
    assert whole(served.url, "/v1/ceilings", limit) == whole(served.url, "/v1/ceilings", 100)


def test_who_waits_in_one_namespace(served: Served) -> None:
    """Both gates are asked; namespaces sum up what each tells."""
    items = ask(served.url, "/v1/waiting?namespace=team").json["items"]
    assert [each["name"] for each in items] == ["a", "b", "c"]
    seen = {each["namespace"]: each["waiting"] for each in ask(served.url, "/v1/namespaces").json["items"]}
    assert seen == {"other": 1, "roomy": 0, "team": 3}


def test_one_request_wherever_it_waits(served: Served) -> None:
    """The gate that knows it answers."""
    item = ask(served.url, "/v1/waiting?namespace=other").json["items"][0]
    found = ask(served.url, f"/v1/requests/{item['id']}")
    assert (found.status, found.json["state"], found.json["namespace"]) == (200, "waiting", "other")
    assert ask(served.url, "/v1/requests/nobody").status == 404


@pytest.mark.long
def test_a_gate_that_does_not_answer_is_named(served: Served) -> None:
    """The others are still shown, and the page of waiting creates says what it lacks."""
    closed = "http://127.0.0.1:9"
    with serving("--apiserver", served.sandbox.url, "--gate", closed, "--gate", served.gates[1].url) as url:
        until(lambda: ask(url, "/v1/namespaces").json["items"])
        page = ask(url, "/v1/waiting").json
        assert sorted(each["name"] for each in page["items"]) == ["c", "d"]
        (missing,) = page["unreachable"]
        assert missing["gate"] == closed
        assert "Connect" in missing["why"]
        assert [each["gate"] for each in ask(url, "/v1/gates").json["unreachable"]] == [closed]


def test_a_poll_that_finds_nothing_new_costs_no_body(served: Served) -> None:
    """``as_of`` does not count for the ETag."""
    for path in ("/v1/ceilings", "/v1/namespaces", "/v1/waiting?namespace=other"):
        headers = {name.lower(): value for name, value in ask(served.url, path).headers.items()}
        again = ask(served.url, path, If_None_Match=headers["etag"])
        assert (again.status, again.body) == (304, b""), path


def test_explain_knows_limit_ranges_and_what_waits(served: Served) -> None:
    """They are read when somebody asks, so the answer has no reservation about them."""
    assert explain(served.url, MANIFEST).json["verdict"] == "wait"
    roomy = {**MANIFEST, "metadata": {"name": "x", "namespace": "roomy"}}
    found = explain(served.url, roomy).json
    assert (found["verdict"], found["note"]) == ("now", None)
    served.sandbox.create_namespace("limited")
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
              "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}  # fmt: skip
    done = ask(served.sandbox.url, "/api/v1/namespaces/limited/limitranges", method="POST",
               body=json.dumps(limits).encode(), Content_Type="application/json")  # fmt: skip
    assert done.status == 201
    limited = {**MANIFEST, "metadata": {"name": "x", "namespace": "limited"}}
    assert explain(served.url, limited).json["verdict"] == "refused"


@pytest.mark.long
def test_explain_knows_the_extended_resources_of_device_classes() -> None:
    """A claim of two devices never fits in one, though the quota does not name its class."""
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
            "spec": {"extendedResourceName": "example.com/device"}}  # fmt: skip
    asked = [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
             "metadata": {"name": "c", "namespace": "devices"}, "spec": {"devices": {"requests": asked}}}  # fmt: skip
    with running_sandbox() as sandbox, serving("--apiserver", sandbox.url) as url:
        done = ask(sandbox.url, "/apis/resource.k8s.io/v1/deviceclasses", method="POST",
                   body=json.dumps(made).encode(), Content_Type="application/json")  # fmt: skip
        assert done.status == 201
        sandbox.create_namespace("devices")
        sandbox.create_quota("devices", "q", {"requests.example.com/device": "1"})
        until(lambda: explain(url, claim).json["verdict"] == "never")
        (blocker,) = explain(url, claim).json["blockers"]
    assert (blocker["resource"], blocker["asked"], blocker["limited"]) == ("requests.example.com/device", "2", "1")


@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ("/v1/ceilings?foo=1", "#/query/foo"),
        ("/v1/ceilings?limit=0", "#/query/limit"),
        ("/v1/ceilings?limit=1&limit=2", "#/query/limit"),
        ("/v1/waiting?after=!", "#/query/after"),
        ("/v1/waiting?after=WyJjZWlsaW5ncyIsMCwiYSIsImIiLCJjIl0", "#/query/after"),
        ("/v1/waiting?after=WyJtZXJnZWQiLDAsIm5vbnNlbnNlIl0", "#/query/after"),
        ("/v1/namespaces?namespace=team", "#/query/namespace"),
        ("/v1/holders", "#/query/namespace"),
        ("/v1/ceilings?namespace=%ff", "#/query"),
    ],
)
def test_a_bad_query_is_a_problem_with_a_pointer(served: Served, path: str, pointer: str) -> None:
    """RFC 9457, as a gate's own status has it."""
    found = ask(served.url, path)
    assert (found.status, found.headers["content-type"]) == (400, "application/problem+json"), found
    assert [each["pointer"] for each in found.json["errors"]] == [pointer]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("DELETE", "/v1/ceilings", 405)])
def test_every_error_is_a_problem(served: Served, method: str, path: str, status: int) -> None:
    """Also those of the framework."""
    found = ask(served.url, path, method=method)
    assert (found.status, found.headers["content-type"]) == (status, "application/problem+json")
    assert found.json["status"] == status


def test_what_was_posted_is_never_unchanged_and_an_empty_flag_is_none(served: Served) -> None:
    """Only what was read can be the same as before."""
    body = json.dumps({**pod("p"), "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "team"}}).encode()
    found = ask(
        served.url, "/v1/explain?confirm=", method="POST", body=body,
        Content_Type="application/json", If_None_Match="*",
    )  # fmt: skip
    assert (found.status, found.json["verdict"]) == (200, "wait")
    assert "confirmation" not in found.json or found.json["confirmation"] is None


def test_a_file_of_the_page_may_be_asked_for_anew(served: Served) -> None:
    """With a parameter that only keeps a copy from being used."""
    assert ask(served.url, "/files/page.css?v=2").status == 200


def test_a_body_that_is_too_large_is_not_read(served: Served) -> None:
    """The limit is that of a gate."""
    found = ask(served.url, "/v1/explain", method="POST", body=b" " * (BODY_MAX + 1), Content_Type="application/json")
    assert (found.status, found.json["errors"][0]["pointer"]) == (413, "#/body")


@pytest.mark.parametrize(
    ("body", "content_type", "status", "pointer"),
    [
        (b"{}", "text/plain", 415, "#/headers/Content-Type"),
        (b"", "application/json", 400, "#/body"),
        (b"[1]", "application/json", 400, "#/body"),
        (b"a: [", "application/yaml", 400, "#/body"),
        (b'{"metadata": {"namespace": "A/B"}}', "application/json", 400, "#/body/metadata/namespace"),
        (b'{"metadata": {"namespace": "team"}, "kind": "Pod", "apiVersion": "v1", "spec": {"containers": 5}}',
         "application/json", 422, "#/body/spec/containers"),
    ],
)  # fmt: skip
def test_a_bad_body_is_a_problem_with_a_pointer(
    served: Served, body: bytes, content_type: str, status: int, pointer: str
) -> None:
    """As at a gate."""
    found = ask(served.url, "/v1/explain", method="POST", body=body, Content_Type=content_type)
    assert (found.status, found.headers["content-type"]) == (status, "application/problem+json")
    assert [each["pointer"] for each in found.json["errors"]] == [pointer]


def test_holders_are_told(served: Served) -> None:
    """As the command tells them."""
    found = ask(served.url, "/v1/holders?namespace=team").json
    assert [each["owner"] for each in found["quotas"][0]["resources"][0]["holders"]] == ["Pod/first"]


def test_holders_of_what_is_not_there_are_a_404(served: Served) -> None:
    """Neither the namespace nor the quota; a path is no namespace."""
    for query, status, pointer in (
        ("namespace=nowhere", 404, "namespace"), ("namespace=team&quota=x", 404, "quota"),
        ("namespace=team/../x", 400, "namespace"),
    ):  # fmt: skip
        found = ask(served.url, f"/v1/holders?{query}")
        assert (found.status, found.json["errors"][0]["pointer"]) == (status, f"#/query/{pointer}")
    assert ask(served.url, "/pieces/holders?namespace=team/../x").status == 400


def test_metrics_are_those_of_the_cluster(served: Served) -> None:
    """``serve`` is no gate: nothing of it can be mistaken for one."""
    text = ask(served.url, "/metrics").body.decode()
    assert 'backoff_ctrl_ceiling_used{namespace="team",resourcequota="q",resource="pods"} 1' in text
    series = [line for line in text.splitlines() if not line.startswith("#")]
    assert f"backoff_ctrl_series {len(series)}" in series
    for name in ("gate_info", "creates_total", "waiting", "failed_open_total", "mode"):
        assert f"backoff_ctrl_{name}" not in text


def test_the_api_describes_itself(served: Served) -> None:
    """Each URL has an example, and its schema the keys of the answer."""
    described = ask(served.url, "/openapi.json").json
    for path in ("/v1/ceilings", "/v1/waiting", "/v1/namespaces"):
        content = described["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
        schema = described["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
        item = described["components"]["schemas"][schema["properties"]["items"]["items"]["$ref"].rpartition("/")[2]]
        given = ask(served.url, path).json["items"][0]
        assert given.keys() == item["properties"].keys(), path
        example = content["example"]["items"][0]  # FastAPI leaves nulls out
        assert {"namespace"} < example.keys() <= item["properties"].keys(), path
    assert "/" not in described["paths"]


@pytest.mark.long
def test_decisions_of_all_gates_are_one_stream(served: Served) -> None:
    """Numbered anew; who comes again goes on where it was."""
    import http.client  # noqa: PLC0415
    from urllib.parse import urlsplit  # noqa: PLC0415

    def listen(last: str, count: int) -> list[tuple[str, dict[str, Any]]]:
        connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=PATIENCE)
        connection.request("GET", "/v1/decisions", headers={"Last-Event-ID": last})
        response = connection.getresponse()
        assert response.getheader("content-type", "").startswith("text/event-stream")
        found: list[tuple[str, dict[str, Any]]] = []
        name = ""
        while len(found) < count:
            line = response.readline().decode().strip()
            if line.startswith("id: "):
                name = line.removeprefix("id: ")
            elif line.startswith("data: ") and name:
                found.append((name, json.loads(line.removeprefix("data: "))))
        connection.close()
        return found

    events = listen("before-0", 4)
    assert {(each["namespace"], each["name"]) for _, each in events if each["event"] == "waits"} <= {
        ("team", "a"), ("team", "b"), ("team", "c"), ("other", "d")
    }  # fmt: skip
    assert [each["seq"] for _, each in events] == [1, 2, 3, 4]
    assert listen(events[1][0], 2) == events[2:]
