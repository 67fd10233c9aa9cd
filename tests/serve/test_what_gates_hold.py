"""What gates hold and estimate, in the documents of ``serve``: added up, never guessed, null where nobody tells."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.kit.gated_creates import pod
from tests.kit.scripted_server import Seen, scripted_server
from tests.serve.serving import serving, until
from tests.status.asking import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox

pytestmark = pytest.mark.long
AT = "2026-01-01T12:00:00.000Z"
SOON, LATE = "2026-01-01T12:01:00.000Z", "2026-01-01T12:05:00.000Z"
PAUSE = b'{"namespace": "team"}'


def ceiling(held: str, reserved: str = "0") -> dict[str, Any]:
    """The ceiling of 10 pods in ``team``, as a gate tells it."""
    return {
        "namespace": "team", "quota": "q", "resource": "pods", "limited": "10", "used": "0", "held": held,
        "reserved": reserved, "headroom": "0", "unsettled": "0", "kept": False, "source": "learned", "heard_at": AT,
        "block": None,
    }  # fmt: skip


def explained(verdict: str, estimated_at: str | None) -> dict[str, Any]:
    """What a gate says of a pod."""
    part: dict[str, Any] = {
        "part": "create",
        "verdict": verdict,
        "blockers": [],
        "estimated_at": estimated_at,
        "why": [],
    }
    footprint: dict[str, Any] = {"kind": "Pod", "estimated": False, "amounts": {}, "scopes": [], "parts": []}
    return {"as_of": AT, "verdict": verdict, "blockers": [], "estimated_at": estimated_at, "footprint": footprint,
            "parts": [part], "note": None}  # fmt: skip


def page(*items: Any) -> dict[str, Any]:
    """A list of one page."""
    return {"as_of": AT, "items": list(items), "next": None}


@contextmanager
def gate(held: str, reserved: str = "0", said: Callable[[], Any] = lambda: None) -> Iterator[str]:
    """A gate that holds so much, and explains every manifest so."""

    def answer(seen: Seen) -> tuple[int, Any]:
        path = seen.path.partition("?")[0]
        if path == "/v1/namespaces":
            return 200, page({"namespace": "team", "waiting": 0, "in_flight": 0, "holding": True})
        if path == "/v1/ceilings":
            return 200, page(ceiling(held, reserved))
        if path == "/v1/waiting":
            return 200, page()
        if path == "/v1/explain":
            found = said()
            return (500, {}) if found is None else (200, found)
        return 404, {}

    with scripted_server(answer) as script:
        yield script.url


@pytest.fixture(scope="module")
def sandbox() -> Iterator[BackgroundSandbox]:
    """``team`` has a quota of ten pods, all free."""
    with running_sandbox() as running:
        running.create_namespace("team")
        running.create_quota("team", "q", {"pods": "10"})
        yield running


@contextmanager
def served(sandbox: BackgroundSandbox, *gates: Any) -> Iterator[str]:
    """``serve`` before these gates, which it has asked."""
    with ExitStack() as stack:
        urls = [stack.enter_context(each) for each in gates]
        url = stack.enter_context(
            serving("--apiserver", sandbox.url, *(word for each in urls for word in ("--gate", each)))
        )
        until(lambda: ask(url, "/readyz").status == 200)
        until(lambda: ask(url, "/v1/namespaces").json["unreachable"] == [])
        yield url


def explain(url: str, pods: int = 1) -> dict[str, Any]:
    """Explain one pod, or a Job of so many."""
    template = {"spec": {"restartPolicy": "Never", **pod("x")["spec"]}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    body = json.dumps(pod("x") if pods == 1 else job).encode()
    found = ask(url, "/v1/explain?namespace=team", method="POST", body=body, Content_Type="application/json")
    assert found.status == 200, found
    document: dict[str, Any] = found.json
    return document


def test_headroom_is_what_all_gates_leave(sandbox: BackgroundSandbox) -> None:
    """Each gate knows only its own creates on their way: two that hold three each leave four of ten, not seven."""
    with served(sandbox, gate("3"), gate("2", "1")) as url:
        (item,) = ask(url, "/v1/ceilings?namespace=team").json["items"]
        assert (item["held"], item["reserved"], item["headroom"]) == ("5", "1", "4")
        until(lambda: [each["headroom"] for each in ask(url, "/v1/ceilings").json["items"]] == ["4"])
        assert "4 left" in ask(url, "/pieces/namespaces").body.decode()
        assert explain(url, 4)["parts"][1]["verdict"] == "now"
        pods = explain(url, 5)["parts"][1]
        assert (pods["verdict"], [each["left"] for each in pods["blockers"]]) == ("wait", ["4"])
        text = ask(url, "/metrics").body.decode()
        assert 'ceiling_used{namespace="team",resourcequota="q",resource="pods"} 0' in text
        for name in ("ceiling_held", "ceiling_reserved", "ceiling_headroom"):
            assert name not in text, "what gates expose would be counted twice"


@pytest.mark.parametrize("wait", [{"waiting": 1}, {"block": {"state": "shut", "attempts": 1, "next_probe_at": LATE}}])
def test_a_limit_of_0_is_full_where_a_create_asks_for_it(wait: dict[str, Any]) -> None:
    """Else it forbids a kind, and says nothing of how full a namespace is: a limit of 0 Services beside ten pods."""
    asked = threading.Event()

    def answer(seen: Seen) -> tuple[int, Any]:
        path = seen.path.partition("?")[0]
        if path == "/v1/namespaces":
            return 200, page({"namespace": "barred", "waiting": 0, "in_flight": 0, "holding": True})
        if path == "/v1/ceilings":
            none = {**ceiling("0"), "namespace": "barred", "resource": "services", "limited": "0"}
            return 200, page({**none, **(wait if asked.is_set() else {})})
        if path == "/v1/waiting":
            return 200, page()
        return 404, {}

    def fullest(url: str) -> float:
        return float(next(each["fullest"] for each in ask(url, "/v1/namespaces").json["items"]))

    with running_sandbox() as sandbox, scripted_server(answer) as script:
        sandbox.create_namespace("barred")
        sandbox.create_quota("barred", "q", {"services": "0", "pods": "10"})
        with serving("--apiserver", sandbox.url, "--gate", script.url) as url:
            until(lambda: ask(url, "/readyz").status == 200)
            until(lambda: fullest(url) == 0)
            assert "none full" in ask(url, "/pieces/state").body.decode()
            cards = ask(url, "/pieces/namespaces").body.decode()
            assert cards.index(">pods<") < cards.index(">services<")
            assert ' full"' not in cards
            asked.set()
            until(lambda: fullest(url) == 1)
            until(lambda: "1 full" in ask(url, "/pieces/state").body.decode())
            cards = ask(url, "/pieces/namespaces").body.decode()
            assert cards.index(">services<") < cards.index(">pods<")
            assert cards.count(' full"') == 2  # its card, and its bar


def test_without_a_gate_nothing_is_said_to_be_held(sandbox: BackgroundSandbox) -> None:
    """Null and a sentence in every document, on the page and in the metrics; no 0."""
    with served(sandbox) as url:
        for path in ("ceilings", "namespaces", "gates", "waiting", "overload", "policy"):
            assert ask(url, f"/v1/{path}").json["note"].startswith("no gate connected"), path
        (item,) = ask(url, "/v1/ceilings").json["items"]
        assert (item["held"], item["reserved"], item["kept"], item["headroom"]) == (None, None, None, "10")
        assert item["waiting"] is None
        assert ask(url, "/v1/waiting").json["items"] == []
        nobody = ask(url, "/v1/requests/x")
        assert (nobody.status, nobody.json["detail"].startswith("no gate connected")) == (404, True)
        acting = ask(url, "/v1/actions/pause", method="POST", body=PAUSE, Content_Type="application/json")
        assert (acting.status, acting.json["detail"].startswith("no gate connected")) == (409, True)
        found = explain(url)
        assert (found["verdict"], found["estimated_at"]) == ("now", None)
        assert found["note"].startswith("no gate connected")
        assert "no gate connected" in ask(url, "/").body.decode()
        text = ask(url, "/metrics").body.decode()
        for name in ("ceiling_held", "ceiling_reserved", "ceiling_headroom", "waiting", "in_flight"):
            assert f"backoff_ctrl_{name}" not in text


def test_estimates_are_those_of_the_gates(sandbox: BackgroundSandbox) -> None:
    """A line makes a create wait that would fit; where one of the lines has no estimate, nobody has one."""
    wait, now = explained("wait", SOON), explained("now", None)
    said: list[Any] = [None, None]
    with served(sandbox, gate("0", said=lambda: said[0]), gate("0", said=lambda: said[1])) as url:
        for told, verdict, estimated_at in (
            ((wait, explained("wait", LATE)), "wait", LATE),
            ((wait, explained("wait", None)), "wait", None),
            ((wait, now), "wait", SOON),
            ((now, explained("unknown", None)), "now", None),
            ((None, now), "now", None),
            (({"no": "explanation"}, wait), "wait", SOON),
        ):
            said[:] = told
            found = explain(url)
            assert (found["verdict"], found["estimated_at"]) == (verdict, estimated_at), told
            assert ("others wait already" in (found["note"] or "")) == (verdict == "wait"), told
            silent = told[0] is None or "no" in told[0]
            assert ("gates that do not answer are left out" in (found["note"] or "")) == silent, told


def test_what_is_no_gate_is_named_and_harms_nothing(sandbox: BackgroundSandbox) -> None:
    """Other JSON, no JSON, lists without end: each is said to be no gate, and the others are shown."""

    def endless(seen: Seen) -> tuple[int, Any]:
        return 200, {**page(), "next": "again"}

    odd = [{"items": [{"namespace": 5}], "next": None}, b"<html>", {"items": 3}, b"[" * 100_000]
    with ExitStack() as stack:
        urls = [stack.enter_context(scripted_server(endless)).url]
        urls += [stack.enter_context(scripted_server(lambda _, each=each: (200, each))).url for each in odd]  # type: ignore[misc]
        good = stack.enter_context(gate("3"))
        words = [word for each in (*urls, good) for word in ("--gate", each)]
        url = stack.enter_context(serving("--apiserver", sandbox.url, *words))
        until(lambda: {each["gate"] for each in ask(url, "/v1/gates").json["unreachable"]} == {*urls, good})
        until(lambda: [each["held"] for each in ask(url, "/v1/ceilings?namespace=team").json["items"]] == ["3"])
        for path in ("/", "/v1/waiting", "/v1/overload", "/v1/policy", "/v1/namespaces"):
            assert ask(url, path).status == 200, path
