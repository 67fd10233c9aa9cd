"""A create is a create however its request line spells it: our reading against what a real API server stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.creates.calls import read_collection
from backoff_ctrl.k8s.proxy.holding.settings import patience_of
from backoff_ctrl.k8s.proxy.http.requests import Part, RequestReader
from backoff_ctrl.k8s.replay.virtual_time import run_virtual
from tests.proxying.holding.in_memory import PODS, held, name_of, pod, proxied
from tests.spellings import TARGETS, Spelling, recorded

if TYPE_CHECKING:
    from backoff_ctrl.k8s.proxy.http.messages import Head

SPELLINGS = recorded()
UNKNOWN = {"/api/v1/namespaces/TEAM/pods"}
"""Refused because there is no such namespace, which only the server knows."""
named = pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.target)


def received(target: str) -> Head | None:
    """The head of a create with this target, as the sidecar's listener reads it; None: it is refused there."""
    reader = RequestReader()
    reader.feed(f"POST {target} HTTP/1.1\r\nHost: server\r\nContent-Length: 0\r\n\r\n".encode())
    kind, asked = reader.parts[0]
    return asked.head if kind is Part.HEAD else None  # type: ignore[union-attr]


def test_every_spelling_is_on_record() -> None:
    """In its order; at least 60, of which 30 are stored."""
    assert [spelling.target for spelling in SPELLINGS] == list(TARGETS)
    assert sum(spelling.outcome == "stored" for spelling in SPELLINGS) >= 30


@named
def test_the_sidecar_holds_what_the_server_stores_and_nothing_else(spelling: Spelling) -> None:
    """What is only tried, or refused, never waits."""

    async def check() -> None:
        async with proxied() as proxy:
            proxy.holding._kinds.add("team", "jobs.batch")
            head = received(spelling.target)
            reads = head is not None and proxy.holding.reads(head)
            assert reads is (spelling.outcome == "stored" or spelling.target in UNKNOWN)

    run_virtual(check())


@named
def test_a_gated_client_reads_a_url_as_the_server_does(spelling: Spelling) -> None:
    """Behind the address of its server."""
    path = spelling.target.removeprefix("http://server").removeprefix("https://server")
    target = read_collection("https://host", f"https://host{path}")
    assert target is not None or spelling.outcome != "stored"
    assert target is None or spelling.outcome != "tried"
    if target is not None and spelling.outcome == "stored":
        assert (target.namespace, target.resource) in {("team", "pods"), ("team", "jobs.batch")}


@pytest.mark.parametrize(
    ("path", "found_at"),
    [
        (b"/api/v1/%6eamespaces%2fteam/%70ods", b"/api/v1/%6eamespaces%2fteam/%70ods/odd"),
        (PODS + b"%2f/", PODS + b"/odd"),
    ],
)
def test_an_odd_spelling_waits_and_is_found_again(path: bytes, found_at: bytes) -> None:
    """Its answer is lost: the object is looked up where the server has it."""

    async def check() -> None:
        async with proxied(1) as proxy:
            (name,) = await proxy.fill(1)
            proxy.watch()
            waiting = proxy.post(pod("odd"), target=path)
            await held(proxy, waiting)
            proxy.server.lost = 1
            await proxy.delete(name)
            assert name_of(await waiting) == "odd"
            assert [each.head.target for each in proxy.server.asked if each.head.method == b"GET"] == [found_at]

    run_virtual(check())


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        (b"timeout=4s", 2.0), (b"t%69meout=4s", 2.0), (b"x=1&timeout=%34s", 2.0), (b"timeout=4s;", 8.0),
        (b"timeout=%zz", 8.0), (b"timeout=4", 8.0), (b"", 8.0),
    ],
)  # fmt: skip
def test_a_callers_time_out_is_read_as_the_server_reads_it(query: bytes, seconds: float) -> None:
    """A value that Go drops limits nothing."""
    assert patience_of(PODS + b"?" + query, 8.0) == seconds
