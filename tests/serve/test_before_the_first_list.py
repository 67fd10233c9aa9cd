"""What ``serve`` says of gates between its first line and its first list of their pods: that it does not know yet."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from backoff_ctrl.api.status.gate import Ways
from backoff_ctrl.api.status.gates import Gates, Merged
from backoff_ctrl.api.status.gates_found import Finder
from backoff_ctrl.k8s.kube.cluster.asking import Reach
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from tests.kit.gated_creates import pod
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import Reply, Seen, scripted_server
from tests.serve.serving import serving, until
from tests.status.asking import ask

if TYPE_CHECKING:
    from collections.abc import Callable

FIND = ("--gates-in", "platform")
GATE: dict[str, Any] = {
    "metadata": {"namespace": "platform", "name": "gate", "annotations": {"backoff-ctrl.dev/status-port": "1"}},
    "status": {"phase": "Running", "podIP": "127.0.0.1"},
}


def cluster(listed: threading.Event, pods: Callable[[], Reply]) -> Callable[[Seen], Reply]:
    """A cluster that lists the pods of a namespace only once ``listed`` is set."""

    def answer(seen: Seen) -> Reply:
        path = urlsplit(seen.path).path
        if path.endswith("/platform/pods"):
            assert listed.wait(PATIENCE)
            return pods()
        if path == "/version":
            return 200, {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
        if "watch=" in seen.path:
            return 200, iter([])
        if seen.method == "POST":
            return 201, {"status": {"allowed": True}}
        return 200, {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []}

    return answer


@pytest.mark.long
@pytest.mark.parametrize("found", [[GATE], []], ids=["one", "none"])
def test_it_does_not_say_that_there_is_none_before_it_has_looked(found: list[Any]) -> None:
    """In lists, in explanations, on the page and in ``/readyz``; then it says what it has found."""
    listed = threading.Event()
    answer = cluster(listed, lambda: (200, {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": found}))
    manifest = json.dumps({**pod("p"), "metadata": {"name": "p", "namespace": "team"}}).encode()
    with (
        scripted_server(answer) as server,
        serving("--apiserver", server.url, "--gates-in", "platform", quiet=False) as url,
    ):
        try:
            for path in ("waiting", "gates", "ceilings", "namespaces"):
                said = ask(url, f"/v1/{path}").json["note"]
                assert said.startswith("gates are still being looked for: the pods of namespace platform"), said
            told = ask(url, "/v1/explain", method="POST", body=manifest, Content_Type="application/json")
            assert "still being looked for" in (told.json["note"] or ""), told.json
            assert "no gate connected" not in told.json["note"]
            page = ask(url, "/").body.decode()
            assert "looking for gates in platform" in page
            assert "no gate connected" not in page.lower()
            ready = ask(url, "/readyz")
            assert (ready.status, "gates in platform: not listed yet" in ready.body.decode()) == (503, True)
        finally:
            listed.set()
        until(lambda: "not listed yet" not in ask(url, "/readyz").body.decode())
        note = ask(url, "/v1/waiting").json["note"]
        assert note is None if found else note.startswith("no gate connected")


@pytest.mark.long
def test_a_list_that_is_refused_ends_the_search() -> None:
    """It says why none can be found, and is ready: nobody would wait for a right that nobody gives."""
    listed = threading.Event()
    listed.set()
    answer = cluster(listed, lambda: (403, {"kind": "Status", "status": "Failure", "code": 403, "message": "no"}))
    with (
        scripted_server(answer) as server,
        serving("--apiserver", server.url, "--gates-in", "platform", quiet=False) as url,
    ):
        until(lambda: "no gates can be found in platform" in ask(url, "/").body.decode())
        assert ask(url, "/v1/waiting").json["note"].startswith("no gate connected")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_list_that_fails_does_not_end_the_search(status: int) -> None:
    """Of several namespaces each is searched until its pods are listed, or refused."""
    answers: dict[str, Reply] = {
        "platform": (status, {"kind": "Status", "status": "Failure", "code": status, "message": "no"}),
        "team": (403, {"kind": "Status", "status": "Failure", "code": 403, "message": "no"}),
    }
    with scripted_server(lambda seen: answers[urlsplit(seen.path).path.split("/")[4]]) as server:
        reach = Reach(find_place(server.url, None, None, None))
        async with Gates([], Merged(), Ways(), lambda _: False) as gates:
            finder = Finder(reach, ["platform", "team"], gates)
            await finder.look()
            assert (gates.unlisted, set(finder.why)) == ({"platform"}, {"platform", "team"})
            assert gates.note() is not None
            assert str(gates.note()).startswith("gates are still being looked for: the pods of namespace platform have")
            answers["platform"] = (200, {"kind": "PodList", "metadata": {}, "items": []})
            await finder.look()
            assert gates.unlisted == set()
            assert str(gates.note()).startswith("no gate connected")
