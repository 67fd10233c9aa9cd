"""Ceilings of quotas that ``serve`` may not watch: what gates have learned of them, named as theirs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.scripted_server import Seen, scripted_server
from tests.serve.serving import serving, until
from tests.status.asking import ask

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
    from tests.serve.conftest import Served

pytestmark = pytest.mark.long
EARLY, LATE = "2026-01-01T12:00:00.000Z", "2026-01-01T12:05:00.000Z"


def test_ceilings_that_gates_learned_fill_the_gaps(served: Served) -> None:
    """Only ``roomy`` is watched: the other namespaces are shown as the gates that were refused there know them."""
    first, second = (gate.url for gate in served.gates)
    with serving("--apiserver", served.sandbox.url, "-n", "roomy", "--gate", first, "--gate", second) as url:
        until(lambda: ask(url, "/readyz").status == 200)
        until(lambda: len(ask(url, "/v1/ceilings").json["items"]) == 3)
        every = ask(url, "/v1/ceilings").json["items"]
        shown = [(each["namespace"], each["source"], each["used"], each["limited"]) for each in every]
        assert shown == [
            ("other", "learned", "1", "1"), ("roomy", "observed", "1", "10"), ("team", "learned", "1", "1"),
        ]  # fmt: skip
        assert every[0]["gate_url"] == second
        assert every[1]["gate_url"] is None
        assert every[2]["gate_url"] in (first, second)
        assert [each["namespace"] for each in ask(url, "/v1/ceilings?quota=q&resource=pods").json["items"]] == [
            "other", "roomy", "team",
        ]  # fmt: skip
        assert ask(url, "/v1/ceilings?namespace=team&resource=requests.cpu").json["items"] == []
        assert _paged(url, "/v1/ceilings") == ["other", "roomy", "team"]
        assert _paged(url, "/v1/namespaces") == ["other", "roomy", "team"]
        (team,) = [each for each in ask(url, "/v1/namespaces").json["items"] if each["namespace"] == "team"]
        assert (team["quotas"], team["fullest"], team["waiting"]) == (1, 1.0, 3)
        until(lambda: ask(url, "/pieces/namespaces").body.decode().count("told by a gate") == 2)
        assert "2 full" in ask(url, "/pieces/state").body.decode()


def test_what_is_watched_is_never_a_gates_word(filled: BackgroundSandbox) -> None:
    """A gate tells of a full quota, of one that is gone, and of many elsewhere: the watch has the last word."""
    elsewhere = [f"far-{number:03}" for number in range(120)]
    told = [_ceiling("roomy", "q", EARLY), _ceiling("roomy", "gone", EARLY)]
    told += [_ceiling(name, "q", EARLY) for name in elsewhere]

    def answer(seen: Seen) -> tuple[int, Any]:
        path = seen.path.partition("?")[0]
        names = [{"namespace": name, "quotas": 1, "waiting": 0, "in_flight": 0} for name in ["roomy", *elsewhere]]
        items = {"/v1/namespaces": names, "/v1/ceilings": told}.get(path)
        return (404, {}) if items is None else (200, {"as_of": EARLY, "items": items, "next": None})

    def newer(seen: Seen) -> tuple[int, Any]:
        status, found = answer(seen)
        if status == 200 and seen.path.startswith("/v1/ceilings"):
            found["items"] = [_ceiling("far-007", "q", LATE, "7")]
        return status, found

    with ExitStack() as stack:
        old, new = (stack.enter_context(scripted_server(each)).url for each in (answer, newer))
        url = stack.enter_context(serving("--apiserver", filled.url, "-n", "roomy", "--gate", old, "--gate", new))
        until(lambda: ask(url, "/readyz").status == 200)
        until(lambda: len(ask(url, "/v1/ceilings?limit=1000").json["items"]) == 121)
        (roomy,) = ask(url, "/v1/ceilings?namespace=roomy").json["items"]
        assert (roomy["quota"], roomy["source"], roomy["used"], roomy["gate_url"]) == ("q", "observed", "1", None)
        until(lambda: [each["used"] for each in ask(url, "/v1/ceilings?limit=1000").json["items"][7:8]] == ["7"])
        seventh = ask(url, "/v1/ceilings?limit=1000").json["items"][7]
        assert (seventh["heard_at"], seventh["gate_url"]) == (LATE, new), "the gate that heard of it last"
        assert _paged(url, "/v1/ceilings", 50) == [*elsewhere, "roomy"]


def _ceiling(namespace: str, quota: str, heard_at: str, used: str = "9") -> dict[str, Any]:
    return {
        "namespace": namespace, "quota": quota, "resource": "pods", "limited": "9", "used": used, "held": "0",
        "reserved": "0", "headroom": "0", "unsettled": "0", "kept": False, "source": "learned", "heard_at": heard_at,
        "block": None,
    }  # fmt: skip


def _paged(url: str, path: str, limit: int = 1) -> list[str]:
    """The namespaces of a list, page by page."""
    found: list[str] = []
    after = ""
    while True:
        page = ask(url, f"{path}?limit={limit}{after}").json
        assert len(page["items"]) <= limit
        found += [each["namespace"] for each in page["items"]]
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"
