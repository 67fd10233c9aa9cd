"""The live page: what it shows, and that it shows it safely."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.status.amounts import rounded
from tests.kit.gated_creates import pod
from tests.serve.serving import serving, until
from tests.status.asking import Crowd, ask

if TYPE_CHECKING:
    from tests.serve.conftest import Served


def text(url: str, path: str = "/") -> str:
    """A page, as HTML."""
    found = ask(url, path)
    assert (found.status, found.headers["content-type"]) == (200, "text/html; charset=utf-8")
    return found.body.decode()


def cards(page: str) -> list[str]:
    """The namespaces of the page, in order."""
    return re.findall(r'<h3><a href="/\?namespace=([^"]+)"', page)


def test_the_fullest_namespace_comes_first(served: Served) -> None:
    """With bars for each resource, and how many wait there."""
    page = text(served.url)
    assert cards(page) == ["other", "team", "roomy"]
    assert 'aria-label="pods of quota q: 100% used, 0 left"' in page
    assert '<rect class="used" width="10.0" height="8">' in page
    assert "1 waiting" in page.partition("namespace=team")[0]


def test_the_first_sentence_says_how_bad_it_is(served: Served) -> None:
    """How many namespaces are full, and how many creates wait: of all, or of the namespace that was chosen."""

    def as_listed(query: str, said: str) -> bool:  # creates of other tests may leave the line meanwhile
        count = len(ask(served.url, f"/v1/waiting{query}").json["items"])
        return glance(served.url, query).startswith(f"{said} · {count} creates wait, the longest ")

    until(lambda: as_listed("", "2 full of 3 namespaces"))
    until(lambda: as_listed("?namespace=team", "1 full of 1 namespace"))
    assert glance(served.url, "?namespace=roomy").startswith("none full of 1 namespace · nothing waits")


def glance(url: str, query: str = "") -> str:
    """What a person reads at the top."""
    return " ".join(re.sub("<[^>]+>", "", text(url, f"/pieces/state{query}")).split())


@pytest.mark.parametrize(
    ("amount", "resource", "shown"),
    [
        ("267008m", "limits.cpu", "267"),
        ("76912m", "limits.cpu", "76.9"),
        ("999999m", "limits.cpu", "999"),
        ("859818Mi", "limits.memory", "839Gi"),
        ("8754Mi", "limits.memory", "8.5Gi"),
        ("1234567", "requests.memory", "1.1Mi"),
        ("12", "requests.nvidia.com/gpu", "12"),
        ("123456789m", "pods", "123,456"),
        ("-1500m", "limits.cpu", "-1.5"),
        ("-21500m", "limits.cpu", "-21.5"),
        ("1234567n", "limits.cpu", "1234567n"),
        ("what?", "pods", "what?"),
        ("500m", "limits.cpu", "0.5"),
        ("1500m", "limits.cpu", "1.5"),
        ("1m", "limits.cpu", "0.001"),
    ],
)
def test_amounts_are_short_and_never_look_fuller_than_they_are(amount: str, resource: str, shown: str) -> None:
    """Rounded down; those that are short already stay exact."""
    assert rounded(amount, resource) == shown


@pytest.mark.parametrize(
    ("amount", "limit", "shown"),
    [("800Mi", "1Gi", "0.78Gi"), ("512Mi", "512Mi", "512Mi"), ("500Gi", "1Ti", "0.48Ti"), ("1", "1Ti", "1"),
     ("0", "1Gi", "0"), ("2Gi", "1Gi", "2Gi")],
)  # fmt: skip
def test_an_amount_has_the_unit_of_its_limit(amount: str, limit: str, shown: str) -> None:
    """So that both can be compared; what would vanish in it keeps its own."""
    assert rounded(amount, "limits.memory", limit) == shown


def test_header_cards_and_list_never_disagree(served: Served) -> None:
    """They are of one look, however fast creates come and go: also while the gates' counts are behind."""
    ends = threading.Event()
    quick: list[threading.Thread] = []

    def come_and_go() -> None:
        while not ends.is_set():
            quick.append(served.gates[0].wait_with(f"quick-{time.monotonic_ns()}", namespace="team", timeout=0.05))
            if len(quick) > 20:  # on a busy machine they leave later than they come: a page has room for 100
                quick.pop(0).join()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        counts = set()
        for _ in range(40):
            pieces = ask(served.url, "/pieces").json["pieces"]
            header = int(re.search(r"<b>(\d+)</b> creates? wait", pieces["state"])[1])  # type: ignore[index]
            badges = [int(each) for each in re.findall(r'class="badge">(\d+) waiting', pieces["namespaces"])]
            rows = pieces["waiting"].count("<tr>") - 1
            assert header == sum(badges) == rows
            counts.add(rows)
    finally:
        ends.set()
        thread.join()
    assert len(counts) > 1


def test_of_several_gates_each_place_names_its_own(served: Served) -> None:
    """Both have a first one in the line of team: 1, 2, 1 said nothing of whose line that is."""

    def as_on_the_page() -> bool:  # creates of other tests may leave the line meanwhile
        page = text(served.url, "/pieces/waiting?namespace=team")
        places = re.findall(r'class="place"[^>]*>(\d+)</span> <span class="kind">at ([^<]+)<', page)
        waiting = ask(served.url, "/v1/waiting?namespace=team").json["items"]
        firsts = [number for number, _ in places].count("1")
        return firsts == 2 and places == [(str(each["place"]), each["gate"]) for each in waiting]

    until(as_on_the_page)


def test_the_api_is_a_page_of_its_own(served: Served) -> None:
    """Every URL and object of the OpenAPI document; each link leads somewhere, and nothing is loaded from elsewhere."""
    page, api = text(served.url, "/api"), ask(served.url, "/openapi.json").json
    for path, operations in api["paths"].items():
        for method in operations:
            assert f'<h2 id="{method}{path}">' in page
    for name in api["components"]["schemas"]:
        assert f'<h3 id="{name}">' in page
    links = re.findall(r'href="([^"]+)"', page)
    assert {link[1:] for link in links if link[0] == "#"} <= set(re.findall(r' id="([^"]+)"', page))
    assert all(link[0] in "/#" for link in links)
    assert '<a href="/api">' in text(served.url)
    assert 'list of <a href="#Waiting">Waiting</a>' in page


@pytest.mark.long
def test_a_few_namespaces_leave_the_room_to_who_waits(served: Served) -> None:
    """Up to three; each quota has a chart of its last 15 minutes, in words, too."""
    page = text(served.url)
    assert '<main data-namespace="" class="few">' in page
    until(lambda: "the last 15 minutes: 1 used of 1, " in text(served.url, "/pieces/namespaces?namespace=team"))
    assert page.count('<svg class="chart"') in {0, 3}  # the first look may be to come
    until(lambda: re.search(r"of quota q, the last 15 minutes: 1 used of 1, (0 to )?[3-9] waiting", text(served.url)))


@pytest.mark.parametrize(
    ("query", "found"),
    [("?search=ROO", ["roomy"]), ("?search=o", ["other", "roomy"]), ("?namespace=team", ["team"]), ("?search=zzz", [])],
)
def test_one_finds_a_namespace(served: Served, query: str, found: list[str]) -> None:
    """By a part of its name, or by its whole name."""
    assert cards(text(served.url, "/" + query)) == found
    assert cards(text(served.url, "/pieces/namespaces" + query)) == found


def test_the_line_says_who_waits_for_what(served: Served) -> None:
    """Place, reason, what is in the way."""
    line = text(served.url, "/pieces/waiting?namespace=other")
    assert "<b>other/d</b>" in line
    assert "q pods asks 1, left 0" in line
    until(lambda: "other/d" in text(served.url, "/pieces/decisions?namespace=other"))
    assert "Pod/first" in text(served.url, "/pieces/holders?namespace=team")


@pytest.mark.long
def test_a_quota_with_room_is_not_called_well_while_creates_wait_for_more() -> None:
    """Not at the top of the page, not below a namespace, not in the document; once they are in, it is."""
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"requests.cpu": "5"})
        crowd = Crowd(sandbox)
        try:
            crowd.core.create_namespaced_pod("team", pod("large", "4"))
            for number in range(4):
                crowd.wait_with(f"more-{number}", manifest=pod(f"more-{number}", "2"))
            with serving("--apiserver", sandbox.url, "--gate", crowd.url) as url:
                until(lambda: ask(url, "/readyz").status == 200)
                until(lambda: "4 creates wait" in glance(url))
                assert glance(url).startswith("none full of 1 namespace, but 4 creates wait, the longest ")
                assert 'class="good">none full' not in text(url, "/pieces/state")
                found = ask(url, "/v1/holders?namespace=team").json
                assert (found["ok"], "Still 4 creates wait" in found["next"]) == (False, True), found["next"]
                assert "Still 4 creates wait" in text(url, "/pieces/holders?namespace=team")
                crowd.core.patch_namespaced_resource_quota("q", "team", {"spec": {"hard": {"requests.cpu": "50"}}})
                crowd.gate.ledger.hint_release("team")
                until(lambda: glance(url).startswith("none full of 1 namespace · nothing waits"))
                until(lambda: ask(url, "/v1/holders?namespace=team").json["next"].startswith("Nothing is wrong: "))
        finally:
            crowd.close()


def test_without_a_gate_the_page_says_so(alone: str) -> None:
    """It never says that nothing waits."""
    page = text(alone)
    assert page.count("No gate connected.") == 2
    assert "waiting</span>" not in page
    assert "Nothing waits" not in page


def test_what_a_create_says_of_itself_is_only_text(served: Served) -> None:
    """Names and labels of creates that wait were not checked by anybody yet."""
    manifest = pod("x")
    manifest["metadata"]["labels"] = {"note": "<script>alert(1)</script>", '"><img src=x>': "y"}
    served.gates[0].wait_with("x", namespace="team", manifest=manifest)
    line = text(served.url, "/pieces/waiting?namespace=team")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in line
    assert "<script" not in line
    assert "<img" not in line


def test_the_page_loads_nothing_from_elsewhere(served: Served) -> None:
    """Neither scripts nor styles, and none inline: the policy would refuse them."""
    page = text(served.url)
    loaded = re.findall(r'(?:src|href|action)="([^"]+)"', page)
    assert {"/files/page.css", "/files/page.js", "/files/icon.svg"} <= set(loaded)
    assert [each for each in loaded if not each.startswith(("/", "#"))] == []
    assert not re.search(r"<script>|<style|\sstyle=|\son\w+=", page)
    for name in ("page.css", "page.js"):
        file = ask(served.url, f"/files/{name}")
        assert file.status == 200
        assert b"http://" not in file.body
    icon = ask(served.url, "/files/icon.svg")  # its only URL is the name of the XML namespace
    assert (icon.status, icon.body.count(b"http")) == (200, 1)
    assert ask(served.url, "/files/page.html").status == 404
    assert ask(served.url, "/files/..%2fapp.py").status == 404
